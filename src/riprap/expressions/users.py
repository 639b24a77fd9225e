"""Functions that users bring along: called with whole Arrow arrays, and checked for what they return."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from riprap.expressions.errors import EvaluationError, Misuse
from riprap.expressions.tree import Columns, Expression, Risk, Value, columns_of
from riprap.expressions.types import NULL, check_type, normalise, type_name


@dataclass(frozen=True, slots=True)
class UserFunction:
    """A function over Arrow arrays that expressions can call by name.

    >>> import pyarrow.compute as pc
    >>> UserFunction("twice", lambda x: pc.multiply(x, 2), returns=pa.int64()).name
    'twice'

    It gets one array for each argument and returns an array of the same length and of type `returns`. It
    must be deterministic and without side effects: rows may be evaluated again to find the one that failed.
    """

    name: str
    callable: Callable[..., pa.Array]
    returns: pa.DataType

    def __post_init__(self) -> None:
        check_type(self.returns, f"user function {self.name}")


@dataclass(frozen=True, slots=True, kw_only=True)
class UserCall(Expression):
    function: UserFunction
    arguments: tuple[Expression, ...]

    def value(self, columns: Columns, rows: int) -> Value:
        arrays = [argument.evaluate(columns, rows) for argument in self.arguments]
        try:
            result = self.function.callable(*arrays)
        except Exception as error:
            raise EvaluationError(
                self.sql, f"user function {self.function.name} failed: {error!r}"
            ) from error
        if not isinstance(result, pa.Array | pa.ChunkedArray):
            raise self._wrong(f"a {type(result).__name__}, not an Arrow array")
        if len(result) != rows:
            raise self._wrong(f"{len(result)} rows for {rows}")
        if result.type != self.function.returns:
            raise self._wrong(
                f"{type_name(result.type)}, not the declared {type_name(self.function.returns)}"
            )
        return normalise(result)

    def _wrong(self, what: str) -> EvaluationError:
        return EvaluationError(self.sql, f"user function {self.function.name} returned {what}")


def user_call(function: UserFunction, arguments: Sequence[Expression]) -> Expression:
    """Build a call of a user's function."""
    if not arguments:
        raise Misuse(f"{function.name}() needs at least one argument", "A function of nothing has no rows")
    for argument in arguments:
        if argument.type == NULL:
            raise Misuse(f"null has no type as an argument of {function.name}()", "Write cast(null as int)")
    return UserCall(
        sql=f"{function.name}({', '.join(each.sql for each in arguments)})",
        type=check_type(function.returns),
        columns=columns_of(*arguments),
        risk=Risk.USER_CODE,
        function=function,
        arguments=tuple(arguments),
    )
