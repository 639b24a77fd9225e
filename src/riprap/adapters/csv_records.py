"""Turn CSV records into rows with Arrow's reader, and say of each record it does not take what is wrong.

An empty field is null, and a quoted empty field is the empty string.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.csv

from riprap.adapters.cells import not_a, unreadable
from riprap.adapters.framing import SEVERAL, UNCLOSED, Block, Bytes, Places, count_fields
from riprap.adapters.salvage import Salvaged, salvage, text_of
from riprap.errors import RunError

_READ_BYTES = 1 << 20
_BOM = (0xEF, 0xBB, 0xBF)


def read_csv_records(
    block: Block, chosen: Places, schema: pa.Schema, header: Sequence[str], *, threads: bool
) -> Salvaged:
    """Read some records of a block, whose fields the header names."""
    for field in schema:
        if pa.types.is_nested(field.type):
            raise RunError(f"a CSV record cannot hold column '{field.name}': it is a list. Use JSON")
    reader = _Reader(block, schema, header, threads)
    into = Salvaged()
    salvage(chosen, reader.read, reader.screen, at_most=len(block), into=into)
    return into


def header_fields(record: bytes) -> list[str]:
    """Return the fields of a header.

    >>> header_fields(b'a,"b, c",')
    ['a', 'b, c', '']
    """
    data = np.frombuffer(record, np.uint8)
    count = int(count_fields(data, np.array([0]), np.array([len(data)]))[0])
    table = pa.csv.read_csv(
        pa.py_buffer(_guarded(data)),
        read_options=pa.csv.ReadOptions(
            column_names=[str(i) for i in range(count)], use_threads=False, block_size=len(data) + 4
        ),
        parse_options=pa.csv.ParseOptions(newlines_in_values=True),
        convert_options=pa.csv.ConvertOptions(column_types={str(i): pa.string() for i in range(count)}),
    )
    return [column[0].as_py() for column in table.columns]


class _Reader:
    def __init__(self, block: Block, schema: pa.Schema, header: Sequence[str], threads: bool) -> None:
        self._block, self._schema, self._fields, self._threads = block, schema, len(header), threads
        # Names that nobody asks for may be there twice.
        self._names = [name if name in schema.names else f"\0{i}" for i, name in enumerate(header)]
        self._longest = int((block.ends - block.starts).max(initial=0))

    def read(self, chosen: Places) -> pa.Table:
        table = self._parse(chosen, {f.name: f.type for f in self._schema})
        for field in self._schema:
            if not field.nullable and table.column(field.name).null_count:
                raise pa.ArrowInvalid(f"column '{field.name}' has nulls")
        return table.cast(self._schema)

    def screen(self, chosen: Places) -> dict[int, str]:
        """Say what is wrong with records."""
        block = self._block
        counts = count_fields(block.data, block.starts[chosen], block.ends[chosen])
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
            # It costs Arrow a second look at every byte.
            parse_options=pa.csv.ParseOptions(newlines_in_values=self._block.multiline),
            convert_options=pa.csv.ConvertOptions(
                column_types=types,
                include_columns=self._schema.names,
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                null_values=[""],
            ),
        )
        if table.num_rows != len(chosen):
            raise pa.ArrowInvalid(f"{table.num_rows} rows in {len(chosen)} records")
        return table


def _guarded(text: Bytes) -> Bytes | bytes:
    # Arrow drops what looks like a byte order mark, which only the beginning of a file may have.
    return b"\n" + text.tobytes() if tuple(text[:3]) == _BOM else text


def _miscounted(count: int, wanted: int) -> str:
    if count == UNCLOSED:
        return "a quote is opened and not closed"
    if count == SEVERAL:
        return "more than one record"
    return f"{count} field{'s' if count != 1 else ''}, not {wanted}"


def _text(cell: pa.Scalar) -> str | bytes:
    value: bytes = cell.as_py()
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value
