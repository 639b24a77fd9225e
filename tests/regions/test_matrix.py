"""Regions against faults: whatever dies, at whichever step, with the host's memory or without, each sink holds exactly
what it holds when nothing happens. `tests/regions/cases.py` has the table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.regions.brokers import fill_topic
from tests.regions.building import application
from tests.regions.cases import ALL, CASES, Case
from tests.regions.oracle import Golden, check, golden_of, lost_outside
from tests.regions.running import Running
from tests.regions.sinks import KINDS, Place
from tests.regions.topologies import TOPOLOGIES
from tests.runtime.harness import Programs
from tests.services.redis import Redis
from tests.services.server import UnavailableError, fresh_name

from riprap.compiler import compile_graph
from riprap.state.leases import sweep
from riprap.state.pages import page_root


@pytest.fixture(scope="module")
def golden(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Golden:
    return golden_of(spark, tmp_path_factory.mktemp)


@pytest.fixture
def place(request: pytest.FixtureRequest, case: Case, spark: SparkSession, tmp_path: Path) -> Place:
    servers, prefix = {}, f"{fresh_name()}_"
    wanted = KINDS[case.sink].server
    if wanted in ("postgres", "redis"):
        servers[wanted] = request.getfixturevalue(wanted).url
    if "kafka" in (wanted, case.topology):
        broker = request.getfixturevalue("kafka")
        servers["kafka"], prefix = broker.address, fill_topic(spark, broker)
    return Place(str(tmp_path / "out"), **servers, prefix=prefix)


@pytest.fixture
def server(case: Case) -> Iterator[Redis | None]:
    """Give the server of the store, where it has one, to be killed."""
    if case.store != "redis":
        yield None
        return
    try:
        server = Redis()
    except UnavailableError as reason:
        pytest.skip(str(reason))
    with server:
        yield server


@pytest.fixture
def running(
    case: Case, spark: SparkSession, programs: Programs, tmp_path: Path, place: Place, server: Redis | None
) -> Iterator[Running]:
    yield Running(case, spark, programs, tmp_path, place, server)
    sweep(page_root())


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=case.id, marks=() if case.quick else pytest.mark.faults) for case in CASES],
)
def test_nothing_is_lost_and_nothing_doubled(case: Case, running: Running, golden: Golden) -> None:
    running.live()

    check(case, running.held(), running.events(), golden)


def test_the_matrix_is_whole(tmp_path: Path) -> None:
    assert len(CASES) > 200
    assert {case.topology for case in CASES} == {*ALL, "kafka"} == set(TOPOLOGIES)
    assert {case.sink for case in CASES} == set(KINDS)
    assert len({case.id for case in CASES}) == len(CASES)
    for topology in TOPOLOGIES:
        app = application(topology, "each", tmp_path, Place(str(tmp_path / "out")), period="1s")
        plans = compile_graph(app.graph(), buckets=4, tasks=2).plans
        assert any(plan.replays for plan in plans), f"{topology} has no region"


def test_only_what_is_told_to_be_lost_before_a_region_may_be_missing() -> None:
    def lost(channel: str, batch: int, rows: int) -> dict[str, object]:
        return {"event": "results lost", "element": "e", "batch": batch, "rows": {channel: rows}}

    regions = TOPOLOGIES["regions"]
    told = [lost("to:plain_read", 7, 20), lost("to:plain_read", 3, 20)]
    assert lost_outside(regions, told) == (("plain", 60, 80), ("plain", 140, 160))
    for wrong in (lost("sums_out", 7, 20), lost("to:plain_read", 7, 21)):
        with pytest.raises(AssertionError):
            lost_outside(regions, [wrong])
