"""Find the cells of a column that do not convert to the type wanted, as Arrow's CSV reader converts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from riprap.expressions import type_name

_SHOWN = 80
_WAYS = 16
_DECIMAL = r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"
_TRUTHS = ("0", "1", "false", "False", "FALSE", "true", "True", "TRUE")


def not_a(name: str, found: object, type: pa.DataType) -> str:
    """Say that a value is not of the type of its column.

    >>> not_a("price", "abc", pa.float64())
    "column 'price': 'abc' is not a double"
    """
    wanted = type_name(type)
    article = "an" if wanted[0] in "aeiou" else "a"
    return f"column '{name}': {shown(found)} is not {article} {wanted}"


def shown(value: object) -> str:
    """Write a value for people, shortened."""
    text = repr(value[: _SHOWN + 1] if isinstance(value, str | bytes) else value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def failing(values: pa.Array, convert: Callable[[pa.Array], object]) -> list[int]:
    """Return the places of the values that do not convert, by trying ever smaller parts."""
    found: list[int] = []
    parts = [(0, len(values))]
    while parts:
        start, end = parts.pop()
        try:
            convert(values.slice(start, end - start))
        except pa.ArrowInvalid:
            if end - start == 1:
                found.append(start)
            else:
                cuts = np.linspace(start, end, min(_WAYS, end - start) + 1).astype(int).tolist()
                parts.extend(zip(cuts[-2::-1], cuts[:0:-1], strict=True))
    return found


def unreadable(cells: pa.Array, type: pa.DataType) -> list[int]:
    """Return the places of the cells (binary) that Arrow's CSV reader does not convert to a type."""
    if pa.types.is_binary(type):
        return []
    found = failing(cells, lambda part: part.cast(pa.string()))
    if pa.types.is_string(type):
        return found
    text = _without(cells, found).cast(pa.string())
    if pa.types.is_boolean(type):
        return sorted([*found, *_false(pc.is_in(text, pa.array(_TRUTHS)), text)])
    if not pa.types.is_timestamp(type):
        text = pc.ascii_trim(text, " \t")
    # Most of what is wrong is found here, at once; to find the rest costs some microseconds for each.
    wrong = _false(pc.match_substring_regex(text, f"^(?:{_pattern(type)})$"), text)
    rest = failing(_without(text, wrong), lambda part: part.cast(type))
    return sorted({*found, *wrong, *rest})


def _pattern(type: pa.DataType) -> str:
    """Return a pattern that every cell matches that converts to a type."""
    if pa.types.is_integer(type):
        return r"-?\d+|-?0[xX][0-9a-fA-F]+"
    if pa.types.is_floating(type):
        return rf"{_DECIMAL}|[+-]?(?i:nan.*|inf|infinity)"
    if pa.types.is_decimal(type):
        return _DECIMAL
    if pa.types.is_date(type):
        return r"\d{4}-\d\d-\d\d"
    return r"\d{4}-\d\d-\d\d([ T].*)?"


def _without(values: pa.Array, places: list[int]) -> pa.Array:
    """Make the values at some places null."""
    if not places:
        return values
    kept = np.ones(len(values), bool)
    kept[places] = False
    return pc.if_else(pa.array(kept), values, pa.scalar(None, values.type))


def _false(answers: pa.Array, values: pa.Array) -> list[int]:
    """Return the places of the answers that are no, but for nulls among the values."""
    no = pc.and_(pc.is_valid(values), pc.invert(pc.fill_null(answers, False)))
    places: list[int] = np.flatnonzero(no.to_numpy(zero_copy_only=False)).tolist()
    return places
