"""Turn SQL text into typed expressions: sqlglot parses, this module resolves, builds and explains."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError

from riprap.expressions import intervals, literals
from riprap.expressions.arithmetic import arithmetic, negate
from riprap.expressions.casts import cast
from riprap.expressions.comparison import compare, is_in, is_not_null, is_null
from riprap.expressions.errors import ExpressionError, Misuse, check_text
from riprap.expressions.functions import build_call
from riprap.expressions.lists import element
from riprap.expressions.logic import case, connect, if_, negation
from riprap.expressions.matching import rlike
from riprap.expressions.scope import Scope, ScopeColumn
from riprap.expressions.strings import joined, like
from riprap.expressions.tree import Column, Expression, quoted
from riprap.expressions.types import BOOLEAN, INTERVAL, NULL, from_sql, type_name
from riprap.expressions.users import UserFunction

Functions = Mapping[str, UserFunction]
PREFIX = "select "
_OPERATORS = (
    "+ - * / % div || = <> < <= > >= <=> and or not is null, in, between, like, rlike, [ ], case, cast, try_cast, "
    "interval"
)


class Dialect(Spark):
    """Spark's grammar with every function call left as the user wrote it, for us to resolve."""

    class Tokenizer(Spark.Tokenizer):
        STRING_ESCAPES = ["\\", "'"]  # noqa: RUF012  sqlglot's convention

    class Parser(Spark.Parser):  # type: ignore[misc, valid-type]
        FUNCTIONS: dict[str, Callable[..., exp.Expression]] = {}  # noqa: RUF012
        FUNCTION_PARSERS = {  # noqa: RUF012
            name: parser
            for name, parser in Spark.Parser.FUNCTION_PARSERS.items()
            if name in ("CAST", "TRY_CAST")
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """An output column: its name and the expression that computes it."""

    name: str
    expression: Expression


def parse_condition(text: str, scope: Scope, functions: Functions | None = None) -> Expression:
    """Parse a condition, such as a functor's `where`.

    >>> import pyarrow as pa
    >>> parse_condition("kind = 'trade'", Scope.of(pa.schema({"kind": pa.string()}))).sql
    "kind = 'trade'"
    """
    items = parse_items(text)
    if len(items) != 1 or isinstance(items[0], exp.Alias):
        raise ExpressionError(text, "a condition is one expression without a name")
    condition = Binder(text=text, scope=scope, functions=functions or {}).bind(items[0])
    if condition.type != BOOLEAN:
        raise ExpressionError(
            text,
            f"a condition is boolean, this is {type_name(condition.type)}",
            "Write a comparison, such as x <> 0",
        )
    return condition


def parse_select(text: str, scope: Scope, functions: Functions | None = None) -> tuple[Named, ...]:
    """Parse a list of output columns, such as a functor's `select`.

    >>> import pyarrow as pa
    >>> schema = pa.schema({"notional": pa.float64(), "volume": pa.int64()})
    >>> outputs = parse_select("volume, notional / volume as vwap", Scope.of(schema))
    >>> [(each.name, each.expression.sql) for each in outputs]
    [('volume', 'volume'), ('vwap', 'notional / volume')]
    """
    binder = Binder(text=text, scope=scope, functions=functions or {})
    outputs: list[Named] = []
    for item in parse_items(text):
        if isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star)):
            outputs += [Named(name=entry.name, expression=column(entry)) for entry in binder.star(item)]
        else:
            outputs.append(binder.named(item))
    check_names(text, outputs)
    return tuple(outputs)


def parse_items(text: str) -> list[exp.Expression]:
    """Split a comma list into syntax trees."""
    check_text(text, "price > 3 and size is not null")
    if not text.strip():
        raise ExpressionError(text, "the expression is empty")
    try:
        statements = sqlglot.parse(PREFIX + text, dialect=Dialect)
    except SqlglotError as error:
        raise syntax_error(text, error) from None
    select = statements[0] if len(statements) == 1 else None
    if not isinstance(select, exp.Select):
        raise ExpressionError(text, "not an expression")
    extra = [name for name, value in select.args.items() if value and name not in ("expressions", "kind")]
    if extra:
        raise ExpressionError(
            text, f"{extra[0].rstrip('_')} has no place in an expression", f"Operators: {_OPERATORS}"
        )
    return list(select.expressions)


def check_names(text: str, outputs: list[Named]) -> None:
    names = [output.name for output in outputs]
    for name in names:
        if names.count(name) > 1:
            raise ExpressionError(text, f"two outputs are named {name!r}", "Name one of them: ... as another")


