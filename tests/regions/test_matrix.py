"""Regions against faults: whatever dies, at whichever step, with the host's memory or without, each sink holds exactly
what it holds when nothing happens. `tests/regions/cases.py` has the table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import accumulate
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.regions.building import application
from tests.regions.cases import ALL, CASES, Case
from tests.regions.running import OPTIONS, WRONG, Running
from tests.regions.sinks import KINDS, Place, Row, comparable
from tests.regions.topologies import BATCH, ROWS, TOPOLOGIES, rows_of
from tests.runtime.harness import Programs
from tests.services.server import fresh_name
from tests.stages import Stage

from riprap.compiler import compile_graph
from riprap.state.leases import sweep
from riprap.state.pages import page_root

Golden = Callable[[str], Mapping[str, list[Row]]]
SEEDS = {"left": 0, "right": 4, "plain": 2, "read": 0}


@pytest.fixture(scope="module")
def golden(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Golden:
    """Return a function that gives what reaches the sinks of a topology without policy and fault, by stream."""

    def make(topology: str) -> Mapping[str, list[Row]]:
        work = tmp_path_factory.mktemp(topology)
        app = application(topology, "each", work, Place(str(work / "out")))
        if topology == "loop":
            return {"passed": [{"seq": n, "told": n // BATCH * BATCH - 1} for n in range(ROWS)]}
        if topology == "clock":
            # The last ticks come when the input ends.
            with app.run(spark=spark, runs=work / "runs", **OPTIONS) as run:
                run.wait()
                return {s.removesuffix("_out"): run.table(s).to_pylist() for s in run.progress().tuples_out}
        feeds: dict[str, pa.Table] = {name: rows_of(seed) for name, seed in SEEDS.items()}
        found = Stage(app, work / "stage", buckets=4).feed(feeds)
        return {sink.removesuffix("_out"): rows for sink, rows in found.items()}

    return cache(make)


@pytest.fixture
def place(request: pytest.FixtureRequest, case: Case, tmp_path: Path) -> Place:
    servers: dict[str, str] = {}
    server = KINDS[case.sink].server
    if server == "postgres":
        servers["postgres"] = request.getfixturevalue("postgres").url
    elif server == "redis":
        servers["redis"] = request.getfixturevalue("redis").url
    return Place(str(tmp_path / "out"), **servers, prefix=f"{fresh_name()}_")


@pytest.fixture
def running(
    case: Case, spark: SparkSession, programs: Programs, tmp_path: Path, place: Place
) -> Iterator[Running]:
    yield Running(case, spark, programs, tmp_path, place)
    sweep(page_root())


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=case.id, marks=() if case.quick else pytest.mark.faults) for case in CASES],
)
def test_nothing_is_lost_and_nothing_doubled(case: Case, running: Running, golden: Golden) -> None:
    running.live()

    topology = TOPOLOGIES[case.topology]
    found = {
        sink.name.removesuffix("_out"): KINDS[case.sink].read(
            running.place, sink.name.removesuffix("_out"), sink.schema.names
        )
        for sink in running.sinks()
    }
    if case.topology == "lookup":
        check_lookup(found, case)
    else:
        for name, rows in golden(case.topology).items():
            expected = comparable(rows, case.sink)
            assert expected, name
            if name in topology.may_lack and any(life.wiped for life in case.lives):
                check_part(found[name], expected)
            elif topology.ordered:
                assert found[name] == expected, name
            else:
                assert by_text(found[name]) == by_text(expected), name
    for kind in WRONG:
        told = running.told(kind)
        assert not [e for e in told if not (topology.may_lack and kind != "results differ")], told


def by_text(rows: list[Row]) -> list[Row]:
    """Put rows in an order of their own."""
    return sorted(rows, key=repr)


def check_part(found: list[Row], expected: list[Row]) -> None:
    """Check that rows are some of others, and none of them is there twice."""
    assert len({repr(row) for row in found}) == len(found)
    assert {repr(row) for row in found} <= {repr(row) for row in expected}


def check_lookup(found: Mapping[str, list[Row]], case: Case) -> None:
    """Check that each tuple has met one version of the table, and what remembers them has remembered these."""
    met = [(int(row["seq"]), int(row["version"])) for row in found["met"]]
    assert [seq for seq, _ in met] == list(range(ROWS))
    versions = [version for _, version in met]
    assert versions == sorted(versions)
    assert set(versions) <= {1, *(seq for life in case.lives for what, seq in life.traps if what == "table")}
    assert [int(row["total"]) for row in found["added"]] == list(accumulate(versions))


def test_the_matrix_is_whole(tmp_path: Path) -> None:
    assert len(CASES) > 200
    assert {case.topology for case in CASES} == set(ALL) == set(TOPOLOGIES)
    assert {case.sink for case in CASES} == set(KINDS)
    assert len({case.id for case in CASES}) == len(CASES)
    for topology in ALL:
        app = application(topology, "each", tmp_path, Place(str(tmp_path / "out")), period="1s")
        plans = compile_graph(app.graph(), buckets=4, tasks=2).plans
        assert any(plan.replays for plan in plans), f"{topology} has no region"
