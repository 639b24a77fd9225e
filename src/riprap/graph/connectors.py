"""Where streams come from and where they go, as values; the runtime knows how to open them."""

from __future__ import annotations

import glob
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from riprap.errors import GraphError
from riprap.expressions import ExpressionError, parse_schema

FileFormat = Literal["parquet", "csv", "json"]
_FORMATS: Mapping[str, FileFormat] = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """Files, folders or patterns, read in the order of their names; new ones are picked up as they appear."""

    patterns: tuple[str, ...]
    format: FileFormat
    schema: pa.Schema
    rate: float | None = None

    def __str__(self) -> str:
        return f"{self.format} files {', '.join(self.patterns)}" + _pace(self.rate)

    def listing(self) -> list[str]:
        """Return the files there are now, in reading order."""
        return list_files(self.patterns, self.format)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Rows held in memory."""

    table: pa.Table
    rate: float | None = None

    @property
    def schema(self) -> pa.Schema:
        return self.table.schema

    def __str__(self) -> str:
        return f"{self.table.num_rows} rows in memory" + _pace(self.rate)


@dataclass(frozen=True, slots=True, kw_only=True)
class FromSpark:
    """Any streaming DataFrame, made from the Spark session when the application runs."""

    build: Callable[[Any], Any]
    schema: pa.Schema

    def __str__(self) -> str:
        return f"Spark DataFrame from {getattr(self.build, '__name__', 'a function')}"


SourceConnector = Files | Rows | FromSpark


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSink:
    """A folder of files; a batch appears in it whole or not at all."""

    path: str
    format: FileFormat
    roll_rows: int
    roll_seconds: float
    overwrite: bool = False

    def __str__(self) -> str:
        return f"{self.format} files in {self.path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Callback:
    """A Python function called in the driver with each batch's number and rows (a ``pyarrow.Table``)."""

    function: Callable[[int, pa.Table], None]

    def __str__(self) -> str:
        return f"callback {getattr(self.function, '__name__', 'function')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToSpark:
    """A Python function called in the driver with each batch as a Spark DataFrame and its number."""

    function: Callable[[Any, int], None]

    def __str__(self) -> str:
        return f"Spark sink {getattr(self.function, '__name__', 'function')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Rows kept for ``run.table(name)``: for tests and notebooks."""

    def __str__(self) -> str:
        return "memory"


SinkConnector = FileSink | Callback | ToSpark | Memory


def files(
    path: str | Path | Sequence[str | Path],
    *,
    format: FileFormat | None = None,
    schema: str | pa.Schema | None = None,
    rate: float | None = None,
) -> Files:
    """Read Parquet, CSV or JSON-lines files from a path, a folder, a pattern, or several of them.

    ``schema`` is needed for CSV and JSON; Parquet has its own. ``rate`` replays the files as a live feed of
    so many tuples a second. ``**`` in a pattern matches folders at any depth.
    """
    patterns = tuple(str(p) for p in ([path] if isinstance(path, str | Path) else path))
    if not patterns:
        raise GraphError("files(...) needs at least one path")
    chosen = format or _guess_format(patterns)
    if chosen not in ("parquet", "csv", "json"):
        raise GraphError(f"files(format=...) is 'parquet', 'csv' or 'json', got {chosen!r}")
    known = _schema(schema) if schema is not None else _schema_of_files(patterns, chosen)
    return Files(patterns=patterns, format=chosen, schema=known, rate=_rate(rate))


def rows(
    data: pa.Table | Iterable[Mapping[str, object]],
    schema: str | pa.Schema | None = None,
    *,
    rate: float | None = None,
) -> Rows:
    """Hold rows in memory as a source: an Arrow table, or dictionaries with a schema.

    >>> rows([{"word": "a", "n": 1}], "word string, n bigint").table.num_rows
    1
    """
    if schema is None:
        if not isinstance(data, pa.Table):
            raise GraphError("rows(...) of dictionaries needs schema=, such as 'word string, n bigint'")
        return Rows(table=data, rate=_rate(rate))
    wanted = _schema(schema)
    try:
        if isinstance(data, pa.Table):
            table = data.cast(wanted)
        else:
            table = pa.Table.from_pylist([dict(row) for row in data], schema=wanted)
    except (ValueError, TypeError, OverflowError) as error:
        raise GraphError(f"rows(...) do not fit the schema {schema}: {error}") from error
    return Rows(table=table, rate=_rate(rate))


def from_spark(build: Callable[[Any], Any], *, schema: str | pa.Schema) -> FromSpark:
    """Read any Spark streaming DataFrame: a function of the session, and the schema it will have."""
    if not callable(build):
        raise GraphError(f"from_spark(...) takes a function of the Spark session, got {build!r}")
    return FromSpark(build=build, schema=_schema(schema))


def parquet(
    path: str | Path, *, roll_rows: int = 500_000, roll: str | float = "10s", overwrite: bool = False
) -> FileSink:
    """Write Parquet files.

    Small batches are gathered until there are ``roll_rows`` rows, or until a batch comes ``roll`` seconds after the
    first; the end of the run publishes the rest. ``roll=0`` makes every batch a file.
    """
    return _file_sink(path, "parquet", roll_rows, roll, overwrite)


