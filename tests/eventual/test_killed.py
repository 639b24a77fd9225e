"""Processes that are killed while an operator records its windows, and while it comes back from its log.

The kills are real: SIGKILL, at a step of a batch, of a save or of a recovery; with the host's memory wiped, or kept.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.eventual.building import expected, tumbling
from tests.runtime.checkpointing.leaving import events, lose_host
from tests.runtime.harness import Programs, only_run

from riprap.channels.folder import scan
from riprap.runtime.agent.lock import await_saver

ROWS = 4_000
OPTIONS: dict[str, Any] = {"batch_rows": 50, "buckets": 4, "parallelism": 2}
POLICY: dict[str, Any] = {"extent": 900, "replay": 1_000}
LOSSES = ("state lost", "results lost", "results differ", "records lost")

slow = pytest.mark.slow


def finish(spark: SparkSession, tmp_path: Path, folder: Path) -> None:
    """Take a run up and let it end; nothing is missing by then, and nothing doubled."""
    app = tumbling(tmp_path / "out", ROWS, **POLICY)
    with app.run(spark=spark, **{**OPTIONS, "folder": folder}) as run:
        run.wait()
        assert run.table("out").to_pylist() == expected(ROWS)
    assert not [e for kind in LOSSES for e in events(folder, kind)]


def live(programs: Programs, tmp_path: Path, step: str, *, folder: Path | None, wipe: bool) -> Path:
    """Let a process live until it comes to a step and is killed there; and lose its host's memory."""
    options = {**OPTIONS, **({"folder": str(folder)} if folder else {"runs": str(tmp_path / "runs")})}
    spec = {"out": str(tmp_path / "out"), "rows": ROWS, "policy": POLICY, "options": options}
    work = tmp_path / f"life-{step.replace(':', '-').replace('*', 'any')}"
    programs.finish(programs.start("record_windows.py", work, spec, step), code=-signal.SIGKILL)
    assert (work / "crashed").exists()
    folder = only_run(tmp_path / "runs")
    for home in (folder / "elements").iterdir():
        await_saver(home, print)
    if wipe:
        lose_host(folder)
    return folder


@pytest.mark.parametrize(
    ("step", "then", "wiped"),
    [
        ("published:50:total", "computed-again:*:total", (True, False)),
        pytest.param("recorded:50:total", "windows-read:*:total", (True, True), marks=slow),
        pytest.param("gathered:50:total", "windows-loaded:*:total", (True, True), marks=slow),
        pytest.param("counted:50:total", "windows-loaded:*:total", (True, False), marks=slow),
        pytest.param("collected:50:total", "computed-again:*:total", (True, True), marks=slow),
        pytest.param("recorded:50:total", "published:*:total", (True, True), marks=slow),
        pytest.param("recorded:50:total", "published:60:total", (False, False), marks=slow),
        pytest.param("published:50:total", "counted:60:total", (False, True), marks=slow),
    ],
)
def test_whoever_dies_comes_back_with_all(
    spark: SparkSession,
    programs: Programs,
    tmp_path: Path,
    step: str,
    then: str,
    wiped: tuple[bool, bool],
) -> None:
    folder = live(programs, tmp_path, step, folder=None, wipe=wiped[0])
    live(programs, tmp_path, then, folder=folder, wipe=wiped[1])
    finish(spark, tmp_path, folder)
    assert bool(events(folder, "restored from its log")) == any(wiped)


@slow
@pytest.mark.parametrize("step", ["computed:50:total", "paged:50:total", "answered:50:total"])
def test_a_worker_dies_and_its_task_records_the_same(programs: Programs, tmp_path: Path, step: str) -> None:
    options = {**OPTIONS, "runs": str(tmp_path / "runs")}
    spec = {"out": str(tmp_path / "out"), "rows": ROWS, "policy": POLICY, "options": options}
    programs.finish(programs.start("record_windows.py", tmp_path / "life", spec, step))
    assert (tmp_path / "life" / "crashed").exists()
    files = sorted((tmp_path / "out").glob("*.parquet"))
    assert pa.concat_tables(pq.read_table(file) for file in files).to_pylist() == expected(ROWS)


def _flip(log: Path, *, back: int, at: int) -> int:
    """Flip a bit in a segment that has records, so many from the end, and return its batch; ``at`` 0 is its start."""
    names = [name for name in scan(log) if name.records]
    name = names[-1 - back]
    file = log / name.file
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.write_bytes(data)
    return name.batch


@pytest.mark.parametrize(
    ("back", "at"),
    [
        pytest.param(0, -1, id="the end of the newest", marks=slow),
        pytest.param(3, -20, id="the footer of an older one", marks=slow),
        pytest.param(2, None, id="records of an older one", marks=slow),
    ],
)
def test_a_damaged_segment_and_all_after_it_are_computed_again(
    spark: SparkSession, programs: Programs, tmp_path: Path, back: int, at: int | None
) -> None:
    # By then all readers have read what is there.
    folder = live(programs, tmp_path, "collected:55:total", folder=None, wipe=True)
    log = folder / "channels" / "total@"
    names = [name for name in scan(log) if name.records]
    _flip(log, back=back, at=_middle_of_records(log, names[-1 - back]) if at is None else at)
    finish(spark, tmp_path, folder)
    assert events(folder, "restored from its log")


def _middle_of_records(log: Path, name: Any) -> int:
    from riprap.channels.segment import CONTROL, SegmentFile

    (block, *_) = (b for b in SegmentFile(log, name).footer.blocks if b.kind == CONTROL)
    return block.offset + block.length // 2
