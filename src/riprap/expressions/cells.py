"""What a cell of text means in a type, and which cells of a column mean nothing in it.

Values are written as Arrow's CSV reader takes them, but for what Spark does otherwise: an integer may have a plus and
is not hexadecimal, a time without a zone is in UTC, and a time with a day may be written as ``cast`` reads it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from riprap.expressions import moments
from riprap.expressions.types import TIMESTAMP, TIMESTAMP_NTZ, type_name

_SHOWN = 80
_WAYS = 16
_DECIMAL = r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"
_TRUE = ("1", "true", "True", "TRUE")
_TRUTHS = (*_TRUE, "0", "false", "False", "FALSE")
_ZONE = r"\d[ T].*(?:[A-Z]|[+-][0-9:]+)[\x00-\x20\x7f]*$"
_TIME = r"[\x00-\x20\x7f]*\d{4}-\d{1,2}-\d{1,2}(?s:[ T].*)?[\x00-\x20\x7f]*"


def not_a(name: str, cell: object, type: pa.DataType) -> str:
    """Say that a value is not of the type of its column.

    >>> not_a("price", "abc", pa.float64())
    "column 'price': 'abc' is not a double"
    """
    wanted = type_name(type)
    article = "an" if wanted[0] in "aeiou" else "a"
    return f"column '{name}': {shown(cell)} is not {article} {wanted}"


def shown(value: object) -> str:
    """Write a value for people, shortened."""
    text = repr(value[: _SHOWN + 1] if isinstance(value, str | bytes) else value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def failing(values: pa.Array, convert: Callable[[pa.Array], object]) -> list[int]:
    """Return the places of the values that do not convert, by trying ever smaller parts."""
    rows: list[int] = []
    parts = [(0, len(values))]
    while parts:
        start, end = parts.pop()
        try:
            convert(values.slice(start, end - start))
        except pa.ArrowInvalid:
            if end - start == 1:
                rows.append(start)
            else:
                cuts = np.linspace(start, end, min(_WAYS, end - start) + 1).astype(int).tolist()
                parts.extend(zip(cuts[-2::-1], cuts[:0:-1], strict=True))
    return rows


def converted(text: pa.Array | pa.ChunkedArray, type: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """Convert cells to a type, or raise ArrowInvalid.

    >>> converted(pa.array([" +4", None]), pa.int64()).to_pylist()
    [4, None]
    """
    if pa.types.is_boolean(type):
        return _truths(text)
    if pa.types.is_timestamp(type):
        return _times(text, type)
    if pa.types.is_string(type) or pa.types.is_binary(type):
        return text.cast(type)
    trimmed = pc.ascii_trim(text, " \t")
    if pa.types.is_integer(type):
        if pc.any(pc.match_substring_regex(trimmed, "[xX]")).as_py():
            raise pa.ArrowInvalid("hexadecimal")
        trimmed = pc.replace_substring_regex(trimmed, r"^\+(\d)", r"\1")
    return trimmed.cast(type)


def unreadable(cells: pa.Array, type: pa.DataType) -> list[int]:
    """Return the places of the cells (binary) that do not convert to a type."""
    if pa.types.is_binary(type):
        return []
    no_text = failing(cells, lambda part: part.cast(pa.string()))
    if pa.types.is_string(type):
        return no_text
    text = _without(cells, no_text).cast(pa.string())
    # Most of what is wrong is found here, at once; to find the rest costs some microseconds for each.
    blanks = "" if pa.types.is_boolean(type) or pa.types.is_timestamp(type) else "[ \t]*"
    wrong = _false(pc.match_substring_regex(text, f"^{blanks}(?:{_pattern(type)}){blanks}$"), text)
    text = _without(text, wrong)
    if pa.types.is_timestamp(type):
        rest = failing(_where(pc.is_null(_as_cast(text, type)), text), lambda part: _by_arrow(part, type))
    else:
        rest = failing(text, lambda part: converted(part, type))
    return sorted({*no_text, *wrong, *rest})


def _truths(text: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    if not pc.all(pc.is_in(text.drop_null(), pa.array(_TRUTHS)), min_count=0).as_py():
        raise pa.ArrowInvalid("not a boolean")
    return pc.if_else(pc.is_null(text), None, pc.is_in(text, pa.array(_TRUE)))


def _times(text: pa.Array | pa.ChunkedArray, type: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """Read times, of which each has a zone or is in UTC; those of a type without zones have none."""
    without = pa.timestamp(type.unit)
    for each in (without,) if type.tz is None else (without, type):
        # A column is mostly of one kind, and to tell them apart takes longer than to read them.
        try:
            return text.cast(each).cast(type)
        except pa.ArrowInvalid:
            pass
    times = _as_cast(text, type)
    return pc.coalesce(times, _by_arrow(_where(pc.is_null(times), text), type))


def _as_cast(text: pa.Array | pa.ChunkedArray, type: pa.DataType) -> pa.Array:
    """Read the times that have a day and are written as ``cast`` reads them; others are null."""
    text = text.combine_chunks() if isinstance(text, pa.ChunkedArray) else text
    written = pc.match_substring_regex(text, f"^{_TIME}$")
    if type.tz is None:
        written = pc.and_not(written, pc.match_substring_regex(text, _ZONE))
    times = moments.moments_in(_where(written, text), type=TIMESTAMP_NTZ if type.tz is None else TIMESTAMP)
    return times.cast(type)


def _by_arrow(text: pa.Array, type: pa.DataType) -> pa.Array:
    """Read times as Arrow does, some with a zone and some without."""
    if type.tz is None:
        return text.cast(type)
    zoned = pc.match_substring_regex(text, _ZONE)
    in_utc = _where(pc.invert(zoned), text).cast(pa.timestamp(type.unit)).cast(type)
    return pc.coalesce(in_utc, _where(zoned, text).cast(type))


def _pattern(type: pa.DataType) -> str:
    """Return a pattern that every cell matches that converts to a type."""
    if pa.types.is_boolean(type):
        return "|".join(_TRUTHS)
    if pa.types.is_integer(type):
        return r"[+-]?\d+"
    if pa.types.is_floating(type):
        return rf"{_DECIMAL}|[+-]?(?i:nan.*|inf|infinity)"
    if pa.types.is_decimal(type):
        return _DECIMAL
    if pa.types.is_date(type):
        return r"\d{4}-\d\d-\d\d"
    return _TIME


def _without(values: pa.Array, places: list[int]) -> pa.Array:
    """Make the values at some places null."""
    if not places:
        return values
    kept = np.ones(len(values), bool)
    kept[places] = False
    return _where(pa.array(kept), values)


def _where(kept: pa.Array, values: pa.Array) -> pa.Array:
    return pc.if_else(kept, values, pa.scalar(None, values.type))


def _false(answers: pa.Array, values: pa.Array) -> list[int]:
    """Return the places of the answers that are no, but for nulls among the values."""
    no = pc.and_(pc.is_valid(values), pc.invert(pc.fill_null(answers, False)))
    places: list[int] = np.flatnonzero(no.to_numpy(zero_copy_only=False)).tolist()
    return places
