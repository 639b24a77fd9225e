"""Trials of random applications: what is lost at a source against the plain meaning, and one path against the other."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, assume, example, given, settings
from hypothesis import strategies as st
from tests.faults.replaying import assert_same, both_paths, golden_of, graph_of, rows_of
from tests.graphs.drawing import KINDS, draw
from tests.graphs.program import Program, meaning, plain, same
from tests.graphs.test_random_graphs import MIXTURES, TIMES

from riprap.compiler import compile_graph
from riprap.errors import GraphError
from riprap.faults.golden import Golden
from riprap.faults.interleaving import meeting
from riprap.faults.models import Duplication, Lateness, Loss, Reordering
from riprap.faults.targets import incoming
from riprap.graph.faults import Fault, FaultModel
from riprap.operators.sink import Sink
from riprap.operators.source import Source

PLENTY = settings(
    max_examples=max(1, int(40 * TIMES)),
    deadline=None,
    print_blob=True,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
MODELS: tuple[FaultModel, ...] = (
    Loss(),
    Loss(keep=0.4),
    Duplication(copies=2),
    Lateness(distance=4),
    Reordering(distance=6),
)


@PLENTY
@given(seed=st.integers(0, 2**63))
def test_what_a_source_loses_is_as_if_it_had_never_been(seed: int) -> None:
    program, _ = draw(seed, tuple(KINDS))
    luck = random.Random(seed)
    golden, target = prepared(program, luck, deep=False, sources=True)
    known = incoming(golden, target)
    assume(len(known))
    first = luck.randrange(len(known))
    count = luck.randrange(1, len(known) - first + 1)
    fast, _ = both_paths(golden, target, Fault(model=Loss()), first, count)
    left = tuple(
        replace(source, rows=source.rows[:first] + source.rows[first + count :])
        if source.name == target
        else source
        for source in program.sources
    )

    wanted = meaning(replace(program, sources=left))

    for sink, rows in wanted.items():
        got = rows_of(fast.output(golden, sink), golden.graph[sink].schema.names)
        assert len(got) == len(rows)
        for mine, other in zip(got, rows, strict=True):
            assert all(same(plain(mine[name]), other[name]) for name in other), (sink, mine, other)


@pytest.mark.parametrize("mixture", MIXTURES)
@PLENTY
@example(seed=3737053)  # of "meeting": blocks of a stream in which different columns are left
@given(seed=st.integers(0, 2**63))
def test_the_fast_path_is_the_slow_path(seed: int, mixture: str) -> None:
    program, _ = draw(seed, MIXTURES[mixture])
    luck = random.Random(seed)
    model = luck.choice(MODELS)
    golden, target = prepared(program, luck, deep=model.deep, sources=False)
    known = incoming(golden, target)
    assume(len(known))
    first = luck.randrange(len(known))
    count = luck.randrange(1, 12)

    fast, slow = both_paths(golden, target, Fault(model=model, seed=luck.randrange(100)), first, count)

    assert_same(golden, fast, slow)


def prepared(
    program: Program, luck: random.Random, *, deep: bool, sources: bool, lag: int | None = None
) -> tuple[Golden, str]:
    """Draw a target, and make the golden run; what cannot be replayed is drawn anew."""
    graph = graph_of(program)
    clocks = {s.name for s in program.sources if s.tick is not None}
    kinds = (
        [o.name for o in graph.of_kind(Source)]
        if sources
        else [o.name for o in graph if not isinstance(o, Sink)]
    )
    there = [name for name in kinds if name not in clocks]
    assume(there)
    target = luck.choice(there)
    try:
        compile_graph(graph, buckets=1, tasks=1)
    except GraphError:
        # The drawing says where operators are to be, and not all of that can be had.
        assume(False)
    try:
        return golden_of(graph, [target], deep=deep, block_rows=luck.randrange(3, 30), lag=lag), target
    except GraphError as error:
        assume("place the sources in one" not in str(error))
        raise


@pytest.mark.parametrize("mixture", ["everything", "meeting"])
@PLENTY
@given(seed=st.integers(0, 2**63))
def test_so_it_is_where_streams_lag(seed: int, mixture: str) -> None:
    program, _ = draw(seed, MIXTURES[mixture])
    luck = random.Random(seed)
    assume(meeting(graph_of(program)))
    model = luck.choice(MODELS)
    golden, target = prepared(program, luck, deep=model.deep, sources=False, lag=luck.randrange(1, 9))
    known = incoming(golden, target)
    assume(len(known))
    first = luck.randrange(len(known))

    fast, slow = both_paths(
        golden, target, Fault(model=model, seed=luck.randrange(100)), first, luck.randrange(1, 12)
    )

    assert_same(golden, fast, slow)
