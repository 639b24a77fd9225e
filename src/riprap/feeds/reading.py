"""Read rows of a recorded source by number, from the segments that hold them."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from riprap.arrays import Ints
from riprap.errors import RunError
from riprap.expressions import hold, normalise, type_name
from riprap.feeds.pacing import read_pace
from riprap.feeds.segments import FeedSegment, record_batches
from riprap.graph.connectors.columns import remedy
from riprap.operators.source import Source
from riprap.stage import arrival

# A text column that Parquet stores in fewer bytes a value than this has few distinct values: it is read as those and
# their numbers, which is quicker to decode, to select from and to compare.
_ENCODED_BYTES = 4


def read_rows(
    segments: Sequence[FeedSegment],
    start: int,
    end: int,
    source: Source,
    columns: Sequence[str],
    *,
    position: bool = True,
) -> arrival.ReadRows:
    """Read rows [start, end) of a source; text with few distinct values stays dictionary-encoded.

    Rows are numbered by the source's position column, or without ``position`` by their place.
    """
    parts: dict[str, list[pa.Array]] = {c: [] for c in columns}
    for segment in segments:
        low, high = max(start, segment.start) - segment.start, min(end, segment.end) - segment.start
        if low >= high:
            continue
        with _reading(source, segment):
            tables = list(_READERS[segment.kind](segment.path, low, high, tuple(columns)))
            if sum(table.num_rows for table in tables) != high - low:
                raise EOFError(f"it has not the {segment.rows} rows it had")
            for table in tables:
                for column in columns:
                    parts[column].extend(_typed(table, column, source, segment).chunks)
    return put_together(parts, source, np.arange(start, end), position=position)


def put_together(
    parts: Mapping[str, Sequence[pa.Array]], source: Source, numbers: Ints, *, position: bool = True
) -> arrival.ReadRows:
    """Make rows of the pieces of their columns; ``numbers`` are their places in the source."""
    whole = {c: _one_array(arrays, source.schema.field(c).type) for c, arrays in parts.items()}
    if position and source.position is not None:
        return arrival.ReadRows(whole, _positions(whole[source.position], source))
    return arrival.ReadRows(whole, numbers)


def blocks(segments: Sequence[FeedSegment], start: int, end: int, source: Source) -> list[int]:
    """Return the rows of [start, end) with which something begins that is decoded as one: row groups, or segments."""
    starts = []
    for segment in segments:
        first, sizes = segment.start, [segment.rows]
        if segment.kind == "parquet":
            with _reading(source, segment):
                sizes = _group_sizes(segment.path, _version(segment.path))
        for rows in sizes:
            if max(first, start) < min(first + rows, segment.end, end):
                starts.append(max(first, start))
            first += rows
    return starts


@contextlib.contextmanager
def _reading(source: Source, segment: FeedSegment) -> Iterator[None]:
    """Say of a file that cannot be read whose it is."""
    try:
        yield
    except (OSError, EOFError, KeyError, pa.ArrowInvalid) as error:
        raise RunError(
            f"source '{source.name}' ({source.location}) cannot read {segment.path}, which it saw before: {error}. "
            "Put the file back as it was"
        ) from error


def _positions(column: pa.Array, source: Source) -> Ints:
    if column.null_count:
        raise RunError(
            f"source '{source.name}' ({source.location}) has null in its position column '{source.position}'"
        )
    positions: Ints = column.cast(pa.int64()).to_numpy()
    return positions


def _typed(table: pa.Table, name: str, source: Source, segment: FeedSegment) -> pa.ChunkedArray:
    column, wanted = table.column(name), source.schema.field(name).type
    if pa.types.is_dictionary(column.type) and column.type.value_type == wanted == pa.string():
        return column
    try:
        return hold(column, wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise RunError(
            f"source '{source.name}' ({source.location}): {segment.path} has '{name}' as {column.type}, "
            f"which does not fit {type_name(wanted)}: {error}. {remedy(column.type)}"
        ) from error


def _one_array(arrays: Sequence[pa.Array], kind: pa.DataType) -> pa.Array:
    if not arrays:
        return normalise(pa.array([], kind))
    if any(array.type != arrays[0].type for array in arrays):
        # Files may differ in how they hold a column.
        arrays = [normalise(array) for array in arrays]
    if len(arrays) == 1:
        array = arrays[0]
    elif pa.types.is_dictionary(arrays[0].type):
        array = pa.chunked_array(arrays).unify_dictionaries().combine_chunks()
        array = array.chunk(0) if isinstance(array, pa.ChunkedArray) else array
    else:
        array = pa.concat_arrays(arrays)
    return array if pa.types.is_dictionary(array.type) else normalise(array)


def _read_parquet(path: str, low: int, high: int, columns: tuple[str, ...]) -> Iterator[pa.Table]:
    """Read rows of a Parquet file: whole row groups in one go, the ends through a small cache."""
    version = _version(path)
    file = _open_parquet(path, version)
    first = 0
    whole: list[int] = []
    for group in range(file.num_row_groups):
        rows = file.metadata.row_group(group).num_rows
        if low <= first and first + rows <= high:
            whole.append(group)
        elif first < high and low < first + rows:
            if whole:
                yield file.read_row_groups(whole, list(columns), use_threads=False)
                whole = []
            begin = max(low - first, 0)
            yield _row_group(path, version, group, columns).slice(begin, min(high - first, rows) - begin)
        first += rows
    if whole:
        yield file.read_row_groups(whole, list(columns), use_threads=False)


def _version(path: str) -> tuple[int, ...]:
    """Tell a file from another that has taken its place: a worker may outlive the run that read the first."""
    status = os.stat(path)
    return status.st_ino, status.st_mtime_ns, status.st_size


@functools.lru_cache(maxsize=8)
def _open_parquet(path: str, version: tuple[int, ...]) -> pq.ParquetFile:
    metadata = pq.read_metadata(path)
    # Without a buffer to fill ahead: that is done by a thread of its own, and the file is mapped.
    return pq.ParquetFile(
        path, read_dictionary=_encoded(metadata), metadata=metadata, memory_map=True, pre_buffer=False
    )


@functools.lru_cache(maxsize=64)
def _group_sizes(path: str, version: tuple[int, ...]) -> list[int]:
    metadata = _open_parquet(path, version).metadata
    return [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]


def _encoded(metadata: pq.FileMetaData) -> list[str]:
    """Return the text columns worth reading as a dictionary, judged by the first row group."""
    if not metadata.num_row_groups:
        return []
    group = metadata.row_group(0)
    columns = (group.column(i) for i in range(group.num_columns))
    return [
        c.path_in_schema
        for c in columns
        if c.physical_type == "BYTE_ARRAY" and c.total_uncompressed_size < _ENCODED_BYTES * c.num_values
    ]


# A batch smaller than a row group takes several turns at it: the worker keeps the group it is in decoded.
@functools.lru_cache(maxsize=2)
def _row_group(path: str, version: tuple[int, ...], group: int, columns: tuple[str, ...]) -> pa.Table:
    return _open_parquet(path, version).read_row_group(group, list(columns), use_threads=False)


def _read_arrow(path: str, low: int, high: int, columns: tuple[str, ...]) -> Iterator[pa.Table]:
    with pa.memory_map(path) as mapped:
        table = pa.Table.from_batches(list(record_batches(pa.ipc.open_file(mapped)))).select(list(columns))
    yield table.slice(low, high - low)


def _read_rate(path: str, low: int, high: int, columns: tuple[str, ...]) -> Iterator[pa.Table]:
    """Make generated rows: each has its number, and the time at which it is due."""
    start, rate = read_pace(Path(path))
    numbers = np.arange(low, high)
    due = np.round(start * 1e6 + numbers * (1e6 / rate)).astype(np.int64)
    values = {"time": pa.array(due).cast(pa.timestamp("us", "UTC")), "value": pa.array(numbers)}
    # Without a column asked for, rows are still counted.
    yield pa.table({name: values[name] for name in columns} or {"value": values["value"]})


_READERS: dict[str, Callable[[str, int, int, tuple[str, ...]], Iterator[pa.Table]]] = {
    "parquet": _read_parquet,
    "arrow": _read_arrow,
    "rate": _read_rate,
}
