"""Folders of files as sinks."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal, Unpack

import pyarrow as pa

from riprap.durations import Duration, seconds
from riprap.errors import GraphError
from riprap.graph.connectors.checks import text_holds, whole_number
from riprap.graph.connectors.files import FORMATS
from riprap.graph.connectors.notation import CompressionOptions, WriteOptions, Writing, writing_of
from riprap.graph.connectors.promise import Promise
from riprap.graph.connectors.sink import Opened, SinkConnector, SinkOpening

FileFormat = Literal["parquet", "csv", "json"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSink(SinkConnector):
    """A folder of files; a batch appears in it whole or not at all."""

    PROMISE: ClassVar[Promise] = Promise(
        word="once",
        call="rr.parquet(...), rr.csv(...), rr.json(...)",
        does="writes a folder of Parquet, CSV or JSON-lines files",
        after_failure="holds each batch once: files are named after their batches",
    )

    path: str
    format: FileFormat
    roll_rows: int
    # None if nobody said: some seconds, and in a region no longer than until a cut waits for it.
    roll_seconds: float | None
    overwrite: bool = False
    writing: Writing = field(default_factory=Writing)

    def holds(self, kind: pa.DataType) -> bool:
        return text_holds(self.format, kind)

    def opened(self, opening: SinkOpening[Opened]) -> Opened:
        return opening.by_files(self)

    def __str__(self) -> str:
        return f"{self.format} files in {self.path}"

    @property
    def folder(self) -> str:
        """The folder itself, however it was spelled."""
        return os.path.realpath(self.path)

    @property
    def ending(self) -> str:
        """What the names of its files end with."""
        gzip = self.format != "parquet" and self.writing.compression == "gzip"
        return f".{self.format}" + (".gz" if gzip else "")


def parquet(
    path: str | Path,
    *,
    roll_rows: int = 500_000,
    roll: Duration | None = None,
    overwrite: bool = False,
    **options: Unpack[CompressionOptions],
) -> FileSink:
    """Write Parquet files.

    Small batches are gathered until there are ``roll_rows`` rows, or until ``roll`` has passed since the first; the end
    of the run publishes the rest. Unless said it is ten seconds, and in a consistent region a file ends with each cut.
    ``roll=0`` makes every batch a file. ``compression`` is snappy, gzip, zstd, lz4, brotli or none.

    >>> print(rr.parquet("totals", roll="1min", compression="zstd"))
    parquet files in totals
    """
    return _file_sink(path, "parquet", roll_rows, roll, overwrite, dict(options))


def csv(
    path: str | Path,
    *,
    roll_rows: int = 500_000,
    roll: Duration | None = None,
    overwrite: bool = False,
    **options: Unpack[WriteOptions],
) -> FileSink:
    """Write CSV files. Rolled as ``parquet``.

    ``options`` are those of Spark's writer: ``sep``, ``header`` (there is one, unless it is False), ``nullValue`` (the
    text for null), ``quoteAll``, and ``compression`` (none or gzip).

    >>> print(rr.csv("totals", sep=";"))
    csv files in totals
    """
    return _file_sink(path, "csv", roll_rows, roll, overwrite, dict(options))


def json(
    path: str | Path,
    *,
    roll_rows: int = 500_000,
    roll: Duration | None = None,
    overwrite: bool = False,
    **options: Unpack[CompressionOptions],
) -> FileSink:
    """Write JSON-lines files. Rolled as ``parquet``. ``compression`` is none or gzip.

    >>> print(rr.json("totals", compression="gzip"))
    json files in totals
    """
    return _file_sink(path, "json", roll_rows, roll, overwrite, dict(options))


def sink_of(path: str | Path) -> FileSink:
    """Make a sink of a bare path: of the format its name ends in, Parquet where it ends in none."""
    ending = Path(path).suffix
    format = FORMATS.get(ending) if ending else "parquet"
    if format is None or format == "text":
        raise GraphError(
            f"'{path}' ends in '{ending}', which is no format to write. Name a folder that ends in .parquet, .csv or "
            ".json or in nothing (Parquet), or write rr.parquet(...), rr.csv(...) or rr.json(...)"
        )
    return _SINKS[format](path)


def _file_sink(
    path: str | Path,
    format: FileFormat,
    roll_rows: int,
    roll: Duration | None,
    overwrite: bool,
    options: Mapping[str, object],
) -> FileSink:
    whole_number(f"{format}(roll_rows=...)", roll_rows)
    period = None if roll is None else seconds(f"{format}(roll=...)", roll, or_none=True)
    return FileSink(
        path=str(path),
        format=format,
        roll_rows=roll_rows,
        roll_seconds=period,
        overwrite=overwrite,
        writing=writing_of(format, options),
    )


_SINKS: Mapping[str, Callable[[str | Path], FileSink]] = {"parquet": parquet, "csv": csv, "json": json}
