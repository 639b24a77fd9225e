"""What is held comes out, though nothing more comes in after a process has died."""

from __future__ import annotations

import signal
from pathlib import Path

from pyspark.sql import SparkSession
from tests.runtime.checkpointing.dice import ROWS, check, dice
from tests.runtime.checkpointing.test_held_results import OPTIONS
from tests.runtime.harness import Programs, only_run

from riprap.runtime.agent.lock import await_saver

LAST = ROWS // OPTIONS["batch_rows"] - 1


def test_who_dies_after_the_last_batch_leaves_nothing_held(
    spark: SparkSession, programs: Programs, tmp_path: Path
) -> None:
    spec = {"out": str(tmp_path), "stateless": False, "options": {**OPTIONS, "runs": str(tmp_path / "runs")}}
    program = programs.start("roll_dice.py", tmp_path / "life", spec, f"collected:{LAST}:rolls")
    programs.finish(program, code=-signal.SIGKILL)
    folder = only_run(tmp_path / "runs")
    for home in (folder / "elements").iterdir():
        await_saver(home, print)
    assert list(folder.glob("channels/*/held/*.segment"))
    with dice(tmp_path).run(spark=spark, folder=folder, **OPTIONS) as run:
        run.wait()
    check(tmp_path)
