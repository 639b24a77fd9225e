"""Split a list of aggregates into the calls to compute and the outputs made of their results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
from sqlglot import exp

from riprap.expressions.coercion import bounded
from riprap.expressions.errors import ExpressionError, Misuse
from riprap.expressions.functions import AGGREGATES
from riprap.expressions.parsing import Binder, Functions, Named, check_names, parse_items
from riprap.expressions.scope import Entry, Scope
from riprap.expressions.tree import Column, Expression, quoted
from riprap.expressions.types import (
    BIGINT,
    BINARY,
    DOUBLE,
    NULL,
    is_decimal,
    is_integral,
    is_numeric,
    type_name,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregateCall:
    """One aggregate to compute over a window; `slot` is the column that carries its result.

    `argument` is None for count(*). `type` is Spark's result type.
    """

    function: str
    argument: Expression | None
    type: pa.DataType
    slot: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregation:
    """The calls of an aggregate operator, and its outputs: expressions over the calls' slots and the keys."""

    calls: tuple[AggregateCall, ...]
    outputs: tuple[Named, ...]


def parse_aggregates(
    text: str, scope: Scope, keys: Sequence[str] = (), functions: Functions | None = None
) -> Aggregation:
    """Parse the outputs of an aggregate operator.

    >>> schema = pa.schema({"price": pa.float64(), "size": pa.int64()})
    >>> made = parse_aggregates("sum(price * size) / sum(size) as vwap", Scope.of(schema))
    >>> [(call.slot, call.function, call.argument.sql) for call in made.calls]
    [('$0', 'sum', 'price * size'), ('$1', 'sum', 'size')]
    >>> made.outputs[0].expression.sql
    '`$0` / `$1`'
    """
    calls = _Calls(scope=scope, functions=functions or {})
    try:
        allowed = Scope(entries=tuple(scope.resolve(key) for key in keys), shared=scope.shared)
    except Misuse as misuse:
        raise ExpressionError(text, f"key: {misuse.problem}", misuse.hint) from None
    binder = _KeyBinder(text=text, scope=allowed, functions=functions or {}, on_call=calls.take, every=scope)
    outputs = [binder.named(item) for item in parse_items(text)]
    check_names(text, outputs)
    if not calls.made:
        raise ExpressionError(text, "no aggregate in it", f"Aggregates: {', '.join(AGGREGATES)}")
    return Aggregation(calls=tuple(calls.made), outputs=tuple(outputs))


@dataclass(frozen=True, slots=True, kw_only=True)
class _KeyBinder(Binder):
    """Resolve bare columns among the keys only, and say so for the others."""

    every: Scope

    def _found(self, node: exp.Column) -> Entry:
        entry = self.every.resolve(node.name, node.table)
        if entry not in self.scope.entries:
            raise Misuse(
                f"column {entry.key!r} is neither a key nor inside an aggregate",
                f"Write first({entry.key}) or last({entry.key}), or make it a key",
            )
        return entry


@dataclass(slots=True, kw_only=True)
class _Calls:
    """The aggregate calls met so far; equal ones share a slot."""

    scope: Scope
    functions: Functions
    made: list[AggregateCall] = field(default_factory=list)

    def take(self, binder: Binder, node: exp.Anonymous) -> Expression | None:
        function = node.name.lower()
        if function not in AGGREGATES or node.name in self.functions:
            return None
        inner = Binder(text=binder.text, scope=self.scope, functions=self.functions, on_call=_no_nesting)
        argument = self._argument(function, node, inner)
        call = AggregateCall(
            function=function,
            argument=argument,
            type=result_type(function, argument),
            slot=f"${len(self.made)}",
        )
        for known in self.made:
            if replace(call, slot=known.slot) == known:
                call = known
                break
        else:
            self.made.append(call)
        return Column(sql=quoted(call.slot), type=call.type, columns=frozenset([call.slot]), key=call.slot)

    def _argument(self, function: str, node: exp.Anonymous, inner: Binder) -> Expression | None:
        if len(node.expressions) != 1:
            raise Misuse(f"{function}() takes 1 argument, got {len(node.expressions)}")
        (argument,) = node.expressions
        if isinstance(argument, exp.Distinct):
            raise Misuse(f"{function}(distinct ...) is not supported", f"Aggregates: {', '.join(AGGREGATES)}")
        if isinstance(argument, exp.Star):
            if function != "count":
                raise Misuse(f"{function}(*) does not exist", "Only count(*) takes a star")
            return None
        return inner.bind(argument)


def result_type(function: str, argument: Expression | None) -> pa.DataType:
    """Return the type of an aggregate as Spark does, or raise Misuse."""
    if function == "count" or argument is None:
        return BIGINT
    type = argument.type
    if type == NULL:
        raise Misuse(f"{function}(null) has no type", "Write cast(null as int)")
    if function in ("first", "last"):
        return type
    if function in ("min", "max"):
        if type == BINARY:
            raise Misuse(f"{function} of binary is not supported: {argument.sql}")
        return type
    if not is_numeric(type):
        raise Misuse(f"{function} needs numbers, got {type_name(type)}: {argument.sql}", "Write a cast")
    if is_decimal(type):
        more = (10, 0) if function == "sum" else (4, 4)
        return bounded(type.precision + more[0], type.scale + more[1])
    return BIGINT if function == "sum" and is_integral(type) else DOUBLE


def _no_nesting(binder: Binder, node: exp.Anonymous) -> Expression | None:
    if node.name.lower() in AGGREGATES and node.name not in binder.functions:
        raise Misuse(f"{node.name}() inside an aggregate", "Aggregates do not nest")
    return None
