"""Build what takes arrays apart: an element by its number, and how many there are."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from riprap.expressions.errors import KernelFailure, Misuse
from riprap.expressions.mathematics import literal_int
from riprap.expressions.tree import Expression, Value, call
from riprap.expressions.types import BIGINT, INT, is_list, type_name


def element(array: Expression, position: Expression) -> Expression:
    """Build `array[position]`: counted from 0; one that is not there raises."""
    _need_list("[ ]", array)
    kernel = partial(_element, position=literal_int("[ ]", position), missing="no element with this number")
    return call(f"{array.operand}[{position.sql}]", array.type.value_type, kernel, array, raises=True)


def get(arguments: Sequence[Expression]) -> Expression:
    """Build `get(array, position)`: counted from 0; one that is not there is null."""
    array, position = arguments
    _need_list("get", array)
    kernel = partial(_element, position=literal_int("get", position), missing=None)
    return call(f"get({array.sql}, {position.sql})", array.type.value_type, kernel, array)


def element_at(arguments: Sequence[Expression]) -> Expression:
    """Build `element_at(array, position)`: counted from 1, or from the end when negative; else it raises."""
    array, position = arguments
    _need_list("element_at", array)
    number = literal_int("element_at", position)
    if number == 0:
        raise Misuse("element_at counts from 1, or from the end from -1: there is no 0")
    kernel = partial(
        _element,
        position=number - 1 if number > 0 else number,
        from_end=True,
        missing="no element with this number",
    )
    return call(f"element_at({array.sql}, {position.sql})", array.type.value_type, kernel, array, raises=True)


def size(arguments: Sequence[Expression]) -> Expression:
    (array,) = arguments
    _need_list("size", array)
    return call(f"size({array.sql})", INT, pc.list_value_length, array)


def _need_list(name: str, argument: Expression) -> None:
    if not is_list(argument.type):
        raise Misuse(
            f"{name} needs an array, got {type_name(argument.type)}: {argument.sql}",
            "split(text, ',') makes one",
        )


def _element(value: Value, *, position: int, missing: str | None, from_end: bool = False) -> Value:
    if isinstance(value, pa.Scalar):
        alone = pa.array([value.as_py()], value.type)
        return _element(alone, position=position, missing=missing, from_end=from_end)[0]
    lengths = pc.list_value_length(value)
    if from_end and position < 0:
        within = pc.greater_equal(lengths, -position)
        places: Value = pc.add(lengths, position)
    else:
        within = pc.and_(pc.greater(lengths, position), position >= 0)
        places = position
    if missing is not None and pc.all(within).as_py() is False:
        raise KernelFailure(missing)
    starts = pc.cast(value.offsets[:-1], BIGINT)
    wanted = pc.add(starts, pc.cast(places, BIGINT))
    return value.values.take(pc.if_else(pc.fill_null(within, False), wanted, pa.scalar(None, BIGINT)))
