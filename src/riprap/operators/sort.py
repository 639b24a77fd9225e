"""Put the tuples of each window in order when it closes, with a punctuation after them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from riprap.arrays import Ints
from riprap.expressions import Scope
from riprap.expressions.ordering import Ordering, parse_order
from riprap.expressions.tree import Column
from riprap.graph.builder import Builder
from riprap.graph.checks import Here, Streams
from riprap.graph.operator import Needed, PassesOn, Traits, by_columns, passed_on, typed
from riprap.graph.stream import Stream
from riprap.kernels.chunk import Marks
from riprap.kernels.collecting import Closed, close_windows
from riprap.kernels.extremes import order_of
from riprap.kernels.given import Given, Result, hash_part
from riprap.machine_code import compiled
from riprap.operators.keyed import Windowed
from riprap.protection import Policy
from riprap.state.windows import ranges
from riprap.windows import Window


@dataclass(frozen=True, slots=True, kw_only=True)
class Sort(Windowed, PassesOn):
    """Collects windows, and puts out the tuples of each in order when it closes."""

    TRAITS: ClassVar[Traits] = Traits(
        does="puts the tuples of windows in order",
        state=("the window's tuples",),
        pages="window groups",
        key="by, or none",
        stale="holds tuples that were put out since, and lacks those that were lost",
        holds=True,
        punctuation="closes its windows if they are by punctuation, and ends here; one follows every window put out",
    )
    punctuates = True

    order: tuple[Ordering, ...]

    @property
    def most(self) -> int | None:
        """How many tuples of a window are put out at most."""
        return None

    @property
    def depth(self) -> int:
        return 2 if self.heeds or self.clock is not None else 1

    @property
    def period(self) -> int | None:
        return self.window.time

    def reads(self, needed: Needed) -> tuple[frozenset[str], ...]:
        ordering = frozenset(c for each in self.order for c in each.expression.columns)
        on = frozenset({self.window.on} if self.window.on else ())
        return (passed_on(self, needed) | frozenset(self.by) | ordering | on,)

    def layout(self, needed: Needed) -> str:
        order = ", ".join(f"{each.expression.sql} {each.expression.type}" for each in self.order)
        kept = typed(self.schema, passed_on(self, needed))
        return f"{self.window} by {', '.join(self.by)}: {order}; {kept}"

    def summary(self) -> str:
        return f"{', '.join(map(str, self.order))}{by_columns(self.by)}, {self.window}"

    def run(self, given: Given) -> Result:
        """Sort the windows that close in a batch, or find the first tuples of each; return also the new state page."""
        (chunk,) = given.inputs
        columns = {name: f"c{i}" for i, name in enumerate(sorted(given.needed[self.name]))}
        values = {kept: chunk.columns[name] for name, kept in columns.items()}
        keys = []
        for i, each in enumerate(self.order):
            read = each.expression
            kept = columns.get(read.key) if isinstance(read, Column) else None
            if kept is None:
                kept = f"o{i}"
                values[kept] = read.evaluate(chunk.columns, chunk.rows)
            keys.append(kept)
        closed = close_windows(self.window, given, values)
        lengths = closed.lengths
        order = _sorted(self.order, [closed.column(k, closed.rows) for k in keys], lengths)
        if self.most is not None:
            starts = np.cumsum(lengths) - lengths
            lengths = np.minimum(lengths, self.most)
            order = order[ranges(starts, lengths)]
        rows = closed.rows[order]
        made = {name: closed.column(kept, rows) for name, kept in columns.items()}
        event, code = np.repeat(closed.event, lengths), np.repeat(closed.code, lengths)
        output = closed.events.derive(event, code, made, given, self.depth)
        output = replace(output, marks=_marks(closed, lengths, given, self.depth))
        return Result(
            outputs=(output,), pages={"0": closed.page} if closed.page is not None else {}, late=closed.late
        )


def sort(
    app: Builder,
    name: str,
    stream: Streams,
    *,
    order: str,
    window: Window,
    by: str | Sequence[str] = (),
    clock: Stream | None = None,
    protect: Policy | None = None,
) -> Stream:
    """Add a sort: each tumbling window is put out in order when it closes, then a punctuation.

    ``order`` lists expressions, each with ``desc`` or ``nulls last`` as in SQL; equal tuples keep their order.

    >>> app = rr.Application("demo")
    >>> sales = app.source("sales", rr.rows([], "item string, price bigint"))
    >>> print(app.sort("sorted", sales, order="price desc, item", window=rr.tumbling(tuples=100)))
    stream 'sorted' (item string, price bigint)
    """
    here = Here("Sort", name, app, stream)
    return here.add(Sort(**sorting(app, here, stream, order, window, by, clock, protect)))


def sorting(
    app: Builder,
    here: Here,
    stream: Streams,
    order: str,
    window: Window,
    by: str | Sequence[str],
    clock: Stream | None,
    protect: Policy | None,
) -> dict[str, Any]:
    """Check what a sort is given, and return its fields."""
    inputs = here.port(stream)
    keys = here.keys(by, inputs)
    here.window(window, inputs.schema, shape="tumbling")
    if not isinstance(order, str):
        raise here.error(f"order= is {order!r}", "Write it as text, such as 'price desc, seq'")
    with here:
        ordering = parse_order(order, Scope.of(inputs.schema), app.functions)
    return {
        **here.basics(inputs, protect=protect),
        "schema": inputs.schema,
        "clock": here.clock(clock, needed=window.ticking, why="its window"),
        "by": keys,
        "window": window,
        "order": ordering,
    }


def _marks(closed: Closed, lengths: Ints, given: Given, depth: int) -> Marks:
    """Put a punctuation after the tuples of every window, numbered on from them."""
    path = tuple(p[closed.event] for p in closed.events.path)
    if depth == 2:
        # Ticks and punctuations close such windows, never a tuple.
        path = (*path, hash_part(given.keys)[closed.code])
    return Marks(np.cumsum(lengths), closed.events.rank[closed.event], closed.code, (*path, lengths))


def _sorted(order: Sequence[Ordering], columns: Sequence[pa.Array], lengths: Ints) -> Ints:
    """Return the rows of windows that follow one another, those of each window in order."""
    keys: list[Ints] = []
    for each, column in zip(order, columns, strict=True):
        numbers = order_of(column)
        if column.null_count:
            null = column.is_null().to_numpy(zero_copy_only=False)
            keys.append((null != each.nulls_first).astype(np.int64))
            numbers = np.where(null, 0, numbers)
        keys.append(~numbers if each.descending else numbers)
    result: Ints = _sort_windows(np.vstack(keys), lengths)
    return result


@compiled(types=("i8[:, ::1], i8[::1]",))
def _sort_windows(keys, lengths):  # type: ignore[no-untyped-def]
    order = np.empty(keys.shape[1], np.int64)
    start = 0
    for length in lengths:
        rows = np.argsort(keys[-1, start : start + length], kind="mergesort")
        # The first key counts most: each sort leaves equal tuples as the ones before it put them.
        for k in range(len(keys) - 2, -1, -1):
            rows = rows[np.argsort(keys[k, start : start + length][rows], kind="mergesort")]
        for i in range(length):
            order[start + i] = start + rows[i]
        start += length
    return order
