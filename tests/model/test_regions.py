"""Regions in a model: who is in one, and what it costs to compute again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

import riprap as rr
from riprap.graph import Graph
from riprap.model import (
    Annotated,
    ConsistentRegion,
    Faults,
    OperatorProfile,
    Port,
    Profile,
    Protection,
    Unprotected,
    predict,
)
from riprap.protection import Protectable, RegionTerms

# 10 tuples a second of 40 ms: it is busy for two fifths of its time.
BUSY = Profile(
    rates={"Rows": 10.0},
    operators={
        "Rows": OperatorProfile(),
        "Odd": OperatorProfile(ports=(Port(time=0.04, selectivity=1.0),)),
        "Out": OperatorProfile(ports=(Port(time=0.01),)),
    },
)


@dataclass(frozen=True)
class Begins(rr.Policy):
    """Begins a region, and says no more of it."""

    def begins(self, operator: Protectable) -> RegionTerms | None:
        return rr.consistent(period="1s").begins(operator)


def graph(protect: rr.Policy | None = None, cut: rr.Policy | None = None) -> Graph:
    app = rr.Application("modelled")
    files = rr.files("rows", format="csv", schema="n bigint, v bigint")
    rows = app.source("Rows", files, protect=protect)
    app.sink("Out", app.functor("Odd", rows, where="v % 2 = 1", protect=cut), rr.memory())
    return app.graph()


def down(technique: Any, **faults: Any) -> float:
    """Return for how many seconds of a hundred something is down, after one crash."""
    made = predict(graph(), BUSY, technique, Faults(recovery=3.0, **faults), horizon=100.0, replications=3)
    assert made.availability.high - made.availability.low < 1e-9
    return 100 * (1 - made.availability.mean)


def test_what_came_in_since_the_last_cut_is_computed_again() -> None:
    # A cut every 10 s is 5 s old on average, and 5 s of input take 2 s.
    assert down(ConsistentRegion(period=10.0), crash="Odd") == pytest.approx(3 + 2)
    assert down(ConsistentRegion(period=1.0), crash="Odd") == pytest.approx(3 + 0.2)
    # Nothing is computed again where nothing is kept.
    assert down(Unprotected(), crash="Odd") == pytest.approx(3)


def test_those_that_fail_together_compute_one_after_the_other() -> None:
    together = ConsistentRegion(operators=("Odd", "Out"), period=10.0)

    assert down(together, crash="Odd", together=(("Odd", "Out"),)) == pytest.approx(3 + 5 * (0.4 + 0.1))
    assert down(together, crash="Out") == pytest.approx(3 + 5 * 0.1)


def test_no_tuple_is_lost_in_a_region_meanwhile() -> None:
    made = predict(
        graph(), BUSY, Annotated(graph(rr.consistent(period="4s"))), Faults(crash="Odd", recovery=3.0),
        horizon=100.0, replications=3,
    )  # fmt: skip

    assert made.lost.mean == 0
    assert made.output.mean == pytest.approx(made.fault_free, abs=1)


def test_the_model_has_the_regions_of_the_graph() -> None:
    region = Protection(restore="whole", kept=True, every=2.0)

    def found(*policies: Any) -> Any:
        return Annotated(graph(*policies)).protect(())

    assert found(rr.consistent(period="2s")) == dict.fromkeys(("Rows", "Odd", "Out"), region)
    assert found(rr.consistent(period="2s"), rr.autonomous()) == {"Rows": region}
    assert found(rr.consistent(period="9s"), rr.consistent(period="2s")) == dict.fromkeys(
        ("Rows", "Odd", "Out"), region
    )
    assert found(rr.consistent(period="2s"), rr.consistent(period="9s")) == dict.fromkeys(
        ("Rows", "Odd", "Out"), region
    )
    # A policy of one's own may have no model of a region that it begins.
    assert found(Begins()) == {}
    by_operator = Protection(restore="whole", kept=True)
    assert found(rr.consistent(trigger="operator")) == dict.fromkeys(("Rows", "Odd", "Out"), by_operator)
