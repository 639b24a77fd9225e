"""Write an Arrow table as JSON lines, column by column: Arrow has a reader but no writer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_ESCAPES = {"\\": "\\\\", '"': '\\"', **{chr(c): f"\\u{c:04x}" for c in range(0x20)}}


def write_json(table: pa.Table, path: Path, compression: str | None = None) -> None:
    """Write a row a line. Null is null, NaN and infinities are strings, times are ISO 8601."""
    with pa.output_stream(str(path), compression=compression) as file:
        for batch in table.to_batches(max_chunksize=50_000):
            file.write(json_bytes(batch))


def json_bytes(batch: pa.RecordBatch) -> memoryview:
    """Return a batch as JSON lines."""
    lines = json_lines(batch)
    _, offsets, data = lines.buffers()
    if data is None:
        return memoryview(b"")
    ends = np.frombuffer(offsets, np.int64)
    return memoryview(data)[int(ends[lines.offset]) : int(ends[lines.offset + len(lines)])]


def json_lines(batch: pa.RecordBatch) -> pa.LargeStringArray:
    """Return each row as a JSON object and a line break.

    >>> json_lines(pa.record_batch({"a": [1, None], "b": ["x", '"']})).to_pylist()
    ['{"a":1,"b":"x"}\\n', '{"a":null,"b":"\\\\""}\\n']
    """
    parts: list[pa.Array | str] = []
    for number, (name, column) in enumerate(zip(batch.schema.names, batch.columns, strict=True)):
        parts.append(
            ("{" if number == 0 else ",") + _quoted(pa.array([name], pa.large_string()))[0].as_py() + ":"
        )
        parts.append(pc.fill_null(_values(column), "null"))
    parts.append("}\n")
    return _joined(*parts)


def _large(part: pa.Array | str) -> pa.Array | pa.Scalar:
    return pa.scalar(part, pa.large_string()) if isinstance(part, str) else part.cast(pa.large_string())


def _values(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_floating(kind):
        text = column.cast(pa.large_string())
        finite = pc.is_finite(column)
        spark_names = pc.if_else(
            pc.is_nan(column), '"NaN"', pc.if_else(pc.greater(column, 0), '"Infinity"', '"-Infinity"')
        )
        return pc.if_else(finite, text, spark_names.cast(pa.large_string()))
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind) or pa.types.is_boolean(kind):
        return column.cast(pa.string()).cast(pa.large_string())
    if pa.types.is_timestamp(kind):
        return _quoted(_iso(column))
    if pa.types.is_list(kind):
        return _list(column)
    if pa.types.is_binary(kind):
        raise pa.ArrowNotImplementedError(
            "a JSON file cannot hold binary columns: leave them out with a functor"
        )
    return _quoted(column.cast(pa.large_string()))


def _list(column: pa.Array) -> pa.Array:
    texts = pc.fill_null(_values(column.flatten()), "null").cast(pa.large_string())
    # The lengths are asked for, since an array that was sliced has offsets of its own.
    sizes = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    ends = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))
    lists = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), texts)
    inside = pc.binary_join(lists, pa.scalar(",", pa.large_string()))
    listed = _joined("[", inside, "]")
    return pc.if_else(pc.is_valid(column), listed, pa.scalar(None, pa.large_string()))


def plain_text(column: pa.Array) -> pa.Array:
    """Return values as text by themselves, as they would stand in a JSON string; binary ones as they are.

    >>> plain_text(pa.array([1.5, None])).to_pylist()
    ['1.5', None]
    """
    if pa.types.is_timestamp(column.type):
        return _iso(column)
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        return column
    return column.cast(pa.string())


def _iso(column: pa.Array) -> pa.Array:
    # Without its zone, which is UTC: Arrow writes a zoned time forty times slower, and strftime slower still.
    plain = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).cast(pa.timestamp("us"))
    # A cast writes a space where ISO 8601 has a T.
    text = pc.replace_substring(plain.cast(pa.large_string()), " ", "T")
    if column.type.tz is None:
        return text
    return pc.binary_join_element_wise(text, *(pa.scalar(mark, pa.large_string()) for mark in ("Z", "")))


def _quoted(text: pa.Array) -> pa.Array:
    for character in _to_escape(text):
        text = pc.replace_substring(text, chr(character), _ESCAPES[chr(character)])
    return _joined('"', text, '"')


def _joined(*parts: pa.Array | str) -> pa.Array:
    return pc.binary_join_element_wise(*(_large(part) for part in parts), pa.scalar("", pa.large_string()))


def _to_escape(text: pa.Array) -> list[int]:
    """Return the characters there are that JSON wants escaped, the backslash first."""
    data = text.buffers()[2]
    if data is None:
        return []
    occurs = np.bincount(np.frombuffer(data, np.uint8), minlength=256) > 0
    return [ord(character) for character in _ESCAPES if occurs[ord(character)]]
