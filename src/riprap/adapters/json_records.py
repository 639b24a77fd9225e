"""Turn JSON objects into rows with Arrow's reader, and say of each record it does not take what is wrong.

Arrow reads a stream of values and does not care for lines. A record that begins with ``{`` and ends with ``}`` is one
object or more: between ``}``, a line break and ``{`` the reader can only be outside of every object, since no string
holds a line break. So if there are as many rows as records, each record is one object.
"""

from __future__ import annotations

import datetime
import decimal
import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json

from riprap.adapters.framing import Places, RecordBlock
from riprap.adapters.json_numbers import bare_numbers
from riprap.adapters.salvage import Salvaged, salvage, text_of
from riprap.expressions.cells import converted, failing, not_a, shown
from riprap.machine_code import compiled

_READ_BYTES = 1 << 20
# So many records are looked at in Python to find a bad one among them.
_SCREENED = 512
_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)")
# The usual ways to write a time, which are quickly judged: others are read to find out.
_USUAL_TIME = re.compile(
    r"[\x00-\x20\x7f]*(\d{4})-(\d{1,2})-(\d{1,2})(?:[ T](\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.\d*)?"
    r"(?: *(?:Z|UTC|[+-](?:0\d|1[0-7]):[0-5]\d))?)?)?)?[\x00-\x20\x7f]*",
    re.ASCII,
)
_DAY = re.compile(r"[\x00-\x20\x7f]*\d{4}-\d", re.ASCII)
_UTC = pa.timestamp("us", "UTC")
_NUMBERS = int | float | decimal.Decimal


def read_json_records(block: RecordBlock, chosen: Places, schema: pa.Schema, *, threads: bool) -> Salvaged:
    """Read some records of a block. Fields that are not in the schema are passed over; missing ones are null."""
    into, reader = Salvaged(), _JsonReader(block, schema, threads)
    objects = _objects(block.data, block.starts[chosen], block.ends[chosen])
    if not objects.all():
        into.bad.update((int(i), reader.explain(int(i)) or "not a JSON object") for i in chosen[~objects])
        chosen = chosen[objects]
    invalid = _not_utf8(block, chosen)
    if len(invalid):
        into.bad.update((int(i), undecodable(block.record(int(i)))) for i in invalid)
        chosen = chosen[~np.isin(chosen, invalid)]
    salvage(chosen, reader.read, reader.screen, at_most=_SCREENED, into=into)
    return into


class _JsonReader:
    def __init__(self, block: RecordBlock, schema: pa.Schema, threads: bool) -> None:
        self._block, self._schema, self._threads = block, schema, threads
        self._bare = False
        self._readable = _readable(schema, times=True)
        self._longest = int((block.ends - block.starts).max(initial=0))
        # Made once: to ask Arrow for a type takes longer than to look at a value.
        self._checks = [(f.name, f.nullable, _check(f.type), f.type) for f in schema]
        exact = any(pa.types.is_decimal(_element(f.type)) for f in schema)
        self._decoder = json.JSONDecoder(
            object_pairs_hook=_Object, parse_float=decimal.Decimal if exact else None
        )

    def read(self, chosen: Places) -> pa.Table:
        try:
            return self._read(chosen)
        except pa.ArrowInvalid:
            if self._bare:
                raise
            self._bare = True
            block = bare_numbers(self._block, self._schema)
            as_text = _readable(self._schema, times=False)
            if block is None and as_text == self._readable:
                raise
            self._block, self._readable = block or self._block, as_text
            return self._read(chosen)

    def _read(self, chosen: Places) -> pa.Table:
        table = pa.json.read_json(
            pa.py_buffer(text_of(self._block, chosen)),
            read_options=pa.json.ReadOptions(
                use_threads=self._threads, block_size=max(_READ_BYTES, self._longest + 4)
            ),
            parse_options=pa.json.ParseOptions(
                explicit_schema=self._readable, unexpected_field_behavior="ignore"
            ),
        )
        if table.num_rows != len(chosen):
            raise pa.ArrowInvalid(f"{table.num_rows} objects in {len(chosen)} records")
        for field in self._schema:
            if not field.nullable and table.column(field.name).null_count:
                raise pa.ArrowInvalid(f"column '{field.name}' has nulls")
        columns = [_typed(table.column(field.name), field.type) for field in self._schema]
        return pa.table(columns, schema=self._schema)

    def screen(self, chosen: Places) -> dict[int, str]:
        """Say what is wrong with records, of those where Python can tell."""
        reasons = ((int(i), self.explain(int(i))) for i in chosen)
        return {i: reason for i, reason in reasons if reason is not None}

    def explain(self, index: int) -> str | None:
        """Say what is wrong with a record, None if Python finds nothing."""
        record = self._block.record(index)
        try:
            text = record.decode()
            value = self._decoder.decode(text)
        except UnicodeDecodeError:
            return undecodable(record)
        except json.JSONDecodeError as error:
            if not text.strip(" \t\r\n"):
                return "empty"
            # Arrow takes Inf for a number.
            return (
                None
                if "Inf" in text
                else f"not JSON: {error.msg.removesuffix(' at')} at character {error.pos + 1:,}"
            )
        except (ValueError, ArithmeticError, RecursionError):
            return None
        if not isinstance(value, _Object):
            return f"not a JSON object: {shown(text)}"
        return self._misfit(value)

    def _misfit(self, fields: _Object) -> str | None:
        values = dict(fields)
        for name, nullable, fits, type in self._checks:
            if len(values) < len(fields) and sum(key == name for key, _ in fields) > 1:
                return f"column '{name}' is there twice"
            value = values.get(name)
            if value is None:
                if not nullable:
                    return f"column '{name}' is null, and declared not null"
            elif not fits(value):
                return not_a(name, _plain(value), type)
        return None


