"""Lines of logs: the three ways to write one, years that are not written, and lines that are none."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from riprap.apps.syslog import LogProgress, read_lines


def read(*lines: str | None, start: int | date = 2024) -> list[dict[str, Any]]:
    got, _ = read_lines(pa.array(lines, pa.string()), LogProgress(), start=start)
    return got.table.to_pylist()


def times(*lines: str, start: int | date = 2024) -> list[datetime]:
    return [row["time"] for row in read(*lines, start=start)]


def utc(*when: int) -> datetime:
    return datetime(*when, tzinfo=UTC)  # type: ignore[misc,arg-type]


@pytest.mark.parametrize(
    ("line", "time", "program", "message"),
    [
        ("Dec 10 06:55:46 LabSZ sshd[24200]: Bye", utc(2024, 12, 10, 6, 55, 46), "sshd", "Bye"),
        ("Jun  9 06:06:20 combo syslogd 1.4.1: restart.", utc(2024, 6, 9, 6, 6, 20), "", "syslogd 1.4.1: restart."),
        ("Jun 9 06:06:20 combo su(pam_unix)[3]: a: b\r", utc(2024, 6, 9, 6, 6, 20), "su(pam_unix)", "a: b"),
        ("<34>Oct 11 22:14:15.25 m su: failed", utc(2024, 10, 11, 22, 14, 15, 250000), "su", "failed"),
        ("2023-12-10T06:55:46.123456+01:00 web1 sshd[1]: x", utc(2023, 12, 10, 5, 55, 46, 123456), "sshd", "x"),
        ("2023-12-10T23:55:46-0130 web1 sshd-session[1]: x", utc(2023, 12, 11, 1, 25, 46), "sshd-session", "x"),
        ("2023-12-10 06:55:46 web1 cron: x", utc(2023, 12, 10, 6, 55, 46), "cron", "x"),
        (
            "<165>1 2003-10-11T22:14:15.003Z mymachine.example.com su 77 ID47 - said",
            utc(2003, 10, 11, 22, 14, 15, 3000), "su", "said",
        ),
        (
            r'<165>1 2003-08-24T05:14:15.000003-07:00 h sshd - - [a x="1\]"][b] ' + "\N{ZERO WIDTH NO-BREAK SPACE}said",
            utc(2003, 8, 24, 12, 14, 15, 3), "sshd", "said",
        ),
        ("Feb 28 23:59:60 web1 kernel: leap", utc(2024, 2, 29), "kernel", "leap"),
    ],
)  # fmt: skip
def test_a_line(line: str, time: datetime, program: str, message: str) -> None:
    (row,) = read(line)
    assert (row["time"], row["program"], row["message"], row["times"]) == (time, program, message, 1)


def test_lines_that_are_none_are_left_out_and_known() -> None:
    lines = [
        "",
        None,
        "no line",
        "Dec 10 06:55:46",
        "Foo 10 06:55:46 web1 sshd[1]: x",
        "Dec 32 06:55:46 web1 sshd[1]: x",
        "Dec 10 24:55:46 web1 sshd[1]: x",
        "2024-13-10T06:55:46Z web1 sshd[1]: x",
        " Dec 10 06:55:46 web1 sshd[1]: x",
        "Dec 10 06:55:46 web1 sshd[1]: good",
        "été Dec 10 06:55:46 web1 sshd[1]: x",
    ]
    got, place = read_lines(pa.array(lines, pa.string()), LogProgress(), start=2024)
    assert got.rows.tolist() == [9]
    assert got.table["message"].to_pylist() == ["good"]
    told = int(utc(2024, 12, 10, 6, 55, 46).timestamp()) * 1_000_000
    assert place == LogProgress(year=2024, month=12, log_time=told, program="sshd", message="good")


def test_december_is_followed_by_the_next_year_and_late_lines_stay_in_theirs() -> None:
    lines = [
        f"{when} 12:00:00 web1 a: b" for when in ("Dec 31", "Jan  1", "Dec 31", "Jan  2", "Jul  1", "Jun 30")
    ]
    expected = [(2024, 12), (2025, 1), (2024, 12), (2025, 1), (2025, 7), (2025, 6)]
    assert [(t.year, t.month) for t in times(*lines)] == expected
    assert [t.year for t in times("Nov 30 12:00:00 web1 a: b", "Mar  1 12:00:00 web1 a: b")] == [2024, 2025]


def test_the_log_is_as_late_as_its_latest_line() -> None:
    clocks = ["12:00:05", "12:00:03", "12:00:05", "12:00:06"]
    rows = read(*(f"Dec 31 {clock} web1 a: b" for clock in clocks))
    assert [row["time"].second for row in rows] == [5, 3, 5, 6]
    assert [row["log_time"].second for row in rows] == [5, 5, 5, 6]


def test_lines_with_a_year_leave_the_others_alone() -> None:
    lines = ["Dec 31 12:00:00 h a: b", "2031-05-01T12:00:00Z h a: b", "Jan  1 12:00:00 h a: b"]
    assert [t.year for t in times(*lines)] == [2024, 2031, 2025]


def test_the_first_line_is_not_after_the_day_it_is_read_on() -> None:
    today = date(2025, 3, 7)
    assert times("Mar  7 23:00:00 h a: b", start=today) == [utc(2025, 3, 7, 23)]
    assert times("Mar  8 00:00:00 h a: b", start=today) == [utc(2024, 3, 8)]
    assert times("Dec 29 00:00:00 h a: b", "Jan  3 00:00:00 h a: b", start=today) == [
        utc(2024, 12, 29),
        utc(2025, 1, 3),
    ]


def test_a_day_that_the_year_lacks_is_the_next() -> None:
    assert times("Feb 29 01:00:00 h a: b", start=2023) == [utc(2023, 3, 1, 1)]


def test_a_repeated_message_is_that_of_the_line_before() -> None:
    rows = read(
        "Dec 10 06:55:46 h last message repeated 2 times",
        "Dec 10 06:55:47 h sshd[1]: x",
        "what is this",
        "Dec 10 06:55:49 h last message repeated 1 time",
        "Dec 10 06:55:50 h last message repeated 14 times",
    )
    assert [(r["program"], r["message"], r["times"]) for r in rows] == [
        ("", "", 2),
        ("sshd", "x", 1),
        ("sshd", "x", 1),
        ("sshd", "x", 14),
    ]


LINES = st.sampled_from(
    [
        "Dec 31 23:59:59 h sshd[1]: x",
        "Jan  1 00:00:00 h su: y",
        "Jan  1 00:00:01 h last message repeated 3 times",
        "2024-05-01T12:00:00+02:00 h a: b",
        "<1>1 2024-05-01T12:00:00Z h a - - - b",
        "nothing",
        "Mar  5 10:00:00 h c",
    ]
)


@given(lines=st.lists(LINES, max_size=12), cut=st.integers(0, 12))
def test_it_does_not_matter_where_a_log_is_cut(lines: list[str], cut: int) -> None:
    whole, end = read_lines(pa.array(lines, pa.string()), LogProgress(), start=2024)
    first, place = read_lines(pa.array(lines[:cut], pa.string()), LogProgress(), start=2024)
    second, last = read_lines(pa.array(lines[cut:], pa.string()), place, start=2024)
    assert first.table.to_pylist() + second.table.to_pylist() == whole.table.to_pylist()
    assert [*first.rows, *(second.rows + len(lines[:cut]))] == whole.rows.tolist()
    assert last == end
