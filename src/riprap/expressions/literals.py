"""Type literals as Spark does: the first of int, bigint and decimal that fits; double with an exponent."""

from __future__ import annotations

import re
from decimal import Decimal

import pyarrow as pa

from riprap.expressions import moments
from riprap.expressions.errors import KernelFailure, Misuse
from riprap.expressions.tree import Literal
from riprap.expressions.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    MAX_PRECISION,
    NULL,
    STRING,
    TIMESTAMP,
    type_name,
)

_ESCAPES = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\0"}
_ZONELESS = re.compile(r"[0-9T:. -]+")


def number(text: str, negative: bool = False) -> Literal:
    """Make a number literal from its digits.

    >>> str(number("1.50").type), str(number("3000000000").type), str(number("1e0").type)
    ('decimal128(3, 2)', 'int64', 'double')
    """
    sql = f"-{text}" if negative else text
    if "e" in text.lower():
        return _literal(sql, DOUBLE, float(sql), negative)
    value = Decimal(sql)
    if "." not in text:
        if -(2**31) <= value < 2**31:
            return _literal(sql, INT, int(value), negative)
        if -(2**63) <= value < 2**63:
            return _literal(sql, BIGINT, int(value), negative)
    _, digits, exponent = value.as_tuple()
    scale = -int(exponent)
    precision = max(len(digits), scale)
    if precision > MAX_PRECISION:
        raise Misuse(f"{sql} has more than {MAX_PRECISION} digits")
    return _literal(sql, pa.decimal128(precision, scale), value, negative)


def string(text: str) -> Literal:
    sql = "'" + "".join(_ESCAPES.get(character, character) for character in text) + "'"
    return _literal(sql, STRING, text)


def boolean(value: bool) -> Literal:
    return _literal("true" if value else "false", BOOLEAN, value)


def null() -> Literal:
    return _literal("null", NULL, None)


def time(text: str, type: pa.DataType) -> Literal:
    """Make a date, timestamp or timestamp_ntz literal; a timestamp without a zone is in UTC."""
    plain = type == TIMESTAMP or _ZONELESS.fullmatch(text)
    try:
        if not plain:
            raise KernelFailure(f"not a {type_name(type)}")
        scalar = moments.from_text(pa.scalar(text), type=type)
    except KernelFailure as failure:
        form = "2020-01-31" if type == DATE else "2020-01-31 12:34:56.789"
        raise Misuse(f"{failure}: {text!r}", f"Write {type_name(type)}'{form}'") from None
    return Literal(sql=f"{type_name(type)}'{text}'", type=type, columns=frozenset(), scalar=scalar)


def _literal(sql: str, type: pa.DataType, value: object, negative: bool = False) -> Literal:
    return Literal(
        sql=sql, type=type, columns=frozenset(), atomic=not negative, scalar=pa.scalar(value, type)
    )
