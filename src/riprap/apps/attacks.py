"""Follow the failed logins of hosts from the first to the last of each attack (see docs/log-watch.md)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import riprap as rr
from riprap.arrays import Ints

ATTACK_SCHEMA = "host string, first timestamp, last timestamp, attempts bigint"

_TIME = pa.timestamp("us", tz="UTC")
_LONG_AGO = -(2**62)
# Times are in microseconds. ``log_time`` is that at the last failed login of a run, ``ends`` is how many ends of the
# log came before the run, and ``reached`` says whether it is an attack.
_RUN = pa.schema(
    [
        ("host", pa.string()),
        ("first", pa.int64()),
        ("last", pa.int64()),
        ("attempts", pa.int64()),
        ("reached", pa.bool_()),
        ("log_time", pa.int64()),
        ("ends", pa.int64()),
    ]
)


@dataclass
class Followed:
    """The runs that are not over, how far log time has come, and how many ends the log has had."""

    runs: pa.Table = field(default_factory=_RUN.empty_table)
    log_time: int = _LONG_AGO
    ends: int = 0


class FollowAttacks(rr.CustomOperator):
    """Put out every attack once, when it is over.

    It takes failed logins (``host``, ``log_time``, ``time``, ``attempts``, and ``recent``: how many there were within
    the window), lines of the log (without a host) and ends of the log (without a log time). Log time must not fall.
    Attacks come in the order in which they are over, and then of their hosts: wherever batches end.
    """

    state: Followed

    def __init__(self, attempts: int, window: int) -> None:
        self._attempts = attempts
        self._window = window

    def process(self, port: int | str, batch: pa.RecordBatch) -> None:
        log_times = batch.column("log_time")
        ends = self.state.ends + np.cumsum(log_times.is_null().to_numpy(zero_copy_only=False))
        log_time = int(_whole(log_times.drop_null()).max(initial=self.state.log_time))
        runs = self._followed(batch.append_column("ends", pa.array(ends)))
        over = pc.or_(
            pc.less(runs["ends"], int(ends[-1])), pc.less_equal(runs["log_time"], log_time - self._window)
        )
        self.state = Followed(runs=runs.filter(pc.invert(over)), log_time=log_time, ends=int(ends[-1]))
        attacks = runs.filter(pc.and_(over, runs["reached"]))
        attacks = attacks.sort_by([(name, "ascending") for name in ("ends", "log_time", "host")])
        times = {name: attacks[name].cast(_TIME) for name in ("first", "last")}
        self.submit(pa.table({"host": attacks["host"], **times, "attempts": attacks["attempts"]}))

    def _followed(self, batch: pa.RecordBatch) -> pa.Table:
        """Return the runs of all hosts, those that go on and those that begin."""
        logins = pa.table(batch.filter(batch.column("host").is_valid()))
        recent = np.concatenate([np.zeros(self.state.runs.num_rows, np.int64), _whole(logins["recent"])])
        parts = pa.concat_tables([self.state.runs, _single(logins)])
        if not parts.num_rows:
            return parts
        hosts = parts["host"].combine_chunks().dictionary_encode()
        codes = hosts.indices.to_numpy()
        # Stable: runs stand before the logins that follow, and log time does not fall.
        order = np.argsort(codes, kind="stable")
        part = {name: parts[name].to_numpy()[order] for name in parts.column_names if name != "host"}

        change = (np.diff(codes[order]) != 0) | (np.diff(part["ends"]) != 0)
        change |= np.diff(part["log_time"]) >= self._window
        starts = np.flatnonzero(np.append(True, change))
        stops = np.append(starts[1:], len(order))
        total = np.cumsum(part["attempts"])
        so_far = total - np.repeat((total - part["attempts"])[starts], stops - starts)
        # The window may reach back beyond an end of the log; the run does not.
        reached = part["reached"] | (np.minimum(recent[order], so_far) >= self._attempts)
        columns = {
            "host": hosts.dictionary.take(pa.array(codes[order][starts])),
            "first": np.minimum.reduceat(part["first"], starts),
            "last": np.maximum.reduceat(part["last"], starts),
            "attempts": so_far[stops - 1],
            "reached": np.logical_or.reduceat(reached, starts),
            "log_time": part["log_time"][stops - 1],
            "ends": part["ends"][stops - 1],
        }
        return pa.table(columns, _RUN)


def _single(logins: pa.Table) -> pa.Table:
    """Return each failed login as a run of its own."""
    time = logins["time"].cast(pa.int64())
    columns = {
        "host": logins["host"],
        "first": time,
        "last": time,
        "attempts": logins["attempts"],
        "reached": np.zeros(logins.num_rows, np.bool_),
        "log_time": logins["log_time"].cast(pa.int64()),
        "ends": logins["ends"],
    }
    return pa.table(columns, _RUN)


def _whole(column: pa.Array) -> Ints:
    numbers: Ints = column.cast(pa.int64()).to_numpy()
    return numbers
