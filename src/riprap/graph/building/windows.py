"""Add operators over windows of one stream."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from riprap.expressions import Scope, parse_aggregates
from riprap.expressions.ordering import Ordering, parse_order
from riprap.graph.building.builder import Builder, schema_of
from riprap.graph.checks import Here, Inputs, Port
from riprap.graph.operators import Aggregate, Sort, TopN
from riprap.graph.stream import Stream
from riprap.graph.windows import Emit, Every, OnClose, Window, every, on_close
from riprap.protection import Policy


class Windowed(Builder):
    """Aggregate, sort, top."""

    def aggregate(
        self,
        name: str,
        stream: Port,
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
        """
        here = Here("Aggregate", name, self, stream)
        inputs = here.port(stream)
        keys = here.keys(by, inputs)
        here.window(window, inputs.schema)
        rule = _emit(here, window, emit)
        with here:
            aggregation = parse_aggregates(
                select, Scope.of(inputs.schema), keys, self._functions, self._aggregates
            )
        taken = [n.name for n in aggregation.outputs if n.name in keys]
        if taken:
            raise here.error(
                f"select= names {taken[0]!r} again", "The key's columns come first by themselves"
            )
        key_fields = [inputs.schema.field(k) for k in keys]
        return self._add(
            here,
            Aggregate(
                name=here.full_name,
                location=here.location,
                ports=(inputs.streams,),
                schema=pa.schema([*key_fields, *schema_of(aggregation.outputs)]),
                protect=protect,
                clock=_clock(here, window, rule, clock),
                by=keys,
                window=window,
                emit=rule,
                aggregation=aggregation,
            ),
        )

    def sort(
        self,
        name: str,
        stream: Port,
        *,
        order: str,
        window: Window,
        by: str | Sequence[str] = (),
        clock: Stream | None = None,
        protect: Policy | None = None,
    ) -> Stream:
        """Add a sort: each tumbling window is put out in order when it closes, then a punctuation.

        ``order`` lists expressions, each with ``desc`` or ``nulls last`` as in SQL; equal tuples keep their order.
        """
        here = Here("Sort", name, self, stream)
        inputs, keys, ordering = self._sorting(here, stream, order, window, by)
        return self._add(
            here,
            Sort(
                name=here.full_name,
                location=here.location,
                ports=(inputs.streams,),
                schema=inputs.schema,
                protect=protect,
                clock=here.clock(clock, needed=window.ticking, why="its window"),
                by=keys,
                window=window,
                order=ordering,
            ),
        )

    def top(
        self,
        name: str,
        stream: Port,
        *,
        n: int = 10,
        order: str,
        window: Window,
        by: str | Sequence[str] = (),
        clock: Stream | None = None,
        protect: Policy | None = None,
    ) -> Stream:
        """Add a top-n: the first ``n`` tuples of each tumbling window in order, when it closes, then a punctuation."""
        here = Here("TopN", name, self, stream)
        inputs, keys, ordering = self._sorting(here, stream, order, window, by)
        if not isinstance(n, int) or isinstance(n, bool) or n < 1:
            raise here.error(f"n= is {n!r}", "Give it a whole number of at least 1")
        return self._add(
            here,
            TopN(
                name=here.full_name,
                location=here.location,
                ports=(inputs.streams,),
                schema=inputs.schema,
                protect=protect,
                clock=here.clock(clock, needed=window.ticking, why="its window"),
                by=keys,
                window=window,
                order=ordering,
                n=n,
            ),
        )

    def _sorting(
        self, here: Here, stream: Port, order: str, window: Window, by: str | Sequence[str]
    ) -> tuple[Inputs, tuple[str, ...], tuple[Ordering, ...]]:
        inputs = here.port(stream)
        keys = here.keys(by, inputs)
        here.window(window, inputs.schema, shape="tumbling")
        if not isinstance(order, str):
            raise here.error(f"order= is {order!r}", "Write it as text, such as 'price desc, seq'")
        with here:
            return inputs, keys, parse_order(order, Scope.of(inputs.schema), self._functions)


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
