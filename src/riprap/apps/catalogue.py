"""The built-in applications by name, each made from where its tuples come from and where they go.

>>> CATALOGUE["bargain"].make(None, rr.memory()).name
'bargain'
"""

from __future__ import annotations

import dataclasses
import glob
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

import riprap as rr
from riprap.apps.bargain import bargain
from riprap.apps.logwatch import logwatch
from riprap.apps.lois import lois
from riprap.apps.lois_feed import BLOCK_SCHEMA
from riprap.apps.market_real import read_real
from riprap.apps.market_schema import FEED_SCHEMA
from riprap.apps.syslog import END_OF_LOG, oldest_first
from riprap.apps.vwap import vwap
from riprap.apps.wafer import wafer
from riprap.apps.wafer_feed import WAFER_SCHEMA
from riprap.apps.wafer_secom import read_secom
from riprap.apps.wordcount import wordcount
from riprap.expressions import type_name
from riprap.graph.connectors import SinkConnector, SourceConnector
from riprap.graph.graph import Restart


@dataclass(frozen=True, slots=True)
class _Columns:
    """The columns of a feed that an application reads, and the page that describes them. It may lack others."""

    used: tuple[str, ...]
    schema: pa.Schema
    page: str

    @property
    def see(self) -> str:
        return f"{self.page} describes the columns"


_EVENTS = _Columns(("seq", "ticker", "kind", "price", "size"), FEED_SCHEMA, "docs/market-feed.md")
_TRADES = _Columns(("seq", "time", "ticker", "kind", "price", "size"), FEED_SCHEMA, "docs/market-feed.md")
_BLOCKS = _Columns(tuple(BLOCK_SCHEMA.names), BLOCK_SCHEMA, "docs/lois.md")
_WAFERS = _Columns(("wafer", "lot", "product", "sensors", "measured"), WAFER_SCHEMA, "docs/wafer-yield.md")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A parameter of an application that can be given as text: what it is by default, and how it is read."""

    default: str
    read: Callable[[str], Any] = str


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltIn:
    """An application that comes with Riprap.

    ``feed`` describes what it reads. ``open_feed`` turns a path and a rate into its source, or says what is wrong with
    the feed. ``empty_feed`` is a source without tuples: enough to look at the application. ``build`` takes the
    ``settings`` by name.
    """

    summary: str
    feed: str
    default_out: str
    open_feed: Callable[[str, float | None], SourceConnector]
    empty_feed: Callable[[], SourceConnector]
    build: Callable[..., rr.Application]
    settings: Mapping[str, Parameter] = field(default_factory=dict)

    def make(
        self,
        feed: str | Path | None,
        out: SinkConnector,
        *,
        rate: float | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> rr.Application:
        """Make the application over a feed, or over an empty one."""
        source = self.empty_feed() if feed is None else self.open_feed(str(feed), rate)
        return self.build(source, out, **(settings or {}))


def market_feed(path: str, rate: float | None = None) -> SourceConnector:
    """Open a market feed: a Parquet file, folder or pattern, or a file of real events (.csv, .csv.gz)."""
    return _made_or_real(path, rate, _EVENTS, read_real)


def timed_market_feed(path: str, rate: float | None = None) -> SourceConnector:
    """Open one whose events have a time."""
    return _made_or_real(path, rate, _TRADES, read_real)


def block_feed(path: str, rate: float | None = None) -> SourceConnector:
    """Open a feed of blocks of samples: a Parquet file, folder or pattern."""
    return _parquet(path, rate, _BLOCKS)


def wafer_feed(path: str, rate: float | None = None) -> SourceConnector:
    """Open a feed of wafers: a Parquet file, folder or pattern, or SECOM's real ones (.csv, .csv.gz)."""
    return _made_or_real(path, rate, _WAFERS, read_secom)


def _made_or_real(
    path: str, rate: float | None, columns: _Columns, read: Callable[[Path], pa.Table]
) -> SourceConnector:
    if path.endswith((".csv", ".csv.gz")):
        return rr.rows(_real(Path(path), columns, read), rate=rate)
    return _parquet(path, rate, columns)


def _parquet(path: str, rate: float | None, columns: _Columns) -> SourceConnector:
    feed = rr.files(path, format="parquet", rate=rate)
    _check_columns(path, feed.schema, columns)
    return feed


def log_files(path: str, rate: float | None = None) -> SourceConnector:
    """Open logs: a file of text, plain or gzipped, a folder or a pattern."""
    _check_there(path)
    logs = rr.files(path, format="text", rate=rate, last_line=END_OF_LOG)
    by_age = oldest_first(logs.listing())
    # The path stays, for files that are yet to come.
    return logs if by_age == logs.listing() else dataclasses.replace(logs, patterns=(*by_age, path))


