"""Log watch: one row an attack, worked out by hand and by a plain program over real logs."""

from __future__ import annotations

import gzip
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.stages import Stage, run_batches

import riprap as rr
from riprap.apps.logwatch import failed_host, failed_times, logwatch
from riprap.apps.made_log import YEAR, make_log
from riprap.apps.syslog import END_OF_LOG
from riprap.testing import forget_instances

REAL = Path(__file__).parents[2].parent / "shared" / "data" / "loghub"
WINDOW = timedelta(minutes=10)
Alert = tuple[str, datetime, datetime, int]
# A line that could be read: its time, the host that failed to log in if one did, and how often. None is the log's end.
Step = tuple[datetime, str | None, int] | None


def watch(
    lines: Sequence[str], ends: Sequence[int] = (), *, ended: bool = True, fresh: bool = False, **options: Any
) -> list[Alert]:
    """Return the attacks of a log that is cut into batches at some lines.

    With ``fresh`` every batch is another process's.
    """
    table = pa.table({"line": pa.array([*lines, *([END_OF_LOG] if ended else [])], pa.string())})
    app = logwatch(rr.rows(table), rr.memory(), **{"year": 2024, **options})
    bounds = [0, *sorted(ends), table.num_rows]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(app, Path(folder), buckets=4)
        for number, (low, high) in enumerate(pairwise(bounds)):
            if fresh:
                forget_instances()
            batch = {"Source": table.slice(low, high - low)}
            rows += stage.feed(batch, tasks=1 if number else 3)["Alerts"]
    return [(r["host"], r["first"], r["last"], r["attempts"]) for r in rows]


def at(clock: str, day: str = "Dec 10", year: int = 2024) -> datetime:
    return datetime.strptime(f"{year} {day} {clock}", "%Y %b %d %H:%M:%S").replace(tzinfo=UTC)


def failed(clock: str, host: str = "1.1.1.1", day: str = "Dec 10") -> str:
    return f"{day} {clock} web1 sshd[7]: Failed password for root from {host} port 4242 ssh2"


def other(clock: str, day: str = "Dec 10") -> str:
    return f"{day} {clock} web1 CRON[9]: (root) CMD (run-parts /etc/cron.hourly)"


def test_too_few_failures_are_no_attack() -> None:
    assert watch([failed(f"06:00:0{s}") for s in range(4)]) == []


def test_exactly_enough_failures_are_an_attack() -> None:
    lines = [failed(f"06:00:0{s}") for s in range(5)]
    assert watch(lines) == [("1.1.1.1", at("06:00:00"), at("06:00:04"), 5)]
    assert watch(lines, attempts=3) == [("1.1.1.1", at("06:00:00"), at("06:00:04"), 5)]
    assert watch(lines, attempts=6) == []


def test_a_row_has_the_whole_of_an_attack() -> None:
    # Eight minutes apart, five at once, and eight minutes apart again: one run, of which a part made it an attack.
    clocks = ["06:00:00", "06:08:00", *(f"06:16:0{s}" for s in range(5)), "06:24:00", "06:32:00"]
    whole = [("1.1.1.1", at("06:00:00"), at("06:32:00"), 9)]
    assert watch([failed(clock) for clock in clocks]) == whole
    # An hour of one attempt a minute: never quiet for ten minutes.
    lines = [failed(f"06:{minute:02}:00") for minute in range(60)]
    assert watch(lines) == [("1.1.1.1", at("06:00:00"), at("06:59:00"), 60)]


def test_the_example_of_the_docs() -> None:
    repeated = "message repeated 4 times: [ Failed password for root from 10.0.0.1 port 4242 ssh2]"
    lines = [
        failed("06:00:00", "10.0.0.1"),
        failed("06:08:00", "10.0.0.1"),
        f"Dec 10 06:16:00 web1 sshd[7]: {repeated}",
        failed("06:16:30", "10.0.0.2"),
        failed("06:25:59", "10.0.0.1"),
    ]
    found = [("10.0.0.1", at("06:00:00"), at("06:25:59"), 7)]
    assert watch(lines, ended=False) == []
    assert watch([*lines, other("06:36:00")], ended=False) == found
    assert watch(lines) == found


