"""Operators that put out something else each time count exactly once in a region: what they put out is held until a cut
has what it came of, so that nobody sees anything that is made anew."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.runtime.checkpointing.dice import Dice, check, dice
from tests.runtime.checkpointing.leaving import events, lines_so_far, lose_host
from tests.runtime.checkpointing.test_regions import leave
from tests.runtime.harness import Programs, only_run, wait_until

import riprap as rr
from riprap.compiler import compile_graph
from riprap.runtime.agent.lock import await_saver

OPTIONS: dict[str, Any] = {"batch_rows": 50, "buckets": 4, "parallelism": 2}


def rolled(batches: int, *, cuts: int = 0, element: str = "rolls") -> Callable[[rr.Run], bool]:
    """Say whether so many batches have been rolled for, and saved so often."""

    def so(run: rr.Run) -> bool:
        lines = [line for line in lines_so_far(run.folder / "metrics.jsonl") if line["element"] == element]
        versions = [
            status["version"] for line in lines[-1:] for status in line.get("checkpoints", {}).values()
        ]
        return bool(lines) and lines[-1]["batch"] >= batches and min(versions, default=0) >= cuts

    return so


@pytest.mark.parametrize("stateless", [False, True])
def test_what_may_come_out_otherwise_counts_once(
    spark: SparkSession, tmp_path: Path, stateless: bool
) -> None:
    app = dice(tmp_path, stateless=stateless)
    saved = 0 if stateless else 2
    folder = leave(app, spark, rolled(60, cuts=saved), runs=tmp_path / "runs", **OPTIONS)
    leave(app, spark, rolled(120, cuts=2 * saved), folder=folder, **OPTIONS)
    leave(app, spark, rolled(180), folder=folder, wipe=False, **OPTIONS)
    with app.run(spark=spark, folder=folder, **OPTIONS) as run:
        run.wait()
    check(tmp_path, stateless=stateless)
    if not stateless:
        # Where there is no state, results are not held for any time, and there may be nothing to go back on.
        assert events(folder, "gone back")
    assert not [e for kind in ("results differ", "results lost", "state lost") for e in events(folder, kind)]


def test_the_check_sees_what_holding_is_for(spark: SparkSession, tmp_path: Path) -> None:
    app = dice(tmp_path, deterministic=True, period="20ms")
    until = rolled(40, cuts=1, element="dice")
    folder = leave(app, spark, until, runs=tmp_path / "runs", **OPTIONS)
    with app.run(spark=spark, folder=folder, **OPTIONS) as run:
        run.wait()
    assert events(folder, "results differ")
    with pytest.raises(AssertionError):
        check(tmp_path)


def test_what_may_differ_is_alone_and_the_only_one_that_holds(tmp_path: Path) -> None:
    layout = compile_graph(dice(tmp_path).graph(), buckets=4, tasks=2)

    assert {plan.name: plan.holds for plan in layout.plans} == {
        "dice": False, "rolls": True, "all_of_them": False, "by_roll_last": False,
    }  # fmt: skip
    (rolls,) = (plan for plan in layout.plans if plan.holds)
    assert [o.name for o in rolls.graph if o.written_by] == ["rolls"]


@pytest.mark.parametrize(
    ("crash_at", "then", "stateless"),
    [
        ("recorded:60:rolls", "taken-back:*:rolls", False),
        pytest.param(
            "parent@checkpoint-manifest:3:rolls", "forgotten:*:rolls", False, marks=pytest.mark.slow
        ),
        pytest.param(
            "parent@checkpoint-versioned:4:rolls", "restore-recorded:*:rolls", False, marks=pytest.mark.slow
        ),
        pytest.param("published:60:rolls", None, True, marks=pytest.mark.slow),
    ],
)
def test_whoever_dies_on_the_way_back_does_the_same_again(
    spark: SparkSession, programs: Programs, tmp_path: Path, crash_at: str, then: str | None, stateless: bool
) -> None:
    options = {**OPTIONS, "runs": str(tmp_path / "runs")}
    for number, step in enumerate(step for step in (crash_at, then) if step):
        spec = {"out": str(tmp_path), "stateless": stateless, "options": options}
        program = programs.start("roll_dice.py", tmp_path / f"life-{number}", spec, step)
        programs.finish(program, code=-signal.SIGKILL)
        folder = only_run(tmp_path / "runs")
        for home in (folder / "elements").iterdir():
            await_saver(home, print)
        lose_host(folder)
        options = {**OPTIONS, "folder": str(folder)}
    with dice(tmp_path, stateless=stateless).run(spark=spark, **options) as run:
        run.wait()
    check(tmp_path, stateless=stateless)


def test_held_results_come_out_without_waiting_for_the_end(spark: SparkSession, tmp_path: Path) -> None:
    app = rr.Application("live")
    source = app.source("read", rr.rate(2_000), protect=rr.consistent(period="200ms"))
    rolls = app.custom(
        "rolls", Dice, app.functor("seqs", source, select="value as seq"),
        schema="seq bigint, roll bigint, rolled bigint", deterministic=False,
    )  # fmt: skip
    seen: list[int] = []
    app.sink("out", rolls, rr.callback(lambda batch, table: seen.extend(table["seq"].to_pylist())))
    with app.run(spark=spark, trigger="50ms", runs=tmp_path / "runs") as run:
        wait_until(lambda: len(seen) > 2_000)
        run.stop()
    assert seen == list(range(len(seen)))