def column(entry: ScopeColumn) -> Column:
    sql = ".".join(quoted(part) for part in (entry.source, entry.name) if part)
    return Column(sql=sql, type=entry.type, columns=frozenset([entry.key]), key=entry.key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Binder:
    """Build the typed tree of a syntax tree within one scope."""

    text: str
    scope: Scope
    functions: Functions = field(default_factory=dict)
    on_call: Callable[[Binder, exp.Anonymous], Expression | None] | None = None

    def named(self, item: exp.Expression) -> Named:
        """Build one output; anything but a column needs a name."""
        name = ""
        if isinstance(item, exp.Alias):
            name, item = item.alias, item.this
        expression = self.bind(item)
        if not name and isinstance(item, exp.Column):
            name = self._resolved(item).name
        if not name:
            # As the user wrote it: calls of aggregates have names of their own by now.
            written = item.sql("spark", normalize_functions=False)
            raise self.error(item, f"{written} has no name", f"Write: {written} as name")
        if expression.type == NULL:
            raise self.error(item, f"{name} is null without a type", "Write cast(null as int)")
        if expression.type == INTERVAL:
            raise self.error(
                item,
                f"{name} is an interval, which no column can be",
                "Write unix_micros(a) - unix_micros(b)",
            )
        return Named(name=name, expression=expression)

    def star(self, item: exp.Expression) -> tuple[ScopeColumn, ...]:
        try:
            return self.scope.star(item.table if isinstance(item, exp.Column) else "")
        except Misuse as misuse:
            raise self.error(item, misuse.problem, misuse.hint) from None

    def bind(self, node: exp.Expression) -> Expression:
        """Build the node and everything below it; problems are raised with their place in the text."""
        try:
            return self._bind(node)
        except Misuse as misuse:
            raise self.error(node, misuse.problem, misuse.hint) from None

    def error(self, node: exp.Expression, problem: str, hint: str = "") -> ExpressionError:
        return ExpressionError(self.text, problem, hint, *_place(node, self.text))

    def _bind(self, node: exp.Expression) -> Expression:
        build = _BUILDERS.get(type(node))
        if build is None:
            what = node.sql("spark") if not isinstance(node, exp.Star) else "*"
            raise Misuse(f"{node.key} is not part of the dialect: {what}", f"Operators: {_OPERATORS}")
        return build(self, node)

    def _resolved(self, node: exp.Column) -> ScopeColumn:
        if node.args.get("db"):
            raise Misuse(f"no nested column {node.sql('spark')}", "Write source.column, or column")
        return self.scope.resolve(node.name, node.table)

    def column(self, node: exp.Column) -> Expression:
        return column(self._resolved(node))

    def function(self, node: exp.Anonymous) -> Expression:
        if self.on_call is not None:
            expression = self.on_call(self, node)
            if expression is not None:
                return expression
        return build_call(node.name, [self.bind(each) for each in node.expressions], self.functions)

    def case(self, node: exp.Case) -> Expression:
        subject = self.bind(node.this) if node.this else None
        branches: list[tuple[Expression, Expression]] = []
        for branch in node.args["ifs"]:
            condition = self.bind(branch.this)
            if subject is not None:
                condition = compare("=", subject, condition)
            branches.append((condition, self.bind(branch.args["true"])))
        default = node.args.get("default")
        return case(branches, self.bind(default) if default else None)

    def cast(self, node: exp.Cast) -> Expression:
        type = from_sql(node.to)
        written_as_cast = isinstance(node, exp.TryCast)
        if not written_as_cast:  # date'2020-01-01'
            return literals.time(node.this.name, type)
        return cast(self.bind(node.this), type, safe=bool(node.args.get("safe")))

    def negative(self, node: exp.Neg) -> Expression:
        if isinstance(node.this, exp.Literal) and not node.this.is_string:
            return literals.number(node.this.name, negative=True)
        return negate(self.bind(node.this))

    def is_(self, node: exp.Is) -> Expression:
        if not isinstance(node.expression, exp.Null):
            raise Misuse(f"only is null and is not null exist: {node.sql('spark')}", "Write x <=> true")
        return is_null(self.bind(node.this))

    def not_(self, node: exp.Not) -> Expression:
        if isinstance(node.this, exp.Is) and isinstance(node.this.expression, exp.Null):
            return is_not_null(self.bind(node.this.this))
        return negation(self.bind(node.this))

    def in_(self, node: exp.In) -> Expression:
        if not node.expressions:
            raise Misuse("in (...) takes a list of literals", "Write a in (1, 2)")
        return is_in(self.bind(node.this), [self.bind(each) for each in node.expressions])

    def between(self, node: exp.Between) -> Expression:
        value, low, high = (self.bind(node.args[name]) for name in ("this", "low", "high"))
        return connect("and", compare(">=", value, low), compare("<=", value, high))

    def like(self, node: exp.Like) -> Expression:
        matches = like(self.bind(node.this), self.bind(node.expression))
        return negation(matches) if node.args.get("negate") else matches

    def item(self, node: exp.Bracket) -> Expression:
        if len(node.expressions) != 1:
            raise Misuse(f"an array has one number in [ ]: {node.sql('spark')}")
        return element(self.bind(node.this), self.bind(node.expressions[0]))

    def interval(self, node: exp.Interval) -> Expression:
        unit = node.args.get("unit")
        if not isinstance(node.this, exp.Literal) or not isinstance(unit, exp.Var | None):
            raise Misuse(
                f"not an interval: {node.sql('spark')}", "Write interval 5 minutes, or n * interval 1 minute"
            )
        return intervals.literal(f"{node.this.name} {unit.name if unit else ''}".strip())

    def if_(self, node: exp.If) -> Expression:
        parts = [node.this, node.args["true"], node.args.get("false")]
        if parts[2] is None:
            raise Misuse("if() takes 3 arguments, got 2")
        return if_([self.bind(each) for each in parts])


def _binary(operator: str) -> Callable[[Binder, exp.Expression], Expression]:
    def build(binder: Binder, node: exp.Expression) -> Expression:
        left, right = binder.bind(node.this), binder.bind(node.expression)
        if operator in ("and", "or"):
            return connect(operator, left, right)
        if operator == "||":
            return joined(left, right)
        if operator in ("+", "-", "*", "/", "%", "div"):
            return arithmetic(operator, left, right)
        return compare(operator, left, right)

    return build


_BUILDERS: dict[type[exp.Expression], Callable[[Binder, Any], Expression]] = {
    exp.Add: _binary("+"),
    exp.Sub: _binary("-"),
    exp.Mul: _binary("*"),
    exp.Div: _binary("/"),
    exp.Mod: _binary("%"),
    exp.IntDiv: _binary("div"),
    exp.DPipe: _binary("||"),
    exp.EQ: _binary("="),
    exp.NEQ: _binary("<>"),
    exp.LT: _binary("<"),
    exp.LTE: _binary("<="),
    exp.GT: _binary(">"),
    exp.GTE: _binary(">="),
    exp.NullSafeEQ: _binary("<=>"),
    exp.And: _binary("and"),
    exp.Or: _binary("or"),
    exp.Paren: lambda binder, node: binder.bind(node.this),
    exp.Literal: lambda binder, node: (
        literals.string(node.name) if node.is_string else literals.number(node.name)
    ),
    exp.Boolean: lambda binder, node: literals.boolean(bool(node.this)),
    exp.Null: lambda binder, node: literals.null(),
    exp.Column: Binder.column,
    exp.Anonymous: Binder.function,
    exp.Case: Binder.case,
    exp.Cast: Binder.cast,
    exp.TryCast: Binder.cast,
    exp.Neg: Binder.negative,
    exp.Is: Binder.is_,
    exp.Not: Binder.not_,
    exp.In: Binder.in_,
    exp.Between: Binder.between,
    exp.Like: Binder.like,
    exp.If: Binder.if_,
    exp.Bracket: Binder.item,
    exp.Interval: Binder.interval,
    exp.RegexpLike: lambda binder, node: rlike(binder.bind(node.this), binder.bind(node.expression)),
    exp.RawString: lambda binder, node: literals.string(node.name),
}


def _place(node: exp.Expression, text: str) -> tuple[int | None, int | None]:
    """Find where a syntax tree stands in the text, from the positions sqlglot keeps on names and literals."""
    spans = [(each.meta["start"], each.meta["end"] + 1) for each in node.walk() if "start" in each.meta]
    if not spans:
        return None, None
    start = min(span[0] for span in spans) - len(PREFIX)
    end = max(span[1] for span in spans) - len(PREFIX)
    return (start, end) if 0 <= start < end <= len(text) else (None, None)


def syntax_error(text: str, error: SqlglotError) -> ExpressionError:
    details = getattr(error, "errors", None)
    if not details:
        return ExpressionError(text, f"not valid SQL: {str(error).splitlines()[0]}")
    first = details[0]
    description = str(first.get("description", "")).rstrip(".")
    if "<class" in description:
        description = "something is missing"
    problem = f"not valid SQL: {description}"
    highlight, column = first.get("highlight") or "", first.get("col")
    end = column - len(PREFIX) if isinstance(column, int) and first.get("line") == 1 else None
    if end is None or not highlight or end < len(highlight) or end > len(text):
        return ExpressionError(text, problem)
    return ExpressionError(text, problem, "", end - len(highlight), end)