def test_a_slow_trickle_is_no_attack() -> None:
    # Every three minutes: never more than four within ten minutes, for as long as it goes on.
    lines = [failed(f"{6 + m // 60:02}:{m % 60:02}:00") for m in range(0, 600, 3)]
    assert watch(lines) == []
    assert watch(lines, attempts=4) == [("1.1.1.1", at("06:00:00"), at("15:57:00"), 200)]


def test_the_window_holds_what_is_younger_than_it() -> None:
    three = [failed(f"06:00:0{s}") for s in (0, 1, 2)]
    between = [failed("06:05:00")]
    assert watch([*three, *between, failed("06:09:59")]) == [("1.1.1.1", at("06:00:00"), at("06:09:59"), 5)]
    # At 06:10:00 the first one is ten minutes old, and out.
    assert watch([*three, *between, failed("06:10:00")]) == []
    assert watch([*three, *between, failed("06:10:00")], window="601s") == [
        ("1.1.1.1", at("06:00:00"), at("06:10:00"), 5)
    ]


def test_after_a_quiet_window_a_host_can_attack_again() -> None:
    first = [failed(f"06:00:0{s}") for s in range(6)]
    # 06:10:04 is 9 min 59 s after the last attempt, 06:10:05 ten minutes.
    goes_on = [failed(f"06:10:{s:02}") for s in range(4, 10)]
    again = [failed(f"06:10:{s:02}") for s in range(5, 10)]
    assert watch([*first, *goes_on]) == [("1.1.1.1", at("06:00:00"), at("06:10:09"), 12)]
    one = ("1.1.1.1", at("06:00:00"), at("06:00:05"), 6)
    assert watch([*first, *again]) == [one, ("1.1.1.1", at("06:10:05"), at("06:10:09"), 5)]
    # What follows is too little for an attack of its own.
    assert watch([*first, *again[:-1]]) == [one]


def test_an_attack_is_put_out_when_any_line_shows_that_it_is_over() -> None:
    lines = [failed(f"06:00:0{s}") for s in range(5)]
    found = [("1.1.1.1", at("06:00:00"), at("06:00:04"), 5)]
    assert watch([*lines, other("06:10:03")], ended=False) == []
    assert watch([*lines, other("06:10:04")], ended=False) == found
    assert watch([*lines, failed("06:10:04", "2.2.2.2")], ended=False) == found
    assert watch([*lines, "no line", "also 06:30:00 none"], ended=False) == []
    # It is put out once: neither another line nor the end brings it again.
    assert watch([*lines, other("06:10:04"), other("06:30:00"), other("07:00:00")], ends=[6, 7]) == found


def test_hosts_are_followed_apart() -> None:
    lines = [failed(f"06:00:{s:02}", host) for s in range(5) for host in ("2.2.2.2", "1.1.1.1")]
    assert watch(lines[:-1]) == [("2.2.2.2", at("06:00:00"), at("06:00:04"), 5)]
    # Both are over at the same time.
    assert watch(lines) == [
        ("1.1.1.1", at("06:00:00"), at("06:00:04"), 5),
        ("2.2.2.2", at("06:00:00"), at("06:00:04"), 5),
    ]


def test_rows_come_in_the_order_in_which_attacks_are_over() -> None:
    lines = [failed(f"06:00:{s:02}", "1.1.1.1") for s in range(5)]
    lines += [failed(f"06:01:{s:02}", "9.9.9.9") for s in range(5)]
    lines += [failed("06:02:00", "1.1.1.1")]
    nine, one = ("9.9.9.9", at("06:01:00"), at("06:01:04"), 5), ("1.1.1.1", at("06:00:00"), at("06:02:00"), 6)
    assert watch(lines) == [nine, one]
    for log in ([*lines, other("08:00:00")], [*lines, other("06:11:30"), other("08:00:00")]):
        assert watch(log, ended=False) == [nine, one]
        assert watch(log, range(len(log)), ended=False) == [nine, one]


