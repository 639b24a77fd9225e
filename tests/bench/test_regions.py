"""The benchmark of regions on tiny sizes, without regions where this version has none: all the rest of it runs."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import riprap as rr
from riprap.errors import RunError
from riprap.runtime.supervision.journal import Recovered
from riprap_bench import regions, regions_rounds
from riprap_bench.checkpoint_plan import Track
from riprap_bench.protecting import protected
from riprap_bench.regions_jobs import Chain, LogWatch, Lois, Vwap, job_of
from riprap_bench.regions_plan import NAMES, Plan, Round
from riprap_bench.regions_recovery import _of_plain, parts_of
from riprap_bench.regions_runs import answer_in

TINY = Plan(
    only=("apps", "sizes", "chains"),
    repetitions=1,
    long_repetitions=0,
    seconds=0.5,
    names=("vwap",),
    periods=(1.0,),
    sizes=(1,),
    lengths=(8,),
    parallel=(2,),
    period=0.2,
    protecting=False,
)


def test_every_other_run_is_unprotected() -> None:
    assert Round("lois", (1.0, 2.0, 4.0, 8.0), 1.0).runs == (None, 1.0, 2.0, None, 4.0, 8.0, None)
    assert Round("lois", (8.0,), 1.0).runs == (None, 8.0, None)


def test_long_periods_are_measured_less_often_and_longer() -> None:
    rounds = list(Plan(repetitions=3, long_repetitions=1).rounds("apps"))
    assert len(rounds) == 3 * len(NAMES) + len(NAMES)
    assert {r.seconds for r in rounds if 64.0 in r.periods} == {72.0}
    assert set(Plan().estimate()) == {"apps", "sizes", "chains", "plain", "recovery"}
    assert Plan().cases("chains")[0] == "1 of 8"


@pytest.mark.parametrize("name", NAMES)
def test_input_goes_on_for_as_long_as_it_has_to(name: Any, tmp_path: Path) -> None:
    job = job_of(name, seed=3)
    short = job.write(tmp_path, 2)
    long = job.write(tmp_path, 5)
    assert long.files[:2] == short.files
    assert len(set(long.files)) == 5
    assert job.build(long, rr.memory()).graph().name in ("wordcount", "logwatch", "vwap", "lois")


def test_numbers_and_times_go_on_where_a_table_begins_anew(tmp_path: Path) -> None:
    job = Lois(seed=3, rows=2048)
    tables = [pq.read_table(file) for file in job.write(tmp_path, 3).files]
    blocks = [n for table in tables for n in table["block"].to_pylist()]
    assert blocks == list(range(1, 3 * 2048 + 1))
    times: list[datetime] = [t for table in tables for t in table["time"].to_pylist()]
    assert times == sorted(times)
    assert (times[4096] - times[0]).total_seconds() == 8
    market = Vwap(seed=3, rows=300_000).write(tmp_path / "market", 4)
    seq = [pq.read_table(file)["seq"] for file in market.files]
    assert [(s[0].as_py(), s[-1].as_py()) for s in seq][2:] == [(600_001, 900_000), (900_001, 1_200_000)]


def test_weeks_of_a_log_follow_one_another(tmp_path: Path) -> None:
    files = LogWatch(seed=3).write(tmp_path, 6).files
    days = [file.read_text()[:6] for file in files]
    assert days[0] == "Mar  1"
    assert days[4] == "Mar  8"
    first, second = ([line[6:] for line in files[n].read_text().splitlines()] for n in (0, 4))
    assert first == second


def test_chains_are_in_elements_of_eight_operators(tmp_path: Path) -> None:
    chain = Chain(seed=1, many=4, length=16)
    graph = chain.build(chain.write(tmp_path, 2), rr.memory()).graph()
    assert sum(name.startswith("C") for name in (o.name for o in graph)) == 64
    assert len(set(graph.places.values())) == chain.elements == 10


def test_a_policy_goes_to_the_sources() -> None:
    app = rr.Application("demo")
    app.sink("out", app.source("words", rr.rows([], "word string")), rr.memory())
    policy = rr.consistent(period="2s")
    assert [o.protect for o in protected(app.graph(), policy)] == [policy, None]
    assert protected(app.graph(), None) == app.graph()


def test_an_answer_does_not_depend_on_files_but_on_every_value(tmp_path: Path) -> None:
    table = pa.table({"a": [1, None, 3], "b": ["x", None, "zz"], "c": [0.5, 1.5, None]})

    def put(name: str, *parts: pa.Table) -> Path:
        (tmp_path / name).mkdir()
        for number, part in enumerate(parts):
            pq.write_table(part, tmp_path / name / f"part-{number}.parquet")
        return tmp_path / name

    whole = answer_in(put("whole", table))
    assert whole == answer_in(put("parts", table.slice(0, 1), table.slice(1)))
    assert whole.rows == 3
    for name, values in (("a", [1, 0, 3]), ("b", ["x", "", "zz"]), ("c", [0.5, 1.5, 0.0])):
        place = table.schema.get_field_index(name)
        assert answer_in(put(name, table.set_column(place, name, pa.array(values)))) != whole


def test_computing_again_is_told_by_its_own_event() -> None:
    back = Recovered(
        element="e", process="p", failure="ProcessDied", detect=0.1, restart=0.2, restore=0.3, catch_up=0.4, lost=0,
        spare=True,
    )  # fmt: skip
    events = [{"event": "computed again", "seconds": 0.7}, {"event": "other"}]
    parts = parts_of([back], events)
    assert parts == {"detect": 0.1, "start": 0.2, "load": 0.3, "compute again": 0.7, "caught up": 0.4}
    assert "compute again" not in parts_of([back], [])


def test_what_plain_spark_takes_beyond_a_usual_batch_is_loading() -> None:
    parts = _of_plain([13.0, 15.0, 15.5, 16.0], started=10.0, usual=0.5)
    assert parts == {"load": 2.5, "compute again": 0.5, "caught up": 2.0}


def test_a_part_that_fails_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*given: Any) -> dict[str, Any]:
        raise RunError("plain Spark was not done")

    monkeypatch.setattr(regions, "measure_plain", fail)
    monkeypatch.setattr(regions, "measure_recovery", lambda *given: {"seconds": 1.0})
    kept: list[dict[str, Any]] = []
    plan = Plan(only=("plain", "recovery"))
    with pytest.raises(RunError, match="plain: plain Spark was not done"):
        regions.run_plan(plan, print, keep=kept.append, session=object())
    (result,) = kept
    assert set(result["parts"]) == {"recovery"}
    assert result["parts"]["recovery"]["seconds"] == 1.0


def test_what_there_is_no_time_for_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regions_rounds, "OVERTIME", -1.0)
    heard: list[str] = []
    bench: Any = None
    rounds = regions_rounds.Rounds("apps", Plan(repetitions=1), bench, Track(1.0, heard.append))
    found = rounds.measure(lambda result: None)
    assert (found["left_out"], found["lines"]) == (2 * len(NAMES), [])
    assert "vwap: left out, as there is no more time" in heard


def test_a_part_that_there_is_not() -> None:
    with pytest.raises(RunError, match="no part 'app'; there are: apps, sizes"):
        regions.run(True, print, only=["app"])  # type: ignore[list-item]
    with pytest.raises(RunError, match="move it away"):
        regions.run_plan(TINY, print, earlier={"operators": []})


@pytest.mark.slow
def test_all_of_it_on_tiny_sizes(spark: SparkSession) -> None:
    heard: list[str] = []
    kept: list[dict[str, Any]] = []

    result = regions.run_plan(TINY, heard.append, keep=kept.append, session=spark)

    json.dumps(result)
    assert set(result["parts"]) == {"apps", "sizes", "chains"}
    for part in result["parts"].values():
        (line,) = part["lines"]
        assert line["throughput"]["pairs"] == 1
        assert 0 < line["throughput"]["median"] < 10
        assert part["unprotected"][0]["rows_out"] > 0
    assert heard[0].startswith("this takes about")
    shown = regions.table(result)
    assert "2 of 8" in shown
    assert "No region was asked for" in shown
    # What is done is not done again.
    again = regions.run_plan(TINY, heard.append, earlier=json.loads(json.dumps(result)), session=spark)
    for name, part in again["parts"].items():
        for line, before in zip(part["lines"], result["parts"][name]["lines"], strict=True):
            assert line["throughput"]["median"] == pytest.approx(before["throughput"]["median"], rel=0.01)
            assert line["throughput"]["pairs"] == 1
        assert len(part["sittings"]) == 2


@pytest.mark.slow
def test_plain_spark_finds_the_same(spark: SparkSession) -> None:
    plan = Plan(only=("plain",), repetitions=1, seconds=1.0, plain_seconds=3.0, protecting=False)

    # Another answer ends it.
    result = regions.run_plan(plan, print, session=spark)

    assert [line["case"] for line in result["parts"]["plain"]["lines"]] == list(plan.plain_names)
    assert "plain Spark" in regions.table(result)
