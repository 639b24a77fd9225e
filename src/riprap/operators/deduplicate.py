"""Drop tuples of which one of the same key was put out shortly before.

Of each key the state has the number or the time of the tuple last put out, and no tuple. By a clock, times go when it
is past them. Numbers that lie too far back are swept out once there are many.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riprap.arrays import Ints
from riprap.durations import Duration
from riprap.graph.builder import Builder
from riprap.graph.checks import Here, Streams
from riprap.graph.operator import Needed, PassesOn, Traits, passed_on, typed
from riprap.graph.stream import Stream
from riprap.kernels.chunk import Chunk, order_numbers
from riprap.kernels.given import Given, Result
from riprap.machine_code import compiled
from riprap.operators.holding import ClockTimes, duration, named_column, of_column, timing
from riprap.protection import Policy
from riprap.state.keys import KeyTable, encode_keys, join_tables
from riprap.state.windows import Contents, gather, keys_in, make_page
from riprap.windows import span

_NO_TUPLE = pa.struct([])
Passed = npt.NDArray[np.bool_]
NewPages = dict[str, pa.RecordBatch]


@dataclass(frozen=True, slots=True, kw_only=True)
class Deduplicate(PassesOn):
    """Drops a tuple that one of the same key came out before: within a number of the stream's tuples, or a time."""

    TRAITS: ClassVar[Traits] = Traits(
        does="drops what was put out before",
        state=("when each key was last put out",),
        pages="blocks of keys",
        key="by; none if it counts tuples",
        stale="does not know what was put out since, and may put it out again",
    )

    kept_by_key = True

    by: tuple[str, ...]
    tuples: int | None = None
    time: int | None = None
    on: str | None = None

    @property
    def slots(self) -> tuple[str, ...]:
        return ("0",) if self.tuples is None else ("0", "count")

    @property
    def key(self) -> tuple[str, ...] | None:
        # The stream is counted in one place.
        return self.by if self.tuples is None else ()

    @property
    def undivided(self) -> tuple[str, str] | None:
        if self.tuples is None:
            return None
        return (
            "protect=rr.eventual(...) records windows one by one, and tuples= counts all of the stream in one",
            "Write time=..., or rr.checkpoint(every=...)",
        )

    def reads(self, needed: Needed) -> tuple[frozenset[str], ...]:
        return (passed_on(self, needed) | frozenset(self.by) | named_column(self.on),)

    def layout(self, needed: Needed) -> str:
        last = "number" if self.tuples is not None else f"time{of_column(self.on)}"
        return f"{last} by {typed(self.schema, self.by)}"

    def summary(self) -> str:
        within = f"{self.tuples} tuples" if self.tuples is not None else span(self.time)
        return f"by {', '.join(self.by)}, within {within}{of_column(self.on)}"

    def run(self, given: Given) -> Result:
        """Drop what was put out before; return also the new state pages."""
        (chunk,), needed = given.inputs, given.needed[self.name]
        passed, pages = (_by_number if self.tuples is not None else _by_time)(self, given, chunk)
        columns = {n: c for n, c in chunk.columns.items() if n in needed}
        return Result(outputs=(chunk.with_columns(columns).take(np.flatnonzero(passed)),), pages=pages)


def deduplicate(
    app: Builder,
    name: str,
    stream: Streams,
    *,
    by: str | Sequence[str],
    tuples: int | None = None,
    time: Duration | None = None,
    on: str | None = None,
    clock: Stream | None = None,
    protect: Policy | None = None,
) -> Stream:
    """Add a filter that drops a tuple if one of the same key was put out shortly before.

    That is among the ``tuples`` of the stream before it, or less than ``time`` before it, by column ``on`` or by
    ``clock``. By a clock a key is forgotten when its time is over; by a column it is kept for good, as only its own
    tuples tell its time.

    >>> app = rr.Application("demo")
    >>> calls = app.source("calls", rr.rows([], "number string, at timestamp"))
    >>> print(app.deduplicate("once", calls, by="number", time="10s", on="at"))
    stream 'once' (number string, at timestamp)
    """
    here = Here("Deduplicate", name, app, stream)
    inputs = here.port(stream)
    keys = here.keys(by, inputs)
    if not keys:
        raise here.error("it needs a key", "Give it by=, the columns that make two tuples the same")
    if (tuples is None) == (time is None):
        raise here.error(
            "it takes tuples= or time=, one of them", "Write tuples=1000, or time='10s', on='ts'"
        )
    if tuples is not None and (not isinstance(tuples, int) or isinstance(tuples, bool) or tuples < 1):
        raise here.error(f"tuples= is {tuples!r}", "Give it a whole number of at least 1")
    if tuples is not None and (on is not None or clock is not None):
        raise here.error("on= and clock= go with time=, not with tuples=", "Leave them out")
    return here.add(
        Deduplicate(
            **here.basics(inputs, protect=protect),
            schema=inputs.schema,
            clock=timing(here, inputs, on, clock) if time is not None else None,
            by=keys,
            tuples=tuples,
            time=duration(here, time) if time is not None else None,
            on=on,
        ),
    )


