"""What records are and mean, in plain Python: one byte and one record at a time, from the description."""

from __future__ import annotations

import csv
import json
import math
import re

from riprap.graph.connectors.notation import PLAIN, Notation

TRUTHS = {"": None, "1": True, "true": True, "True": True, "TRUE": True}
TRUTHS |= {"0": False, "false": False, "False": False, "FALSE": False}
BOM = b"\xef\xbb\xbf"


def lines(data: bytes, limit: int, *, blank: bool) -> list[tuple[int, bytes, bool]]:
    """Return the place of each line, its bytes, and whether it can be read."""
    place = 3 if data.startswith(BOM) else 0
    found = []
    while place < len(data):
        end = data.find(b"\n", place)
        line = data[place:] if end < 0 else data[place:end]
        if end >= 0 and line.endswith(b"\r"):
            line = line[:-1]
        if blank or len(line) > limit or line.strip(b" \t\r"):
            found.append((place, line, len(line) <= limit))
        place = len(data) if end < 0 else end + 1
    return found


def csv_records(data: bytes, limit: int, csv: Notation = PLAIN) -> list[tuple[int, bytes, bool]]:
    """Return the place of each CSV record, its bytes, and whether it can be read."""
    place = 3 if data.startswith(BOM) else 0
    found = []
    while place < len(data):
        if data[place] in b"\r\n":
            place += 1
            continue
        line = next((i for i in range(place, len(data)) if data[i] in b"\r\n"), len(data))
        if csv.comment is None or data[place : place + 1] != csv.comment.encode():
            size, good = _size_of_record(data[place:] if csv.multiline else data[place:line], csv)
            good = good and size <= limit
            end = place + size if good else line
            found.append((place, data[place:end], good))
            place = end
        else:
            place = line
    return found


def _size_of_record(data: bytes, csv: Notation) -> tuple[int, bool]:
    """Return where a record ends, and whether its quotes are right."""
    sep, quote, escape = (
        None if mark is None else mark.encode() for mark in (csv.sep, csv.quote, csv.escape)
    )
    place, field_begins = 0, True
    while place < len(data):
        byte = data[place : place + 1]
        if byte == quote and field_begins:
            place += 1
            while data[place : place + 1] != quote or data[place + 1 : place + 2] == quote:
                if place >= len(data):
                    return len(data), False
                pair = data[place : place + 2]
                doubled = pair in (quote * 2, *(() if escape is None else (escape + quote, escape * 2)))
                place += 2 if doubled else 1
            if data[place + 1 : place + 2] not in (sep, b"\r", b"\n", b""):
                return len(data), False
        elif byte in b"\r\n":
            return place, True
        field_begins = byte == sep
        place += 1
    return place, True


def json_row(record: bytes) -> tuple[int | None, float | None, str | None] | None:
    """Read {"id": bigint, "price": double, "name": string}; None if it is bad."""
    try:
        pairs = json.loads(record.decode(), object_pairs_hook=tuple)
        json.dumps(pairs, ensure_ascii=False).encode()
    except (ValueError, UnicodeError):
        return None
    if not isinstance(pairs, tuple):
        return None
    names = [name for name, _ in pairs]
    values = dict(pairs)
    if any(names.count(name) > 1 for name in ("id", "price", "name")):
        return None
    number, price, name = (values.get(each) for each in ("id", "price", "name"))
    if number is not None and (type(number) is not int or not -(2**63) <= number < 2**63):
        return None
    if price in ("NaN", "Infinity", "-Infinity"):
        price = float(price)
    elif price is not None and (type(price) not in (int, float) or not math.isfinite(price)):
        return None
    if name is not None and type(name) is not str:
        return None
    return number, None if price is None else float(price), name


def csv_row(record: bytes) -> tuple[int | None, float | None, bool | None, str | None] | None:
    """Read the record "bigint,double,boolean,string"; None if it is bad. Quoted cells must not be empty."""
    cells = next(csv.reader([record.decode("latin-1")]))
    if len(cells) != 4:
        return None
    if cells[2] not in TRUTHS:
        return None
    number, price = (cell.strip(" \t") if cell else None for cell in cells[:2])
    if number is not None and (
        not re.fullmatch(r"[+-]?[0-9]+", number) or not -(2**63) <= int(number) < 2**63
    ):
        return None
    if price is not None and not re.fullmatch(
        r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?(?i:nan|inf|infinity)", price
    ):
        return None
    try:
        name = cells[3].encode("latin-1").decode() or None
    except UnicodeDecodeError:
        return None
    return (
        None if number is None else int(number),
        None if price is None else float(price),
        TRUTHS[cells[2]],
        name,
    )
