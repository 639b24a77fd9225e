"""Run the numbers on a disk until its power is cut: ``run_until_cut.py <disk> <ready>``."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
from tests.runtime.harness import wait_until
from tests.runtime.test_power_cut import BATCH, numbers


def main(disk: Path, ready: Path) -> None:
    def see(batch: int, table: pa.Table) -> None:
        if batch == 4:
            # Nothing is promised before the first checkpoint is there.
            wait_until(lambda: list(disk.glob("runs/*/latest/checkpoints/*/*")))
        if batch == 6:
            ready.touch()

    numbers(disk, see).run(master="local[2]", runs=disk / "runs", batch_rows=BATCH).wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
