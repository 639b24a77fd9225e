"""The benchmark of replicas: its sums, on what is made up; and strikes on real replicas, whatever the figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from riprap.errors import RunError
from riprap_bench import replicas
from riprap_bench.checkpoint_plan import Track
from riprap_bench.consumers import FolderWatch
from riprap_bench.measuring import about
from riprap_bench.replicas_cost import Ran, Usage, measured, summed
from riprap_bench.replicas_model import predict_figures
from riprap_bench.replicas_plan import PARTS, Plan, Stretch
from riprap_bench.replicas_quality import judge, measure_quality
from riprap_bench.replicas_switch import Reading, measure_switching

SHORT = Stretch(name="generated", events=100, rate=1.0, section=10, offset=35)


def output(gains: list[float]) -> pa.Table:
    return pa.table({"seq": pa.array(range(1, 101)), "gain": pa.array(gains)})


def test_recovery_and_impact_are_those_of_the_sections_after_the_loss() -> None:
    right, gains = output([1.0] * 100), np.ones(100)
    gains[39:49] = 2.0  # positions 40 to 49: all of the section after that of the loss
    gains[50] = 0.0

    found = judge(SHORT, right, output(gains.tolist()), 35)

    assert (found["R"], found["I"], found["sections"]) == (3, 1.01, 7)
    assert (found["over"], found["under"]) == (1.0, -0.1)


def test_what_is_wrong_before_the_loss_is_an_error() -> None:
    right, gains = output([1.0] * 100), np.ones(100)
    gains[5] = 9.0

    with pytest.raises(RunError, match="before event 35"):
        judge(SHORT, right, output(gains.tolist()), 35)


def test_records_say_which_replica_was_read(tmp_path: Path) -> None:
    watch = FolderWatch(tmp_path, r"\d+-\d+\.json")
    for batch, letter in enumerate("aab"):
        active = [{"hot": [1, "a"]}, {"hot": [1, letter]}]
        (tmp_path / f"0000-{batch:010d}.json").write_text(json.dumps({"sources": {"$active": active}}))
        watch._list()
    (tmp_path / "0000-0000000003.json").write_text(json.dumps({"sources": {}}))
    watch._list()
    reading = Reading(watch, "hot")

    assert reading.newest() == "b"
    assert reading.first_from_other("a", since=0.0) == watch.moments()[2]
    assert reading.first_from_other("b", since=watch.moments()[1]) is None


def test_a_run_is_measured_from_its_warm_up_to_the_last_batch_of_the_sink() -> None:
    usage = Usage(_samples=[(0.0, 0.0), (10.0, 20.0)])
    none: dict[str, Any] = {"total": {"out": {}}}
    some = {"total": {"out": {"Sink": 1}}}
    lines = [{"element": "bargain", "rows": 10, "time": float(n)} | none for n in range(1, 6)]
    lines += [{"element": "Sink", "rows": 0, "time": n + 1.0} | some for n in range(1, 6)]
    lines += [{"element": "TradeQuote~b", "rows": 0, "time": 9.0} | none]

    ran = measured("all", lines, usage, 50)

    assert (ran.events_per_s, ran.cpu_per_million) == (40 / 5, pytest.approx(2 * 8 / 40 * 1e6))
    with pytest.raises(RunError, match="50 events came in, of 60"):
        measured("all", lines, usage, 60)


def made_up() -> dict[str, Any]:
    ran = [
        Ran(variant=v, events_per_s=r, cpu_per_million=1.0, memory_mb=100.0)
        for v, r in (("single", 8.0), ("placed", 4.0), ("group", 3.0), ("placed all", 4.0), ("all", 2.0)) * 2
    ]
    struck = {
        "seconds": 0.3,
        "spread": [0.2, 0.4],
        "all": [0.2, 0.4],
        "silence": {"seconds": 0.3, "spread": [0.2, 0.4]},
        "usual": 0.1,
        "events": {"detect": 0.1, "seconds": 0.01},
        "unasked": [],
        "bars": {"median": 0.5},
        "met": True,
    }
    judged = {"R": 2, "I": 2.0, "over": 0.5, "under": -0.1, "sections": 7, "passed_over": 3}
    case = {**judged, "lost_in_failover": 4}
    return {
        "switch": struck,
        "cost": summed(Plan(), ran),
        "quality": {
            "outage": 16.0,
            "published": {"plain": {"R": 2, "I": 2.0}},
            "skipped": {"real": "it is not there"},
            "feeds": [
                {"name": "generated", "events": 1, "rate": 1.0, "section": 1, "offset": 0, "cases": {"plain": case}}
            ],
        },
        "model": predict_figures({"killed": 0.3}, replications=2, seed=1),
    }  # fmt: skip


def test_ratios_are_to_the_same_without_replicas_and_all_is_shown() -> None:
    parts = made_up()

    lines = parts["cost"]["lines"]
    assert (lines["group"]["ratios"]["events_per_s"], lines["all"]["ratios"]["events_per_s"]) == (0.75, 0.5)
    assert lines["all"]["ratios_to_single"]["events_per_s"] == 0.25
    described = about(seed=1, quick=False)
    shown = replicas.table({"parts": {name: {**part, "about": described} for name, part in parts.items()}})
    for words in ("0.30 s", "0.75 times", "2 of 7", "Skipped: real, it is not there", "5.13"):
        assert words in shown


def test_a_real_feed_that_is_not_there_is_skipped_with_the_reason(tmp_path: Path) -> None:
    stretch = Stretch(name="real", events=1, rate=1.0, section=1, offset=0, source=tmp_path / "none.csv.gz")
    plan = Plan(only=("quality",), stretches=(stretch,))

    found = measure_quality(plan, tmp_path, Track(1.0, lambda _: None), lambda _: None)

    assert "none.csv.gz" in found["skipped"]["real"]
    assert not found["feeds"]


def test_the_model_needs_a_measured_failover() -> None:
    with pytest.raises(RunError, match="measure the parts 'switch' and 'hang' first"):
        replicas.run_plan(Plan(only=("model",)), lambda _: None)


def test_parts_are_told_of() -> None:
    assert tuple(Plan().estimate()) == PARTS
    with pytest.raises(RunError, match="there is no part 'cots'"):
        replicas.run(True, lambda _: None, only=["cots"])  # type: ignore[list-item]


@pytest.mark.slow
@pytest.mark.parametrize("part", ["switch", "hang", "ahead"])
def test_replicas_are_struck(part: Any, tmp_path: Path) -> None:
    plan = Plan(only=(part,), kills=1, hangs=1, rate=500.0)

    found = measure_switching(part, plan, tmp_path, Track(1.0, lambda _: None))

    json.dumps(found)
    assert found["seconds"] > 0
    assert found["same_answer"]


@pytest.mark.slow
def test_cost_and_quality_are_measured() -> None:
    stretch = Stretch(name="generated", events=30_000, rate=500.0, section=1_000, offset=10_500)
    plan = Plan(
        only=("cost", "quality"),
        rounds=1,
        events=300_000,
        variants=("single", "group"),
        cases=("plain, hung", "all"),
        stretches=(stretch,),
        outage=4.0,
    )

    result = replicas.run_plan(plan, lambda _: None)

    json.dumps(result)
    cases = result["parts"]["quality"]["feeds"][0]["cases"]
    assert cases["plain, hung"]["failovers"]
    assert (cases["all"]["R"], cases["all"]["I"]) == (0, 0.0)
    assert "the same as two replicas" in replicas.table(result)
