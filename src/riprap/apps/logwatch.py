"""Log watch: find attempts to break in, in the system logs of Linux servers (see docs/log-watch.md)."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

import riprap as rr
from riprap.apps.attacks import ATTACK_SCHEMA, FollowAttacks
from riprap.apps.syslog import END_OF_LOG, LINE_SCHEMA, ReadSyslog
from riprap.durations import Duration
from riprap.graph.connectors import SinkConnector, SourceConnector

# What sshd says of a failed login itself, and what the old PAM, which has a name of its own in the log, says of it. The
# new PAM speaks in sshd's name, just before sshd says the same: those lines do not count.
_SSHD = (
    r"^sshd(?:-session|-auth)?: (?:message repeated \d+ times: \[ )?"
    r"Failed (?:password|keyboard-interactive/pam) for .* from (?P<host>\S+) port \d+(?: ssh2)?\]?$"
)
_OLD_PAM = (
    r"^sshd\(pam_unix\): (?:\d+ more )?authentication failures?; "
    r"logname=\S* uid=\d* euid=\d* tty=\S* ruser=\S* rhost=(?P<host>\S+)"
)
_REPEATED = r"^(?:message repeated )?(?P<times>\d{1,6}) (?:times|more)"


def failed_host(program: pa.Array, message: pa.Array) -> pa.Array:
    """Return the remote host of each line that tells of a failed login, null for others."""
    line = pc.binary_join_element_wise(program, message, ": ")
    sshd = pc.struct_field(pc.extract_regex(line, _SSHD), "host")
    return pc.coalesce(sshd, pc.struct_field(pc.extract_regex(line, _OLD_PAM), "host"))


def failed_times(message: pa.Array) -> pa.Array:
    """Return how many failed logins each line tells of."""
    times = pc.struct_field(pc.extract_regex(message, _REPEATED), "times")
    return pc.fill_null(times.cast(pa.int64()), 1)


def logwatch(
    feed: str | Path | SourceConnector,
    out: SinkConnector,
    *,
    attempts: int = 5,
    window: Duration = "10m",
    year: int | None = None,
    today: date | None = None,
    unreadable: SinkConnector | None = None,
) -> rr.Application:
    """Describe log watch: a row for every attack, in which a host fails to log in ``attempts`` times within ``window``.

    It is put out when the host has been quiet for ``window``, or at the end of the log: a line ``END_OF_LOG``, which
    the files of a path get. Another feed has to have it, as by ``rr.files(..., format="text", last_line=END_OF_LOG)``.

    ``year`` is that of the first line, where lines have none; without it, the latest that does not put the first line
    after ``today``. ``unreadable`` gets the lines that have no timestamp.
    """
    if isinstance(attempts, bool) or not isinstance(attempts, int) or attempts < 1:
        raise rr.GraphError(f"attempts= takes a whole number of at least 1, got {attempts!r}")
    if year is not None and not 1 <= year <= 9999:
        raise rr.GraphError(f"year= takes a year from 1 to 9999, got {year!r}")
    app = rr.Application("logwatch")
    app.function("failed_host", failed_host, returns="string")
    app.function("failed_times", failed_times, returns="bigint")
    if isinstance(feed, str | Path):
        feed = rr.files(feed, format="text", last_line=END_OF_LOG)
    source = app.source("Source", feed)
    parsed = app.custom(
        "Parse", ReadSyslog, source, outputs={"Lines": LINE_SCHEMA, "Unreadable": "line string"},
        params={"start": year or today or date.today()},
    )  # fmt: skip
    assert isinstance(parsed, dict)
    logins = app.functor(
        "Logins", parsed["Lines"], where="startswith(program, 'sshd')",
        select="time, log_time, failed_host(program, message) as host, message, times",
    )  # fmt: skip
    failed = app.functor(
        "FailedLogins", logins, where="host is not null",
        select="host, time, log_time, times * failed_times(message) as attempts",
    )  # fmt: skip
    sliding = rr.sliding(time=window, on="log_time")
    recent = app.aggregate(
        "Recent", failed, by="host", window=sliding, emit=rr.every(tuples=1),
        select="last(log_time) as log_time, last(time) as time, last(attempts) as attempts, sum(attempts) as recent",
    )  # fmt: skip
    # Log time goes on with the lines of any host.
    times = app.functor(
        "Times", parsed["Lines"], select="cast(null as string) as host, log_time, time, "
        "cast(null as bigint) as attempts, cast(null as bigint) as recent",
    )  # fmt: skip
    attacks = app.custom(
        "Attacks", FollowAttacks, [recent, times], schema=ATTACK_SCHEMA,
        params={"attempts": attempts, "window": sliding.time},
    )  # fmt: skip
    app.sink("Alerts", attacks, out)
    if unreadable is not None:
        app.sink("Unread", parsed["Unreadable"], unreadable)
    return app
