"""Log watch and word count over files, on Spark: what they find is what they find in memory."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.apps.test_logwatch import at, attacks_of, failed, other, real_lines, steps_in
from tests.apps.test_wordcount import real_mails, totals, words_in
from tests.runtime.harness import only_run, read_parts, wait_until, whole

import riprap as rr
from riprap.apps.catalogue import CATALOGUE
from riprap.apps.logwatch import logwatch
from riprap.apps.made_log import YEAR, make_log
from riprap.apps.mails import write_mails
from riprap.apps.wordcount import wordcount
from riprap.feeds.segments import SegmentLog
from riprap.testing import crash_at


@pytest.mark.parametrize("batch_rows", [1_999, 100_000])
def test_log_watch_over_a_file(spark: SparkSession, tmp_path: Path, batch_rows: int) -> None:
    lines = make_log(6_000, seed=8).lines.to_pylist()
    (tmp_path / "auth.log").write_text("\n".join(lines))
    app = logwatch(tmp_path / "auth.log", rr.memory(), year=YEAR, unreadable=rr.memory())

    with app.run(spark=spark, runs=tmp_path / "runs", batch_rows=batch_rows) as run:
        run.wait()
        found = [tuple(row.values()) for row in run.table("Alerts").to_pylist()]
        unread = run.table("Unread").num_rows

    assert found == attacks_of(steps_in(lines, YEAR))
    assert len(found) == 1
    assert unread == sum(line.startswith("--") for line in lines)


def test_rotated_files_are_read_oldest_first(spark: SparkSession, tmp_path: Path) -> None:
    lines = real_lines("OpenSSH_2k.log")
    (tmp_path / "auth.log").write_text("\r\n".join(lines[1500:]))
    (tmp_path / "auth.log.1").write_text("\n".join(lines[800:1500]) + "\n")
    (tmp_path / "auth.log.2.gz").write_bytes(gzip.compress("\n".join(lines[:800]).encode()))
    app = CATALOGUE["logwatch"].make(tmp_path / "auth.log*", rr.memory(), settings={"year": 2024})

    with app.run(spark=spark, runs=tmp_path / "runs") as run:
        run.wait()
        found = [tuple(row.values()) for row in run.table("Alerts").to_pylist()]

    assert found == attacks_of(steps_in(lines, 2024))
    assert len(found) == 12


@pytest.mark.slow
def test_log_watch_goes_on_after_its_driver_is_killed(tmp_path: Path, runs: Path) -> None:
    # Two attacks are still open when the log ends.
    lines = real_lines("OpenSSH_2k.log")
    (tmp_path / "auth.log").write_text("\n".join(lines))
    command = [sys.executable, "-m", "riprap", "run", "logwatch", "--feed", "auth.log", "--out", "found"]
    command += ["--set", "year=2024", "--batch-rows", "500", "--runs", str(runs), "--master", "local[1]"]
    # The fifth batch is the end of the log alone.
    crashing = crash_at("gathered", 4, "logwatch", marker=tmp_path / "crashed")
    watched = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, **crashing}, capture_output=True, timeout=300, check=False
    )
    assert watched.returncode == 0, watched.stderr
    assert (tmp_path / "crashed").exists()

    found = [tuple(row.values()) for row in whole(read_parts(tmp_path / "found")).to_pylist()]
    assert found == attacks_of(steps_in(lines, 2024))
    (segments,) = only_run(runs).glob("**/segments.jsonl")
    assert SegmentLog.end_of(segments.parent) == len(lines) + 1


@pytest.mark.slow
def test_a_live_log_has_no_end(spark: SparkSession, tmp_path: Path, runs: Path) -> None:
    lines = [failed(f"06:00:0{s}") for s in range(5)]
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "1.log").write_text("\n".join(lines))
    app = logwatch(logs, rr.memory(), year=2024)

    with app.run(spark=spark, runs=runs, trigger="100ms") as run:
        wait_until(lambda: run.progress().tuples_in == 5)
        (logs / "_2.log").write_text("\n".join([other("06:10:03"), failed("06:10:03", "2.2.2.2")]))
        (logs / "_2.log").rename(logs / "2.log")
        wait_until(lambda: run.progress().tuples_in == 7)
        (logs / "_3.log").write_text(other("06:10:04"))
        (logs / "_3.log").rename(logs / "3.log")
        wait_until(lambda: run.table("Alerts").num_rows)
        found = [tuple(row.values()) for row in run.table("Alerts").to_pylist()]
        run.stop()

    assert found == [("1.1.1.1", at("06:00:00"), at("06:00:04"), 5)]
    assert run.progress().tuples_in == 8


def test_word_count_over_a_folder(spark: SparkSession, tmp_path: Path) -> None:
    mails = tmp_path / "mails"
    write_mails(mails, 8, seed=3)
    app = wordcount(mails, rr.memory())

    with app.run(spark=spark, runs=tmp_path / "runs") as run:
        run.wait()
        rows = [(row["word"], row["n"]) for row in run.table("Sink").to_pylist()]
        batches = run.progress().batches

    assert totals(rows) == Counter(word for file in mails.iterdir() for word in words_in(file.read_text()))
    assert batches >= 8


def test_word_count_over_real_mails(spark: SparkSession, tmp_path: Path) -> None:
    texts = real_mails("enron_maildir_bailey_crandell.jsonl.gz", 400)
    folder = tmp_path / "mails"
    for number, text in enumerate(texts):
        # A few files in folders, as mail programs keep them: a batch a mail would take minutes here.
        file = folder / f"user-{number % 3}" / f"{number % 12}."
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a", encoding="utf-8", newline="") as mail:
            mail.write(text + "\n")
    app = CATALOGUE["wordcount"].make(folder, rr.memory())

    with app.run(spark=spark, runs=tmp_path / "runs") as run:
        run.wait()
        rows = [(row["word"], row["n"]) for row in run.table("Sink").to_pylist()]

    assert totals(rows) == Counter(word for text in texts for word in words_in(text))
