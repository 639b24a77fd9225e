"""The benchmark of checkpoints on tiny sizes: every part runs, answers agree, ratios and bars come out of the runs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from riprap.errors import RunError
from riprap_bench import checkpoint
from riprap_bench.checkpoint_feeds import Maker
from riprap_bench.checkpoint_grid import together, with_plain
from riprap_bench.checkpoint_plan import Plan, Round
from riprap_bench.checkpoint_ratios import against, bars_of, bytes_written, median_of, pair_up
from riprap_bench.checkpoint_runs import Answer, Measured, Policy, Taken, taken
from riprap_bench.checkpoint_sizes import BURST, WINDOW, keys_of, write, write_fill

TINY = Plan(
    repetitions=1,
    corner_repetitions=1,
    seconds=0.8,
    batch_seconds=0.1,
    calibrations=1,
    windows=(256,),
    groups=(32, 128),
    per_key_window=16,
    zipf_groups=("auto",),
    intervals=(0.25,),
    zipf_interval=0.25,
    sizes=(1,),
    size_interval=0.8,
    size_intervals=1,
    size_triggers=4,
    restore_mb=1,
    restore_repetitions=2,
)
ANSWER = Answer(matches=3, rows=2, checksum="ab")


def measured(
    rate: float, policy: Policy | None = None, *, cpu: float = 1.0, answer: Answer = ANSWER
) -> Measured:
    time = 100 / rate
    return Measured(policy=policy, rows=100, seconds=time, cpu=cpu, busy=time, work=time, answer=answer)


def policy(group: int) -> Policy:
    return Policy(every=1.0, group=group)


def test_every_other_run_has_an_unprotected_one_on_either_side() -> None:
    groups = [None if p is None else p.group for p in with_plain(1.0, [1, 2, 3, 4])]
    assert groups == [None, 1, 2, None, 3, 4, None]
    for many in range(1, 6):
        assert Round(8, 1.0, tuple(range(1, many + 1))).runs == len(list(with_plain(1.0, range(1, many + 1))))


def test_corners_are_measured_more_often() -> None:
    plan = Plan(repetitions=2, corner_repetitions=5)
    rounds = list(plan.rounds("single"))
    assert len(rounds) == 2 * 5 * 2 + 3 * 2 * 2
    assert rounds[0] == Round(8192, 1.0, (512, 1024, 2048, 4096))
    assert rounds[-1] == Round(131072, 10.0, (512, 4096))
    assert len(list(plan.rounds("per-key"))) == 2 * 2 + 3 * 2
    assert len(list(plan.rounds("zipf"))) == 2
    assert plan.measured_seconds(1.0) == 4.0
    assert plan.measured_seconds(10.0) == 22.0
    assert set(plan.estimate()) == set(plan.only)


def test_a_run_is_compared_with_its_neighbours() -> None:
    runs = [measured(100.0), measured(90.0, policy(1)), measured(80.0, policy(2)), measured(60.0)]
    first, second = pair_up(runs)
    assert first[1] == second[1] == [runs[0], runs[3]]
    assert against(*first)["throughput"] == pytest.approx(90 / 80)
    later = [*runs, measured(50.0, policy(3)), measured(40.0)]
    assert pair_up(later)[2][1] == [runs[3], later[5]]


def test_more_processor_time_is_a_ratio_below_one() -> None:
    assert against(measured(10.0, policy(1), cpu=2.0), [measured(10.0, cpu=1.0)])["cpu"] == 0.5


def test_another_answer_ends_the_benchmark() -> None:
    other = Answer(matches=3, rows=2, checksum="cd")
    with pytest.raises(RunError, match="the run puts out"):
        pair_up([measured(1.0), measured(1.0, policy(1), answer=other)])


def test_the_interval_of_a_median_holds_it_and_narrows_with_pairs() -> None:
    random = np.random.default_rng(1)
    few, many = (median_of(random.normal(0.99, 0.02, n).tolist()) for n in (5, 80))
    for found in (few, many):
        low, high = found["interval"]
        assert low <= found["median"] <= high
    width = [f["interval"][1] - f["interval"][0] for f in (few, many)]
    assert width[1] < width[0]


def test_checkpoints_are_told_apart_by_their_version() -> None:
    def status(version: int, batch: int, total: int) -> dict[str, Any]:
        return {"version": version, "batch": batch, "total": total, "seconds": 0.1}

    lines = [status(0, -1, 0), status(1, 0, 700), status(1, 0, 700), status(2, 2, 1000), status(4, 3, 1300)]
    assert taken(lines, [60, 10, 20, 30, 40]) == (
        Taken(written=700, seconds=0.1, entered=60),
        Taken(written=300, seconds=0.1, entered=30),
        Taken(written=300, seconds=0.1, entered=30),
    )


def test_bytes_are_of_all_tuples_that_entered() -> None:
    checkpoints = [Taken(written=120, seconds=0.1, entered=10), Taken(written=60, seconds=0.1, entered=20)]
    assert bytes_written(checkpoints, tuple_bytes=4.0) == 1.5
    assert bytes_written([], tuple_bytes=4.0) is None


def test_bars_are_met_or_missed() -> None:
    line = {"throughput": {"median": 0.981}, "cpu": {"median": 0.979}, "bytes": 1.5, "missed": 1}
    assert bars_of(line, least=0.98, meet_intervals=True) == {
        "throughput": True, "cpu": False, "bytes": True, "intervals": False
    }  # fmt: skip
    assert bars_of({**line, "bytes": None}, least=0.97)["bytes"] is False


def test_all_configurations_of_an_interval_are_summed_up_together() -> None:
    found = together(
        {
            (8192, 1.0, 512): [{"throughput": 0.9, "cpu": 1.0}, {"throughput": 1.0, "cpu": 1.0}],
            (16384, 1.0, 512): [{"throughput": 1.1, "cpu": 0.8}],
            (8192, 10.0, 512): [{"throughput": 0.5, "cpu": 0.5}],
        }
    )

    assert [(line["every"], line["throughput"]["median"], line["cpu"]["median"]) for line in found] == [
        (1.0, 1.0, 1.0),
        (10.0, 0.5, 0.5),
    ]
    assert found[0]["throughput"]["pairs"] == 3


@pytest.mark.parametrize("kind", ["single", "per-key", "zipf"])
def test_a_feed_fills_the_window_and_then_mixes(kind: Any, tmp_path: Path) -> None:
    maker = Maker(kind, 64, seed=3)
    feed = maker.write(tmp_path / "feed", batches=2, batch_rows=100)
    assert feed.rows == (maker.fill, 100, 100)
    assert feed.entering == (maker.fill, 50, 50)
    tables = [pq.read_table(file) for file in feed.files]
    seq = np.concatenate([table.column("seq").to_numpy() for table in tables])
    assert seq.tolist() == list(range(sum(feed.rows)))
    for row in tables[1].to_pylist():
        assert (len(row["text"]), len(row["word"])) == ((70, 0) if row["side"] == 1 else (0, 10))
    again = maker.write(tmp_path / "again", batches=2, batch_rows=100)
    assert [pq.read_table(file) for file in again.files] == tables
    # Two integers, a text and where it begins.
    assert maker.tuple_bytes() == pytest.approx(4 + 4 + 70 + 4, abs=0.1)


def test_keys_report_in_turn_until_every_window_is_full(tmp_path: Path) -> None:
    fill = write_fill(tmp_path, 1, seed=3)
    more = write(tmp_path, "more", 1, [2 * BURST], 3, start=sum(fill.entering))
    tables = [pq.read_table(file) for file in fill.files]
    numbers = np.concatenate([t.filter(t.column("side").to_numpy() == 1).column("number") for t in tables])
    counts = np.bincount(numbers, minlength=keys_of(1))
    assert abs(counts - WINDOW).max() <= BURST
    table = pq.read_table(more.files[0])
    assert len(set(table.filter(table.column("side").to_numpy() == 1).column("number").to_pylist())) <= 3


@pytest.mark.slow
def test_all_of_it_on_tiny_sizes(spark: SparkSession, tmp_path: Path) -> None:
    heard: list[str] = []
    kept: list[dict[str, Any]] = []
    shares: list[float] = []
    plan = replace(TINY, only=("single", "size", "restore"))
    earlier = {"format": checkpoint.FORMAT, "parts": {"plain": {"kept": True}}}

    result = checkpoint.run_plan(
        plan, heard.append, earlier=earlier, keep=kept.append, show=shares.append, session=spark
    )

    json.dumps(result)
    parts = result["parts"]
    assert parts.pop("plain") == {"kept": True}
    assert set(parts) == set(plan.only)
    places = [(line["window"], line["group"]) for line in parts["single"]["lines"]]
    assert places == [(256, 32), (256, 128)]
    for part in ("single", "size"):
        for line in parts[part]["lines"]:
            assert line["failed"] == 0
            assert line["checkpoints"] > 0
            assert 0 < line["throughput"]["median"] < 10
            assert 0 < line["cpu"]["median"] < 10
    assert {line["bytes"] is not None for line in parts["single"]["lines"]} == {True}
    assert [(line["mb"], line["pace"]) for line in parts["size"]["lines"]] == [(1, "all"), (1, "share")]
    assert {line["files"] for line in parts["restore"]["lines"]} == {"warm", "cold"}
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1.0)
    # What is kept grows part by part, and a pair at a time within one.
    assert [len(each["parts"]) for each in kept] == [2, 3, 3, 4, 4, 4]
    assert [len(each["parts"]["size"]["pairs"]) for each in kept[-3:]] == [1, 2, 2]
    shown = checkpoint.table(result)
    assert "unprotected, window" in shown
    assert "full speed" in shown
    assert heard[0].startswith("this takes about")
    drawn = checkpoint.figures(result, tmp_path / "checkpoint.json")
    assert [path.name for path in drawn] == [
        "checkpoint-single-0.25s.svg", "checkpoint-size.svg"
    ]  # fmt: skip
    assert "groups of 128" in drawn[0].read_text()

    # What is done is not done again, and what was measured in another way is not mixed in.
    again = replace(plan, only=("single", "size"))
    resumed = checkpoint.run_plan(again, heard.append, earlier=json.loads(json.dumps(result)), session=spark)
    for part in again.only:
        for line, before in zip(resumed["parts"][part]["lines"], parts[part]["lines"], strict=True):
            assert line["throughput"]["median"] == pytest.approx(before["throughput"]["median"], rel=0.01)
            assert (line["throughput"]["pairs"], line["checkpoints"]) == (1, before["checkpoints"])
        assert len(resumed["parts"][part]["sittings"]) == 2
    with pytest.raises(RunError, match=r"single measured with seconds 0.8, and this would be 0.5"):
        checkpoint.run_plan(replace(again, seconds=0.5), heard.append, earlier=result, session=spark)


def test_a_result_of_something_else_is_not_written_over() -> None:
    with pytest.raises(RunError, match="move it away"):
        checkpoint.run_plan(replace(TINY, only=()), print, earlier={"operators": []})


def test_what_needs_an_older_tree_asks_for_it(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no part 'sizes'; there are: single, per-key"):
        checkpoint.run(True, print, only=["sizes"])  # type: ignore[list-item]
    with pytest.raises(RunError, match="name it with --before"):
        checkpoint.run(True, print, only=["plain"])
    with pytest.raises(RunError, match="no riprap with benchmarks"):
        checkpoint.run(True, print, only=["plain"], before=tmp_path)
