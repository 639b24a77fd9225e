"""Hold the source text of a loop over tuples while it is written, for Numba to compile.

In the source whole numbers, dates, timestamps, intervals and the codes of strings are int64, whatever their width;
float, double and boolean are themselves. A value comes with a flag that says whether it is valid. The value of a null
may be anything, but that of a null boolean is False, so a condition is its value alone.

Nothing of a user's text gets into the source: names are numbered, strings are codes, numbers are printed anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from riprap.expressions.errors import Misuse
from riprap.expressions.tree import Expression
from riprap.expressions.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    INTERVAL,
    SMALLINT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    TINYINT,
    is_fractional,
    is_integral,
)

DTYPES: Mapping[pa.DataType, np.dtype[Any]] = {
    BOOLEAN: np.dtype(np.bool_),
    TINYINT: np.dtype(np.int8),
    SMALLINT: np.dtype(np.int16),
    INT: np.dtype(np.int32),
    BIGINT: np.dtype(np.int64),
    FLOAT: np.dtype(np.float32),
    DOUBLE: np.dtype(np.float64),
    DATE: np.dtype(np.int32),
    TIMESTAMP: np.dtype(np.int64),
    TIMESTAMP_NTZ: np.dtype(np.int64),
    INTERVAL: np.dtype(np.int64),
    STRING: np.dtype(np.int32),
}
_ZEROS = {BOOLEAN: "False", FLOAT: "np.float32(0.0)", DOUBLE: "0.0"}
_MOST_BLOCKS = 80  # Python takes no more than 100 levels of indentation


@dataclass(frozen=True, slots=True)
class Operand:
    """The source of a value, and of the flag that says whether it is valid: names or constants."""

    value: str
    valid: str = "True"


@dataclass(slots=True)
class Loop:
    """The lines so far, the ways they can fail, and the string literals they compare with."""

    lines: list[str] = field(default_factory=list)
    depth: int = 2
    names: int = 0
    failures: list[tuple[str, str]] = field(default_factory=list)
    texts: dict[str, int] = field(default_factory=dict)
    ordered: bool = False  # the codes of strings must be in the order of the strings

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        if self.depth > _MOST_BLOCKS:
            raise Misuse("the expression is nested too deeply", "Split it between several variables")
        self.line(header)
        self.depth += 1
        yield
        self.depth -= 1

    def let(self, source: str) -> str:
        """Name what some source computes."""
        self.names += 1
        self.line(f"v{self.names} = {source}")
        return f"v{self.names}"

    def pair(self, source: str) -> tuple[str, str]:
        """Name both parts of what some source computes."""
        first, second = f"v{self.names + 1}", f"v{self.names + 2}"
        self.names += 2
        self.line(f"{first}, {second} = {source}")
        return first, second

    def named(self, source: str) -> str:
        """Name what some source computes, unless it is a name already."""
        return source if source.isidentifier() else self.let(source)

    def result(self, type: pa.DataType, start: Operand | None = None) -> Operand:
        """Declare a value, null unless told otherwise, that one of several blocks will set."""
        start = start or Operand(zero(type), "False")
        return Operand(self.let(start.value), self.let(start.valid))

    def set(self, result: Operand, value: Operand) -> None:
        self.line(f"{result.value} = {value.value}")
        self.line(f"{result.valid} = {value.valid}")

    def fail(self, node: Expression, problem: str, condition: str, valid: str) -> None:
        """Leave the loop, where a condition holds, with the row and the number of the failure."""
        self.line(f"if {both(valid, condition)}:")
        self.line(f"    return i, {len(self.failures)}")
        self.failures.append((node.sql, problem))

    def literal(self, scalar: pa.Scalar) -> Operand:
        if not scalar.is_valid:
            return Operand(zero(scalar.type), "False")
        if scalar.type == STRING:
            return Operand(f"t{self.texts.setdefault(scalar.as_py(), len(self.texts))}")
        if is_fractional(scalar.type):
            return Operand(f"np.{DTYPES[scalar.type].name}({_double(scalar.as_py())})")
        if scalar.type == BOOLEAN:
            return Operand(str(scalar.as_py()))
        return Operand(whole(scalar.as_py() if is_integral(scalar.type) else scalar.value))


def both(*flags: str) -> str:
    """Write the conjunction of flags.

    >>> both("v1", "True", "v2 < 0"), both("True"), both("v1", "False")
    ('v1 & (v2 < 0)', 'True', 'False')
    """
    if "False" in flags:
        return "False"
    chosen = [flag if flag.isidentifier() else f"({flag})" for flag in flags if flag != "True"]
    return " & ".join(chosen) or "True"


def whole(number: int) -> str:
    """Write a whole number. A minus is an operator, so the least bigint has no literal.

    >>> whole(7), whole(-7)
    ('7', '(-6 - 1)')
    """
    return f"({number + 1} - 1)" if number < 0 else str(number)


def zero(type: pa.DataType) -> str:
    """Write a value for a null of a type."""
    return _ZEROS.get(type, "0")


def _double(value: float) -> str:
    if value != value:
        return "np.nan"
    return {float("inf"): "np.inf", float("-inf"): "-np.inf"}.get(value, repr(value))
