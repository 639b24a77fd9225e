"""Random applications, run batch by batch in one or several processing elements, against their plain meaning."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, assume, given, settings
from tests.graphs.drawing import circumstances, programs
from tests.graphs.program import Circumstances, Program, check

from riprap.compiler import compile_graph
from riprap.errors import GraphError

EXAMPLES = int(100 * float(os.environ.get("RIPRAP_EXAMPLES", "1")))
OFTEN = settings(
    max_examples=EXAMPLES,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


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


@OFTEN
@given(program=programs(), around=circumstances())
def test_a_run_puts_out_what_the_graph_means(program: Program, around: Circumstances) -> None:
    assume(can_be_placed(program))
    check(program, around)