def test_late_lines_are_of_the_time_the_log_had_come_to() -> None:
    # The time that is written is shown.
    lines = [failed("06:00:07"), *(failed(f"06:00:0{s}") for s in (5, 9, 8, 6))]
    assert watch(lines) == [("1.1.1.1", at("06:00:05"), at("06:00:09"), 5)]
    # Written at 06:09:59, when the log had come to 06:10:00: the four before it are out, and their run is over.
    four = [failed("06:00:00")] * 4
    assert watch([*four, failed("06:09:59")]) == [("1.1.1.1", at("06:00:00"), at("06:09:59"), 5)]
    assert watch([*four, other("06:10:00"), failed("06:09:59")]) == []
    again = [failed("06:09:59")] * 5
    assert watch([*four, other("06:10:00"), *again]) == [("1.1.1.1", at("06:09:59"), at("06:09:59"), 5)]
    assert watch([*four, other("06:10:00"), *again, other("06:19:59")], ended=False) == []


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
    # One line is enough.
    assert watch([classic[0], f"Dec 10 07:13:56 web1 sshd[1]: {repeated}"]) == [
        ("5.36.59.76", at("07:13:56"), at("07:13:56"), 5)
    ]


def test_what_comes_after_the_end_begins_anew() -> None:
    # As when a run that was killed at its end is taken up with a trigger.
    lines = [failed(f"06:00:0{s}") for s in range(6)]
    first = ("1.1.1.1", at("06:00:00"), at("06:00:05"), 6)
    assert watch([*lines, END_OF_LOG, failed("06:00:06")]) == [first]
    more = [failed(f"06:00:1{s}") for s in range(5)]
    assert watch([*lines, END_OF_LOG, *more]) == [first, ("1.1.1.1", at("06:00:10"), at("06:00:14"), 5)]
    # Of the five only four are within a window, though more were before the end.
    slow = [failed(clock) for clock in ("06:00:10", "06:03:00", "06:06:00", "06:09:00", "06:12:00")]
    assert watch([*lines, END_OF_LOG, *slow]) == [first]


def test_a_log_without_lines() -> None:
    assert watch([]) == []
    assert watch([], ended=False) == []


def test_lines_that_cannot_be_read_are_put_aside() -> None:
    lines = [failed("06:00:00"), "", "Failed password for root from 1.1.1.1 port 4242 ssh2", "\x00\x01 ??"]
    lines += [failed(f"06:00:0{s}") for s in range(1, 4)] + ["Dec 10 06:00:04 web1", f" {END_OF_LOG}"]
    assert watch(lines) == []
    assert watch([*lines, failed("06:00:05")]) == [("1.1.1.1", at("06:00:00"), at("06:00:05"), 5)]

    table = pa.table({"line": [*lines, END_OF_LOG]})
    app = logwatch(rr.rows(table), rr.memory(), year=2024, unreadable=rr.memory())
    unread = run_batches(app, [{"Source": table.slice(0, 3)}, {"Source": table.slice(3)}], sink="Unread")
    assert [row["line"] for row in unread] == [lines[1], lines[2], lines[3], lines[7], lines[8]]


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


def steps_in(lines: Iterable[str], year: int) -> Iterator[Step]:
    """Yield the readable lines of a log without late lines around New Year."""
    before = None
    for line in lines:
        if line == END_OF_LOG:
            yield None
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
        host, number = None, 0
        if program == "sshd" and "Failed password for " in said and words[0] in ("Failed", "message"):
            host, number = words[words.index("port") - 1], int(words[2]) if words[0] == "message" else 1
        elif program == "sshd(pam_unix)" and "authentication failure" in said:
            host = said.partition("rhost=")[2].partition(" ")[0].strip() or None
            number = int(words[0]) if words[1] == "more" else 1
        yield time, host, number