def _by_number(operator: Deduplicate, given: Given, chunk: Chunk) -> tuple[Passed, NewPages]:
    if not chunk.rows:
        return np.zeros(0, bool), {}
    pages, size = given.pages.get("0", ()), operator.tuples or 0
    keys, code = encode_keys([chunk.columns[k] for k in operator.by], chunk.rows)
    whole, _ = encode_keys([], 0)
    before = int(gather(given.pages.get("count", ()), whole, _NO_TUPLE).counters[0, 0])
    was = gather(pages, keys, _NO_TUPLE).counters[:, 0]
    passed, last = _pass_by_number(code, was, before, size)
    total = before + chunk.rows
    # What lies too far back already when the batch ends need not be kept at all.
    changed = np.flatnonzero((last != was) & (last > total - size))
    made = {"count": _page(whole, np.array([[total]]))}
    if sum(p.num_rows for p in pages) + len(changed) > 2 * size:
        made["0"] = _sweep(pages, keys.take(changed), last[changed], total - size)
    elif len(changed):
        made["0"] = _page(keys.take(changed), last[changed].reshape(-1, 1))
    return passed, made


def _sweep(pages: Sequence[pa.RecordBatch], keys: KeyTable, last: Ints, until: int) -> pa.RecordBatch:
    """Make a page of every key there is, in which those with numbers up to ``until`` hold nothing.

    It is no smaller than any older page, so it takes the place of all, and such keys go.
    """
    table, places = join_tables([keys, *(keys_in(p) for p in pages)])
    numbers = gather(pages, table, _NO_TUPLE).counters
    numbers[places[0], 0] = last
    return _page(table, np.where(numbers > until, numbers, 0))


def _by_time(operator: Deduplicate, given: Given, chunk: Chunk) -> tuple[Passed, NewPages]:
    length, clock = operator.time or 0, ClockTimes.of(given)
    touched = np.bincount(chunk.code, minlength=len(given.keys)) > 0
    if clock is not None and clock.ticks:
        touched[:] = True
    keys = given.keys.take(np.flatnonzero(touched))
    code = (np.cumsum(touched) - 1)[chunk.code]
    old = gather(given.pages.get("0", ()), keys, _NO_TUPLE, counters=2).counters
    time = clock.at(chunk) if clock is not None else order_numbers(chunk.columns[operator.on or ""])
    passed, known, last = _pass_by_time(code, time, old[:, 0] > 0, old[:, 1], length)
    if clock is not None and clock.ticks:
        known &= last + length > clock.time[-1]
    new = np.column_stack([known, np.where(known, last, 0)])
    changed = np.flatnonzero((new != old).any(axis=1))
    return passed, {"0": _page(keys.take(changed), new[changed])} if len(changed) else {}


def _page(keys: KeyTable, numbers: Ints) -> pa.RecordBatch:
    nothing = pa.Array.from_buffers(_NO_TUPLE, 0, [None])
    return make_page(keys, Contents(np.zeros(len(keys) + 1, np.int64), nothing, numbers))


@compiled(types=("i4[::1], i8[::1], i8, i8",))
def _pass_by_number(code, was, before, size):  # type: ignore[no-untyped-def]
    """Let a tuple pass unless one of its key did among the ``size`` before it; numbers count from 1, 0 is none."""
    passed, last = np.empty(len(code), np.bool_), was.copy()
    number = before
    for row in range(len(code)):
        number += 1
        k = code[row]
        passed[row] = last[k] == 0 or number - last[k] > size
        if passed[row]:
            last[k] = number
    return passed, last


@compiled
def _pass_by_time(code, time, was_known, was, length):  # type: ignore[no-untyped-def]
    """Let a tuple pass unless one of its key did less than ``length`` before it.

    Between two that pass, the newest time of a key is less than ``length`` after the first, so that alone need be kept.
    """
    passed, known, last = np.empty(len(code), np.bool_), was_known.copy(), was.copy()
    for row in range(len(code)):
        k = code[row]
        passed[row] = not known[k] or time[row] >= last[k] + length
        if passed[row]:
            known[k], last[k] = True, time[row]
    return passed, known, last
