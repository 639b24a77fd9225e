"""Functions and aggregates that users bring along: called with whole Arrow arrays, and checked for what they return."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from itertools import chain
from typing import Any

import pyarrow as pa

from riprap.expressions.errors import EvaluationError, Misuse
from riprap.expressions.tree import Columns, Expression, Risk, Value, columns_of
from riprap.expressions.types import INTERVAL, NULL, check_type, normalise, type_name


@dataclass(frozen=True, slots=True)
class UserFunction:
    """A function over Arrow arrays that expressions can call by name.

    >>> import pyarrow.compute as pc
    >>> UserFunction("twice", lambda x: pc.multiply(x, 2), returns=pa.int64()).name
    'twice'

    It gets one array for each argument and returns an array of the same length and of type `returns`. It
    must be without side effects: rows may be evaluated again to find the one that failed. One that may return something
    else for the same rows says so.
    """

    name: str
    callable: Callable[..., pa.Array]
    returns: pa.DataType
    deterministic: bool = True

    def __post_init__(self) -> None:
        check_type(self.returns, f"user function {self.name}")


@dataclass(frozen=True, slots=True)
class UserAggregate:
    """An aggregate over Arrow arrays that an aggregate operator can call by name.

    >>> import pyarrow.compute as pc
    >>> UserAggregate("oldest", lambda xs: pc.list_element(xs, 0), returns=pa.int64()).name
    'oldest'

    It gets one list array for each argument, whose elements are the windows: each the values of that argument, oldest
    first, nulls included. It returns an array of type `returns` with one value for each window, which must depend
    on that window alone: how many windows come in one call is not fixed. It must be deterministic and without side
    effects.
    """

    name: str
    callable: Callable[..., pa.Array]
    returns: pa.DataType
    deterministic: bool = True

    def __post_init__(self) -> None:
        check_type(self.returns, f"user aggregate {self.name}")

    def apply(self, sql: str, windows: Sequence[pa.ListArray]) -> pa.Array:
        """Call it with the windows of each argument; `sql` names the call in errors."""
        return _checked("aggregate", self, sql, windows, len(windows[0]))


@dataclass(frozen=True, slots=True, kw_only=True)
class UserCall(Expression):
    function: UserFunction
    arguments: tuple[Expression, ...]

    def value(self, columns: Columns, rows: int) -> Value:
        arrays = [argument.evaluate(columns, rows) for argument in self.arguments]
        return _checked("function", self.function, self.sql, arrays, rows)


def _checked(
    kind: str, user: UserFunction | UserAggregate, sql: str, arrays: Sequence[pa.Array], rows: int
) -> pa.Array:
    """Call a user's code and check what it returns."""
    who = f"user {kind} {user.name}"
    try:
        result = user.callable(*arrays)
    except Exception as error:
        raise EvaluationError(sql, f"{who} failed: {error!r}") from error
    if not isinstance(result, pa.Array | pa.ChunkedArray):
        raise EvaluationError(sql, f"{who} returned a {type(result).__name__}, not an Arrow array")
    if len(result) != rows:
        raise EvaluationError(sql, f"{who} returned {len(result)} rows for {rows}")
    if result.type != user.returns:
        returned, declared = type_name(result.type), type_name(user.returns)
        raise EvaluationError(sql, f"{who} returned {returned}, not the declared {declared}")
    return normalise(result)


def user_call(function: UserFunction, arguments: Sequence[Expression]) -> Expression:
    """Build a call of a user's function."""
    check_arguments(function.name, arguments)
    return UserCall(
        sql=f"{function.name}({', '.join(each.sql for each in arguments)})",
        type=check_type(function.returns),
        columns=columns_of(*arguments),
        risk=Risk.USER_CODE,
        function=function,
        arguments=tuple(arguments),
    )


def check_arguments(name: str, arguments: Sequence[Expression]) -> None:
    """Refuse arguments from which no array can be made for a user's code."""
    if not arguments:
        raise Misuse(f"{name}() needs at least one argument", "A function of nothing has no rows")
    for argument in arguments:
        if argument.type == NULL:
            raise Misuse(f"null has no type as an argument of {name}()", "Write cast(null as int)")
        if argument.type == INTERVAL:
            raise Misuse(
                f"{name}() gets an interval: {argument.sql}", "Write unix_micros(a) - unix_micros(b)"
            )


def differing_in(value: Any) -> Iterator[str]:
    """Name the functions in expressions, wherever they are in a value, that may return something else another time."""
    if isinstance(value, UserFunction | UserAggregate):
        if not value.deterministic:
            yield value.name
    elif is_dataclass(value) and not isinstance(value, type):
        yield from chain.from_iterable(differing_in(getattr(value, each.name)) for each in fields(value))
    elif isinstance(value, Mapping):
        yield from chain.from_iterable(map(differing_in, value.values()))
    elif isinstance(value, tuple | list):
        yield from chain.from_iterable(map(differing_in, value))