def folder_of_text(path: str, rate: float | None = None) -> SourceConnector:
    """Open a folder of text files, which are read one by one."""
    if rate is not None:
        raise rr.GraphError(
            "files that are read one by one have no rate. Leave out --rate: every file is a batch"
        )
    _check_there(path)
    return rr.folder_scan(path, format="text")


def _check_there(path: str) -> None:
    # An empty folder is a feed: files may yet come.
    if not Path(path).is_dir() and not glob.glob(path, recursive=True):
        raise rr.GraphError(f"the feed {path} does not exist: name a file, a folder or a pattern")


def _real(path: Path, columns: _Columns, read: Callable[[Path], pa.Table]) -> pa.Table:
    if not path.is_file():
        raise rr.GraphError(f"the feed {path} does not exist (a feed of real events is one CSV file)")
    try:
        return read(path).replace_schema_metadata(None)
    except ValueError as error:
        raise rr.GraphError(f"the feed {error}. {columns.see}") from error


def _check_columns(path: str, schema: pa.Schema, columns: _Columns) -> None:
    documented = columns.schema
    missing = [name for name in columns.used if name not in schema.names]
    if missing:
        wanted = ", ".join(f"{name} {type_name(documented.field(name).type)}" for name in missing)
        names = ", ".join(schema.names) or "no columns"
        raise rr.GraphError(f"the feed {path} lacks {wanted}; it has {names}. {columns.see}")
    for name in columns.used:
        kind, as_said = schema.field(name).type, documented.field(name).type
        if not _fits(kind, as_said):
            raise rr.GraphError(
                f"in the feed {path} the column {name} is {type_name(kind)}, not {type_name(as_said)}. {columns.see}"
            )


def _fits(kind: pa.DataType, wanted: pa.DataType) -> bool:
    """Say whether a column can stand in for the documented one: other widths and layouts are fine."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_list(wanted):
        return bool(pa.types.is_list(kind)) and kind.value_type == wanted.value_type
    if pa.types.is_string(wanted):
        return kind in (pa.string(), pa.large_string(), pa.string_view())
    if pa.types.is_floating(wanted):
        return kind in (pa.float32(), pa.float64())
    if pa.types.is_timestamp(wanted):
        return bool(pa.types.is_timestamp(kind))
    return bool(pa.types.is_signed_integer(kind))


def _no_lines() -> SourceConnector:
    return rr.rows([], "line string")


def _wafer(
    feed: SourceConnector, out: SinkConnector, checkpoint: str | None = None, restart: Restart = "live"
) -> rr.Application:
    protect = None if checkpoint is None else rr.checkpoint(every=checkpoint)
    return wafer(feed, out, protect=protect, restart=restart)


CATALOGUE: Mapping[str, BuiltIn] = {
    "bargain": BuiltIn(
        summary="find quotes that ask less than the recent average price of their stock",
        feed="Parquet files, or real events (.csv, .csv.gz)",
        default_out="bargains",
        open_feed=market_feed,
        empty_feed=lambda: rr.rows(FEED_SCHEMA.empty_table()),
        build=bargain,
    ),
    "logwatch": BuiltIn(
        summary="find attempts to break in, in the system logs of Linux servers",
        feed="logs, plain or gzipped",
        default_out="alerts",
        open_feed=log_files,
        empty_feed=_no_lines,
        build=logwatch,
        settings={
            "attempts": Parameter(default="5", read=int),
            "window": Parameter(default="10m"),
            "year": Parameter(default="the latest possible", read=int),
        },
    ),
    "wordcount": BuiltIn(
        summary="count the words in the files of a folder",
        feed="files of text, read one by one",
        default_out="words",
        open_feed=folder_of_text,
        empty_feed=_no_lines,
        build=wordcount,
    ),
    "wafer": BuiltIn(
        summary="predict the yield of wafers with a model that learns, and tell how good it is",
        feed="Parquet files, or SECOM's wafers (.csv, .csv.gz)",
        default_out="lots",
        open_feed=wafer_feed,
        empty_feed=lambda: rr.rows(WAFER_SCHEMA.empty_table()),
        build=_wafer,
        settings={"checkpoint": Parameter(default="none"), "restart": Parameter(default="live")},
    ),
    "vwap": BuiltIn(
        summary="keep the average price of each stock over its newest trades, weighted by volume",
        feed="Parquet files, or real events (.csv, .csv.gz)",
        default_out="averages",
        open_feed=timed_market_feed,
        empty_feed=lambda: rr.rows(FEED_SCHEMA.empty_table()),
        build=vwap,
        settings={"window": Parameter(default="5m")},
    ),
    "lois": BuiltIn(
        summary="find waves in what antennas for radio astronomy receive, and where they come from",
        feed="Parquet files",
        default_out="signals",
        open_feed=block_feed,
        empty_feed=lambda: rr.rows(BLOCK_SCHEMA.empty_table()),
        build=lois,
        settings={"factor": Parameter(default="2", read=float), "blocks": Parameter(default="64", read=int)},
    ),
}
