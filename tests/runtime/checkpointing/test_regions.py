"""A consistent region loses nothing with its host: what is gone is computed again from a cut, and is the same."""

from __future__ import annotations

import itertools
import json
import os
import shutil
from collections import defaultdict, deque
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.runtime.checkpointing.leaving import LeftError, events, lines_so_far, lose_host, still_running
from tests.runtime.harness import page_folder, wait_until

import riprap as rr
from riprap.cli import main
from riprap.compiler import compile_graph
from riprap.operators.channel import Inlet
from riprap.runtime.checkpointing.checkpointer import Checkpointer
from riprap.state.checkpoints.manifest import CheckpointManifest, manifest_key
from riprap.state.checkpoints.versions import Versions
from riprap.state.stores import open_store

ROWS = 12_000
SCHEMA = "k int, v bigint"


def rows() -> list[dict[str, int]]:
    return [{"k": i % 7, "v": i * 3 % 101} for i in range(ROWS)]


def sums(out: Path, protect: rr.Policy | None, *, roll: float | str = 0) -> rr.Application:
    """Sum by one key, and count by another: two processing elements, with a sink each."""
    app = rr.Application("sums")
    source = app.source("source", rr.rows(rows(), SCHEMA), protect=protect)
    total = app.aggregate(
        "total", source, by="k", window=rr.sliding(tuples=5), emit=rr.every(tuples=1), select="sum(v) as t"
    )
    times = app.aggregate(
        "times", total, by="t", window=rr.sliding(tuples=3), emit=rr.every(tuples=1), select="max(k) as k"
    )
    app.sink("totals", total, rr.parquet(out / "totals", roll=roll))
    app.sink("largest", times, rr.parquet(out / "largest", roll=roll))
    return app


def expected() -> dict[str, list[tuple[int, int]]]:
    """Work out what :func:`sums` puts out, one row after the other."""
    windows: defaultdict[int, deque[int]] = defaultdict(lambda: deque(maxlen=5))
    keys: defaultdict[int, deque[int]] = defaultdict(lambda: deque(maxlen=3))
    totals, largest = [], []
    for row in rows():
        windows[row["k"]].append(row["v"])
        total = sum(windows[row["k"]])
        totals.append((row["k"], total))
        keys[total].append(row["k"])
        largest.append((total, max(keys[total])))
    return {"totals": totals, "largest": largest}


def contents(run: rr.Run, sink: str) -> list[tuple[int, ...]]:
    return [tuple(row.values()) for row in run.table(sink).to_pylist()]


def leave(
    app: rr.Application,
    spark: SparkSession,
    until: Callable[[rr.Run], bool],
    *,
    wipe: bool = True,
    **options: Any,
) -> Path:
    """Run until something is so; leave as a crash would, and lose the host's memory."""
    folder = None
    try:
        with app.run(spark=spark, **options) as run:
            folder = run.folder
            wait_until(lambda: still_running(run) and until(run))
            raise LeftError
    except LeftError:
        assert folder is not None
    if wipe:
        lose_host(folder)
    return folder


def after(batches: int, *, cuts: int = 0) -> Callable[[rr.Run], bool]:
    """Say whether so many batches are done, and every protected operator has been saved so often."""
    return lambda run: run.progress().batches >= batches and saved(run.folder) >= cuts


def saved(folder: Path) -> int:
    """Return the least version that any protected operator has, as the newest line of each element says."""
    newest = {line["element"]: line.get("checkpoints", {}) for line in lines_so_far(folder / "metrics.jsonl")}
    return min((status["version"] for statuses in newest.values() for status in statuses.values()), default=0)


