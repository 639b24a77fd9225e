"""Match tuples of two ports, key by key.

A tuple first enters its own port's window, then meets the other port's window of its key, oldest tuple first. A null
key meets nothing, as in SQL. In an outer join a tuple that leaves its window unmatched is put out with nulls for the
other side; the left side's key then shows the key of whichever tuple there is, so that a bare key column is never null
for want of a tuple.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from riprap.arrays import Ints
from riprap.expressions import Expression, Scope, normalise, parse_condition, parse_select
from riprap.graph.builder import Builder
from riprap.graph.checks import Here, Streams
from riprap.graph.operator import Copies, Needed, Traits, read_by, schema_of, typed
from riprap.graph.stream import Stream
from riprap.kernels.chunk import Chunk, concatenate, no_marks, order_numbers
from riprap.kernels.evaluation import compute
from riprap.kernels.extents import LONG_AGO
from riprap.kernels.given import Given, Result, hash_part
from riprap.kernels.meetings import Happenings, Leaves, Meetings, Rules, meet, pairs_of, pieces
from riprap.kernels.sides import Side, Sides
from riprap.machine_code import compiled
from riprap.operators.pairing import Pairing, names_of_ports
from riprap.protection import Policy
from riprap.state.keys import KeyTable
from riprap.windows import Window

Outer = Literal["inner", "left", "full"]
# Pairs are made and tested so many at a time: a bound on memory, large enough to hide the cost of a call.
_PAIRS_AT_ONCE = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Join(Pairing):
    """Matches each tuple of a port with the other port's window of the same key."""

    TRAITS: ClassVar[Traits] = Traits(
        does="matches tuples of two ports",
        state=("the window's tuples", "the window's tuples"),
        pages="window groups",
        key="by",
        stale="holds tuples that lost input would have pushed out",
        punctuation="ends here",
    )
    # A null key meets nothing.
    keeps_null_keys, kept_by_key = False, True

    windows: tuple[Window, Window]
    where: Expression | None
    outer: Outer = "inner"

    @property
    def slots(self) -> tuple[str, ...]:
        return tuple(str(port) for port in (0, 1) if not self.windows[port].empty)

    @property
    def slides(self) -> frozenset[str]:
        return frozenset(slot for slot in self.slots if self.windows[int(slot)].counted)

    @property
    def depth(self) -> int:
        return 2 if self.clock is not None else 1

    def window_of(self, port: int) -> Window | None:
        return self.windows[port]

    def brings_about(self, port: int) -> bool:
        return not self.windows[1 - port].empty

    def unmeasured(self, *, marked: bool) -> Iterator[str]:
        if self.outer != "inner":
            yield f"{self.name}: unmatched tuples are counted as if they came out as they came in"

    @property
    def columns_read(self) -> frozenset[str]:
        return read_by(self.select) | (self.where.columns if self.where is not None else frozenset())

    def puts_out_unmatched(self, port: int) -> bool:
        """Say whether a tuple of a port that leaves without having matched is put out."""
        return self.outer == "full" or (self.outer == "left" and port == 0)

    def keeps_time(self, port: int) -> bool:
        """Say whether each tuple of a port is kept with its time."""
        return bool(self.windows[port].time)

    def time_column(self, port: int) -> str | None:
        """Return the column that tells the time of a port's tuples, if one does."""
        timed = self.clock is None and (self.keeps_time(0) or self.keeps_time(1))
        return self.windows[port].on if timed else None

    def reads(self, needed: Needed) -> tuple[frozenset[str], ...]:
        times = [self.time_column(port) for port in (0, 1)]
        return tuple(
            self.columns_of_port(port) | {*self.by, *((time,) if time is not None else ())}
            for port, time in enumerate(times)
        )

    def copies(self) -> Copies:
        found = {}
        for name, (port, column) in self._plain().items():
            # A side that is missing is null, but for the left one's key.
            missing = self.outer == "full" or (self.outer == "left" and port == 1)
            if not missing or (port == 0 and column in self.by):
                found[name] = self._same_as(port, column)
        return found

    def layout(self, needed: Needed) -> str:
        ports = []
        for port in (0, 1):
            extra = ["time"] if self.keeps_time(port) else []
            extra += ["matched"] if self.puts_out_unmatched(port) else []
            kept = [typed(self.schemas[port], self.kept_of_port(port)), *extra]
            ports.append(f"{self.windows[port]} of {', '.join(k for k in kept if k) or 'nothing'}")
        clock = " by a clock" if self.clock is not None else ""
        return f"{self.outer} by {', '.join(self.by)}{clock}: {'; '.join(ports)}"

    def summary(self) -> str:
        left, right = self.windows
        condition = f" where {self.where.sql}" if self.where else ""
        kind = "" if self.outer == "inner" else f"{self.outer} outer "
        return f"{kind}by {', '.join(self.by)}, {left} x {right}{condition}"

    def run(self, given: Given) -> Result:
        """Join a batch: its matches, and each port's new state page."""
        left, right = (_that_count(self, port, given) for port in (0, 1))
        happenings = Happenings.of(left, right, given.ticks)
        rules, kept = _rules(self), (self.kept_of_port(0), self.kept_of_port(1))
        sides = Sides.of(rules, kept, (left, right), given, wide=len(happenings.tick_time) > 0)
        meetings, leaves = meet(happenings, rules, sides.windows, _stamps(self, left, right))
        needed = given.needed[self.name]
        read = read_by(n for n in self.select if n.name in needed)
        chunks = []
        for matches in _matches(self, sides, happenings, meetings, leaves, given.keys):
            columns = _columns(self, sides, matches, read, given.keys)
            chunk = Chunk(columns, matches.event, matches.code)
            chunks.append(chunk.with_columns(compute(self.select, chunk, needed)))
        made = concatenate(chunks, self.schema)
        return Result(outputs=(_in_order(made, happenings, given, self.depth),), pages=sides.pages(rules))


