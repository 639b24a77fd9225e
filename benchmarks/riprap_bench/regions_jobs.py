"""The applications whose throughput is compared with a consistent region and without, each with input of any length.

Input is cut into files, each a batch. It is made once and goes on: dates, times and numbers are those of a stream that
never ends, so a run can be as long as it has to be. The content depends on the seed alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import riprap as rr
from riprap.apps.logwatch import logwatch
from riprap.apps.lois import lois
from riprap.apps.lois_feed import ANTENNAS, MOMENTS, make_blocks
from riprap.apps.made_log import YEAR, make_log
from riprap.apps.mails import make_mail
from riprap.apps.market import MINUTE, generate
from riprap.apps.syslog import END_OF_LOG
from riprap.apps.vwap import vwap
from riprap.apps.wordcount import wordcount
from riprap.graph.connectors import SinkConnector
from riprap_bench.checkpoint_feeds import Feed
from riprap_bench.checkpoint_runs import join_app
from riprap_bench.checkpoint_sizes import WINDOW, linked, write_fill
from riprap_bench.regions_plan import Name

# Seven days of a log with a line every three seconds.
_WEEK, _WEEK_LINES = 7, 7 * 28_800
_BASE_MINUTES, _BASE_SECONDS = 30, 8
_MAIL_FILES = 8
_CHAIN_FILES = 8
_FUSED = 8
Content = TypeVar("Content")


class Job(Protocol):
    """An application and its input: how many tuples a batch has, and how many batches come before what is measured."""

    @property
    def rows(self) -> int: ...
    @property
    def warm_up(self) -> int: ...

    def write(self, folder: Path, batches: int) -> Feed:
        """Write so many batches of input; those that are in the folder already are kept."""

    def build(self, feed: Feed, out: SinkConnector) -> rr.Application:
        """Describe the application over its input."""


@dataclass(frozen=True, slots=True)
class WordCount:
    """Word count, by a scan of the folder or over its files one after the other."""

    seed: int
    scan: bool
    rows: int = 20_000
    warm_up: int = 4

    def write(self, folder: Path, batches: int) -> Feed:
        def lines(number: int) -> list[str]:
            return _lines_of_mails(number, self.rows, self.seed)

        files = _written(folder, "mails.txt", min(batches, _MAIL_FILES), lines, _write_lines)
        first = Feed(tuple(files), (self.rows,) * len(files), (self.rows,) * len(files))
        return linked(folder, first, batches)

    def build(self, feed: Feed, out: SinkConnector) -> rr.Application:
        files = list(map(str, feed.files))
        return wordcount(
            rr.folder_scan(files, format="text") if self.scan else rr.files(files, format="text"), out
        )


@dataclass(frozen=True, slots=True)
class LogWatch:
    """Log watch over weeks of a log."""

    seed: int
    rows: int = _WEEK_LINES // 4
    warm_up: int = 4

    def write(self, folder: Path, batches: int) -> Feed:
        files = _written(folder, "log.txt", batches, _log_parts(self.seed, self.rows), _write_lines)
        rows = [self.rows] * len(files)
        # The end of the log counts as a line.
        rows[-1] += 1
        return Feed(tuple(files), tuple(rows), tuple(rows))

    def build(self, feed: Feed, out: SinkConnector) -> rr.Application:
        files = rr.files(list(map(str, feed.files)), format="text", last_line=END_OF_LOG)
        return logwatch(files, out, year=YEAR)


@dataclass(frozen=True, slots=True)
class Vwap:
    """VWAP over a market that begins anew every half hour, at later times."""

    seed: int
    rows: int = 100_000
    warm_up: int = 4

    def write(self, folder: Path, batches: int) -> Feed:
        base = pa.Table.from_batches(generate(_BASE_MINUTES * MINUTE, seed=self.seed))
        return _again(folder, base, self.rows, batches, "seq", timedelta(minutes=_BASE_MINUTES))

    def build(self, feed: Feed, out: SinkConnector) -> rr.Application:
        return vwap(rr.files(list(map(str, feed.files))), out)


@dataclass(frozen=True, slots=True)
class Lois:
    """LOIS over some seconds of radio, again and again at later times."""

    seed: int
    rows: int = 256
    warm_up: int = 4

    def write(self, folder: Path, batches: int) -> Feed:
        base = make_blocks(_BASE_SECONDS * MOMENTS * ANTENNAS, seed=self.seed)
        return _again(folder, base, self.rows, batches, "block", timedelta(seconds=_BASE_SECONDS))

    def build(self, feed: Feed, out: SinkConnector) -> rr.Application:
        return lois(rr.files(list(map(str, feed.files))), out)


@dataclass(frozen=True, slots=True)
class Large:
    """A join that holds windows of so many MB, all of which is replaced again and again."""

    seed: int
    mb: int
    rows: int
    warm_up: int

    @classmethod
    def of(cls, mb: int, seed: int, folder: Path) -> Large:
        """Fill the windows once, to know how many batches that takes."""
        folder.mkdir(parents=True, exist_ok=True)
        fill = write_fill(folder, mb, seed)
        return cls(seed, mb, rows=fill.rows[0], warm_up=len(fill.files) + 1)

    def write(self, folder: Path, batches: int) -> Feed:
        return linked(folder, write_fill(folder, self.mb, self.seed), batches)

    def build(self, feed: Feed, out: SinkConnector) -> rr.Application:
        return join_app(feed, by="number", window=WINDOW, policy=None, sample=997, out=out)


@dataclass(frozen=True, slots=True)
class Chain:
    """Chains of operators without state between a source and a sink, eight to a processing element."""

    seed: int
    many: int
    length: int
    rows: int = 50_000
    warm_up: int = 4

    @property
    def elements(self) -> int:
        return 2 + self.many * -(-self.length // _FUSED)

    def write(self, folder: Path, batches: int) -> Feed:
        def table(number: int) -> pa.Table:
            draw = np.random.default_rng([self.seed, number])
            numbers = np.arange(number * self.rows, (number + 1) * self.rows)
            return pa.table({"number": numbers, "value": draw.random(self.rows)})

        files = _written(folder, "input.parquet", min(batches, _CHAIN_FILES), table, pq.write_table)
        rows = (self.rows,) * len(files)
        return linked(folder, Feed(tuple(files), rows, rows), batches)

    def build(self, feed: Feed, out: SinkConnector) -> rr.Application:
        app = rr.Application("chains")
        source = app.source("Source", rr.files(list(map(str, feed.files))))
        app.place("first", source)
        ends = []
        for chain in range(self.many):
            stream = source
            for place in range(self.length):
                # The source deals its tuples to the chains in turn.
                where = f"number % {self.many} = {chain}" if place == 0 and self.many > 1 else None
                stream = app.functor(
                    f"C{chain}_{place}", stream, where=where, select="number, value * 0.999 + 1 as value"
                )
                app.place(f"chain{chain}_{place // _FUSED}", stream)
            ends.append(stream)
        # The sink drops nearly all of it; what it keeps is compared.
        kept = app.functor("Kept", ends if self.many > 1 else ends[0], where="number % 997 < 4")
        app.sink("Sink", kept, out)
        app.place("last", kept, "Sink")
        return app


def job_of(name: Name, seed: int) -> Job:
    """Return one of the five applications."""
    jobs: dict[Name, Job] = {
        "wordcount-scan": WordCount(seed, scan=True),
        "wordcount-files": WordCount(seed, scan=False),
        "logwatch": LogWatch(seed),
        "vwap": Vwap(seed),
        "lois": Lois(seed),
    }
    return jobs[name]


def _written(
    folder: Path,
    name: str,
    many: int,
    make: Callable[[int], Content],
    write: Callable[[Content, Path], object],
) -> list[Path]:
    """Write so many files, but for those that are there already."""
    folder.mkdir(parents=True, exist_ok=True)
    stem, _, ending = name.partition(".")
    files = [folder / f"{stem}-{number:06d}.{ending}" for number in range(many)]
    for number, file in enumerate(files):
        if not file.exists():
            write(make(number), file)
    return files


def _write_lines(lines: list[str], path: Path) -> None:
    path.write_text("\n".join(lines) + "\n")


def _lines_of_mails(number: int, rows: int, seed: int) -> list[str]:
    lines: list[str] = []
    mail = number * rows
    while len(lines) < rows:
        lines += make_mail(mail, seed=seed).splitlines()
        mail += 1
    return lines[:rows]


def _log_parts(seed: int, rows: int) -> Callable[[int], list[str]]:
    """Return what makes a part of a log: a week that was made, with the dates of the weeks that follow it."""
    week = make_log(_WEEK_LINES, seed=seed).lines
    day, rest = pc.utf8_slice_codeunits(week, 0, 6), pc.utf8_slice_codeunits(week, 6)
    first = date(YEAR, 3, 1)
    place = pc.index_in(day, value_set=pa.array([_day(first + timedelta(days=n)) for n in range(_WEEK)]))

    def part(number: int) -> list[str]:
        turn, start = divmod(number * rows, _WEEK_LINES)
        days = pa.array([_day(first + timedelta(days=turn * _WEEK + n)) for n in range(_WEEK)])
        # Lines that are no lines of a log have no date.
        dated = pc.coalesce(days.take(place.slice(start, rows)), day.slice(start, rows))
        lines: list[str] = pc.binary_join_element_wise(dated, rest.slice(start, rows), "").to_pylist()
        return lines

    return part


def _day(day: date) -> str:
    return f"{day:%b} {day.day:2d}"


def _again(folder: Path, base: pa.Table, rows: int, batches: int, numbered: str, later: timedelta) -> Feed:
    """Write a table in parts, again and again: the numbers of a column go on, and so do times."""
    parts = base.num_rows // rows

    def table(number: int) -> pa.Table:
        turn, part = divmod(number, parts)
        return _shifted(base.slice(part * rows, rows), numbered, turn * parts * rows, turn * later)

    files = _written(folder, "part.parquet", batches, table, pq.write_table)
    return Feed(tuple(files), (rows,) * len(files), (rows,) * len(files))


def _shifted(table: pa.Table, numbered: str, by: int, later: timedelta) -> pa.Table:
    place, time = table.schema.get_field_index(numbered), table.schema.get_field_index("time")
    numbers = pc.add(table.column(numbered), by)
    times = pc.add(table.column("time"), pa.scalar(later, pa.duration("us")))
    shifted = table.set_column(place, table.schema.field(place), numbers)
    return shifted.set_column(time, table.schema.field(time), times)
