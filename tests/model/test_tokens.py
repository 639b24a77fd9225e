"""The shortcut is exact: leaps against the full simulation of the net, in which every tuple is a token."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from tests.model.test_leaps import CHAIN, CHECKPOINTS, COPIES, EXACT, EXACT_TREE, GROUPS, PEERS, TREE, agree

from riprap.model import Part, Protection
from riprap.model.arrays import Question
from riprap.model.replication import simulate
from riprap.model.tokens import net_of, rewards_of
from riprap.model.wiring import Wired, wire
from riprap.san import simulate as simulate_net


def asked_of(wired: Wired, crashes: float, corruptions: float, **more: float) -> Question:
    units = len(wired.units)
    crash_at = np.full(units, np.inf)
    if "at" in more:
        crash_at[wired.units_of("Filter")] = more["at"]
    return Question(
        more.get("horizon", 60.0),
        np.full(units, crashes),
        np.full(len(wired.nodes), corruptions),
        np.full(units, 2.0),
        crash_at,
        0,
    )


@pytest.mark.parametrize(
    ("parts", "protections", "crashes", "corruptions"),
    [
        pytest.param(CHAIN, CHECKPOINTS, 0.01, 0.01, id="checkpoints"),
        pytest.param(CHAIN, EXACT, 0.03, 0.0, id="exact groups"),
        pytest.param(TREE, EXACT_TREE, 0.03, 0.01, id="exact groups in a row", marks=pytest.mark.slow),
        pytest.param(CHAIN, PEERS, 0.03, 0.0, id="groups with each other's state", marks=pytest.mark.slow),
        pytest.param(CHAIN, GROUPS, 0.01, 0.0, id="groups", marks=pytest.mark.slow),
        pytest.param(TREE, COPIES, 0.005, 0.02, id="copies", marks=pytest.mark.slow),
    ],
)
def test_leaps_agree_with_tokens(
    parts: tuple[Part, ...], protections: Mapping[str, Protection], crashes: float, corruptions: float
) -> None:
    here = {p.name for p in parts}
    # A net's gates draw no numbers, so a checkpoint has one age in it.
    mine = {name: replace(p, age=(0.5, 0.5)) for name, p in protections.items() if name in here}
    wired = wire(parts, mine)
    asked = asked_of(wired, crashes, corruptions)
    full = simulate_net(net_of("model", wired, asked), rewards_of(wired, asked), replications=400, seed=3)
    leaps = [simulate(wired.wiring, asked, np.random.default_rng((8, n))) for n in range(2000)]
    for name, values in (
        ("availability", [t.up / asked.horizon for t in leaps]),
        ("alone", [t.up_alone / asked.horizon for t in leaps]),
        ("tainted", [t.tainted.sum() for t in leaps]),
        ("clean", [t.clean.sum() for t in leaps]),
        ("lost", [t.lost for t in leaps]),
        ("crashes", [t.crashes for t in leaps]),
    ):
        agree(name, list(full[name].values), values)


def test_a_forced_crash_in_the_net() -> None:
    wired = wire(CHAIN, {k: p for k, p in CHECKPOINTS.items() if k in ("Sums", "Join")})
    asked = asked_of(wired, 0.0, 0.0, at=10.0, horizon=30.0)
    full = simulate_net(net_of("model", wired, asked), rewards_of(wired, asked), replications=200, seed=3)
    # Filter gets 40 tuples a second for 2 s; one may be on its way.
    assert full["crashes"].mean == 1
    assert full["lost"].mean == pytest.approx(80, abs=1)
    # Sums should have had 16 a second, so 12 + 0.5 * 32 tuples, and Join 11.2 a second, so 3 + 0.7 * 22.4.
    sums, join = 28 / 16, 18 / 11.2
    assert full["availability"].mean == pytest.approx(1 - (2 + sums + join) / 30, abs=0.01)