def join(
    app: Builder,
    name: str,
    left: Streams,
    right: Streams,
    *,
    by: str | Sequence[str],
    windows: tuple[Window, Window],
    where: str | None = None,
    select: str,
    outer: Outer = "inner",
    clock: Stream | None = None,
    protect: Policy | None = None,
) -> Stream:
    """Add a join of two ports: each tuple meets the other port's window of the same key.

    Expressions call a port by its stream's name; one that has several streams is called ``left`` or ``right``.
    With ``outer`` ("left" or "full") a tuple that matched nothing is put out when it leaves its window, with nulls
    for the other port's columns. A bare key column is the left port's, and shows the key of the tuple there is.

    >>> app = rr.Application("demo")
    >>> sales = app.source("sales", rr.rows([], "item string, price bigint"))
    >>> offers = app.source("offers", rr.rows([], "item string, offer bigint"))
    >>> window = rr.sliding(tuples=1)
    >>> both = app.join("both", sales, offers, by="item", windows=(window, window), select="price, offer")
    >>> print(both)
    stream 'both' (price bigint, offer bigint)
    """
    here = Here("Join", name, app, left, right)
    ports = (here.port(left), here.port(right))
    keys = here.keys(by, *ports)
    if not keys:
        raise here.error("a join needs a key", "Give it by=, a column that both streams have")
    names = names_of_ports(here, (left, right), ("left", "right"))
    if outer not in get_args(Outer):
        raise here.error(f"outer= is {outer!r}", f"It is one of {', '.join(get_args(Outer))}")
    _check_windows(here, windows, [p.schema for p in ports])
    scope = Scope.qualified(dict(zip(names, (p.schema for p in ports), strict=True)), shared=frozenset(keys))
    with here:
        condition = parse_condition(where, scope, app.functions) if where is not None else None
        chosen = parse_select(select, scope, app.functions)
    ticking = any(w.ticking and not w.empty for w in windows)
    return here.add(
        Join(
            **here.basics(*ports, protect=protect),
            schema=schema_of(chosen),
            clock=here.clock(clock, needed=ticking, why="its window"),
            by=keys,
            names=names,
            schemas=tuple(p.schema for p in ports),
            windows=windows,
            where=condition,
            select=chosen,
            outer=outer,
        ),
    )


def _check_windows(here: Here, windows: tuple[Window, Window], schemas: Sequence[pa.Schema]) -> None:
    if not (isinstance(windows, tuple) and len(windows) == 2 and all(isinstance(w, Window) for w in windows)):
        raise here.error(
            f"windows= takes two windows, got {windows!r}", "Write (rr.sliding(...), rr.sliding(...))"
        )
    for window, schema in zip(windows, schemas, strict=True):
        here.window(window, schema, shape="sliding")
        if window.delta is not None:
            raise here.error(f"its window is {window}", "A join's windows are by tuples= or time=")
    if windows[0].empty and windows[1].empty:
        raise here.error("both windows are of size 0, so no tuple can ever meet another", "Give one a size")
    if len({w.ticking for w in windows if w.time}) > 1:
        raise here.error("one window is by a clock's time and one by a column's", "Measure both alike")


@dataclass(frozen=True, slots=True)
class Matches:
    """Pairs in order, and unmatched rows among them, whose other side is -1: rows, event, and code of the key."""

    left: Ints
    right: Ints
    event: Ints
    code: npt.NDArray[np.int32]

    def keep(self, mask: npt.NDArray[np.bool_]) -> Matches:
        return Matches(self.left[mask], self.right[mask], self.event[mask], self.code[mask])


def _that_count(operator: Join, port: int, given: Given) -> Chunk:
    """Leave out tuples that can do nothing: with a null key, unless they are to be put out as unmatched."""
    chunk, has_null = given.inputs[port].without_marks(), given.keys.has_null
    if operator.puts_out_unmatched(port) or not has_null.any():
        return chunk
    return chunk.take(np.flatnonzero(~has_null[chunk.code]))