def list_cuts(folder: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    with pytest.MonkeyPatch.context() as patch:
        # A narrow screen would wrap the headings.
        patch.setenv("COLUMNS", "160")
        assert main(["state", "list", str(folder)]) == 0
    assert "batches to compute again" in capsys.readouterr().out
    assert main(["state", "list", str(folder), "--json"]) == 0
    cuts: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["cuts"]
    return cuts


@pytest.mark.parametrize("roll", [0, "2s"])
def test_nothing_is_lost_with_the_host_twice(
    spark: SparkSession, tmp_path: Path, roll: float | str, capsys: pytest.CaptureFixture[str]
) -> None:
    app = sums(tmp_path / "out", rr.consistent(period="200ms"), roll=roll)
    options: dict[str, Any] = {"batch_rows": 60, "buckets": 4, "parallelism": 2}
    folder = leave(app, spark, after(20, cuts=1), runs=tmp_path / "runs", **options)
    assert leave(app, spark, after(60, cuts=2), folder=folder, **options) == folder
    with app.run(spark=spark, folder=folder, **options) as run:
        run.wait()
        assert {sink: contents(run, sink) for sink in ("totals", "largest")} == expected()
    assert {e["element"] for e in events(folder, "state restored")} == {"sums", "times"}
    newest = {cut["element"]: cut for cut in reversed(list_cuts(folder, capsys))}
    assert {name: set(cut["versions"]) for name, cut in newest.items()} == {
        "sums": {"total"},
        "times": {"times"},
    }
    for cut in newest.values():
        assert (cut["region"], cut["batch"] + cut["behind"]) == ("source", ROWS // 60 - 1)
    for lost in ("results lost", "state lost", "results differ", "records lost"):
        assert not events(folder, lost)


def test_without_memory_lost_nothing_is_computed_again(spark: SparkSession, tmp_path: Path) -> None:
    app = sums(tmp_path / "out", rr.consistent(period="200ms"))
    folder = leave(app, spark, after(20), wipe=False, batch_rows=60, runs=tmp_path / "runs")
    with app.run(spark=spark, batch_rows=600, folder=folder) as run:
        run.wait()
        assert contents(run, "largest") == expected()["largest"]
    assert not events(folder, "computed again")


def test_results_that_wait_for_their_file_are_made_again_without_any_state(
    spark: SparkSession, tmp_path: Path
) -> None:
    app = rr.Application("plain")
    source = app.source("source", rr.rows(rows(), SCHEMA), protect=rr.consistent(period="200ms"))
    app.sink("kept", app.functor("odd", source, where="v % 2 = 1"), rr.parquet(tmp_path / "out", roll="1h"))
    folder = leave(app, spark, after(20), batch_rows=60, runs=tmp_path / "runs")
    with app.run(spark=spark, batch_rows=600, folder=folder) as run:
        run.wait()
        assert contents(run, "kept") == [(r["k"], r["v"]) for r in rows() if r["v"] % 2]
    assert events(folder, "computed again")[0]["batches"] >= 20


def test_what_was_looked_up_is_looked_up_again_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "names.parquet"

    def write(version: str) -> None:
        names = pa.table({"k": pa.array(range(7), pa.int32()), "name": [f"{version}{k}" for k in range(7)]})
        pq.write_table(names, tmp_path / ".names")
        (tmp_path / ".names").rename(table)

    write("first")
    app = rr.Application("named")
    source = app.source("source", rr.rows(rows(), SCHEMA), protect=rr.consistent(period="1h"))
    names = app.lookup("names", source, table=str(table), by="k", select="v, names.name as name")
    app.sink("out", names, rr.parquet(tmp_path / "out", roll="1h"))

    def changed(run: rr.Run) -> bool:
        if run.progress().batches >= 10 and not any(run.folder.rglob("names-2.arrow")):
            write("second")
        return any(run.folder.rglob("names-2.arrow"))

    folder = leave(app, spark, changed, batch_rows=60, runs=tmp_path / "runs")
    with app.run(spark=spark, batch_rows=600, folder=folder) as run:
        run.wait()
        found = [row["name"] for row in run.table("out").to_pylist()]
    first = list(itertools.takewhile(lambda name: name.startswith("first"), found))
    assert len(first) >= 600
    assert found == first + [f"second{row['k']}" for row in rows()[len(first) :]]
    assert not events(folder, "results differ")


def test_what_waits_for_its_file_outlives_state_that_is_computed_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    app = sums(tmp_path / "out", rr.consistent(period="200ms"), roll="1h")
    # So many are computed again that pages are looked at meanwhile.
    folder = leave(app, spark, after(60, cuts=1), wipe=False, batch_rows=60, runs=tmp_path / "runs")
    shutil.rmtree(page_folder(folder) / "state")
    with app.run(spark=spark, batch_rows=600, folder=folder) as run:
        run.wait()
        assert {sink: contents(run, sink) for sink in ("totals", "largest")} == expected()
    assert events(folder, "computed again")
    assert not events(folder, "results lost")


def test_batches_without_rows_are_not_missed(spark: SparkSession, tmp_path: Path) -> None:
    app = rr.Application("seldom")
    source = app.source("source", rr.rows(rows(), SCHEMA), protect=rr.consistent(period="200ms"))
    marked = app.punctor("marked", source, where="v = 1")
    total = app.aggregate("total", marked, by="k", window=rr.sliding(tuples=5), select="sum(v) as t")
    app.sink("out", app.functor("none", total, where="t < 0"), rr.parquet(tmp_path / "out", roll=0))
    folder = leave(app, spark, after(30, cuts=2), wipe=False, batch_rows=60, runs=tmp_path / "runs")
    with app.run(spark=spark, batch_rows=600, folder=folder) as run:
        run.wait()
        assert contents(run, "out") == []
    assert not events(folder, "state lost")
    assert not events(folder, "computed again")


def test_a_cut_that_is_damaged_is_passed_over(spark: SparkSession, tmp_path: Path) -> None:
    app = sums(tmp_path / "out", rr.consistent(period="200ms"))
    folder = leave(app, spark, after(30, cuts=3), batch_rows=60, runs=tmp_path / "runs")
    store = open_store(folder / "checkpoints")
    entry = f"{folder.parent.name}-{folder.name}/total"
    store.put(entry, {manifest_key(Versions(store, entry).numbers()[0]): b"not a manifest"})
    store.close()
    with app.run(spark=spark, batch_rows=600, folder=folder) as run:
        run.wait()
        assert {sink: contents(run, sink) for sink in ("totals", "largest")} == expected()
    assert not events(folder, "state lost")


def test_operators_keep_the_versions_that_all_of_them_have(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    group = []
    for name, batches in {"first": (15, 20, 30), "second": (15, 30)}.items():
        versions = Versions(store, name)
        for number, batch in enumerate(batches, 1):
            versions.commit(
                CheckpointManifest(
                    operator=name,
                    layout="",
                    version=number,
                    time=0.0,
                    batch=batch,
                    buckets=4,
                    rate=0.0,
                    slots={},
                )
            )
        group.append(SimpleNamespace(name=name, versions=versions, protected=SimpleNamespace(keep=2)))
    checkpointer = object.__new__(Checkpointer)
    checkpointer._protection = SimpleNamespace(replays=True)  # type: ignore[assignment]
    checkpointer._oldest = -1
    checkpointer._collect(group)  # type: ignore[arg-type]
    assert [sorted(each.versions.by_batch()) for each in group] == [[15, 30], [15, 30]]
    assert checkpointer.oldest_batch == 15


class Restless(rr.CustomOperator):
    """Puts out something else every time, and does not say so."""

    def on_tuple(self, port: str, tuple: dict[str, Any]) -> None:
        self.submit({"v": tuple["v"] + int.from_bytes(os.urandom(4), "little")})


def test_results_that_come_out_otherwise_are_told(spark: SparkSession, tmp_path: Path) -> None:
    app = rr.Application("restless")
    source = app.source("source", rr.rows(rows(), SCHEMA), protect=rr.consistent(period="1h"))
    drawn = app.custom("drawn", Restless, source, schema="v bigint", stateless=True)
    app.sink("out", drawn, rr.parquet(tmp_path / "out", roll="1h"))
    folder = leave(app, spark, after(5), batch_rows=60, runs=tmp_path / "runs")
    with app.run(spark=spark, batch_rows=600, folder=folder) as run:
        run.wait()
    told = events(folder, "results differ")
    assert {e["operator"] for e in told} == {"out"}
    assert told[0]["batch"] == 0


def test_regions_are_elements_of_their_own_and_stateless_outsiders_stay_with_them(tmp_path: Path) -> None:
    app = rr.Application("parts")
    kept = app.source("kept", rr.rows(rows(), SCHEMA), protect=rr.consistent(period="1s"))
    loose = app.source("loose", rr.rows(rows(), SCHEMA))
    total = app.aggregate("total", kept, by="k", window=rr.sliding(tuples=5), select="sum(v) as t")
    near = app.functor("near", total, where="t > 5", protect=rr.autonomous())
    app.sink("shown", near, rr.memory())
    far = app.aggregate("far", total, by="k", window=rr.sliding(tuples=2), select="sum(t) as t",
                        protect=rr.autonomous())  # fmt: skip
    app.sink("far_out", far, rr.memory())
    app.sink("loose_out", loose, rr.memory())
    layout = compile_graph(app.graph(), buckets=4, tasks=2)
    inside = {o.name: p.region for p in layout.plans for o in p.graph if not isinstance(o, Inlet)}
    assert {name: inside[name] for name in ("kept", "total", "near", "shown", "far", "loose")} == {
        "kept": "kept", "total": "kept", "near": "kept", "shown": "kept", "far": None, "loose": None,
    }  # fmt: skip
    assert [plan.kept for plan in layout.plans if plan.region] == [True]
    assert {name: saving.every for plan in layout.plans for name, saving in plan.protected.items()} == {
        "total": 1.0
    }


def test_what_is_only_to_survive_a_process_saves_nothing(tmp_path: Path) -> None:
    app = sums(tmp_path, rr.consistent(period="1s", durable="process"))
    layout = compile_graph(app.graph(), buckets=4, tasks=2)
    assert [(plan.region, plan.kept, plan.replays) for plan in layout.plans] == [("source", False, False)] * 2
    assert not any(plan.protected for plan in layout.plans)


def test_places_do_not_cross_a_border(tmp_path: Path) -> None:
    app = sums(tmp_path, rr.consistent(period="1s"))
    loose = app.source("loose", rr.rows(rows(), SCHEMA))
    app.sink("loose_out", loose, rr.memory())
    app.place("here", "source", "loose")
    with pytest.raises(rr.GraphError, match="'here', whose operators are in the consistent region 'source'"):
        compile_graph(app.graph(), buckets=4, tasks=2)
