"""What a crash comes to under a protection: how much of its input an operator misses, and what it holds afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from riprap.faults.golden import Golden
from riprap.faults.replay import State
from riprap.faults.targets import Incoming
from riprap.graph.faults import Crash, Replicas
from riprap.graph.graph import Graph
from riprap.graph.operators import Faulty, Operator
from riprap.graph.policies import Checkpoint, Consistent, Eventual
from riprap.operators.given import Pages
from riprap.state.checkpoints.restoring import cap_page

Holds = Literal["kept", "empty", "older"]


@dataclass(frozen=True, slots=True)
class Comeback:
    """How an operator comes back: whether it has missed its input of the outage, and what it holds.

    ``age`` is how many positions of the source before the crash an older state was saved, and ``every`` over how many
    the rates of its keys were measured.
    """

    misses: bool
    holds: Holds
    age: int = 0
    every: int = 0


def come_back(crash: Crash, operator: Operator, *, rate: float, chance: float) -> Comeback:
    """Say how an operator comes back from a crash, with its own protection or another that is not of replicas.

    ``rate`` turns seconds into positions of the source; ``chance``, from 0 up to 1, is where in the interval between
    checkpoints the crash falls.
    """
    protection = operator.protect if crash.protection == "own" else crash.protection
    match protection:
        case Consistent() | Eventual():
            # What it had not finished is sent to it again.
            return Comeback(misses=False, holds="kept")
        case Checkpoint() if operator.replays:
            return Comeback(misses=False, holds="kept")
        case _ if crash.memory == "kept":
            return Comeback(misses=True, holds="kept")
        case Checkpoint(every=every):
            age = crash.age if crash.age is not None else chance * every
            return Comeback(
                misses=True, holds="older", age=round(age * rate), every=max(1, round(every * rate))
            )
        case _:
            return Comeback(misses=True, holds="empty")


def state_after(
    golden: Golden, known: Incoming, operator: Operator, back: Comeback, *, begin: int, end: int
) -> State:
    """Return what an operator holds after an outage from one position of the source to another, slot by slot."""
    slots = [f"{operator.name}/{slot}" for slot in operator.slots]
    if back.holds == "empty":
        return dict.fromkeys(slots, ())
    saved = max(0, begin - back.age)
    pages = golden.state_before(known.element, golden.starting_at(saved))
    found = {slot: pages[slot] for slot in slots}
    for number, slot in enumerate(operator.slots):
        if slot in operator.slides:
            port = number if len(operator.ports) > 1 else 0
            name = f"{operator.name}/{slot}"
            found[name] = _without_stale(found[name], known, port, saved, back.every, end - saved)
    return found


def _without_stale(pages: Pages, known: Incoming, port: int, saved: int, every: int, lost: int) -> Pages:
    """Leave out as many of the oldest tuples of each key as would have come in since, at its rate when it was saved."""
    position, stream = known.places[:, 0], np.asarray(known.ports)[known.stream]
    recent = known.hashes[(position >= saved - every) & (position < saved) & (stream == port)]
    hashes, counts = np.unique(recent, return_counts=True)
    gone = np.round(counts / every * lost).astype(np.int64)

    def left(wanted: np.ndarray, held: np.ndarray) -> np.ndarray:
        if not len(hashes):
            return held
        at = np.minimum(np.searchsorted(hashes, wanted), len(hashes) - 1)
        return np.maximum(held - np.where(hashes[at] == wanted, gone[at], 0), 0)

    cap = cap_page(list(pages), left) if pages else None
    return pages if cap is None else (cap, *pages)


def leaving(graph: Graph, group: Sequence[str]) -> dict[str, list[str]]:
    """Return the streams that leave a group of operators, for each operator outside that reads some."""
    mine = {stream for name in group for stream in graph[name].outputs}
    found: dict[str, list[str]] = {}
    for operator in graph:
        if operator.name not in group and not isinstance(operator, Faulty):
            streams = [s for port in operator.ports for s in port if s in mine]
            if streams:
                found[operator.name] = list(dict.fromkeys(streams))
    return found


def covers(replicas: Replicas, failing: Sequence[str]) -> bool:
    """Say whether operators that fail are in the group that there are copies of."""
    return not replicas.group or set(failing) <= set(replicas.group)


def group_of(replicas: Replicas, failing: Sequence[str]) -> tuple[str, ...]:
    """Return the operators that fail over together: the group, or without one those that fail."""
    return replicas.group or tuple(failing)
