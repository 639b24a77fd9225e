"""Log watch: one alert an attack, worked out by hand and by a plain program over real logs."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.stages import run_batches

import riprap as rr
from riprap.apps.logwatch import failed_host, failed_times, logwatch
from riprap.apps.made_log import YEAR, make_log

REAL = Path(__file__).parents[2].parent / "shared" / "data" / "loghub"
WINDOW = timedelta(minutes=10)
Alert = tuple[str, datetime, datetime, int]


def watch(lines: Sequence[str], ends: Sequence[int] = (), **options: Any) -> list[Alert]:
    """Return the alerts of a log that is cut into batches at some lines."""
    table = pa.table({"line": pa.array(lines, pa.string())})
    app = logwatch(rr.rows(table), rr.memory(), **{"year": 2024, **options})
    bounds = [0, *sorted(ends), len(lines)]
    batches = [{"Source": table.slice(low, high - low)} for low, high in pairwise(bounds)]
    rows = run_batches(app, batches, sink="Alerts", buckets=4, tasks=[3])
    # Alerts of several hosts come in the order of their lines whatever the tasks; hosts are dealt out to buckets.
    return [(r["host"], r["first"], r["last"], r["attempts"]) for r in rows]


def at(clock: str, day: str = "Dec 10", year: int = 2024) -> datetime:
    return datetime.strptime(f"{year} {day} {clock}", "%Y %b %d %H:%M:%S").replace(tzinfo=UTC)


def failed(clock: str, host: str = "1.1.1.1", day: str = "Dec 10") -> str:
    return f"{day} {clock} web1 sshd[7]: Failed password for root from {host} port 4242 ssh2"


def test_too_few_failures_are_no_attack() -> None:
    assert watch([failed(f"06:00:0{s}") for s in range(4)]) == []


def test_the_alert_comes_with_the_line_that_makes_the_attack() -> None:
    lines = [failed(f"06:00:0{s}") for s in range(5)]
    assert watch(lines) == [("1.1.1.1", at("06:00:00"), at("06:00:04"), 5)]
    assert watch(lines, attempts=3) == [("1.1.1.1", at("06:00:00"), at("06:00:02"), 3)]


def test_an_attack_that_goes_on_is_one_alert() -> None:
    # An hour of one attempt a minute: never quiet for ten minutes.
    lines = [failed(f"06:{minute:02}:00") for minute in range(60)]
    assert watch(lines) == [("1.1.1.1", at("06:00:00"), at("06:04:00"), 5)]


def test_the_window_holds_what_is_younger_than_it() -> None:
    four = [failed("06:00:00"), *(failed(f"06:00:0{s}") for s in (1, 2, 3))]
    assert watch([*four, failed("06:09:59")]) == [("1.1.1.1", at("06:00:00"), at("06:09:59"), 5)]
    # At 06:10:00 the first one is ten minutes old, and out.
    assert watch([*four, failed("06:10:00")]) == []
    assert watch([*four, failed("06:10:00")], window="601s") == [
        ("1.1.1.1", at("06:00:00"), at("06:10:00"), 5)
    ]


def test_after_a_quiet_window_a_host_can_attack_again() -> None:
    first = [failed(f"06:00:0{s}") for s in range(6)]
    # 06:10:04 is 9 min 59 s after the last attempt, 06:10:05 ten minutes.
    goes_on = [failed(f"06:10:{s:02}") for s in range(4, 10)]
    again = [failed(f"06:10:{s:02}") for s in range(5, 10)]
    one = ("1.1.1.1", at("06:00:00"), at("06:00:04"), 5)
    assert watch([*first, *goes_on]) == [one]
    assert watch([*first, *again]) == [one, ("1.1.1.1", at("06:10:05"), at("06:10:09"), 5)]


def test_hosts_are_counted_apart() -> None:
    lines = [failed(f"06:00:{s:02}", host) for s in range(5) for host in ("1.1.1.1", "2.2.2.2")]
    assert watch(lines[:-1]) == [("1.1.1.1", at("06:00:00"), at("06:00:04"), 5)]
    assert watch(lines) == [
        ("1.1.1.1", at("06:00:00"), at("06:00:04"), 5),
        ("2.2.2.2", at("06:00:00"), at("06:00:04"), 5),
    ]


def test_an_attack_over_new_year() -> None:
    lines = [failed(f"23:59:5{s}", day="Dec 31") for s in (7, 8, 9)]
    lines += [failed(f"00:00:0{s}", day="Jan  1") for s in (0, 1)]
    assert watch(lines) == [("1.1.1.1", at("23:59:57", "Dec 31"), at("00:00:01", "Jan 1", 2025), 5)]


def test_a_repeated_message_counts_as_often_as_it_says() -> None:
    repeated = "message repeated 5 times: [ Failed password for root from 5.36.59.76 port 42393 ssh2]"
    lines = [
        "Dec 10 07:13:43 web1 sshd[24227]: Failed password for root from 5.36.59.76 port 42393 ssh2",
        f"Dec 10 07:13:56 web1 sshd[24227]: {repeated}",
    ]
    assert watch(lines) == [("5.36.59.76", at("07:13:43"), at("07:13:56"), 6)]
    classic = [failed("06:00:00"), "Dec 10 06:00:30 web1 last message repeated 4 times"]
    assert watch(classic) == [("1.1.1.1", at("06:00:00"), at("06:00:30"), 5)]
    # One line is enough, also to begin an attack anew.
    assert watch([classic[0], f"Dec 10 07:13:56 web1 sshd[1]: {repeated}"]) == [
        ("5.36.59.76", at("07:13:56"), at("07:13:56"), 5)
    ]


def test_lines_that_cannot_be_read_are_put_aside() -> None:
    lines = [failed("06:00:00"), "", "Failed password for root from 1.1.1.1 port 4242 ssh2", "\x00\x01 ??"]
    lines += [failed(f"06:00:0{s}") for s in range(1, 4)] + ["Dec 10 06:00:04 web1"]
    assert watch(lines) == []
    assert watch([*lines, failed("06:00:05")]) == [("1.1.1.1", at("06:00:00"), at("06:00:05"), 5)]

    table = pa.table({"line": lines})
    app = logwatch(rr.rows(table), rr.memory(), year=2024, unreadable=rr.memory())
    unread = run_batches(app, [{"Source": table.slice(0, 3)}, {"Source": table.slice(3)}], sink="Unread")
    assert [row["line"] for row in unread] == [lines[1], lines[2], lines[3], lines[7]]


PAM = "authentication failure; logname= uid=0 euid=0 tty=ssh ruser= rhost=1.2.3.4  user=root"


@pytest.mark.parametrize(
    ("program", "message", "host", "times"),
    [
        ("sshd", "Failed password for root from 1.2.3.4 port 42393 ssh2", "1.2.3.4", 1),
        ("sshd", "Failed password for invalid user  0101 from 5.188.10.180 port 36279 ssh2", "5.188.10.180", 1),
        ("sshd-session", "Failed password for root from fe80::1%eth0 port 22 ssh2", "fe80::1%eth0", 1),
        ("sshd", "Failed keyboard-interactive/pam for root from 1.2.3.4 port 9 ssh2", "1.2.3.4", 1),
        # A user name that looks like another host.
        ("sshd", "Failed password for invalid user x from 9.9.9.9 port 1 ssh2 from 1.2.3.4 port 2 ssh2", "1.2.3.4", 1),
        ("sshd", "message repeated 12 times: [ Failed password for a from 1.2.3.4 port 2 ssh2]", "1.2.3.4", 12),
        ("sshd(pam_unix)", PAM.replace("tty=ssh", "tty=NODEVssh"), "1.2.3.4", 1),
        ("sshd(pam_unix)", "7 more " + PAM.replace("failure;", "failures;"), "1.2.3.4", 7),
        # No remote host, not a failed login of a password, said of the same attempt before, or not by sshd.
        ("sshd(pam_unix)", PAM.replace("1.2.3.4", ""), None, None),
        ("sshd", "pam_unix(sshd:auth): " + PAM, None, None),
        ("sshd", "PAM 5 more " + PAM, None, None),
        ("sshd", "Failed none for invalid user 0 from 5.188.10.180 port 49811 ssh2", None, None),
        ("sshd", "Failed publickey for root from 1.2.3.4 port 9 ssh2: RSA SHA256:x", None, None),
        ("sshd", "Accepted password for root from 1.2.3.4 port 9 ssh2", None, None),
        ("sshd", "Invalid user Failed password for root from 9.9.9.9 port 1 ssh2 from 1.2.3.4", None, None),
        ("login(pam_unix)", PAM, None, None),
        ("cron", "Failed password for root from 1.2.3.4 port 42393 ssh2", None, None),
    ],
)  # fmt: skip
def test_what_is_a_failed_login(program: str, message: str, host: str | None, times: int | None) -> None:
    assert failed_host(pa.array([program]), pa.array([message])).to_pylist() == [host]
    if times is not None:
        assert failed_times(pa.array([message])).to_pylist() == [times]


@pytest.mark.parametrize("wrong", [0, -1, True, 2.5])
def test_attempts_are_a_number(wrong: Any) -> None:
    with pytest.raises(rr.GraphError, match="attempts="):
        logwatch(rr.rows([], "line string"), rr.memory(), attempts=wrong, year=2024)


@pytest.mark.parametrize("wrong", [0, 10_000])
def test_a_year_is_one(wrong: int) -> None:
    with pytest.raises(rr.GraphError, match="from 1 to 9999"):
        logwatch(rr.rows([], "line string"), rr.memory(), year=wrong)


# What follows is written from docs/log-watch.md, tuple at a time.

MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]


def failures_in(lines: Iterable[str], year: int) -> Iterator[tuple[str, datetime, int]]:
    """Yield host, time and number of the failed logins of a log without late lines around New Year."""
    before = None
    for line in lines:
        month = MONTHS.index(line[:3]) + 1 if line[:3] in MONTHS else None
        if month is None:
            continue
        if before == 12 and month == 1:
            year += 1
        before = month
        time = datetime.strptime(f"{year} {month} {line[4:15]}", "%Y %m %d %H:%M:%S").replace(tzinfo=UTC)
        program, _, said = line[16:].split(" ", 1)[1].partition(": ")
        program = re.sub(r"\[\d+\]$", "", program)
        words = said.split()
        if program == "sshd" and "Failed password for " in said and words[0] in ("Failed", "message"):
            yield words[words.index("port") - 1], time, int(words[2]) if words[0] == "message" else 1
        elif program == "sshd(pam_unix)" and "authentication failure" in said:
            host = said.partition("rhost=")[2].partition(" ")[0].strip()
            if host:
                yield host, time, int(words[0]) if words[1] == "more" else 1


def alerts_of(failures: Iterable[tuple[str, datetime, int]], attempts: int = 5) -> list[Alert]:
    seen: dict[str, list[tuple[datetime, datetime, int]]] = {}
    attacking: dict[str, bool] = {}
    alerts = []
    for host, time, number in failures:
        history = seen.setdefault(host, [])
        now = max([time, *(moment for moment, _, _ in history)])
        recent = [entry for entry in history if entry[0] > now - WINDOW]
        if not recent:
            attacking[host] = False
        recent.append((now, time, number))
        seen[host] = recent
        total = sum(n for _, _, n in recent)
        if total >= attempts and not attacking[host]:
            attacking[host] = True
            told = [t for _, t, _ in recent]
            alerts.append((host, min(told), max(told), total))
    return alerts


def real_lines(name: str) -> list[str]:
    path = REAL / name
    if not path.exists():
        pytest.skip(f"{path} is not here: real logs are no part of the repository")
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return data.decode().splitlines()


@pytest.mark.parametrize(
    ("name", "failures", "alerts"),
    # The failures were counted with grep, see docs/log-watch.md.
    [("OpenSSH_2k.log", 528, 12), ("Linux_2k.log", 489, 41), ("Linux.log.gz", 3998, 322)],
)
def test_real_logs(name: str, failures: int, alerts: int) -> None:
    lines = real_lines(name)
    found = list(failures_in(lines, 2024))
    assert sum(number for _, _, number in found) == failures
    expected = alerts_of(found)
    assert len(expected) == alerts
    assert watch(lines) == expected
    assert watch(lines, ends=[1, 700, 701, 1500]) == expected


def test_a_made_log_has_the_attacks_it_was_given() -> None:
    log = make_log(60_000, seed=4)
    assert len(log.lines) == 60_000
    lines = log.lines.to_pylist()
    alerts = watch(lines, year=YEAR)
    assert [host for host, _, _, _ in alerts] == list(log.attackers)
    assert len(alerts) == 3
    assert make_log(60_000, seed=4).lines.equals(log.lines)
    assert sum(line.startswith("--") for line in lines) > 3
    assert alerts == alerts_of(failures_in(lines, YEAR))


@st.composite
def logs(draw: st.DrawFn) -> list[str]:
    """Draw a log of two hosts whose lines come in order but for a few seconds."""
    now, lines = at("06:00:00"), []
    for _ in range(draw(st.integers(0, 40))):
        now += timedelta(seconds=draw(st.sampled_from([-5, 0, 1, 30, 200, 599, 600, 601])))
        host = draw(st.sampled_from(["1.1.1.1", "2.2.2.2"]))
        lines.append(failed(f"{now:%H:%M:%S}", host, f"{now:%b} {now.day:2}"))
        if draw(st.integers(0, 5)) == 0:
            lines.append("no line")
    return lines


@settings(max_examples=60, deadline=None)
@given(lines=logs(), ends=st.lists(st.integers(0, 40), max_size=3))
def test_any_log_in_any_batches(lines: list[str], ends: list[int]) -> None:
    expected = alerts_of(failures_in(lines, 2024))
    assert watch(lines, [min(end, len(lines)) for end in ends]) == expected
