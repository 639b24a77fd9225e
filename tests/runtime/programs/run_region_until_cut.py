"""Roll dice in a region, on a disk, until its power is cut: ``run_region_until_cut.py <disk> <ready>``."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.runtime.checkpointing.dice import dice
from tests.runtime.harness import wait_until
from tests.runtime.test_power_cut import DICE_BATCH

from riprap.runtime.checkpointing.cut_log import CutLog


def main(disk: Path, ready: Path) -> None:
    (disk / "out").mkdir()
    options = {"runs": disk / "runs", "batch_rows": DICE_BATCH, "buckets": 4, "parallelism": 2}
    run = dice(disk / "out", durable="power").run(master="local[2]", **options)
    # One has cuts to come back from, one goes back to its own, and one, whose file takes its time, has none yet.
    cuts = CutLog(run.folder, "read")
    wait_until(
        lambda: any(
            len(c.elements) > 1 and min(e.batch for e in c.elements.values()) > 40 for c in cuts.read()
        )
    )
    ready.touch()
    run.wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
