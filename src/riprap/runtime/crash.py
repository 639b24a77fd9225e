"""Where a process can be made to die, for tests: a real SIGKILL at a chosen step of a chosen batch.

Set ``RIPRAP_CRASH_AT=recorded:3`` (step, batch; ``recorded:3:sums`` for one processing element only, ``recorded:*`` for
whichever batch comes first) and ``RIPRAP_CRASH_ONCE=/path/marker``; the first process to reach the step leaves its
number there and kills itself. For steps of a checkpoint it is the number of the checkpoint since the start, from 1, and
the operator; these are steps of the agent, and ``parent@checkpoint-manifest:3:sums`` kills its driver there, while the
agent goes on. A replica that comes back with another's state has ``peer-read``, ``peer-logs`` and ``peer-recorded``, by
batch and element. A supervisor has ``decided:*:main``, which is written down for a process and not carried out; in
``region-halted:1:sums`` it is on disk how a region stands after an attempt, and in ``region-halted-told:1:sums`` told;
in ``switching:2:hot`` it is about to switch a group to an epoch, and in ``switched:2:hot`` that is on disk.

Without the variable a step costs a dictionary look-up. With ``RIPRAP_CRASH_BY=SIGSTOP`` it does not die but stands
still, until somebody sends it SIGCONT.
"""

from __future__ import annotations

import os
import signal
from typing import Literal

Step = Literal[
    "read",
    "shared",
    "computed",
    "paged",
    "answered",
    "gathered",
    "recorded",
    "published",
    "counted",
    "collected",
    "checkpoint-values",
    "checkpoint-between",
    "checkpoint-manifest",
    "checkpoint-versioned",
    "checkpoint-collecting",
    "restore-read",
    "restore-paged",
    "restore-recorded",
    "windows-read",
    "windows-loaded",
    "computed-again",
    "taken-back",
    "forgotten",
    "peer-read",
    "peer-logs",
    "peer-recorded",
    "switching",
    "switched",
    "decided",
    "region-resetting",
    "region-resetting-told",
    "region-running",
    "region-running-told",
    "region-halted",
    "region-halted-told",
]

_PARENT = "parent@"


def reach(step: Step, batch: int, element: str) -> None:
    """Die here if the environment says so."""
    at = os.environ.get("RIPRAP_CRASH_AT")
    if at is None or not _is_at(at.removeprefix(_PARENT), step, batch, element):
        return
    try:
        marker = os.open(os.environ["RIPRAP_CRASH_ONCE"], os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    except FileExistsError:
        return
    os.write(marker, str(os.getpid()).encode())
    os.close(marker)
    victim = os.getppid() if at.startswith(_PARENT) else os.getpid()
    os.kill(victim, signal.Signals[os.environ.get("RIPRAP_CRASH_BY", "SIGKILL")])


def _is_at(at: str, step: str, batch: int, element: str) -> bool:
    wanted, _, rest = at.partition(":")
    number, _, name = rest.partition(":")
    return wanted == step and number in ("*", str(batch)) and name in ("", element)
