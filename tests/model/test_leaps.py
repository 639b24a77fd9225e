"""Leaps have the distribution of what happens tuple by tuple: against a plain simulation of objects."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.model.oracle import Oracle

from riprap.model import OperatorProfile, Part, Port, Protection
from riprap.model.arrays import Question
from riprap.model.parts import PartPort
from riprap.model.replication import simulate
from riprap.model.wiring import wire


def part(name: str, reads: str | list[str] = "", *, outputs: Any = None, **port: Any) -> Part:
    """Make an operator that reads a stream, or several on ports of their own; ``port`` describes all ports."""
    streams = [reads] if isinstance(reads, str) else reads
    rate = port.pop("rate", 0.0)
    shares = port.pop("shares", None)
    sink, shift = port.pop("sink", False), port.pop("shift", None)
    outs = () if sink else tuple(outputs or (name,))
    entries = []
    for number, stream in enumerate(streams):
        mine = {k: (v[number] if isinstance(v, list) else v) for k, v in port.items()}
        described = Port(**mine)
        given = shares[number] if isinstance(shares, list) else shares
        entries.append(
            PartPort(
                streams=tuple(stream.split()),
                rate=rate,
                shares=given if given is not None else tuple(described.share(o) for o in outs),
                port=described,
            )
        )
    profile = OperatorProfile(ports=tuple(e.port for e in entries), shift=shift)
    return Part(name=name, entries=tuple(entries), outputs=outs, profile=profile, sink=sink, source=rate > 0)


CHAIN = (
    part("In", rate=40.0),
    part("Filter", "In", selectivity=0.4),
    part("Sums", "Filter", state=60, alpha=0.2, alpha_tainted=0.1, beta=0.5),
    part("Means", "Sums", selectivity=0.7),
    part("Join", ["Means", "In"], selectivity=[0.0, 0.3], state=[30, 0], alpha=0.1, beta=0.7, shift=0.3),
    part("Out", "Join", sink=True),
)
TREE = (
    part("A", rate=30.0),
    part("B", rate=17.0),
    part("Route", "A", outputs=("left", "right"), shares=(0.6, 0.4)),
    part("Left", "left B", selectivity=1.6, state=40, alpha=0.1, alpha_tainted=0.2, beta=1.0),
    part("Right", "right", state=25, alpha=0.3, alpha_tainted=0.1, beta=0.2, selectivity=0.5),
    part("Both", "Left Right", state=50, alpha=0.1, alpha_tainted=0.1, beta=0.5, selectivity=0.9),
    part("Out", "Both", sink=True),
    part("Aside", "Right", sink=True),
)
# Results by the tick: an entry that nothing but time feeds.
TICKED = (
    part("In", rate=30.0),
    replace(
        part("Counts", "In", selectivity=0.0, state=50, alpha=0.2, alpha_tainted=0.1, beta=1.0),
        entries=(
            *part("Counts", "In", selectivity=0.0, state=50, alpha=0.2, alpha_tainted=0.1, beta=1.0).entries,
            PartPort(rate=2.0, shares=(3.5,), port=Port()),
        ),
    ),
    part("Some", "Counts", selectivity=0.5),
    part("Out", "Some", sink=True),
)
CHECKPOINTS = {
    name: Protection(restore="checkpoint", age=(0.5, 0.5))
    for name in ("Sums", "Join", "Left", "Right", "Both")
}
GROUPS = {
    "In": Protection(group="outside", failover=0.5),
    "Filter": Protection(group="g", failover=0.5),
    "Sums": Protection(group="g", failover=0.5),
    "Join": Protection(restore="checkpoint", age=(0.0, 1.0)),
}
EXACT = {name: replace(each, kept=each.group is not None, peer=True) for name, each in GROUPS.items()}
# Two exact groups, one behind the other, of which one comes back from checkpoints where both of its replicas are lost.
EXACT_TREE = {
    "Route": Protection(group="first", failover=0.7, kept=True),
    "Left": Protection(group="second", failover=0.7, kept=True, restore="checkpoint", age=(0.5, 0.5)),
    "Both": Protection(group="second", failover=0.7, kept=True, restore="checkpoint", age=(0.5, 0.5)),
}
PEERS = {name: replace(each, peer=each.group is not None) for name, each in GROUPS.items()}
COPIES = {
    name: Protection(copies=2)
    for name in ("Filter", "Sums", "Means", "Join", "Route", "Left", "Right", "Both")
}
KEPT = {
    "Sums": Protection(restore="whole", kept=True),
    "Join": Protection(kept=True),
    "Left": Protection(restore="whole", kept=True),
    "Both": Protection(restore="checkpoint", age=(1.0, 1.0)),
}


@pytest.mark.parametrize(
    ("parts", "protections", "crashes", "corruptions"),
    [
        (CHAIN, GROUPS, 0.01, 0.01),
        (CHAIN, EXACT, 0.04, 0.01),
        (TREE, EXACT_TREE, 0.04, 0.01),
        (CHAIN, PEERS, 0.03, 0.01),
        (CHAIN, KEPT, 0.01, 0.01),
        (TREE, CHECKPOINTS, 0.01, 0.01),
        (TREE, COPIES, 0.01, 0.01),
        (TICKED, {"Counts": Protection(restore="checkpoint", age=(0.5, 0.5))}, 0.02, 0.02),
        pytest.param(CHAIN, {}, 0.01, 0.01, marks=pytest.mark.slow),
        pytest.param(CHAIN, CHECKPOINTS, 0.01, 0.0, marks=pytest.mark.slow),
        pytest.param(CHAIN, COPIES, 0.0, 0.03, marks=pytest.mark.slow),
        pytest.param(TREE, {}, 0.0, 0.03, marks=pytest.mark.slow),
        pytest.param(TREE, KEPT, 0.01, 0.01, marks=pytest.mark.slow),
    ],
)
def test_leaps_agree_with_single_tuples(
    parts: tuple[Part, ...], protections: Mapping[str, Protection], crashes: float, corruptions: float
) -> None:
    mine = {name: each for name, each in protections.items() if name in {p.name for p in parts}}
    horizon, recovery = 40.0, 2.0
    wired = wire(parts, mine)
    units = len(wired.units)
    asked = Question(
        horizon,
        np.full(units, crashes),
        np.full(len(wired.nodes), corruptions),
        np.full(units, recovery),
        np.full(units, np.inf),
        0,
    )
    fast = [simulate(wired.wiring, asked, np.random.default_rng((5, n))) for n in range(1500)]
    slow = [
        Oracle(
            parts,
            mine,
            horizon=horizon,
            crash_rate=crashes,
            corruption_rate=corruptions,
            recovery=recovery,
            seed=n,
        ).run()
        for n in range(40)
    ]
    for name, of_fast, of_slow in (
        ("up", [t.up for t in fast], [o.up for o in slow]),
        ("alone", [t.up_alone for t in fast], [o.up_alone for o in slow]),
        ("clean", [t.clean.sum() for t in fast], [o.clean for o in slow]),
        ("tainted", [t.tainted.sum() for t in fast], [o.tainted for o in slow]),
        ("lost", [t.lost for t in fast], [o.lost for o in slow]),
    ):
        agree(name, of_fast, of_slow)


def agree(name: str, one: list[Any], other: list[Any]) -> None:
    """Compare means; five standard errors are one false alarm in a million."""
    a, b = np.array(one, float), np.array(other, float)
    error = math.sqrt(a.var(ddof=1) / len(a) + b.var(ddof=1) / len(b))
    assert abs(a.mean() - b.mean()) <= 5 * error + 1e-9, (
        f"{name}: {a.mean()} and {b.mean()}, give or take {error}"
    )
