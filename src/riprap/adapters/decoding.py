"""Turn records into rows of a declared schema: every record is a row, or is bad for a reason that is given.

The meaning is that of Arrow's readers with the declared types. Good records are read many at once; only where that
fails are they looked at more closely, and the verdict on a record never depends on its neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from riprap.adapters.csv_records import read_csv_records
from riprap.adapters.framing import (
    Bytes,
    Places,
    RecordBlock,
    RecordFlaw,
    bad_quote,
    count_fields,
    too_long,
    unescape,
)
from riprap.adapters.json_records import read_json_records, undecodable
from riprap.adapters.salvage import Salvaged, join
from riprap.errors import RunError
from riprap.expressions.cells import failing
from riprap.graph.connectors.checks import TEXT_COLUMNS
from riprap.graph.connectors.notation import PLAIN, Notation
from riprap.machine_code import compiled


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """The rows of the good records, the records they are of, and the bad records with what is wrong."""

    table: pa.Table
    good: Places
    bad: Sequence[tuple[int, str]]


def decode(
    block: RecordBlock,
    format: str,
    schema: pa.Schema,
    *,
    notation: Notation = PLAIN,
    header: Sequence[str] | None = None,
    file: str | None = None,
    threads: bool = True,
) -> Decoded:
    """Read the records of a block, which are "csv", "json" or "text".

    ``header`` names the fields of CSV records, which are in a notation; without it they are the columns of the schema.
    ``file`` is what the column of that name holds for lines of text.
    """
    chosen = np.arange(len(block))
    if block.faults:
        chosen = np.delete(chosen, list(block.faults))
    if format == "csv":
        named = schema.names if header is None else header
        read = read_csv_records(block, chosen, schema, named, notation=notation, threads=threads)
    elif format == "json":
        read = read_json_records(block, chosen, schema, threads=threads)
    elif format == "text":
        read = _read_lines(block, chosen, schema, file)
    else:
        raise RunError(f"no format '{format}': there are csv, json and text")
    bad = {i: fault.reason for i, fault in block.faults.items()} | read.bad
    return Decoded(
        table=pa.concat_tables(read.tables) if read.tables else schema.empty_table(),
        good=np.concatenate(read.good) if read.good else chosen[:0],
        bad=sorted(bad.items()),
    )


def decode_messages(
    values: pa.Array,
    format: str,
    schema: pa.Schema,
    *,
    limit: int,
    notation: Notation = PLAIN,
    threads: bool = False,
) -> Decoded:
    """Read messages, each of which is one record. A line of text has no file and no number here."""
    block = _message_block(values, format, limit, notation)
    return decode(block, format, schema, notation=notation, threads=threads)


def _message_block(values: pa.Array, format: str, limit: int, notation: Notation) -> RecordBlock:
    """Put messages into a block, a line each."""
    values = values.cast(pa.large_binary())
    _, offset_buffer, data_buffer = values.buffers()
    offsets = np.frombuffer(offset_buffer, np.int64)[values.offset : values.offset + len(values) + 1]
    data = np.frombuffer(data_buffer or b"", np.uint8)
    starts, ends = offsets[:-1].copy(), offsets[1:].copy()
    missing = values.is_null().to_numpy(zero_copy_only=False)
    ends[missing] = starts[missing]
    sizes = ends - starts
    faults = {int(i): too_long(int(sizes[i]), limit) for i in np.flatnonzero(sizes > limit)}
    ends = np.where(sizes > limit, starts + np.minimum(sizes, limit), ends)
    joined, places = join(data, starts, ends)
    starts, ends = places[:-1], places[1:] - 1
    if format == "csv":
        _trim_breaks(joined, starts, ends)
    elif format == "json":
        _flatten(joined, starts, ends)
    if format != "text":
        for i in np.flatnonzero(starts == ends):
            faults[int(i)] = RecordFlaw(reason="empty", size=int(sizes[i]))
    for i in np.flatnonzero(missing):
        faults[int(i)] = RecordFlaw(reason="a message without a value", size=0)
    block = RecordBlock(
        data=joined, starts=starts, ends=ends, first=0, byte=0, faults=faults, multiline=format != "json"
    )
    if format == "csv":
        plain = unescape(block, notation)
        counts = count_fields(plain.data, plain.starts, plain.ends, notation)
        for i in np.flatnonzero(counts < 0):
            faults.setdefault(int(i), RecordFlaw(reason=bad_quote(int(counts[i])), size=int(sizes[i])))
    return block


def _read_lines(block: RecordBlock, chosen: Places, schema: pa.Schema, file: str | None) -> Salvaged:
    """Make rows of lines of text."""
    for field in schema:
        if TEXT_COLUMNS.get(field.name) != field.type:
            raise RunError(
                f"a line of text has no column '{field.name}' of type {field.type}: there are line string, "
                "file string and number bigint"
            )
    into = Salvaged()
    lines = _lines(block, chosen)
    checked = pa.types.is_string(lines.type)
    wrong = [] if checked else failing(lines, lambda part: part.cast(pa.large_string()))
    if wrong:
        into.bad.update((int(chosen[i]), undecodable(block.record(int(chosen[i])))) for i in wrong)
        chosen = np.delete(chosen, wrong)
        lines = _lines(block, chosen)
    columns = {
        "line": lambda: lines if pa.types.is_string(lines.type) else lines.cast(pa.string()),
        "file": lambda: pa.repeat(pa.scalar(file, pa.string()), len(chosen)),
        "number": lambda: (
            pa.nulls(len(chosen), pa.int64()) if file is None else pa.array(chosen + block.first + 1)
        ),
    }
    into.tables.append(pa.table([columns[name]() for name in schema.names], schema=schema))
    into.good.append(chosen)
    return into


def _lines(block: RecordBlock, chosen: Places) -> pa.Array:
    """Return lines as text where all of it is ASCII, which is quick to see, or else as bytes to be checked."""
    data, offsets = join(block.data, block.starts[chosen], block.ends[chosen], separated=False)
    if len(data) < 2**31 and (not len(data) or data.max() < 128):
        return pa.StringArray.from_buffers(
            len(chosen), pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)
        )
    return pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(chosen), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )


def _trim_breaks(data: Bytes, starts: Places, ends: Places) -> None:
    """Leave out a line break at the end of each record, of which senders of lines leave one."""
    for byte in (ord("\n"), ord("\r")):
        if len(data):
            ends -= (ends > starts) & (data[np.maximum(ends - 1, 0)] == byte)


@compiled(nogil=True)
def _flatten(data, starts, ends):  # type: ignore[no-untyped-def]
    """Put a space for each line break outside of the strings of JSON records. Inside, it is an error to be found."""
    for record in range(len(starts)):
        inside = escaped = False
        for place in range(starts[record], ends[record]):
            byte = data[place]
            if inside:
                if escaped:
                    escaped = False
                elif byte == 92:
                    escaped = True
                elif byte == 34:
                    inside = False
            elif byte == 34:
                inside = True
            elif byte == 10 or byte == 13:
                data[place] = 32
