"""Encode rows as Redis commands, column by column: the client's own encoder takes each value by itself."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from riprap.adapters.json_lines import plain_text


def xadd_commands(stream: str, table: pa.Table) -> bytes:
    """Return an XADD command a row, in Redis's wire format; the columns are the fields, null is left out.

    >>> xadd_commands("s", pa.table({"n": [7]}))
    b'*5\\r\\n$4\\r\\nXADD\\r\\n$1\\r\\ns\\r\\n$1\\r\\n*\\r\\n$1\\r\\nn\\r\\n$1\\r\\n7\\r\\n'
    """
    if not table.num_rows:
        return b""
    whole = table.combine_chunks()
    parts: list[pa.Array] = []
    count = pa.array([3] * table.num_rows, pa.int64())
    for name in table.column_names:
        values = _binary(_one(plain_text(whole.column(name))))
        count = pc.add(count, pc.multiply(pc.is_valid(values).cast(pa.int64()), 2))
        size = _binary(pc.binary_length(values).cast(pa.string()))
        field = _joined(_bulk(name.encode()) + b"$", size, b"\r\n", values, b"\r\n")
        parts.append(pc.fill_null(field, b""))
    # Redis takes no entry without fields; one named "_" is no column of anybody's.
    nothing = pc.equal(count, 3)
    if pc.any(nothing).as_py():
        count = pc.add(count, pc.multiply(nothing.cast(pa.int64()), 2))
        parts.append(pc.if_else(nothing, _constant(_bulk(b"_") + _bulk(b"")), _constant(b"")))
    head = b"\r\n" + _bulk(b"XADD") + _bulk(stream.encode()) + _bulk(b"*")
    commands = _joined(b"*", _binary(count.cast(pa.string())), head, *parts)
    _, offsets, data = commands.buffers()
    ends = np.frombuffer(offsets, np.int64)
    encoded: bytes = data.to_pybytes()[: int(ends[len(commands)])] if data is not None else b""
    return encoded


def _joined(*parts: pa.Array | bytes) -> pa.Array:
    values = (_constant(part) if isinstance(part, bytes) else part for part in parts)
    return pc.binary_join_element_wise(*values, _constant(b""))


def _constant(value: bytes) -> pa.Scalar:
    return pa.scalar(value, pa.large_binary())


def _one(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column


def _bulk(value: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(value), value)


def _binary(column: pa.Array) -> pa.Array:
    return column.cast(pa.large_binary())
