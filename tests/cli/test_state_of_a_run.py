"""``riprap state`` on checkpoints that a run on Spark has left, and what the run makes of a version it is given."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.cli.conftest import Command
from tests.runtime.harness import lines_of, read_parts, wait_until, whole

import riprap as rr

BATCH = 400
SIZE = 15
# With 50 batches to come it is left long before the end.
VERSIONS = 3


class LeftError(Exception):
    """Raised to leave a run without ending it."""


def application(feed: Path, out: Path) -> rr.Application:
    app = rr.Application("counting")
    source = app.source("Source", rr.files(feed), position="seq")
    policy = rr.checkpoint(every="150ms", keep=100, group=5)
    recent = app.aggregate(
        "Recent",
        source,
        by="ticker",
        window=rr.sliding(tuples=SIZE),
        select="sum(size) as total",
        protect=policy,
    )
    count = app.functor(
        "Count",
        source,
        by="ticker",
        variables={"n": "0"},
        update="n + 1 as n",
        select="seq, ticker, n",
        protect=policy,
    )
    app.sink("Sums", recent, rr.memory())
    app.sink("Counts", count, rr.parquet(out, roll=0))
    return app


@pytest.mark.usefixtures("runs")
def test_an_older_version_is_looked_at_and_restored(
    spark: SparkSession, riprap: Command, feed: pa.Table, feed_file: Path, tmp_path: Path
) -> None:
    def listed(folder: Path) -> dict[str, list[dict[str, Any]]]:
        outcome = riprap("state", "list", folder, "--json")
        assert outcome.code == 0, outcome.err
        return {o["operator"]: o["versions"] for o in json.loads(outcome.out)["operators"]}

    app, out = application(feed_file, tmp_path / "out"), tmp_path / "out"
    run = app.run(spark=spark, trigger="50ms", batch_rows=BATCH, runs=tmp_path / "runs", buckets=4)
    with contextlib.suppress(LeftError), run:
        wait_until(lambda: all(len(found) >= VERSIONS for found in listed(run.folder).values()))
        # Versions are read while the run goes on; it is not told what to start from.
        assert riprap("state", "verify", run.folder).code == 0
        alive = riprap("state", "restore", run.folder, "Count", "--version", "1")
        assert (alive.code, "is alive" in alive.err) == (1, True)
        raise LeftError
    rows = {line["batch"]: line["rows"] for line in lines_of(run.folder / "metrics.jsonl")}
    events = feed.to_pylist()

    def came_by(batch: int) -> list[dict[str, Any]]:
        return events[: sum(many for number, many in rows.items() if number <= batch)]

    def windows_at(batch: int) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for event in came_by(batch):
            found[event["ticker"]] = [*found.get(event["ticker"], []), event["size"]][-SIZE:]
        return found

    versions = listed(run.folder)
    shown = {}
    for version in versions["Recent"][:VERSIONS]:
        number = str(version["version"])
        outcome = riprap(
            "state", "show", "counting", "Recent", "--version", number, "--json", "--limit", "1000000"
        )
        held: dict[str, list[int]] = {}
        for row in json.loads(outcome.out)["slots"]["0"]["rows"]:
            held.setdefault(row["ticker"], []).append(row["size"])
        assert held == windows_at(version["batch"])
        shown[version["version"]] = held
    assert riprap("state", "verify", "counting").code == 0
    new, _, old = list(shown)[:VERSIONS]
    difference = json.loads(
        riprap("state", "diff", "counting", "Recent", str(old), str(new), "--json", "--limit", "9999").out
    )["slots"]["0"]
    assert {c["key"]["ticker"] for c in difference["changes"] if c["change"] == "new"} == (
        shown[new].keys() - shown[old].keys()
    )
    for change in difference["changes"]:
        key = change["key"]["ticker"]
        left = shown[old].get(key, [])[len(change["went"]) :]
        assert [*left, *(t["size"] for t in change["came"])] == shown[new][key]

    oldest = versions["Count"][-1]
    wished = riprap("state", "restore", "counting", "Count", "--version", str(oldest["version"]))
    assert wished.code == 0, wished.err
    done = len(came_by(max(rows)))
    with application(feed_file, out).run(spark=spark, folder=run.folder, batch_rows=10_000) as again:
        assert again.wait(timeout=120), "the run did not end"

    assert len(came_by(oldest["batch"])) < done < len(events)
    counts, wanted = Counter[str](), []
    for place, event in enumerate(events):
        if place == done:
            counts = Counter(e["ticker"] for e in came_by(oldest["batch"]))
        counts[event["ticker"]] += 1
        wanted.append({"seq": event["seq"], "ticker": event["ticker"], "n": counts[event["ticker"]]})
    assert sorted(whole(read_parts(out)).to_pylist(), key=lambda row: row["seq"]) == wanted
    assert not list(run.folder.glob("elements/*/restore.json"))
