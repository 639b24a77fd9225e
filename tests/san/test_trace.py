"""Traces of the simulator are those of the oracle."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, seed, settings
from tests.san.interpreting import interpret
from tests.san.nets import queue, random_net, sample_nets
from tests.san.oracle import Oracle

from riprap.san import Net, join, simulation, trace

Trace = list[tuple[float, str, dict[str, int]]]


def same(ours: Trace, theirs: Trace) -> None:
    assert [(name, marking) for _, name, marking in ours] == [(name, marking) for _, name, marking in theirs]
    assert np.allclose([time for time, *_ in ours], [time for time, *_ in theirs], rtol=1e-9)


@seed(1)
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None)
@given(net=random_net())
@example(net=queue(1.0, 1.2, 4, 2))
def test_random_nets_do_what_the_oracle_does(net: Net) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulation, "load", interpret)
        ours = trace(net, 30.0, seed=7, most=120)
    same(ours, Oracle(net, 7).trace(30.0, 120))


def test_compiled_they_do_it_too() -> None:
    nets = {f"n{i}": net for i, net in enumerate(sample_nets(5, markov=False))}
    both = join("all", nets)
    same(trace(both, 20.0, seed=3, most=600), Oracle(both, 3).trace(20.0, 600))
