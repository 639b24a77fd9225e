"""Aggregates over windows of each key's tuples.

The state holds the values of the aggregates' arguments, not whole tuples, and results are functions of the window's
contents alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pyarrow as pa

from riprap.expressions import Aggregation, Scope, parse_aggregates
from riprap.graph.builder import Builder
from riprap.graph.checks import Here, Streams
from riprap.graph.operator import Copies, Needed, Traits, by_columns, schema_of
from riprap.graph.stream import Stream
from riprap.kernels.evaluation import compute
from riprap.kernels.events import in_event_order
from riprap.kernels.functions import compute_call
from riprap.kernels.given import Given, Result
from riprap.kernels.windowing import Windows
from riprap.operators.keyed import Windowed
from riprap.protection import Policy
from riprap.windows import Emit, Every, OnClose, Window, every, on_close


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate(Windowed):
    """Computes over windows of tuples, key by key."""

    TRAITS: ClassVar[Traits] = Traits(
        does="computes over windows",
        state=("the window's tuples",),
        pages="window groups",
        key="by, or none",
        stale="holds tuples that lost input would have pushed out",
        punctuation="closes its windows if they are by punctuation; passes after what it caused",
    )

    kept_by_key = True

    emit: Emit
    aggregation: Aggregation

    @property
    def slides(self) -> frozenset[str]:
        return frozenset(self.slots if self.window.counted else ())

    @property
    def depth(self) -> int:
        if self.heeds or self.clock is not None:
            return 2
        by_time = isinstance(self.emit, Every) and self.emit.time is not None
        return 1 if by_time or (self.window.shape == "tumbling" and self.window.time is not None) else 0

    @property
    def period(self) -> int | None:
        return self.emit.time if isinstance(self.emit, Every) else self.window.time

    def reads(self, needed: Needed) -> tuple[frozenset[str], ...]:
        arguments = {c for call in self.aggregation.calls for a in call.arguments for c in a.columns}
        return (frozenset({*self.by, *arguments, *((self.window.on,) if self.window.on else ())}),)

    def copies(self) -> Copies:
        return {name: frozenset({(0, name)}) for name in self.by}

    def layout(self, needed: Needed) -> str:
        arguments = [a for c in self.aggregation.calls for a in c.arguments]
        kept = ", ".join(dict.fromkeys(f"{a.sql} {a.type}" for a in arguments))
        return f"{self.window} by {', '.join(self.by)}, {self.emit}: {kept}"

    def kept_columns(self, needed: Needed) -> Mapping[str, str]:
        arguments = dict.fromkeys(a.sql for call in self.aggregation.calls for a in call.arguments)
        return {f"a{number}": sql for number, sql in enumerate(arguments)}

    def summary(self) -> str:
        return f"{self.aggregation.sql}{by_columns(self.by)}, {self.window}, {self.emit}"

    def run(self, given: Given) -> Result:
        """Aggregate a batch: results, and the new state page."""
        (chunk,) = given.inputs
        needed = given.needed[self.name]
        arguments = {a.sql: a for call in self.aggregation.calls for a in call.arguments}
        values = {f"a{i}": e.evaluate(chunk.columns, chunk.rows) for i, e in enumerate(arguments.values())}
        windows = Windows.of(self.window, self.emit, given, values)
        extents, events = windows.extents, windows.events
        order = in_event_order(extents.event, len(events.rank))
        columns = {sql: windows.column(f"a{i}") for i, sql in enumerate(arguments)}
        slots = {
            call.slot: compute_call(call, [columns[a.sql] for a in call.arguments], extents.low, extents.high)
            for call in self.aggregation.calls
        }
        code = windows.history.touched[extents.key].astype(np.int32)
        index = pa.array(order)
        by = {k: given.keys.columns[i].take(pa.array(code[order])) for i, k in enumerate(self.by)}
        in_order = {slot: column.take(index) for slot, column in slots.items()}
        event = extents.event[order]
        made = events.derive(event, code[order], {**by, **in_order}, given, self.depth)
        outputs = compute(self.aggregation.outputs, made, needed)
        kept_keys = {k: c for k, c in by.items() if k in needed}
        made = replace(
            made.with_columns({**kept_keys, **outputs}), marks=events.punctuations(event, self.depth)
        )
        page = windows.page(given)
        return Result(outputs=(made,), pages={"0": page} if page is not None else {}, late=extents.late)


def aggregate(
    app: Builder,
    name: str,
    stream: Streams,
    *,
    by: str | Sequence[str] = (),
    window: Window,
    emit: Emit | None = None,
    clock: Stream | None = None,
    select: str,
    protect: Policy | None = None,
) -> Stream:
    """Add an aggregate over windows of each key's tuples; the key's columns come first in its output.

    A sliding window puts out after every tuple and a tumbling one when it closes, unless ``emit`` says otherwise.

    >>> app = rr.Application("demo")
    >>> sales = app.source("sales", rr.rows([], "item string, price bigint"))
    >>> print(app.aggregate("sums", sales, by="item", window=rr.sliding(tuples=3), select="sum(price) as total"))
    stream 'sums' (item string, total bigint)
    """
    here = Here("Aggregate", name, app, stream)
    inputs = here.port(stream)
    keys = here.keys(by, inputs)
    here.window(window, inputs.schema)
    rule = _emit(here, window, emit)
    with here:
        aggregation = parse_aggregates(
            select, Scope.of(inputs.schema), keys, app.functions, app.aggregate_functions
        )
    taken = [n.name for n in aggregation.outputs if n.name in keys]
    if taken:
        raise here.error(f"select= names {taken[0]!r} again", "The key's columns come first by themselves")
    key_fields = [inputs.schema.field(k) for k in keys]
    return here.add(
        Aggregate(
            **here.basics(inputs, protect=protect),
            schema=pa.schema([*key_fields, *schema_of(aggregation.outputs)]),
            clock=_clock(here, window, rule, clock),
            by=keys,
            window=window,
            emit=rule,
            aggregation=aggregation,
        ),
    )


def _emit(here: Here, window: Window, emit: Emit | None) -> Emit:
    """Check when a window puts out, and choose where nothing is said."""
    if window.empty:
        raise here.error(f"its window is {window}, which never holds a tuple", "Give it a size")
    if emit is None:
        return every(tuples=1) if window.shape == "sliding" else on_close()
    if not isinstance(emit, Every | OnClose):
        raise here.error(f"emit= takes an output rule, got {emit!r}", "Write rr.every(...) or rr.on_close()")
    if isinstance(emit, OnClose) and window.shape == "sliding":
        raise here.error("a sliding window never closes", "Write rr.every(...), or make it tumbling")
    if (
        isinstance(emit, Every)
        and emit.time is not None
        and window.shape == "tumbling"
        and window.time is not None
    ):
        raise here.error(
            f"a window of {window} puts out when it closes, or every so many tuples",
            "Leave out emit=, or make it sliding",
        )
    return emit


def _clock(here: Here, window: Window, emit: Emit, clock: Stream | None) -> str | None:
    by_period = isinstance(emit, Every) and emit.time is not None
    needed = window.ticking or (by_period and not (window.time is not None and window.on is not None))
    return here.clock(clock, needed=needed, why="its window" if window.ticking else "its output")
