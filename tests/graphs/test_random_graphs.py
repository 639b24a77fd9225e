"""Random applications, run batch by batch in one or several processing elements, against their plain meaning.

``RIPRAP_EXAMPLES=10`` draws ten times as many.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tests.graphs.drawing import KINDS, circumstances, programs
from tests.graphs.program import Program, check

from riprap.compiler import compile_graph
from riprap.errors import GraphError

TIMES = float(os.environ.get("RIPRAP_EXAMPLES", "1"))
# Beside everything there is: kinds that have much to do with each other, drawn more densely.
MIXTURES = {
    "everything": tuple(KINDS),
    "punctuation": ("punctor", "sort", "aggregate", "functor", "union", "split", "custom"),
    "time": ("aggregate", "sort", "delay", "throttle", "deduplicate", "join", "functor"),
    "meeting": ("join", "barrier", "gate", "functor", "split", "union", "aggregate"),
}


def can_be_placed(program: Program) -> bool:
    """Say whether the compiler takes the program: a placement may be impossible."""
    graph = program.application().graph()
    try:
        compile_graph(graph, buckets=1, tasks=1)
    except GraphError:
        if not program.places:
            raise
        return False
    return True


@pytest.mark.parametrize("mixture", MIXTURES)
@settings(
    max_examples=max(1, int(80 * TIMES)),
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(data=st.data())
def test_a_run_puts_out_what_the_graph_means(data: st.DataObject, mixture: str) -> None:
    program = data.draw(programs(MIXTURES[mixture]))
    around = data.draw(circumstances())
    assume(can_be_placed(program))

    check(program, around)
