"""What a crash comes to under a protection: how much of its input an operator misses, and what it holds afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from riprap.arrays import Ints
from riprap.faults.golden import Golden
from riprap.faults.targets import Incoming
from riprap.graph.faults import Crash, Replicas
from riprap.graph.graph import Graph, Restart
from riprap.graph.operator import Operator
from riprap.graph.replicas import group_by_operator
from riprap.kernels.given import Pages
from riprap.operators.faulty import Faulty
from riprap.protection import OperatorOutage, Policy
from riprap.protection.policy import Holds
from riprap.stage.fused import State
from riprap.state.checkpoints.restoring import cap_page
from riprap.state.hashing import Hashes


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


@dataclass(frozen=True, slots=True)
class TakeOver:
    """A group of operators some of which fail, so that a replica takes over: its output is lost for so many seconds."""

    group: tuple[str, ...]
    lost: float
    diverging: bool = False


def take_overs(graph: Graph, crash: Crash, failing: Sequence[str]) -> tuple[TakeOver, ...]:
    """Say for which groups replicas take over when some operators fail: the application's, or what the crash names.

    Those that no group of them has come back as their protection lets them.
    """
    replicas, own = crash.protection, group_by_operator(graph)
    groups = {own[name].name: own[name] for name in failing if name in own}
    if isinstance(replicas, Replicas):
        if not set(failing) <= set(replicas.group or failing):
            return ()
        whole = next((g.operators for g in groups.values() if set(failing) <= set(g.operators)), ())
        return (TakeOver(replicas.group or whole or tuple(failing), replicas.lost, replicas.diverging),)
    if replicas != "own":
        return ()
    return tuple(TakeOver(g.operators, g.detect if g.failover == "plain" else 0.0) for g in groups.values())


def coming_back(graph: Graph, crash: Crash, failing: Sequence[str]) -> tuple[str, ...]:
    """Name the operators that fail and come back themselves: no replica takes over for them."""
    taken = {name for each in take_overs(graph, crash, failing) for name in each.group}
    return tuple(name for name in failing if name not in taken)


def come_back(crash: Crash, operator: Operator, *, restart: Restart, rate: float, chance: float) -> Comeback:
    """Say how an operator comes back from a crash, unless a replica takes over.

    ``restart`` is how its processing element does: "resume" reads the input of the outage later, "live" never. ``rate``
    turns seconds into positions of the source; ``chance``, from 0 up to 1, is where in the interval between checkpoints
    the crash falls.
    """
    own = crash.protection == "own" or isinstance(crash.protection, Replicas)
    protection = operator.protect if own else crash.protection
    assert not isinstance(protection, str | Replicas)
    outage = OperatorOutage(
        misses=(restart if crash.restart == "own" else crash.restart) == "live",
        memory=crash.memory,
        age=crash.age,
        chance=chance,
    )
    back = (protection or Policy()).after(replace(operator, protect=protection), outage)
    every = max(1, round(back.every * rate)) if back.every else 0
    return Comeback(back.misses, back.holds, age=round(back.age * rate), every=every)


def state_after(
    golden: Golden, arrived: Incoming, operator: Operator, back: Comeback, *, begin: int, end: int
) -> State:
    """Return what an operator holds after an outage from one position of the source to another, slot by slot."""
    slots = [f"{operator.name}/{slot}" for slot in operator.slots]
    if back.holds == "empty":
        return dict.fromkeys(slots, ())
    saved = max(0, begin - back.age)
    pages = golden.state_before(arrived.element, golden.starting_at(saved))
    state = {slot: pages[slot] for slot in slots}
    for slot in operator.slides:
        port = int(slot) if len(operator.ports) > 1 else 0
        name = f"{operator.name}/{slot}"
        lost = (end if back.misses else begin) - saved
        state[name] = _without_stale(state[name], arrived, port, saved, back.every, lost)
    return state


def _without_stale(pages: Pages, arrived: Incoming, port: int, saved: int, every: int, lost: int) -> Pages:
    """Leave out as many of the oldest tuples of each key as would have come in since.

    A key's rate is that of the interval before it was saved, or if nothing came then, that of all the time before.
    """
    position, of_port = arrived.places[:, 0], np.asarray(arrived.ports)[arrived.stream] == port
    before = arrived.keys[of_port & (position < saved)]
    recent = arrived.keys[of_port & (position >= saved - every) & (position < saved)]
    hashes, total = np.unique(before, return_counts=True)
    rates = total / max(1, saved)
    newest, counts = np.unique(recent, return_counts=True)
    rates[np.searchsorted(hashes, newest)] = counts / max(1, min(every, saved))
    gone = np.round(rates * lost).astype(np.int64)

    def left(wanted: Hashes, held: Ints) -> Ints:
        if not len(hashes):
            return held
        at = np.minimum(np.searchsorted(hashes, wanted), len(hashes) - 1)
        return np.maximum(held - np.where(hashes[at] == wanted, gone[at], 0), 0)

    cap = cap_page(list(pages), left) if pages else None
    return pages if cap is None else (cap, *pages)


def leaving(graph: Graph, group: Sequence[str]) -> dict[str, list[str]]:
    """Return the streams that leave a group of operators, for each operator outside that reads some.

    In a graph that faults are woven into, a stream that passes one is still the same.
    """
    streams_inside = {stream for name in group for stream in graph[name].outputs}
    leaving_by: dict[str, list[str]] = {}
    for operator in graph:
        if operator.name in group or isinstance(operator, Faulty):
            continue
        for stream in (s for port in operator.ports for s in port):
            producer = graph.producer(stream)
            while isinstance(producer, Faulty):
                stream = producer.stream
                producer = graph.producer(producer.ports[0][0])
            if stream in streams_inside:
                streams = leaving_by.setdefault(operator.name, [])
                streams += [stream] if stream not in streams else []
    return leaving_by
