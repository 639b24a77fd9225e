"""Split a list of aggregates into the calls to compute and the outputs made of their results."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
from sqlglot import exp

from riprap.expressions.coercion import bounded
from riprap.expressions.errors import ExpressionError, Misuse, near
from riprap.expressions.functions import AGGREGATES, BUILTINS
from riprap.expressions.parsing import Binder, Functions, Named, check_names, parse_items
from riprap.expressions.scope import Scope, ScopeColumn
from riprap.expressions.tree import Column, Expression, Literal, quoted
from riprap.expressions.types import (
    BIGINT,
    BINARY,
    DOUBLE,
    INTERVAL,
    NULL,
    check_type,
    is_decimal,
    is_integral,
    is_list,
    is_numeric,
    type_name,
)
from riprap.expressions.users import UserAggregate, check_arguments

Aggregates = Mapping[str, UserAggregate]
# Other names that Spark has for an aggregate; median(x) is percentile(x, 0.5).
_SAME = {"mean": "avg", "median": "percentile", "stddev": "stddev_samp", "variance": "var_samp"}
# What stands for a call in an output; texts are looked at too, so that nothing inside them is taken for one.
_SLOT_OR_TEXT = re.compile(r"`[^`]*`|'(?:[^'\\]|\\.)*'")
_OF_ANYTHING = ("first", "last")
_OF_NO_ARRAY = ("collect_list", "count", "max", "min")


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregateCall:
    """One aggregate to compute over a window; `slot` is the column that carries its result.

    `arguments` are evaluated for every tuple: none for count(*), one for the others, any number for a user's.
    `fraction` is the second argument of percentile. `type` is Spark's result type.
    """

    function: str
    arguments: tuple[Expression, ...]
    type: pa.DataType
    slot: str
    distinct: bool = False
    fraction: float | None = None
    user: UserAggregate | None = None

    @property
    def argument(self) -> Expression | None:
        """The first argument, None for count(*)."""
        return self.arguments[0] if self.arguments else None

    @property
    def sql(self) -> str:
        inside = [argument.sql for argument in self.arguments] or ["*"]
        if self.fraction is not None:
            inside.append(str(self.fraction))
        return f"{self.function}({'distinct ' if self.distinct else ''}{', '.join(inside)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregation:
    """The calls of an aggregate operator, and its outputs: expressions over the calls' slots and the keys."""

    calls: tuple[AggregateCall, ...]
    outputs: tuple[Named, ...]

    @property
    def sql(self) -> str:
        """The outputs as a user would write them, with their names."""
        calls = {quoted(call.slot): call.sql for call in self.calls}
        texts = [
            _SLOT_OR_TEXT.sub(lambda match: calls.get(match[0], match[0]), each.expression.sql)
            for each in self.outputs
        ]
        return ", ".join(
            text if text == each.name else f"{text} as {each.name}"
            for text, each in zip(texts, self.outputs, strict=True)
        )


def parse_aggregates(
    text: str,
    scope: Scope,
    keys: Sequence[str] = (),
    functions: Functions | None = None,
    aggregates: Aggregates | None = None,
) -> Aggregation:
    """Parse the outputs of an aggregate operator; `functions` and `aggregates` are the user's own, by name.

    >>> schema = pa.schema({"price": pa.float64(), "size": pa.int64()})
    >>> made = parse_aggregates("sum(price * size) / sum(size) as vwap", Scope.of(schema))
    >>> [(call.slot, call.function, call.argument.sql) for call in made.calls]
    [('$0', 'sum', 'price * size'), ('$1', 'sum', 'size')]
    >>> made.outputs[0].expression.sql
    '`$0` / `$1`'
    >>> made.sql
    'sum(price * size) / sum(size) as vwap'
    """
    calls = _Calls(scope=scope, functions=functions or {}, aggregates=aggregates or {})
    try:
        allowed = Scope(entries=tuple(scope.resolve(key) for key in keys), shared=scope.shared)
    except Misuse as misuse:
        raise ExpressionError(text, f"key: {misuse.problem}", misuse.hint) from None
    binder = _KeyBinder(text=text, scope=allowed, functions=functions or {}, on_call=calls.take, every=scope)
    outputs = [binder.named(item) for item in parse_items(text)]
    check_names(text, outputs)
    if not calls.made:
        names = sorted([*AGGREGATES, *calls.aggregates])
        raise ExpressionError(text, "no aggregate in it", f"Aggregates: {', '.join(names)}")
    return Aggregation(calls=tuple(calls.made), outputs=tuple(outputs))


