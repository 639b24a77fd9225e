"""Log watch and word count over files, on Spark: what they find is what they find in memory."""

from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.apps.test_logwatch import alerts_of, failures_in, real_lines
from tests.apps.test_wordcount import real_mails, totals, words_in

import riprap as rr
from riprap.apps.catalogue import CATALOGUE
from riprap.apps.logwatch import logwatch
from riprap.apps.made_log import YEAR, make_log
from riprap.apps.mails import write_mails
from riprap.apps.wordcount import wordcount


@pytest.mark.parametrize("batch_rows", [1_999, 100_000])
def test_log_watch_over_a_file(spark: SparkSession, tmp_path: Path, batch_rows: int) -> None:
    lines = make_log(6_000, seed=8).lines.to_pylist()
    (tmp_path / "auth.log").write_text("\n".join(lines))
    app = logwatch(tmp_path / "auth.log", rr.memory(), year=YEAR, unreadable=rr.memory())

    with app.run(spark=spark, runs=tmp_path / "runs", batch_rows=batch_rows) as run:
        run.wait()
        found = [tuple(row.values()) for row in run.table("Alerts").to_pylist()]
        unread = run.table("Unread").num_rows

    assert found == alerts_of(failures_in(lines, YEAR))
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

    assert found == alerts_of(failures_in(lines, 2024))
    assert len(found) == 12


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
