"""Type literals as Spark does: the first of int, bigint and decimal that fits; double with an exponent."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa

from riprap.expressions.errors import Misuse
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
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_INSTANT = re.compile(r"\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}:\d{2}(\.\d{1,6})?)?")


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
    sql = f"{type_name(type)}'{text}'"
    pattern = _DATE if type == DATE else _INSTANT
    if not pattern.fullmatch(text):
        form = "2020-01-31" if type == DATE else "2020-01-31 12:34:56.789"
        raise Misuse(f"not a {type_name(type)}: {text!r}", f"Write {type_name(type)}'{form}'")
    try:
        if type == DATE:
            return _literal(sql, type, date.fromisoformat(text))
        whole, _, fraction = text.partition(".")
        moment = datetime.fromisoformat(whole).replace(microsecond=int(fraction.ljust(6, "0")))
    except ValueError as error:
        raise Misuse(f"not a {type_name(type)}: {text!r}", str(error)) from None
    return _literal(sql, type, moment.replace(tzinfo=UTC) if type == TIMESTAMP else moment)


def _literal(sql: str, type: pa.DataType, value: object, negative: bool = False) -> Literal:
    return Literal(
        sql=sql, type=type, columns=frozenset(), atomic=not negative, scalar=pa.scalar(value, type)
    )
