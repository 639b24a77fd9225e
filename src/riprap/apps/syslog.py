"""Read the lines of Linux system logs: when, on which server, by which program, and what.

    >>> lines = pa.array(["Dec 31 23:59:58 web1 sshd[7]: Bye", "no line of a log", "Jan  1 00:00:02 web1 su: hello"])
    >>> read, place = read_lines(lines, LogProgress(), start=2024)
    >>> read.rows.tolist(), read.table["program"].to_pylist(), place.year
    ([0, 2], ['sshd', 'su'], 2025)

Three ways to write a line are understood: the old one, which has no year ("Dec 10 06:55:46 web1 sshd[7]: ..."), the one
rsyslog writes today ("2024-12-10T06:55:46.123456+01:00 web1 sshd[7]: ...") and that of RFC 5424. A time without a zone
is taken to be UTC.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import riprap as rr
from riprap.arrays import Ints

LINE_SCHEMA = (
    "time timestamp, log_time timestamp, server string, program string, message string, times bigint"
)
# The line that stands for the end of a log: the character that ends what is typed at a terminal.
END_OF_LOG = "\x04"
MONTHS = pa.array(["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"])

_HEAD = (
    r"^(?:<\d{1,3}>(?P<version>1 )?)?"
    r"(?:(?P<month>Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) {1,2}(?P<day>0?[1-9]|[12]\d|3[01]) "
    r"|(?P<date>\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01]))[T ])"
    r"(?P<clock>(?:[01]\d|2[0-3]):[0-5]\d:(?:[0-5]\d|60))(?:[.,](?P<fraction>\d{1,9}))?"
    r"(?P<zone>Z|[+-]\d\d:?\d\d)? +(?P<server>\S+) +(?P<rest>.*?)\s*$"
)
_TAGGED = r"^(?P<program>[^\s:\[]+)(?:\[[^\]]*\])?: ?(?P<message>.*)$"
_RFC_5424 = r"^(?P<program>\S+) \S+ \S+ (?:-|(?:\[(?:[^\]\\]|\\.)*\])+) ?\x{FEFF}?(?P<message>.*)$"
_REPEATED = r"^last message repeated (?P<times>\d{1,6}) times?$"
_ROTATED = re.compile(r"(.*?)(?:\.(\d{1,4})|[-.](\d{8}[-\d]*))?(?:\.gz)?", re.S)
_TIME = pa.timestamp("us", tz="UTC")
_LONG_AGO = -(2**62)


@dataclass
class LogProgress:
    """Where a log has come to: the date of its last line without a year, and what its last line said.

    ``log_time`` is the latest time it told, in microseconds.
    """

    year: int = 0
    month: int = 0
    log_time: int = _LONG_AGO
    program: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """The lines that could be read, and which of the given ones they are."""

    table: pa.Table
    rows: Ints


class ReadSyslog(rr.CustomOperator):
    """Read lines of text; those without a timestamp go to the second output.

    The line that stands for the end of the log is passed on with the others: it has no time.
    """

    state: LogProgress

    def __init__(self, start: int | date) -> None:
        self._start = start

    def process(self, port: int | str, batch: pa.RecordBatch) -> None:
        lines = batch.column("line")
        read, self.state = read_lines(lines, self.state, start=self._start)
        read = _with_ends(read, lines)
        self.submit(read.table, 0, rows=read.rows.tolist())
        unread = np.setdiff1d(np.arange(len(lines)), read.rows)
        self.submit(pa.table({"line": lines.take(pa.array(unread))}), 1, rows=unread.tolist())


def read_lines(lines: pa.Array, place: LogProgress, *, start: int | date) -> tuple[Lines, LogProgress]:
    """Read lines that follow those before ``place``.

    ``start`` is the year of the log's first line, or the day when it is read: then the first line is of the latest year
    that does not put it after that day. A year ends where the month falls, but for the step from one month to the
    one before it: that is a line which came late.

    ``log_time`` is the latest time that a line and those before it told: lines may come a little late.

    The classic syslogd writes "last message repeated 3 times": such a line says thrice what the one before it said.
    """
    head = pc.extract_regex(lines, _HEAD)
    rows: Ints = np.flatnonzero(head.is_valid().to_numpy(zero_copy_only=False))
    head = head.take(pa.array(rows))
    part = dict(zip((f.name for f in head.type), head.flatten(), strict=True))
    time, place = _times(part, place, start)
    log_time = np.maximum.accumulate(np.maximum(time.cast(pa.int64()).to_numpy(), place.log_time))
    program, message = _programs(part["rest"], part["version"])
    program, message, times = _unrepeated(program, message, place)
    if len(rows):
        last_line = {"program": program[-1].as_py(), "message": message[-1].as_py()}
        place = dataclasses.replace(place, log_time=int(log_time[-1]), **last_line)
    columns = {"time": time, "log_time": pa.array(log_time).cast(_TIME), "server": part["server"]}
    columns |= {"program": program, "message": message, "times": times}
    return Lines(table=pa.table(columns), rows=rows), place


def oldest_first(names: Iterable[str]) -> list[str]:
    """Put the files of rotated logs in order of time.

    >>> oldest_first(["auth.log", "auth.log.1", "auth.log.10.gz", "auth.log.2.gz"])
    ['auth.log.10.gz', 'auth.log.2.gz', 'auth.log.1', 'auth.log']
    >>> oldest_first(["messages", "messages-20241229", "messages-20250105.gz"])
    ['messages-20241229', 'messages-20250105.gz', 'messages']
    """

    def age(name: str) -> tuple[str, bool, int, str]:
        log, number, day = _ROTATED.fullmatch(name).groups()  # type: ignore[union-attr]
        return log, number is None and day is None, -int(number or 0), day or ""

    return sorted(names, key=age)


def _with_ends(read: Lines, lines: pa.Array) -> Lines:
    """Put the ends of the log among the lines that were read."""
    ends = np.flatnonzero(pc.fill_null(pc.equal(lines, END_OF_LOG), False).to_numpy(zero_copy_only=False))
    if not len(ends):
        return read
    nothing = pa.table({f.name: pa.nulls(len(ends), f.type) for f in read.table.schema})
    rows = np.concatenate([read.rows, ends])
    order = np.argsort(rows)
    return Lines(table=pa.concat_tables([read.table, nothing]).take(pa.array(order)), rows=rows[order])


def _times(part: dict[str, pa.Array], place: LogProgress, start: int | date) -> tuple[pa.Array, LogProgress]:
    yearless = pc.not_equal(part["month"], "").to_numpy(zero_copy_only=False)
    months: Ints = np.zeros(len(yearless), np.int64)
    days: Ints = np.zeros(len(yearless), np.int64)
    rows = pa.array(np.flatnonzero(yearless))
    month = pc.index_in(part["month"].take(rows), MONTHS).to_numpy().astype(np.int64) + 1
    days[yearless] = _whole(part["day"].take(rows))
    years, place = _years(month, days[yearless], place, start)
    months[yearless] = (years - 1970) * 12 + month - 1

    dates = part["date"].take(pa.array(np.flatnonzero(~yearless)))
    months[~yearless] = (_digits(dates, 0, 4) - 1970) * 12 + _digits(dates, 5, 7) - 1
    days[~yearless] = _digits(dates, 8, 10)

    clock = part["clock"]
    seconds = _digits(clock, 0, 2) * 3600 + _digits(clock, 3, 5) * 60 + _digits(clock, 6, 8)
    micros = (seconds - _zones(part["zone"])) * 1_000_000 + _digits(
        pc.utf8_rpad(part["fraction"], 6, "0"), 0, 6
    )
    # A day that the month lacks, such as 29 February of a year that was guessed, is the day after its last.
    midnight = months.astype("datetime64[M]").astype("datetime64[D]") + (days - 1)
    return pa.array(midnight.astype("datetime64[us]") + micros.astype("timedelta64[us]")).cast(_TIME), place


def _years(months: Ints, days: Ints, place: LogProgress, start: int | date) -> tuple[Ints, LogProgress]:
    if not len(months):
        return months, place
    first = place.month == 0
    steps = np.diff(months, prepend=months[0] if first else place.month)
    year = _first_year(int(months[0]), int(days[0]), start) if first else place.year
    years: Ints = year + np.cumsum((steps < -1).astype(np.int64) - (steps == 11))
    return years, dataclasses.replace(place, year=int(years[-1]), month=int(months[-1]))


def _first_year(month: int, day: int, start: int | date) -> int:
    if isinstance(start, int):
        return start
    return start.year - int((month, day) > (start.month, start.day))


def _zones(zone: pa.Array) -> Ints:
    """Return how many seconds local times are ahead of UTC."""
    plain = pc.replace_substring(pc.if_else(pc.less(pc.utf8_length(zone), 5), "+0000", zone), ":", "")
    ahead: Ints = _digits(plain, 1, 3) * 3600 + _digits(plain, 3, 5) * 60
    return np.where(pc.starts_with(plain, "-").to_numpy(zero_copy_only=False), -ahead, ahead)


def _programs(rest: pa.Array, version: pa.Array) -> tuple[pa.Array, pa.Array]:
    tagged = pc.extract_regex(rest, _TAGGED)
    if pc.any(pc.not_equal(version, "")).as_py():
        tagged = pc.if_else(pc.equal(version, ""), tagged, pc.extract_regex(rest, _RFC_5424))
    program, message = pc.struct_field(tagged, "program"), pc.struct_field(tagged, "message")
    return pc.fill_null(program, ""), pc.if_else(pc.is_valid(tagged), message, rest)


def _unrepeated(
    program: pa.Array, message: pa.Array, place: LogProgress
) -> tuple[pa.Array, pa.Array, pa.Array]:
    repeats = pc.struct_field(pc.extract_regex(message, _REPEATED), "times")
    lines = np.where(repeats.is_valid().to_numpy(zero_copy_only=False), -1, np.arange(len(program)))
    source = pa.array(np.maximum.accumulate(lines) + 1)
    program = pa.concat_arrays([pa.array([place.program], pa.string()), program]).take(source)
    message = pa.concat_arrays([pa.array([place.message], pa.string()), message]).take(source)
    return program, message, pc.fill_null(repeats.cast(pa.int64()), 1)


def _digits(text: pa.Array, start: int, stop: int) -> Ints:
    return _whole(pc.utf8_slice_codeunits(text, start, stop))


def _whole(text: pa.Array) -> Ints:
    numbers: Ints = text.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return numbers