def csv(
    path: str | Path, *, roll_rows: int = 500_000, roll: str | float = "10s", overwrite: bool = False
) -> FileSink:
    """Write CSV files with a header. Rolled as ``parquet``."""
    return _file_sink(path, "csv", roll_rows, roll, overwrite)


def json(
    path: str | Path, *, roll_rows: int = 500_000, roll: str | float = "10s", overwrite: bool = False
) -> FileSink:
    """Write JSON-lines files. Rolled as ``parquet``."""
    return _file_sink(path, "json", roll_rows, roll, overwrite)


def callback(function: Callable[[int, pa.Table], None]) -> Callback:
    """Call ``function(batch, table)`` in the driver after each batch is recorded."""
    if not callable(function):
        raise GraphError(f"callback(...) takes a function of (batch, table), got {function!r}")
    return Callback(function=function)


def to_spark(function: Callable[[Any, int], None]) -> ToSpark:
    """Call ``function(dataframe, batch)``, as Spark's ``foreachBatch`` does, on the batch's materialised rows."""
    if not callable(function):
        raise GraphError(f"to_spark(...) takes a function of (dataframe, batch), got {function!r}")
    return ToSpark(function=function)


def memory() -> Memory:
    """Keep the rows for ``run.table(name)``."""
    return Memory()


def list_files(patterns: Sequence[str], format: FileFormat) -> list[str]:
    """Expand paths, folders and patterns to files of a format, each pattern's in order of name."""
    endings = tuple(e for e, f in _FORMATS.items() if f == format)
    found: dict[str, None] = {}
    for pattern in patterns:
        if Path(pattern).is_dir():
            names = [n for n in _in_folder(pattern) if _plain_ending(n).endswith(endings)]
        else:
            # Only a pattern that spells a hidden name out means it.
            matches = glob.glob(pattern, recursive=True)
            names = [n for n in matches if n == pattern or not _is_hidden(Path(n).name)]
        found.update(dict.fromkeys(sorted(n for n in names if Path(n).is_file())))
    return list(found)


def _in_folder(folder: str) -> Iterable[str]:
    for path in Path(folder).rglob("*"):
        if not any(_is_hidden(part) for part in path.relative_to(folder).parts):
            yield str(path)


def _is_hidden(name: str) -> bool:
    # As for Spark and Arrow: half-written and bookkeeping files.
    return name.startswith(("_", "."))


def _plain_ending(name: str) -> str:
    return name.removesuffix(".gz")


def _guess_format(patterns: Sequence[str]) -> FileFormat:
    names = (_plain_ending(p) for p in patterns)
    for name in itertools.chain(names, *(_folder_names(p) for p in patterns)):
        for ending, format in _FORMATS.items():
            if name.endswith(ending):
                return format
    raise GraphError(
        f"cannot tell the format of {', '.join(patterns)}: say format='parquet', 'csv' or 'json'"
    )


def _folder_names(pattern: str) -> Iterable[str]:
    return map(_plain_ending, sorted(_in_folder(pattern))) if Path(pattern).is_dir() else ()


def _schema_of_files(patterns: Sequence[str], format: FileFormat) -> pa.Schema:
    if format != "parquet":
        raise GraphError(f"{format} files need schema=, such as 'ticker string, price double'")
    found = list_files(patterns, format)
    if not found:
        raise GraphError(f"no Parquet file matches {', '.join(patterns)}: check the path, or give schema=")
    try:
        return pq.read_schema(found[0]).remove_metadata()
    except (pa.ArrowInvalid, OSError) as error:
        raise GraphError(f"cannot read the schema of {found[0]}: {error}") from error


def _schema(schema: str | pa.Schema) -> pa.Schema:
    try:
        return parse_schema(schema) if isinstance(schema, str) else schema.remove_metadata()
    except ExpressionError as error:
        raise GraphError(f"schema=: {error}") from error


def _rate(rate: float | None) -> float | None:
    if rate is not None and (isinstance(rate, bool) or not isinstance(rate, int | float) or rate <= 0):
        raise GraphError(f"rate= takes a positive number of tuples a second, got {rate!r}")
    return None if rate is None else float(rate)


def _pace(rate: float | None) -> str:
    return "" if rate is None else f" at {rate:,.0f} tuples/s"


def _file_sink(
    path: str | Path, format: FileFormat, roll_rows: int, roll: str | float, overwrite: bool
) -> FileSink:
    from riprap.graph.policies import seconds

    if not isinstance(roll_rows, int) or isinstance(roll_rows, bool) or roll_rows < 1:
        raise GraphError(f"{format}(roll_rows=...) takes a whole number of at least 1, got {roll_rows!r}")
    period = 0.0 if roll in (0, 0.0, "0s") else seconds(f"{format}(roll=...)", roll)
    return FileSink(
        path=str(path), format=format, roll_rows=roll_rows, roll_seconds=period, overwrite=overwrite
    )
