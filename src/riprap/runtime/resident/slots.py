"""How many tasks of a session may stay: each holds a slot for as long as its element runs.

A session that Riprap makes on this machine has slots for all tasks that stay, and some for other jobs; its cores are
shared by whatever has work. A user's session, or a cluster, has the slots it has: one is left for the session's other
work, and elements get fewer tasks; where that leaves an element without any, tasks end after each batch.
"""

from __future__ import annotations

import os
import re
import threading
from collections import Counter
from dataclasses import dataclass

from pyspark.sql import SparkSession

from riprap.adapters.retrying import Tell
from riprap.errors import RunError

# Of a session of our own, for jobs that are not stages: reading results, Spark's own sources and sinks.
_OTHER_JOBS = 2
_LOCAL = re.compile(r"local(?:\[(\d+|\*)(?:,(\d+))?\])?")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*\]")
_held: Counter[str] = Counter()
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Share:
    """What an element may have: so many tasks, which stay or end after each batch."""

    tasks: int
    stays: bool

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


def roomy(master: str, stages: int) -> tuple[str, int]:
    """Widen a master on this machine for stages that stay; return it with the number of cores it named.

    >>> roomy("local[4,2]", 3)
    ('local[14,2]', 4)
    >>> roomy("local-cluster[2,1,1024]", 2)
    ('local-cluster[2,3,1024]', 2)
    """
    if (found := _LOCAL.fullmatch(master)) is not None:
        cores = _cores(found[1] or "1")
        failures = f",{found[2]}" if found[2] else ""
        return f"local[{cores * stages + _OTHER_JOBS}{failures}]", cores
    if (found := _LOCAL_CLUSTER.fullmatch(master)) is not None:
        workers, cores = int(found[1]), int(found[1]) * int(found[2])
        each = -(-(cores * stages + _OTHER_JOBS) // workers)
        return f"local-cluster[{workers},{each},{found[3]}]", cores
    return master, 0


def slots_of(session: SparkSession) -> int:
    """Return how many tasks a session runs at once."""
    context = session.sparkContext
    if (found := _LOCAL.fullmatch(context.master or "")) is not None:
        return _cores(found[1] or "1")
    if (found := _LOCAL_CLUSTER.fullmatch(context.master or "")) is not None:
        return int(found[1]) * int(found[2])
    return context.defaultParallelism


def share_of(session: SparkSession, tasks: int, stages: int, *, resident: bool | None = None) -> Share:
    """Say how many tasks each of some stages gets; ``resident`` forces that they stay, or that they do not."""
    with _lock:
        free = slots_of(session) - _held[_name(session)] - 1
    each = free // max(stages, 1)
    if resident and each < 1:
        raise RunError(
            f"resident=True: {stages} processing elements need a slot of Spark's each, and one is left for other work: "
            f"there are {max(0, free + 1)}. Give the session more cores, or leave out resident="
        )
    if resident is False or (resident is None and each < 1):
        return Share(tasks, stays=False)
    return Share(max(1, min(tasks, each)), stays=True)


def hold(session: SparkSession, slots: int) -> None:
    """Count slots as held, or as free again where the number is negative."""
    with _lock:
        _held[_name(session)] += slots


def _name(session: SparkSession) -> str:
    return str(session.sparkContext.applicationId)


def _cores(text: str) -> int:
    return os.cpu_count() or 1 if text == "*" else int(text)
