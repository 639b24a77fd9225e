"""A table as one file of a file sink: written in the sink's format with its options, and read back."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from riprap.adapters.json_lines import write_json
from riprap.adapters.parsing import parse_file
from riprap.errors import RunError
from riprap.graph.connectors import FileSink
from riprap.graph.connectors.notation import Writing

# Nothing that was written is too long to be read.
_ANY_SIZE = 1 << 62


def write_table(table: pa.Table, path: Path, sink: FileSink) -> None:
    """Write a table to a file."""
    how = sink.writing
    if sink.format == "parquet":
        # Measured results seldom repeat: looking for repeated numbers costs half the time of writing.
        text = [f.name for f in table.schema if pa.types.is_string(f.type)]
        pq.write_table(table, path, use_dictionary=text, compression=how.compression or "none")
    elif sink.format == "json":
        write_json(table, path, how.compression)
    else:
        _write_csv(table, path, how)


def read_table(path: Path, schema: pa.Schema, sink: FileSink) -> pa.Table:
    """Read back what was written."""
    if sink.format == "parquet":
        return pq.read_table(path, schema=schema)
    return _read_json(path, schema) if sink.format == "json" else _read_csv(path, schema, sink.writing)


def _write_csv(table: pa.Table, path: Path, how: Writing) -> None:
    options = pa.csv.WriteOptions(
        include_header=how.header,
        delimiter=how.sep,
        quoting_style="all_valid" if how.quote_all else "needed",
    )
    with pa.output_stream(str(path), compression=how.compression) as file:
        if not how.null:
            pa.csv.write_csv(table, file, options)
            return
        # Arrow writes nothing for null.
        if how.header:
            pa.csv.write_csv(table.slice(0, 0), file, options)
        for batch in table.to_batches(max_chunksize=50_000):
            file.write("".join(_lines(batch, how).to_pylist()).encode())


def _lines(batch: pa.RecordBatch, how: Writing) -> pa.Array:
    def text(part: str) -> pa.Scalar:
        return pa.scalar(part, pa.large_string())

    parts: list[pa.Array | pa.Scalar] = []
    for number, column in enumerate(batch.columns):
        cells = column.cast(pa.large_string())
        if how.quote_all or pa.types.is_string(column.type):
            cells = pc.replace_substring(cells, '"', '""')
            cells = pc.binary_join_element_wise(text('"'), cells, text('"'), text(""))
        parts += [text(how.sep if number else ""), pc.fill_null(cells, text(how.null))]
    return pc.binary_join_element_wise(*parts, text("\n"), text(""))


def _read_json(path: Path, schema: pa.Schema) -> pa.Table:
    pieces = list(parse_file(path, "json", schema, max_record_bytes=_ANY_SIZE))
    for piece in pieces:
        for bad in piece.bad:
            raise RunError(f"{path}, line {bad.position['record']}: {bad.reason}")
    return pa.concat_tables([schema.empty_table(), *(piece.table for piece in pieces)])


def _read_csv(path: Path, schema: pa.Schema, how: Writing) -> pa.Table:
    # Null may be nothing (so an empty line is a row) and the empty string is in quotes; "nan" and "NA" are values.
    convert = pa.csv.ConvertOptions(
        column_types=schema,
        null_values=[how.null],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    return pa.csv.read_csv(
        path,
        read_options=pa.csv.ReadOptions(column_names=None if how.header else schema.names),
        convert_options=convert,
        parse_options=pa.csv.ParseOptions(
            delimiter=how.sep, newlines_in_values=True, ignore_empty_lines=False
        ),
    )