@dataclass(frozen=True, slots=True, kw_only=True)
class _KeyBinder(Binder):
    """Resolve bare columns among the keys only, and say so for the others."""

    every: Scope

    def _resolved(self, node: exp.Column) -> ScopeColumn:
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
    aggregates: Aggregates
    made: list[AggregateCall] = field(default_factory=list)

    def take(self, binder: Binder, node: exp.Anonymous) -> Expression | None:
        if not self._is_aggregate(node):
            self._check_known(node)
            return None
        inner = Binder(text=binder.text, scope=self.scope, functions=self.functions, on_call=self._no_nesting)
        user = self._user(node)
        call = _user_call(user, node, inner) if user is not None else _builtin_call(node, inner)
        for earlier in self.made:
            if replace(call, slot=earlier.slot) == earlier:
                call = earlier
                break
        else:
            call = replace(call, slot=f"${len(self.made)}")
            self.made.append(call)
        return Column(sql=quoted(call.slot), type=call.type, columns=frozenset([call.slot]), key=call.slot)

    def _user(self, node: exp.Anonymous) -> UserAggregate | None:
        return self.aggregates.get(node.name) or self.aggregates.get(node.name.lower())

    def _is_aggregate(self, node: exp.Anonymous) -> bool:
        aggregates = node.name.lower() in AGGREGATES or self._user(node) is not None
        return aggregates and node.name not in self.functions

    def _check_known(self, node: exp.Anonymous) -> None:
        """Refuse an unknown name before its columns, which would be found to stand outside of any aggregate."""
        if node.name not in self.functions and node.name.lower() not in BUILTINS:
            names = [*AGGREGATES, *self.aggregates, *BUILTINS, *self.functions]
            raise Misuse(
                f"no aggregate and no function {node.name}()",
                f"{near(node.name.lower(), names)}. Or bring your own: app.aggregate_function({node.name!r}, ...)",
            )

    def _no_nesting(self, binder: Binder, node: exp.Anonymous) -> Expression | None:
        if self._is_aggregate(node):
            raise Misuse(f"{node.name}() inside an aggregate", "Aggregates do not nest")
        return None


def _user_call(user: UserAggregate, node: exp.Anonymous, inner: Binder) -> AggregateCall:
    for argument in node.expressions:
        if isinstance(argument, exp.Star | exp.Distinct):
            raise Misuse(f"{user.name}() takes expressions, got {argument.sql('spark')}")
    arguments = tuple(inner.bind(each) for each in node.expressions)
    check_arguments(user.name, arguments)
    type = check_type(user.returns)
    return AggregateCall(function=user.name, arguments=arguments, type=type, slot="", user=user)


def _builtin_call(node: exp.Anonymous, inner: Binder) -> AggregateCall:
    name = node.name.lower()
    nodes, distinct = list(node.expressions), False
    if len(nodes) == 1 and isinstance(nodes[0], exp.Distinct):
        if name != "count":
            raise Misuse(f"{name}(distinct ...) is not supported", "Only count(distinct x) is")
        nodes, distinct = list(nodes[0].expressions), True
    wanted = 2 if name == "percentile" else 1
    if len(nodes) != wanted:
        raise Misuse(
            f"{name}() takes {wanted} argument{'s' if wanted > 1 else ''}, got {len(nodes)}",
            "Write percentile(x, 0.9)" if name == "percentile" else "",
        )
    if isinstance(nodes[0], exp.Star):
        if name != "count" or distinct:
            shown = "distinct *" if distinct else "*"
            raise Misuse(f"{name}({shown}) does not exist", "Only count(*) takes a star")
        return AggregateCall(function=name, arguments=(), type=BIGINT, slot="")
    argument = inner.bind(nodes[0])
    _check_argument(name, argument, distinct)
    function = _SAME.get(name, name)
    fraction = None
    if function == "percentile":
        fraction = _fraction(inner.bind(nodes[1])) if name == function else 0.5
    return AggregateCall(
        function=function,
        arguments=(argument,),
        type=result_type(function, argument.type),
        slot="",
        distinct=distinct,
        fraction=fraction,
    )


def _fraction(argument: Expression) -> float:
    if isinstance(argument, Literal) and is_numeric(argument.type) and argument.scalar.is_valid:
        value = float(argument.scalar.as_py())
        if 0 <= value <= 1:
            return value
    raise Misuse(
        f"percentile needs a literal from 0 to 1 here, got {argument.sql}", "Write percentile(x, 0.9)"
    )


def _check_argument(name: str, argument: Expression, distinct: bool) -> None:
    """Refuse what an aggregate, by the name the user gave it, cannot take."""
    type, function = argument.type, _SAME.get(name, name)
    if type == INTERVAL:
        raise Misuse(f"{name} of an interval: {argument.sql}", "Write unix_micros(a) - unix_micros(b)")
    if function == "count" and not distinct:
        return
    if type == NULL:
        raise Misuse(f"{name}(null) has no type", "Write cast(null as int)")
    if function in _OF_ANYTHING:
        return
    if function not in _OF_NO_ARRAY and not is_numeric(type):
        raise Misuse(f"{name} needs numbers, got {type_name(type)}: {argument.sql}", "Write a cast")
    if is_list(type) or (type == BINARY and function in ("min", "max")):
        shown = "count(distinct)" if distinct else name
        raise Misuse(f"{shown} of {type_name(type)} is not supported: {argument.sql}")


def result_type(function: str, type: pa.DataType) -> pa.DataType:
    """Return the type of an aggregate of a type as Spark does."""
    match function:
        case "first" | "last" | "min" | "max":
            return type
        case "collect_list":
            return pa.list_(type)
        case "sum" if is_decimal(type):
            return bounded(type.precision + 10, type.scale)
        case "avg" if is_decimal(type):
            return bounded(type.precision + 4, type.scale + 4)
        case "count":
            return BIGINT
        case "sum" if is_integral(type):
            return BIGINT
    return DOUBLE
