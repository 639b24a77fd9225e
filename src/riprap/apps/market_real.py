"""Read real trades and quotes: the sample input of IBM Streams, 30 columns of CSV, plain or gzipped."""

import csv
import gzip
import math
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from riprap.apps.market_schema import FEED_SCHEMA

COLUMNS = 30
DROPPED = b"riprap.dropped"

_TICKER, _DATE, _TIME, _TYPE = 0, 1, 2, 4
_PRICE, _VOLUME, _BID, _BID_SIZE, _ASK, _ASK_SIZE = 6, 7, 10, 11, 14, 15
_TIME_FORMAT = "%d-%b-%Y %H:%M:%S.%f"


def read_real(path: Path) -> pa.Table:
    """Read the file as a feed, numbered from 1 in file order.

    Trades without price or volume and quotes without ask price are left out (zero counts as absent); the
    schema's metadata says how many, under `riprap.dropped`. A quote without ask size has size 0. Lines that
    start with # are comments. Raise ValueError, with file and line, for anything else that does not fit.
    """
    rows: list[tuple[Any, ...]] = []
    dropped = 0
    for where, fields in _lines(path):
        row = _row(where, fields)
        if row is None:
            dropped += 1
        else:
            rows.append((len(rows) + 1, *row))
    columns = list(zip(*rows, strict=True)) or [()] * len(FEED_SCHEMA)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, FEED_SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=FEED_SCHEMA.with_metadata({DROPPED: str(dropped)}))


def _lines(path: Path) -> Iterator[tuple[str, list[str]]]:
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8", newline="") as text:
        reader = csv.reader(text)
        try:
            for fields in reader:
                if fields and not fields[0].startswith("#"):
                    yield f"{path}, line {reader.line_num}", fields
        except (csv.Error, gzip.BadGzipFile, EOFError, UnicodeDecodeError) as broken:
            raise ValueError(f"{path}, line {reader.line_num + 1}: cannot be read: {broken}") from broken


def _row(where: str, fields: list[str]) -> tuple[Any, ...] | None:
    if len(fields) != COLUMNS:
        raise ValueError(f"{where}: expected {COLUMNS} columns, got {len(fields)}")
    ticker, kind = fields[_TICKER], fields[_TYPE].lower()
    if not ticker:
        raise ValueError(f"{where}: the ticker (column {_TICKER + 1}) is empty")
    time = _timestamp(where, fields)
    if kind == "trade":
        price, volume = _number(where, fields, _PRICE), _whole(where, fields, _VOLUME)
        return (time, ticker, kind, price, volume, None, None) if price and volume else None
    if kind == "quote":
        ask, ask_size = _number(where, fields, _ASK), _whole(where, fields, _ASK_SIZE)
        bid, bid_size = _number(where, fields, _BID), _whole(where, fields, _BID_SIZE)
        return (time, ticker, kind, ask, ask_size or 0, bid, bid_size) if ask else None
    raise ValueError(f"{where}: expected the type Trade or Quote (column {_TYPE + 1}), got {fields[_TYPE]!r}")


def _timestamp(where: str, fields: list[str]) -> datetime:
    text = f"{fields[_DATE]} {fields[_TIME]}"
    try:
        return datetime.strptime(text, _TIME_FORMAT).replace(tzinfo=UTC)
    except ValueError:
        raise ValueError(f"{where}: expected a time like '27-DEC-2005 14:30:00.123', got {text!r}") from None


def _number(where: str, fields: list[str], column: int) -> float | None:
    text = fields[column]
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number >= 0):
        raise ValueError(f"{where}: expected a number, 0 or more, in column {column + 1}, got {text!r}")
    return number


def _whole(where: str, fields: list[str], column: int) -> int | None:
    number = _number(where, fields, column)
    if number is None:
        return None
    if not number.is_integer():
        raise ValueError(f"{where}: expected a whole number in column {column + 1}, got {fields[column]!r}")
    return int(number)