def attacks_of(steps: Iterable[Step], attempts: int = 5) -> list[Alert]:
    """Return the attacks of a log, which ends after the last step."""
    log_time = datetime.min.replace(tzinfo=UTC)
    # Of each host the failed logins of its open run: log time, time, number.
    open_runs: dict[str, list[tuple[datetime, datetime, int]]] = {}
    found = []
    for step in [*steps, None]:
        if step is not None:
            log_time = max(log_time, step[0])
        ended = [h for h, run in open_runs.items() if step is None or log_time - run[-1][0] >= WINDOW]
        for host in sorted(ended, key=lambda h: (open_runs[h][-1][0], h)):
            run = open_runs.pop(host)
            most = max(
                sum(n for at, _, n in run[: i + 1] if at > now - WINDOW) for i, (now, _, _) in enumerate(run)
            )
            if most >= attempts:
                told = [time for _, time, _ in run]
                found.append((host, min(told), max(told), sum(n for _, _, n in run)))
        if step is not None and step[1] is not None:
            open_runs.setdefault(step[1], []).append((log_time, step[0], step[2]))
    return found


def real_lines(name: str) -> list[str]:
    path = REAL / name
    if not path.exists():
        pytest.skip(f"{path} is not here: real logs are no part of the repository")
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return data.decode().splitlines()


@pytest.mark.parametrize(
    ("name", "failures", "attacks", "of_attacks"),
    # The failures were counted with grep, see docs/log-watch.md.
    [("OpenSSH_2k.log", 528, 12, 503), ("Linux_2k.log", 489, 41, 464), ("Linux.log.gz", 3998, 322, 3822)],
)
def test_real_logs(name: str, failures: int, attacks: int, of_attacks: int) -> None:
    lines = real_lines(name)
    steps = list(steps_in(lines, 2024))
    assert sum(step[2] for step in steps if step is not None and step[1] is not None) == failures
    expected = attacks_of(steps)
    assert (len(expected), sum(number for _, _, _, number in expected)) == (attacks, of_attacks)
    assert watch(lines) == expected
    assert watch(lines, ends=[1, 700, 701, 1500], fresh=True) == expected
    assert watch(lines, ends=range(0, len(lines), len(lines) // 40)) == expected


def test_a_made_log_has_the_attacks_it_was_given() -> None:
    log = make_log(60_000, seed=4)
    assert len(log.lines) == 60_000
    lines = log.lines.to_pylist()
    attacks = watch(lines, year=YEAR)
    assert [host for host, _, _, _ in attacks] == list(log.attackers)
    assert len(attacks) == 3
    assert make_log(60_000, seed=4).lines.equals(log.lines)
    assert sum(line.startswith("--") for line in lines) > 3
    assert attacks == attacks_of(steps_in(lines, YEAR))


@st.composite
def logs(draw: st.DrawFn) -> list[str]:
    """Draw a log of two hosts whose lines come in order but for a few seconds, and which may go on after its end."""
    now, lines = at("06:00:00"), []
    for _ in range(draw(st.integers(0, 40))):
        now += timedelta(seconds=draw(st.sampled_from([-5, 0, 1, 30, 200, 599, 600, 601])))
        clock, day = f"{now:%H:%M:%S}", f"{now:%b} {now.day:2}"
        kind = draw(st.sampled_from(["1.1.1.1", "1.1.1.1", "2.2.2.2", "other", "none", "end"]))
        lines.append(
            {"other": other(clock, day), "none": "no line", "end": END_OF_LOG}.get(kind)
            or failed(clock, kind, day)
        )
    return lines


@settings(max_examples=100, deadline=None)
@given(
    lines=logs(),
    ends=st.lists(st.integers(0, 40), max_size=6),
    attempts=st.integers(1, 5),
    fresh=st.booleans(),
)
def test_any_log_in_any_batches(lines: list[str], ends: list[int], attempts: int, fresh: bool) -> None:
    expected = attacks_of(steps_in(lines, 2024), attempts)
    cuts = [min(end, len(lines)) for end in ends]
    assert watch(lines, cuts, attempts=attempts, fresh=fresh) == expected
