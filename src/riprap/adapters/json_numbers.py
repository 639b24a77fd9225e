"""NaN and infinities in JSON, which are written as strings: JSON has no numbers for them, but Arrow's reader has."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa

from riprap.adapters.framing import RecordBlock
from riprap.machine_code import compiled

_QUOTE, _BACKSLASH, _COLON, _SPACE = (ord(c) for c in '"\\: ')
_NUMBERS = np.frombuffer(b"NaN-Infinity", np.uint8)


def bare_numbers(block: RecordBlock, schema: pa.Schema) -> RecordBlock | None:
    """Return a block in which ``"NaN"`` has no quotes where a floating number is wanted; None if none is."""
    wanted = [f.name for f in schema if pa.types.is_floating(f.type) or _holds_floats(f.type)]
    if not wanted:
        return None
    names = [json.dumps(name, ensure_ascii=False)[1:-1].encode() for name in wanted]
    ends = np.cumsum([len(name) for name in names])
    data = block.data.copy()
    _strip(data, block.starts, block.ends, np.frombuffer(b"".join(names), np.uint8), ends, _NUMBERS)
    return replace(block, data=data)


def _holds_floats(type: pa.DataType) -> bool:
    return bool(pa.types.is_list(type) and pa.types.is_floating(type.value_type))


@compiled(inline="always")
def _same(data, start, end, other, low, high):  # type: ignore[no-untyped-def]
    same = end - start == high - low
    for i in range(min(end - start, high - low)):
        same = same and data[start + i] == other[low + i]
    return same


@compiled(nogil=True)
def _strip(data, starts, ends, names, name_ends, numbers):  # type: ignore[no-untyped-def]
    """Put blanks for the quotes of NaN, Infinity and -Infinity, where they are values of the columns named."""
    for record in range(len(starts)):
        place, end = starts[record], ends[record]
        depth, wanted = 0, False
        while place < end:
            byte = data[place]
            if byte == ord("{") or byte == ord("["):
                depth += 1
            elif byte == ord("}") or byte == ord("]"):
                depth -= 1
            elif byte == _QUOTE:
                close = place + 1
                while close < end and data[close] != _QUOTE:
                    close += 2 if data[close] == _BACKSLASH else 1
                after = close + 1
                while after < end and data[after] <= _SPACE:
                    after += 1
                if depth == 1 and after < end and data[after] == _COLON:
                    wanted = False
                    for i in range(len(name_ends)):
                        low = name_ends[i - 1] if i else 0
                        wanted = wanted or _same(data, place + 1, close, names, low, name_ends[i])
                elif wanted and close < end:
                    for low, high in ((0, 3), (4, 12), (3, 12)):
                        if _same(data, place + 1, close, numbers, low, high):
                            data[place] = data[close] = _SPACE
                place = close
            place += 1
