"""Random applications, run batch by batch in one or several processing elements, against their plain meaning.

``RIPRAP_EXAMPLES=10`` draws ten times as many. What fails is made smaller and printed as Python, to be kept in
``test_kept_cases``.
"""

from __future__ import annotations

import os
from functools import cache

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from tests.graphs.drawing import KINDS, draw
from tests.graphs.shrinking import explain, verdict

TIMES = float(os.environ.get("RIPRAP_EXAMPLES", "1"))
# Beside everything there is: kinds that have much to do with each other, drawn more densely.
MIXTURES = {
    "everything": tuple(KINDS),
    "punctuation": (
        "punctor",
        "sort",
        "aggregate",
        "functor",
        "union",
        "split",
        "custom",
        "deduplicate",
        "punctor",
    ),
    "time": ("aggregate", "sort", "delay", "throttle", "deduplicate", "join", "functor"),
    "meeting": ("join", "barrier", "gate", "functor", "split", "union", "aggregate"),
}


@pytest.mark.parametrize(
    "mixture",
    ["everything", *(pytest.param(m, marks=pytest.mark.slow) for m in MIXTURES if m != "everything")],
)
@settings(
    max_examples=max(1, int(100 * TIMES)),
    deadline=None,
    print_blob=True,
    # A smaller seed is no simpler program.
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)
@given(seed=st.integers(0, 2**63))
def test_a_run_puts_out_what_the_graph_means(seed: int, mixture: str) -> None:
    found = verdict(*draw(seed, MIXTURES[mixture]))
    assume(found != "cannot be placed")

    assert found is None, made_small(seed, mixture, found)


@cache
def made_small(seed: int, mixture: str, found: str) -> str:
    # Hypothesis runs what fails once more.
    return explain(*draw(seed, MIXTURES[mixture]), found)
