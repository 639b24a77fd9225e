"""Describe an application: each call adds one operator, checked on the spot, and starts nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from riprap.errors import GraphError
from riprap.expressions import (
    ExpressionError,
    Named,
    Scope,
    UserFunction,
    check_type,
    parse_aggregates,
    parse_condition,
    parse_schema,
    parse_select,
    type_name,
)
from riprap.graph.checks import NAME, Here, has
from riprap.graph.connectors import FileSink, FromSpark, SinkConnector, SourceConnector
from riprap.graph.graph import Graph
from riprap.graph.location import Location
from riprap.graph.operators import Aggregate, Functor, Join, Operator, Sink, Source
from riprap.graph.policies import Consistent, Policy
from riprap.graph.stream import Stream
from riprap.graph.windows import Every, SlidingWindow, every

if TYPE_CHECKING:
    from riprap.runtime.run import Run


class Application:
    """A dataflow graph under construction.

    >>> import riprap as rr
    >>> app = rr.Application("demo")
    >>> words = app.source("words", rr.rows([{"word": "a"}], "word string"))
    >>> counts = app.aggregate("counts", words, by="word", window=rr.sliding(tuples=10), select="count(*) as n")
    >>> app.sink("out", counts, rr.memory())
    >>> [operator.name for operator in app.graph()]
    ['words', 'counts', 'out']
    """

    def __init__(self, name: str) -> None:
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise GraphError(f"an application's name is letters, digits and '_', got {name!r}")
        self.name = name
        self._operators: dict[str, Operator] = {}
        self._functions: dict[str, UserFunction] = {}

    def graph(self) -> Graph:
        """Check the application as a whole and return it as a value."""
        return Graph.of(self.name, self._operators.values())

    def run(self, **options: Any) -> Run:
        """Run the application on Spark; see :func:`riprap.runtime.run` for the options."""
        # The one step from a description to its effect: only here does Spark get imported.
        from riprap.runtime import run

        return run(self.graph(), **options)

    def function(self, name: str, function: Callable[..., pa.Array], *, returns: str | pa.DataType) -> None:
        """Register a function over Arrow arrays for use in the expressions of operators added after it."""
        location = Location.of_caller()
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise GraphError(f"function at {location}: a name is letters, digits and '_', got {name!r}")
        if name.lower() in self._functions:
            raise GraphError(f"function '{name}' ({location}): there is a function of that name already")
        try:
            kind = parse_schema(f"it {returns}").field(0).type if isinstance(returns, str) else returns
            self._functions[name.lower()] = UserFunction(name=name, callable=function, returns=kind)
        except ExpressionError as error:
            raise GraphError(f"function '{name}' ({location}): returns={returns!r}: {error}") from error

    def source(
        self,
        name: str,
        connector: SourceConnector,
        *,
        position: str | None = None,
        ordering: str | None = None,
        protect: Policy | None = None,
    ) -> Stream:
        """Add a source.

        ``position`` names a column that says where in the source a tuple stands (ascending whole numbers);
        without it files and rows count their tuples, and a Spark DataFrame is taken to be unordered.
        ``ordering`` names a column by which tuples of several sources interleave.
        """
        here = Here("Source", name, self)
        with here:
            schema = pa.schema([pa.field(f.name, check_type(f.type, f.name)) for f in connector.schema])
        for column, what in ((position, "position"), (ordering, "ordering")):
            if column is not None and column not in schema.names:
                raise here.error(f"{what}= names column '{column}', which does not exist", has(schema))
        if position is not None and not pa.types.is_signed_integer(schema.field(position).type):
            got = type_name(schema.field(position).type)
            raise here.error(
                f"position= must name a column of whole numbers, '{position}' is {got}", has(schema)
            )
        if ordering is not None and not _orders(schema.field(ordering).type):
            got = type_name(schema.field(ordering).type)
            raise here.error(
                f"ordering= must name a column of whole numbers, dates or timestamps, '{ordering}' is {got}",
                has(schema),
            )
        if isinstance(protect, Consistent) and isinstance(connector, FromSpark) and position is None:
            raise here.error(
                "an unordered Spark source cannot be replayed, so it cannot start a consistent region",
                "Name its position= column",
            )
        here.policy(protect, stateful=False)
        return self._add(
            Source(
                name=name,
                location=here.location,
                inputs=(),
                schema=schema,
                protect=protect,
                connector=connector,
                position=position,
                ordering=ordering,
            )
        )

    def functor(
        self,
        name: str,
        stream: Stream,
        *,
        where: str | None = None,
        select: str | None = None,
        protect: Policy | None = None,
    ) -> Stream:
        """Add a filter (``where``), a projection or computed columns (``select``), or both."""
        here = Here("Functor", name, self, stream)
        if where is None and select is None:
            raise here.error("it does nothing", "Give it where=, select= or both")
        scope = Scope.of(stream.schema)
        with here:
            condition = parse_condition(where, scope, self._functions) if where is not None else None
            chosen = parse_select(select if select is not None else "*", scope, self._functions)
        here.policy(protect, stateful=False)
        return self._add(
            Functor(
                name=name,
                location=here.location,
                inputs=(stream.name,),
                schema=_schema_of(chosen),
                protect=protect,
                where=condition,
                select=chosen,
            )
        )

    def aggregate(
        self,
        name: str,
        stream: Stream,
        *,
        by: str | Sequence[str] = (),
        window: SlidingWindow,
        emit: Every | None = None,
        select: str,
        protect: Policy | None = None,
    ) -> Stream:
        """Add an aggregate over the newest tuples of each key; the key's columns come first in its output."""
        here = Here("Aggregate", name, self, stream)
        keys = here.keys(by, stream)
        if not isinstance(window, SlidingWindow):
            raise here.error(f"window= takes a window, got {window!r}", "Write rr.sliding(tuples=...)")
        if window.tuples < 1:
            raise here.error(f"its window holds {window.tuples} tuples", "An aggregate needs at least one")
        if emit is not None and not isinstance(emit, Every):
            raise here.error(f"emit= takes an output rule, got {emit!r}", "Write rr.every(tuples=...)")
        with here:
            aggregation = parse_aggregates(select, Scope.of(stream.schema), keys, self._functions)
        taken = [n.name for n in aggregation.outputs if n.name in keys]
        if taken:
            raise here.error(
                f"select= names {taken[0]!r} again", "The key's columns come first by themselves"
            )
        here.policy(protect, stateful=True)
        key_fields = [stream.schema.field(k) for k in keys]
        return self._add(
            Aggregate(
                name=name,
                location=here.location,
                inputs=(stream.name,),
                schema=pa.schema([*key_fields, *_schema_of(aggregation.outputs)]),
                protect=protect,
                by=keys,
                window=window,
                emit=emit if emit is not None else every(tuples=1),
                aggregation=aggregation,
            )
        )

    def join(
        self,
        name: str,
        left: Stream,
        right: Stream,
        *,
        by: str | Sequence[str],
        windows: tuple[SlidingWindow, SlidingWindow],
        where: str | None = None,
        select: str,
        protect: Policy | None = None,
    ) -> Stream:
        """Add a join of two streams: each tuple meets the other port's window of the same key."""
        here = Here("Join", name, self, left, right)
        keys = here.keys(by, left, right)
        if not keys:
            raise here.error("a join needs a key", "Give it by=, a column that both streams have")
        if left.name == right.name:
            raise here.error(
                f"both ports read stream '{left.name}'",
                "Give one side another name with a functor select='*'",
            )
        if not (
            isinstance(windows, tuple)
            and len(windows) == 2
            and all(isinstance(w, SlidingWindow) for w in windows)
        ):
            raise here.error(
                f"windows= takes two windows, got {windows!r}", "Write (rr.sliding(...), rr.sliding(...))"
            )
        if windows[0].tuples == windows[1].tuples == 0:
            raise here.error(
                "both windows are of size 0, so no tuple can ever meet another", "Give one a size"
            )
        scope = Scope.qualified({left.name: left.schema, right.name: right.schema}, shared=frozenset(keys))
        with here:
            condition = parse_condition(where, scope, self._functions) if where is not None else None
            chosen = parse_select(select, scope, self._functions)
        here.policy(protect, stateful=True)
        return self._add(
            Join(
                name=name,
                location=here.location,
                inputs=(left.name, right.name),
                schema=_schema_of(chosen),
                protect=protect,
                by=keys,
                windows=windows,
                where=condition,
                select=chosen,
            )
        )

    def sink(
        self, name: str, stream: Stream, connector: SinkConnector, *, protect: Policy | None = None
    ) -> None:
        """Add a sink."""
        here = Here("Sink", name, self, stream)
        here.policy(protect, stateful=False)
        binary = [f.name for f in stream.schema if pa.types.is_binary(f.type)]
        if binary and isinstance(connector, FileSink) and connector.format == "json":
            raise here.error(
                f"a JSON file cannot hold the binary column '{binary[0]}'",
                "Leave it out with a functor's select=",
            )
        self._add(
            Sink(
                name=name,
                location=here.location,
                inputs=(stream.name,),
                schema=stream.schema,
                protect=protect,
                connector=connector,
            )
        )

    def _add(self, operator: Operator) -> Stream:
        self._operators[operator.name] = operator
        return Stream(operator.name, operator.schema, self)


def _schema_of(named: Sequence[Named]) -> pa.Schema:
    return pa.schema([pa.field(n.name, n.expression.type) for n in named])


def _orders(kind: pa.DataType) -> bool:
    return bool(pa.types.is_signed_integer(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind))
