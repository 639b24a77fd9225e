"""Make a log of an SSH server: ordinary days, a few attempts to break in, and lines that are no lines of a log.

    >>> log = make_log(1000, seed=1)
    >>> len(log.lines), len(log.attackers)
    (1000, 1)

What is in it depends on the seed and the number of lines alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

YEAR = 2026
_START = np.datetime64(f"{YEAR}-03-01T00:00:00", "s")
_SERVER = "gate"
_SECONDS_A_LINE = 3
_LINES_AN_ATTACK = 20_000
_BROKEN_ONE_IN = 5_000
_USERS = ("anna", "ben", "carla", "dmitri", "eva", "farid", "grace", "hugo")
_GUESSES = pa.array(
    ["root", "root", "root", "invalid user admin", "invalid user test", "invalid user oracle", "git"]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeLog:
    """The lines of a log, and the hosts that attack in it, in order of time."""

    lines: pa.Array
    attackers: tuple[str, ...]


def make_log(lines: int, *, seed: int = 0) -> MadeLog:
    """Make a log of so many lines."""
    draw = np.random.default_rng(seed)
    span = lines * _SECONDS_A_LINE
    count = max(1, lines // _LINES_AN_ATTACK)
    attackers = _hosts(draw, count)
    starts = np.sort(draw.integers(0, max(1, span - 600), count))
    times, messages = [], []
    room = lines
    for host, start in zip(attackers, starts.tolist(), strict=True):
        attempts = min(int(draw.integers(8, 300)), room // 4)
        # As sshd does: what PAM says, and two seconds later what sshd says itself.
        at = start + np.cumsum(draw.integers(1, 8, attempts))
        times += [at, at + 2]
        messages += _attack(draw, host, attempts)
        room -= 2 * attempts
    times.append(draw.integers(0, max(1, span), room))
    messages.append(_ordinary(draw).take(pa.array(draw.integers(0, 1000, room))))
    at = np.concatenate(times)
    order = np.argsort(at, kind="stable")
    text = pa.concat_arrays(messages).take(pa.array(order))
    stamp = pc.strftime(pa.array(_START + at[order].astype("timedelta64[s]")), "%b %e %H:%M:%S")
    whole = pc.binary_join_element_wise(stamp, _SERVER, text, " ")
    broken = pa.array(draw.integers(0, _BROKEN_ONE_IN, lines) == 0)
    return MadeLog(lines=pc.if_else(broken, "-- the log goes on --", whole), attackers=tuple(attackers))


def write_log(
    folder: Path, lines: int, *, seed: int = 0, progress: Callable[[int], None] | None = None
) -> None:
    """Write a log as ``folder``/auth.log; ``progress`` hears how many lines are written."""
    folder.mkdir(parents=True, exist_ok=True)
    log = make_log(lines, seed=seed).lines
    (folder / "auth.log").write_text("".join(f"{line}\n" for line in log.to_pylist()))
    if progress is not None:
        progress(lines)


def _hosts(draw: np.random.Generator, count: int) -> list[str]:
    """Return addresses of a net that is reserved for tests, all different."""
    picked = draw.choice(65_536, count, replace=False).tolist()
    return [f"198.18.{n >> 8}.{n & 255}" for n in picked]


def _attack(draw: np.random.Generator, host: str, attempts: int) -> list[pa.Array]:
    guess = _GUESSES.take(pa.array(draw.integers(0, len(_GUESSES), attempts)))
    tag = pc.binary_join_element_wise(
        "sshd[", pa.array(draw.integers(2000, 30000, attempts)).cast(pa.string()), "]:", ""
    )
    port = pa.array(draw.integers(32768, 60999, attempts)).cast(pa.string())
    fields = f"logname= uid=0 euid=0 tty=ssh ruser= rhost={host} "
    pam = pc.binary_join_element_wise(tag, "pam_unix(sshd:auth): authentication failure;", fields, " ")
    lines = pc.binary_join_element_wise(
        tag, "Failed password for", guess, f"from {host} port", port, "ssh2", " "
    )
    return [pam, lines]


def _ordinary(draw: np.random.Generator) -> pa.Array:
    """Return a thousand things that are said on ordinary days, a mistyped password now and then among them."""
    lines = []
    for _ in range(1000):
        user, host = draw.choice(_USERS), f"10.0.{draw.integers(0, 8)}.{draw.integers(1, 255)}"
        pid, port = draw.integers(2000, 30000), draw.integers(32768, 60999)
        kinds = (
            f"sshd[{pid}]: Accepted publickey for {user} from {host} port {port} ssh2: RSA SHA256:made+up",
            f"sshd[{pid}]: pam_unix(sshd:session): session opened for user {user} by (uid=0)",
            f"sshd[{pid}]: Received disconnect from {host} port {port}:11: disconnected by user",
            f"CRON[{pid}]: pam_unix(cron:session): session closed for user {user}",
            f"sudo:     {user} : TTY=pts/0 ; PWD=/home/{user} ; USER=root ; COMMAND=/usr/bin/apt update",
            f"systemd-logind[412]: New session {pid} of user {user}.",
            f"sshd[{pid}]: Failed password for {user} from {host} port {port} ssh2",
        )
        lines.append(kinds[int(draw.choice(len(kinds), p=[0.2, 0.2, 0.2, 0.2, 0.1, 0.09, 0.01]))])
    return pa.array(lines)
