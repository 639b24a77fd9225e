"""How many tasks of a session may stay: each holds a slot for as long as its element runs.

A session that Riprap makes on this machine has slots for all tasks that stay, and some for other jobs; its cores are
shared by whatever has work. A user's session, or a cluster, has the slots it has: one is left for the session's other
work, and elements get fewer tasks; where that leaves an element without any, tasks end after each batch.
"""

from __future__ import annotations

import math
import os
import re
import threading
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from riprap.adapters.retrying import Tell
from riprap.errors import RunError

# Of a session of our own, for jobs that are not stages: reading results, Spark's own sources and sinks.
_OTHER_JOBS = 2
_LOCAL = re.compile(r"local(?:\[(\d+|\*)(?:\s*,\s*(\d+))?\])?")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*\]")
_held: Counter[str] = Counter()
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Share:
    """What the elements of a run may have: so many tasks each, which stay or end after each batch.

    The slots are the run's until it lets go of them.
    """

    tasks: int
    stays: bool
    session: str
    slots: int

    def release(self) -> None:
        """Let others have the slots."""
        with _lock:
            _held[self.session] -= self.slots

    def tell(self, tell: Tell, wanted: int) -> None:
        """Say what a run does with less than it could use."""
        if not self.stays:
            tell(
                "slots short",
                message="Spark's session has too few slots for tasks that stay: they are started for every batch, "
                "which takes some 50 ms. Give it more cores, or fuse elements",
            )
        elif self.tasks < wanted:
            tell(
                "slots short",
                message=f"elements get {self.tasks} of {wanted} tasks each, to leave a slot of Spark's session free",
            )


def roomy(master: str, elements: int) -> tuple[str, int]:
    """Widen a master on this machine for elements whose tasks stay; return it with the number of cores it named.

    >>> roomy("local[4,2]", 3)
    ('local[14,2]', 4)
    >>> roomy("local-cluster[2,1,1024]", 2)
    ('local-cluster[2,3,1024]', 2)
    """
    if (parts := _LOCAL.fullmatch(master)) is not None:
        cores = _cores_here() if parts[1] == "*" else int(parts[1] or "1")
        failures = f",{parts[2]}" if parts[2] else ""
        return f"local[{cores * elements + _OTHER_JOBS}{failures}]", cores
    if (parts := _LOCAL_CLUSTER.fullmatch(master)) is not None:
        workers, cores = int(parts[1]), int(parts[1]) * int(parts[2])
        each = -(-(cores * elements + _OTHER_JOBS) // workers)
        return f"local-cluster[{workers},{each},{parts[3]}]", cores
    return master, 0


def slots_of(session: SparkSession) -> int:
    """Return how many tasks a session runs at once."""
    context = session.sparkContext
    cores = context.defaultParallelism
    if (parts := _LOCAL.fullmatch(context.master or "")) is not None:
        # Its JVM knows how many it has, of this machine or of a part of it.
        jvm: Any = context._jvm
        cores = jvm.Runtime.getRuntime().availableProcessors() if parts[1] == "*" else int(parts[1] or "1")
    elif (parts := _LOCAL_CLUSTER.fullmatch(context.master or "")) is not None:
        cores = int(parts[1]) * int(parts[2])
    return int(cores) // int(context.getConf().get("spark.task.cpus", "1") or 1)


def share_of(session: SparkSession, tasks: int, stages: int, *, resident: bool | None = None) -> Share:
    """Give some stages their share of a session's slots; ``resident`` forces that tasks stay, or that they do not."""
    name, slots = str(session.sparkContext.applicationId), slots_of(session)
    with _lock:
        free = slots - _held[name] - 1
        each = free // max(stages, 1)
        if resident and each < 1:
            raise RunError(
                f"resident=True: {stages} processing elements need a slot of Spark's each, and one is left for other "
                f"work: there are {max(0, free + 1)}. Give the session more cores, or leave out resident="
            )
        if resident is False or each < 1:
            return Share(tasks, False, name, 0)
        given = max(1, min(tasks, each))
        _held[name] += given * stages
        return Share(given, True, name, given * stages)


def _cores_here() -> int:
    """Count the cores that this process may use: it may have been given a part of the machine."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return max(1, min(cores, math.ceil(int(quota) / int(period))))
    except (OSError, ValueError):
        # There is no such limit.
        return cores
