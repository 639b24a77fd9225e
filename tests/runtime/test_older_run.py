"""A run that an older version was stopped in is taken up by this one: folder, channels, checkpoints and output."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.runtime.harness import lines_of, only_run, read_parts, whole
from tests.runtime.programs.leave_run import OPTIONS, ROWS, application, settle

# One of each version whose formats are to be read: tests/runtime/data/README.md says how they are made.
LEFT = sorted((Path(__file__).parent / "data").glob("*.tar.gz"))


@pytest.mark.parametrize("left", LEFT, ids=lambda path: path.name.partition(".")[0])
def test_a_run_of_an_older_version_is_taken_up(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: Path
) -> None:
    with tarfile.open(left) as archive:
        archive.extractall(tmp_path, filter="data")
    # Where it writes to is named as it was, by a relative path.
    monkeypatch.chdir(tmp_path)
    folder = only_run(tmp_path / "runs")
    settle(folder, tmp_path)
    before = {name: whole(read_parts(tmp_path / "out" / name)) for name in ("means", "both", "steps")}
    come = max(line["total"]["in"] for line in lines_of(folder / "metrics.jsonl"))
    assert ROWS // 2 <= come < ROWS

    with application(Path("out")).run(spark=spark, folder=folder, **OPTIONS) as run:
        run.wait()
    assert run.progress().tuples_in == ROWS

    with application(tmp_path / "golden").run(spark=spark, runs=tmp_path / "others", **OPTIONS) as golden:
        golden.wait()
    for name, table in before.items():
        wanted = whole(read_parts(tmp_path / "golden" / name))
        got = whole(read_parts(tmp_path / "out" / name))
        assert got.equals(wanted), name
        # What comes after the stop is made of state that was saved before it.
        assert 0 < table.num_rows < got.num_rows
        assert table.equals(wanted.slice(0, table.num_rows))
    restored = [e for e in lines_of(folder / "events.jsonl") if e["event"] == "restored"]
    assert {e["operator"] for e in restored} == {"sums", "means", "counted", "both", "steps"}, json.dumps(
        restored
    )