def _rules(operator: Join) -> Rules:
    left, right = operator.windows
    return Rules(
        empty=(left.empty, right.empty),
        by_time=(operator.keeps_time(0), operator.keeps_time(1)),
        size=(left.tuples or left.time or 0, right.tuples or right.time or 0),
        outer=(operator.puts_out_unmatched(0), operator.puts_out_unmatched(1)),
        clocked=operator.clock is not None,
    )


def _stamps(operator: Join, left: Chunk, right: Chunk) -> Ints:
    """Return the time of every tuple as its column tells it; long ago where none does."""
    columns = [operator.time_column(port) for port in (0, 1)]
    if columns == [None, None]:
        return np.empty(0, np.int64)
    return np.concatenate(
        [
            np.full(chunk.rows, LONG_AGO) if column is None else order_numbers(chunk.columns[column])
            for chunk, column in zip((left, right), columns, strict=True)
        ]
    )


def _matches(
    operator: Join, sides: Sides, happenings: Happenings, meetings: Meetings, leaves: Leaves, keys: KeyTable
) -> Iterator[Matches]:
    """Test who met, some at a time; put what left unmatched in its place among the matches."""
    done = 0
    for which in pieces(meetings, _PAIRS_AT_ONCE):
        left, right, event = pairs_of(meetings, which, happenings, sides.windows)
        matches = Matches(left, right, event, happenings.code[happenings.source[event]])
        if operator.where is not None and len(event):
            columns = _columns(operator, sides, matches, operator.where.columns, keys)
            passed = pc.fill_null(operator.where.evaluate(columns, len(event)), False)
            matches = matches.keep(passed.to_numpy(zero_copy_only=False))
        if operator.outer != "inner":
            sides.matched[matches.left] = sides.matched[matches.right] = True
            # What leaves before the next piece can match no more.
            until = meetings.event[which.stop : which.stop + 1]
            end = int(np.searchsorted(leaves.before, until, "right")[0]) if len(until) else len(leaves)
            matches = _with_unmatched(matches, leaves, np.arange(done, end), sides)
            done = end
        yield matches


def _with_unmatched(matches: Matches, leaves: Leaves, which: Ints, sides: Sides) -> Matches:
    which = which[~sides.matched[leaves.row[which]]]
    if not len(which):
        return matches
    at = np.searchsorted(matches.event, leaves.before[which])
    row = leaves.row[which]
    from_left = row < sides.right.first
    return Matches(
        np.insert(matches.left, at, np.where(from_left, row, -1)),
        np.insert(matches.right, at, np.where(from_left, -1, row)),
        np.insert(matches.event, at, leaves.event[which]),
        np.insert(matches.code, at, leaves.code[which]),
    )


def _columns(
    operator: Join, sides: Sides, matches: Matches, names: frozenset[str], keys: KeyTable
) -> dict[str, pa.Array]:
    """Return the columns of both sides that are read, as ``port.column``."""
    columns, code = {}, pa.array(matches.code)
    for port, side, rows in ((0, sides.left, matches.left), (1, sides.right, matches.right)):
        missing = rows < 0 if operator.outer != "inner" else None
        index = pa.array(rows - side.first if side.first else rows, mask=missing)
        for name in operator.columns_of_port(port):
            if f"{operator.names[port]}.{name}" not in names:
                continue
            of_key = keys.columns[operator.by.index(name)].take(code) if name in operator.by else None
            columns[f"{operator.names[port]}.{name}"] = _column(operator, port, side, name, index, of_key)
    return columns


def _column(operator: Join, port: int, side: Side, name: str, index: pa.Array, of_key: pa.Array) -> pa.Array:
    """Return a column of one side; ``index`` is null where that is missing."""
    own = side.columns[name].take(index) if name in side.columns else None
    if own is None:
        return of_key if port == 0 or not index.null_count else pc.if_else(index.is_null(), None, of_key)
    if port == 0 and name in operator.by and index.null_count:
        return pc.if_else(index.is_null(), of_key, normalise(own))
    return own


def _in_order(made: Chunk, happenings: Happenings, given: Given, depth: int) -> Chunk:
    """Give outputs, which say their event, the order of what made them."""
    number = happenings.source[made.rank]
    rank, path = happenings.rank[number], tuple(p[number] for p in happenings.path)
    if depth == 2:
        by_tick = number >= happenings.tuples
        path = (*path, np.where(by_tick, hash_part(given.keys)[made.code], 0))
    path = (*path, _index_among(made.rank, made.code))
    return Chunk(made.columns, rank, made.code, path, no_marks(len(path)))


@compiled(types=("i8[::1], i4[::1]",))
def _index_among(event, code):  # type: ignore[no-untyped-def]
    """Number the outputs that an event makes for a key from 0."""
    index = np.zeros(len(event), np.int64)
    for i in range(1, len(event)):
        if event[i] == event[i - 1] and code[i] == code[i - 1]:
            index[i] = index[i - 1] + 1
    return index
