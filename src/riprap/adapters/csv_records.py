"""Turn CSV records into rows with Arrow's reader, and say of each record it does not take what is wrong.

An empty field is null, and so is one that a notation says means null; a quoted empty field is the empty string.

Arrow reads integers, numbers and dates at once. Where it fails, or would read more than Spark does (``0x1F``), cells
are read as text and converted as :mod:`riprap.expressions.cells` says, which decides what a cell is.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.csv

from riprap.adapters.framing import Bytes, Places, RecordBlock, bad_quote, count_fields, unescape
from riprap.adapters.framing_loops import has_hexadecimal
from riprap.adapters.salvage import Salvaged, salvage, text_of
from riprap.errors import RunError
from riprap.expressions.cells import converted, not_a, unreadable
from riprap.graph.connectors.notation import PLAIN, Notation

_READ_BYTES = 1 << 20
_BOM = (0xEF, 0xBB, 0xBF)


def read_csv_records(
    block: RecordBlock,
    chosen: Places,
    schema: pa.Schema,
    header: Sequence[str],
    *,
    notation: Notation,
    threads: bool,
) -> Salvaged:
    """Read some records of a block, whose fields the header names."""
    for field in schema:
        if pa.types.is_nested(field.type):
            raise RunError(f"a CSV record cannot hold column '{field.name}': it is a list. Use JSON")
    reader = _CsvReader(unescape(block, notation), schema, header, notation, threads)
    into = Salvaged()
    salvage(chosen, reader.read, reader.screen, at_most=len(block), into=into)
    return into


def header_fields(record: bytes, notation: Notation = PLAIN) -> list[str]:
    """Return the fields of a header.

    >>> header_fields(b'a,"b, c",')
    ['a', 'b, c', '']
    """
    data = np.frombuffer(record, np.uint8)
    whole = RecordBlock(
        data=data,
        starts=np.array([0]),
        ends=np.array([len(data)]),
        first=0,
        byte=0,
        faults={},
        multiline=True,
    )
    block = unescape(whole, notation)
    count = int(count_fields(block.data, block.starts, block.ends, notation)[0])
    table = pa.csv.read_csv(
        pa.py_buffer(_guarded(text_of(block, np.array([0])))),
        read_options=pa.csv.ReadOptions(
            column_names=[str(i) for i in range(count)], use_threads=False, block_size=len(data) + 4
        ),
        parse_options=_parse_options(notation, multiline=True),
        convert_options=pa.csv.ConvertOptions(column_types={str(i): pa.string() for i in range(count)}),
    )
    return [column[0].as_py() for column in table.columns]


class _CsvReader:
    def __init__(
        self, block: RecordBlock, schema: pa.Schema, header: Sequence[str], notation: Notation, threads: bool
    ) -> None:
        self._block, self._schema, self._fields, self._threads = block, schema, len(header), threads
        self._notation = notation
        # Names that nobody asks for may be there twice.
        self._names = [name if name in schema.names else f"\0{i}" for i, name in enumerate(header)]
        self._longest = int((block.ends - block.starts).max(initial=0))
        self._ways = _ways(schema, hexadecimal=has_hexadecimal(block.data))

    def read(self, chosen: Places) -> pa.Table:
        for types in self._ways[:-1]:
            try:
                return self._typed(self._parse(chosen, types))
            except pa.ArrowInvalid:
                # It may be a way to write a value that Arrow does not know.
                pass
        return self._typed(self._parse(chosen, self._ways[-1]))

    def _typed(self, table: pa.Table) -> pa.Table:
        columns = []
        for field in self._schema:
            column = table.column(field.name)
            if not field.nullable and column.null_count:
                raise pa.ArrowInvalid(f"column '{field.name}' has nulls")
            text = pa.types.is_string(column.type)
            columns.append(converted(column, field.type) if text else column.cast(field.type))
        return pa.table(columns, schema=self._schema)

    def screen(self, chosen: Places) -> dict[int, str]:
        """Say what is wrong with records."""
        block = self._block
        counts = count_fields(block.data, block.starts[chosen], block.ends[chosen], self._notation)
        wrong = counts != self._fields
        bad = {
            int(index): _miscounted(int(count), self._fields)
            for index, count in zip(chosen[wrong], counts[wrong], strict=True)
        }
        rest = chosen[~wrong]
        if not len(rest):
            return bad
        cells = self._parse(rest, {f.name: pa.binary() for f in self._schema})
        for field in self._schema:
            column = cells.column(field.name).combine_chunks()
            for place in unreadable(column, field.type):
                bad.setdefault(int(rest[place]), not_a(field.name, _text(column[place]), field.type))
            if not field.nullable and column.null_count:
                for place in column.is_null().to_numpy(zero_copy_only=False).nonzero()[0]:
                    bad.setdefault(int(rest[place]), f"column '{field.name}' is empty, and declared not null")
        return bad

    def _parse(self, chosen: Places, types: dict[str, pa.DataType]) -> pa.Table:
        table = pa.csv.read_csv(
            pa.py_buffer(_guarded(text_of(self._block, chosen))),
            read_options=pa.csv.ReadOptions(
                column_names=self._names,
                use_threads=self._threads,
                block_size=max(_READ_BYTES, self._longest + 4),
            ),
            parse_options=_parse_options(self._notation, multiline=self._block.multiline),
            convert_options=pa.csv.ConvertOptions(
                column_types=types,
                include_columns=self._schema.names,
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                null_values=["", *self._notation.nulls],
            ),
        )
        if table.num_rows != len(chosen):
            raise pa.ArrowInvalid(f"{table.num_rows} rows in {len(chosen)} records")
        return table


def _ways(schema: pa.Schema, *, hexadecimal: bool) -> list[dict[str, pa.DataType]]:
    """Return the types to have Arrow read for those of a schema, the quickest way first, and as text in the end."""
    at_once = {f.name: f.type for f in schema}
    as_text = {f.name: pa.string() for f in schema if not pa.types.is_binary(f.type)}
    if hexadecimal and any(pa.types.is_integer(f.type) for f in schema):
        return [at_once | as_text]
    ways = [at_once]
    zoned = [f for f in schema if pa.types.is_timestamp(f.type) and f.type.tz is not None]
    if zoned:
        # Arrow wants either all times of a column with a zone, or all without.
        ways.append(at_once | {f.name: pa.timestamp(f.type.unit) for f in zoned})
        ways.append(at_once | {f.name: pa.string() for f in zoned})
    return [*ways, at_once | as_text]


def _parse_options(notation: Notation, *, multiline: bool) -> pa.csv.ParseOptions:
    return pa.csv.ParseOptions(
        delimiter=notation.sep,
        quote_char=notation.quote or False,
        # It costs Arrow a second look at every byte.
        newlines_in_values=multiline,
    )


def _guarded(text: Bytes) -> Bytes | bytes:
    # Arrow drops what looks like a byte order mark, which only the beginning of a file may have.
    return b"\n" + text.tobytes() if tuple(text[:3]) == _BOM else text


def _miscounted(count: int, wanted: int) -> str:
    return bad_quote(count) if count < 0 else f"{count} field{'s' if count != 1 else ''}, not {wanted}"


def _text(cell: pa.Scalar) -> str | bytes:
    value: bytes = cell.as_py()
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value
