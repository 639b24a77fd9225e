"""Read what can be read of many records: all at once if they are good, and ever fewer at once where they are not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from riprap.adapters.framing import Bytes, Places, RecordBlock
from riprap.machine_code import compiled

_WAYS = 16


@dataclass(slots=True)
class Salvaged:
    """The rows of the good records, in order, and what is wrong with the bad ones, by their index."""

    tables: list[pa.Table] = field(default_factory=list)
    good: list[Places] = field(default_factory=list)
    bad: dict[int, str] = field(default_factory=dict)


def salvage(
    chosen: Places,
    read: Callable[[Places], pa.Table],
    screen: Callable[[Places], Mapping[int, str]],
    *,
    at_most: int,
    into: Salvaged,
    screened: bool = False,
) -> None:
    """Read some records of a block.

    ``read`` gives a row for each record, or raises ArrowInvalid. Once it failed on ``at_most`` records or fewer,
    ``screen`` says which of them it would not take, and why. It may miss some, which are then found one by one.
    """
    if not len(chosen):
        return
    try:
        table = read(chosen)
    except pa.ArrowInvalid as error:
        if len(chosen) <= at_most and not screened:
            reasons = screen(chosen)
            into.bad.update(reasons)
            rest = chosen[~np.isin(chosen, list(reasons))]
            salvage(rest, read, screen, at_most=at_most, into=into, screened=True)
        elif len(chosen) == 1:
            into.bad[int(chosen[0])] = f"cannot be read: {str(error).splitlines()[0]}"
        else:
            # No smaller than can be screened: each try costs Arrow as much as some hundred records.
            ways = min(_WAYS, len(chosen) if screened else -(-len(chosen) // at_most))
            for part in np.array_split(chosen, ways):
                salvage(part, read, screen, at_most=at_most, into=into, screened=screened)
    else:
        into.tables.append(table)
        into.good.append(chosen)


def text_of(block: RecordBlock, chosen: Places) -> Bytes:
    """Return the bytes of some records, with a line break after each."""
    first, last = int(chosen[0]), int(chosen[-1])
    whole = last - first + 1 == len(chosen) and not block.gaps
    if whole and not (block.faults and any(first <= i <= last for i in block.faults)):
        return block.data[block.starts[first] : block.ends[last]]
    return join(block.data, block.starts[chosen], block.ends[chosen])[0]


def join(data: Bytes, starts: Places, ends: Places, *, separated: bool = True) -> tuple[Bytes, Places]:
    """Copy records one after another, with a line break after each or without; return also where each begins."""
    offsets = np.zeros(len(starts) + 1, np.int64)
    np.cumsum(ends - starts + separated, out=offsets[1:])
    # Arrow's memory was used before, and so is there already.
    joined = np.frombuffer(pa.allocate_buffer(int(offsets[-1])), np.uint8)
    _copy(data, starts, ends, separated, joined)
    return joined, offsets


@compiled(nogil=True)
def _copy(data, starts, ends, separated, joined):  # type: ignore[no-untyped-def]
    place = 0
    for record in range(len(starts)):
        size = ends[record] - starts[record]
        joined[place : place + size] = data[starts[record] : ends[record]]
        place += size
        if separated:
            joined[place] = 10
            place += 1
