"""Campaigns on Spark: killed and taken up, with trials that fail, and the same on either path."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.faults.test_chain import application, campaign

import riprap as rr
from riprap.apps.bargain import bargain
from riprap.apps.campaigns import CAMPAIGNS
from riprap.apps.market import generate
from riprap.errors import RunError
from riprap.faults import Own, Sum, inject
from riprap.faults.folder import CampaignFolder
from riprap.faults.setup import Setup

PROGRAM = """
import sys
from pathlib import Path
from tests.faults.test_chain import application, campaign
from riprap.faults import inject

if __name__ == "__main__":
    asked = campaign(
        offsets=tuple(range(5, 55, 5)), interleave=2, repetitions=4, golden=4, targets=(("Odd",), ("Sums",))
    )
    inject(application(), asked, folder=Path(sys.argv[1]), compare=False, master="local[2]")
"""


def lines(folder: Path) -> list[str]:
    file = folder / "trials.jsonl"
    return file.read_text().splitlines() if file.exists() else []


def started(program: Path, folder: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(
        [sys.executable, str(program), str(folder)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def test_a_campaign_that_was_killed_goes_on_without_repeating_a_trial(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    process = started(program, killed)
    deadline = time.monotonic() + 120
    while len(lines(killed)) < 20 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    before = lines(killed)
    assert before
    assert not (killed / "result.json").exists()
    # As a crash in the middle of a line would leave it.
    with open(killed / "trials.jsonl", "a") as out:
        out.write('{"id": "loss/Odd/5')

    assert started(program, killed).wait(180) == 0
    assert started(program, whole).wait(180) == 0

    after = [json.loads(line) for line in lines(killed)]
    assert lines(killed)[: len(before)] == before
    assert len({trial["id"] for trial in after}) == len(after)
    told = [json.loads((folder / "result.json").read_text()) for folder in (whole, killed)]
    assert told[0]["operators"] == told[1]["operators"]


def test_a_campaign_that_is_done_is_not_run_again(spark: SparkSession, tmp_path: Path) -> None:
    first = inject(application(), campaign(), folder=tmp_path / "c", spark=spark, compare=False)
    stamp = (tmp_path / "c" / "trials.jsonl").stat().st_mtime_ns

    again = inject(application(), campaign(), folder=tmp_path / "c", spark=spark, compare=False)

    assert (tmp_path / "c" / "trials.jsonl").stat().st_mtime_ns == stamp
    assert [c.to_json() for c in again.criticalities] == [c.to_json() for c in first.criticalities]


def test_another_campaign_in_the_folder_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    inject(application(), campaign(), folder=tmp_path / "c", spark=spark, compare=False)

    with pytest.raises(RunError, match="another campaign"):
        inject(application(), campaign(section=10), folder=tmp_path / "c", spark=spark, compare=False)


def test_a_golden_run_for_its_score_alone_is_that_of_trials() -> None:
    feed = make_feed(3000)
    asked = replace(CAMPAIGNS["bargain"]["real"].campaign, offsets=(1000,), interleave=30)
    setup = Setup.of(bargain(rr.rows(feed), rr.memory()).graph(), asked, block_rows=400)

    for seed in (0, 1, 2, 1):
        bare, whole = setup.seeded(seed, bare=True), setup.seeded(seed)

        assert np.array_equal(bare.right.local, whole.right.local)
        assert np.array_equal(bare.right.output.identity, whole.right.output.identity)
        assert all(
            np.array_equal(a, b) for a, b in zip(bare.right.output.tags, whole.right.output.tags, strict=True)
        )
    # What comes before the lags was computed once.
    assert setup._first[0].layout.plans[0].name != setup._first[0].layout.plans[-1].name


def make_feed(events: int) -> pa.Table:
    return pa.Table.from_batches(generate(events, seed=4))


def test_both_paths_write_down_the_same(spark: SparkSession, tmp_path: Path) -> None:
    asked = campaign(interleave=3, repetitions=2, golden=3, targets=(("Rows",), ("Odd",), ("Sums",)))
    for name, shortcut in (("fast", True), ("slow", False)):
        inject(application(), asked, folder=tmp_path / name, spark=spark, compare=False, shortcut=shortcut)

    def told(name: str) -> dict[str, tuple[object, ...]]:
        trials = CampaignFolder(tmp_path / name).trials()
        return {t.id: (t.affected, t.sections, t.local, t.begins, t.ends, t.lost) for t in trials}

    assert told("fast") == told("slow")


def test_a_trial_that_fails_is_unknown_and_loses_no_other(spark: SparkSession, tmp_path: Path) -> None:
    sums = inject(
        application(), campaign(score=Sum("total")), folder=tmp_path / "good", spark=spark, compare=False
    )
    trials = CampaignFolder(sums.folder).trials()
    taken = {v for t in trials if "/9t/" in t.id for v in (*t.local, t.affected)}
    taken |= {*CampaignFolder(sums.folder).golden()[0].local, *(t.affected for t in trials)}
    # One that only a shorter outage comes to.
    unlucky = min({v for t in trials for v in t.local} - taken)

    def score(table: pa.Table) -> float:
        total = float(sum(table["total"].to_pylist()))
        if total == unlucky:
            raise ValueError(f"{total} is unlucky")
        return total

    found = inject(
        application(),
        campaign(score=Own(score, name="unlucky")),
        folder=tmp_path / "bad",
        spark=spark,
        compare=False,
    )

    trials = CampaignFolder(found.folder).trials()
    bad = {t.id for t in trials if t.error}
    assert any("is unlucky" in t.error for t in trials)
    assert len(bad) < len(trials)
    assert any("trials are unknown" in warning for warning in found.warnings)
    # What does not depend on them is known all the same.
    good = {t.id: (t.affected, t.local) for t in CampaignFolder(sums.folder).trials()}
    assert {t.id: (t.affected, t.local) for t in trials if not t.error} == {
        name: told for name, told in good.items() if name not in bad
    }
    (only,) = found.criticalities
    assert only.unknown == len(bad)
    assert only.verdict != "unknown"


def test_the_runtime_is_measured_on_one_run(spark: SparkSession, tmp_path: Path) -> None:
    found = inject(application(), campaign(), folder=tmp_path / "c", spark=spark)

    streaming = found.result["streaming"]
    assert streaming["seconds"] > 0
    assert streaming["all"] == pytest.approx(streaming["seconds"] * (6 + 1))


def test_the_command_injects_and_reports(tmp_path: Path) -> None:
    from tests.cli.test_inject import APP, YAML

    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "c.yaml").write_text(YAML)
    command = [
        sys.executable,
        "-m",
        "riprap",
        "inject",
        "app.py:app",
        "--campaign",
        "c.yaml",
        "--json",
        "--no-compare",
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}

    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=True)
    report = [sys.executable, "-m", "riprap", "report", "small", "--json"]
    written = subprocess.run(report, cwd=tmp_path, env=environment, capture_output=True, check=True)

    told = json.loads(done.stdout)
    assert b"WARN" not in done.stderr
    assert set(told["operators"]) == {"Rows"}
    assert {"C", "D", "anova", "R", "I"} <= set(told["operators"]["Rows"])
    assert Path(json.loads(written.stdout)["report"]).read_text().startswith("<!doctype html>")