class _Object(tuple[tuple[str, Any], ...]):
    """The names and values of a JSON object."""


def _readable(schema: pa.Schema, *, times: bool) -> pa.Schema:
    """Return the types to read for those of a schema: dates, and times unless said, are text to be cast."""

    def read_as(type: pa.DataType) -> pa.DataType:
        if pa.types.is_list(type):
            return pa.list_(read_as(type.value_type))
        text = pa.types.is_date(type) or (pa.types.is_timestamp(type) and not times)
        return pa.string() if text else type

    return pa.schema([pa.field(f.name, read_as(f.type)) for f in schema])


def _typed(column: pa.ChunkedArray, type: pa.DataType) -> pa.ChunkedArray | pa.Array:
    """Cast what was read as text."""
    if not pa.types.is_timestamp(_element(type)) or not pa.types.is_string(_element(column.type)):
        return column.cast(type)
    whole = column.combine_chunks()
    if not pa.types.is_list(type):
        return converted(whole, _UTC).cast(type)
    values = converted(whole.values, _UTC).cast(type.value_type)
    return pa.ListArray.from_arrays(whole.offsets, values, type=type, mask=whole.is_null())


def _element(type: pa.DataType) -> pa.DataType:
    return type.value_type if pa.types.is_list(type) else type


def _check(type: pa.DataType) -> Callable[[Any], bool]:
    """Make a check whether Arrow may take a value; it says no only if Arrow surely does not."""
    if pa.types.is_list(type):
        fits = _check(type.value_type)
        return lambda value: isinstance(value, list) and all(v is None or fits(v) for v in value)
    if pa.types.is_boolean(type):
        return lambda value: isinstance(value, bool)
    if pa.types.is_integer(type):
        most = 1 << (type.bit_width - 1)
        return lambda value: isinstance(value, int) and not isinstance(value, bool) and -most <= value < most
    if pa.types.is_floating(type):
        return lambda value: isinstance(value, _NUMBERS) and not isinstance(value, bool)
    if pa.types.is_decimal(type):
        scale, whole = int(type.scale), int(type.precision - type.scale)
        return lambda value: (
            isinstance(value, str | _NUMBERS)
            and not isinstance(value, bool)
            and _fits_decimal(value, scale=scale, whole=whole)
        )
    if pa.types.is_date(type):
        return lambda value: isinstance(value, str) and _is_date(value)
    if pa.types.is_timestamp(type):
        return lambda value: isinstance(value, str) and _is_time(value)
    return lambda value: isinstance(value, str)


def _fits_decimal(value: int | str | float | decimal.Decimal, *, scale: int, whole: int) -> bool:
    """Say whether a number has no digits below the scale, and at most ``whole`` digits before the point."""
    try:
        number = decimal.Decimal(value)
    except (decimal.InvalidOperation, ValueError):
        return False
    if not number.is_finite():
        return False
    _, digits, exponent = number.as_tuple()
    lost = -int(exponent) - scale
    if lost > 0 and any(digits[-lost:]):
        return False
    # Not abs(), which rounds to the context's 28 digits.
    return number.copy_abs() < decimal.Decimal(10) ** whole


def _is_date(text: str) -> bool:
    match = _DATE.fullmatch(text)
    return match is not None and _is_day(*map(int, match.groups()))


def _is_day(year: int, month: int, day: int) -> bool:
    try:
        # Arrow has a year 0, a leap year as 2000 is.
        datetime.date(year or 2000, month, day)
    except ValueError:
        return False
    return True


def _is_time(text: str) -> bool:
    usual = _USUAL_TIME.fullmatch(text)
    if usual is not None:
        year, month, day, hour, minute, second = (int(part or 0) for part in usual.groups())
        return _is_day(year, month, day) and hour < 24 and minute < 60 and second < 60
    if _DAY.match(text) is None:
        return False
    try:
        converted(pa.array([text], pa.string()), _UTC)
    except (pa.ArrowInvalid, UnicodeEncodeError):
        return False
    return True


def _plain(value: object) -> object:
    """Return a value as it is shown to people."""
    if isinstance(value, _Object):
        return {name: _plain(each) for name, each in value}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return float(value) if isinstance(value, decimal.Decimal) else value


def _not_utf8(block: RecordBlock, chosen: Places) -> Places:
    """Return the records that are not UTF-8."""
    if not len(chosen):
        return chosen
    text = text_of(block, chosen)
    if text.max(initial=0) < 128:
        return chosen[:0]
    whole = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), 1, [None, pa.py_buffer(np.array([0, len(text)])), pa.py_buffer(text)]
    )
    try:
        whole.cast(pa.large_string())
    except pa.ArrowInvalid:
        records = pa.array([block.record(int(i)) for i in chosen], pa.large_binary())
        return chosen[failing(records, lambda part: part.cast(pa.large_string()))]
    return chosen[:0]


def undecodable(record: bytes) -> str:
    try:
        record.decode()
    except UnicodeDecodeError as error:
        return f"not UTF-8: byte {record[error.start]:#04x} at place {error.start + 1:,}"
    return "not UTF-8"


@compiled(nogil=True)
def _objects(data, starts, ends):  # type: ignore[no-untyped-def]
    """Say of each record whether it begins with { and ends with }, but for white space."""
    answers = np.zeros(len(starts), np.bool_)
    for record in range(len(starts)):
        start, end = starts[record], ends[record] - 1
        while start <= end and (data[start] == 32 or data[start] == 9 or data[start] == 13):
            start += 1
        while end > start and (data[end] == 32 or data[end] == 9 or data[end] == 13):
            end -= 1
        answers[record] = start < end and data[start] == 123 and data[end] == 125
    return answers
