"""A region starts from the cut that somebody chooses: what came after is computed again, and is the same."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.regions.building import application
from tests.regions.sinks import KINDS, Place, comparable
from tests.regions.topologies import ROWS
from tests.runtime.checkpointing.leaving import events, newest_record
from tests.runtime.checkpointing.test_regions import after, contents, expected, leave, sums
from tests.runtime.harness import Programs

import riprap as rr
from riprap.cli import main
from riprap.runtime.checkpointing.chosen_cut import chosen_cut
from riprap.runtime.checkpointing.cut_log import CutLog

OPTIONS: dict[str, Any] = {"batch_rows": 60, "buckets": 4, "parallelism": 2}


def regions_of(folder: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, Any]]:
    assert main(["state", "list", str(folder), "--json"]) == 0
    return {view["region"]: view for view in json.loads(capsys.readouterr().out)["regions"]}


def test_a_run_goes_on_from_an_older_cut(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    app = sums(tmp_path / "out", rr.consistent(period="200ms"))
    folder = leave(app, spark, after(30, cuts=3), wipe=False, runs=tmp_path / "runs", **OPTIONS)
    view = regions_of(folder, capsys)["source"]
    assert view["startable"][-1] == view["cuts"][-1]["sequence"]
    assert view["comebacks"] == []
    number = view["startable"][0]
    assert main(["reset", str(folder), "source", "--cut", str(number)]) == 0
    assert f"starts from cut {number} (" in capsys.readouterr().out
    chosen = {
        n: part["batch"] for c in view["cuts"] if c["sequence"] == number for n, part in c["elements"].items()
    }
    assert {name: chosen_cut(folder / "elements" / name) for name in chosen} == chosen
    with app.run(spark=spark, folder=folder, **OPTIONS) as run:
        run.wait()
        assert {sink: contents(run, sink) for sink in ("totals", "largest")} == expected()
    again = {e["element"]: e for e in events(folder, "computed again")}
    assert again.keys() == chosen.keys()
    # On a busy machine one of them may not have gone beyond its oldest cut.
    assert any(e["batches"] >= 1 for e in again.values())
    assert not any(chosen_cut(folder / "elements" / name) for name in chosen)
    assert not events(folder, "results differ")
    view = regions_of(folder, capsys)["source"]
    assert {(c["element"], c["batches"], c["cause"]) for c in view["comebacks"]} == {
        (name, e["batches"], "the run was taken up") for name, e in again.items()
    }
    numbers = [cut["sequence"] for cut in view["cuts"]]
    assert numbers == list(range(numbers[0], numbers[-1] + 1))
    assert numbers[-1] > number
    assert main(["state", "list", str(folder)]) == 0
    assert "came back 2 times" in " ".join(capsys.readouterr().out.split())


def test_the_next_loss_does_not_undo_the_choice(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    app = sums(tmp_path / "out", rr.consistent(period="200ms"))
    folder = leave(app, spark, after(30, cuts=3), wipe=False, runs=tmp_path / "runs", **OPTIONS)
    number = regions_of(folder, capsys)["source"]["startable"][0]
    assert main(["reset", str(folder), "source", "--cut", str(number)]) == 0
    homes = {"total": "sums", "times": "times"}
    chosen = {operator: chosen_cut(folder / "elements" / home) for operator, home in homes.items()}
    newest = {operator: newest_record(folder, home).batch for operator, home in homes.items()}

    def computed_again(run: rr.Run) -> bool:
        return len(events(run.folder, "computed again")) == len(homes)

    # Nothing is saved in its time any more.
    app = sums(tmp_path / "out", rr.consistent(period="1h"))
    leave(app, spark, computed_again, folder=folder, **OPTIONS)
    before = len(events(folder, "restored"))
    with app.run(spark=spark, folder=folder, **OPTIONS) as run:
        run.wait()
        assert {sink: contents(run, sink) for sink in ("totals", "largest")} == expected()
    back = {event["operator"]: event["batch"] for event in events(folder, "restored")[before:]}
    assert back.keys() == homes.keys()
    assert all(batch == chosen[name] or batch >= newest[name] for name, batch in back.items()), (back, chosen)


def test_what_cannot_be_chosen_is_said(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    app = sums(tmp_path / "out", rr.consistent(period="200ms"))
    folder = leave(app, spark, after(30, cuts=3), wipe=False, runs=tmp_path / "runs", **OPTIONS)
    assert main(["reset", str(folder), "source", "--cut", "0"]) == 2
    assert "cannot start from cut 0: input and state are kept for" in " ".join(
        capsys.readouterr().err.split()
    )
    assert main(["reset", str(folder), "source", "--cut", "x"]) == 2
    assert "'x' is neither a number nor 'newest'" in capsys.readouterr().err
    assert main(["reset", str(folder), "other", "--cut", "1"]) == 2
    assert "no region 'other' with state" in " ".join(capsys.readouterr().err.split())
    number = CutLog(folder, "source").read()[-1].sequence
    assert main(["reset", str(folder), "source", "--cut", str(number)]) == 0
    assert main(["reset", str(folder), "source", "--cut", "newest"]) == 0
    with app.run(spark=spark, folder=folder, **OPTIONS) as run:
        run.wait()
        assert contents(run, "largest") == expected()["largest"]
    assert not events(folder, "computed again")


def test_who_dies_on_the_way_from_a_chosen_cut_begins_there_again(
    spark: SparkSession, programs: Programs, tmp_path: Path
) -> None:
    place = Place(str(tmp_path / "out"))
    job: dict[str, Any] = {"topology": "chain", "sink": "each", "period": "100ms", "work": str(tmp_path)}
    job |= {"place": place.spec(), "traps": []}
    job |= {"attempts": 5, "supervised": False, "reset": False}
    options = {"batch_rows": 20, "buckets": 4, "parallelism": 2, "master": "local[2]"}

    def die(number: int, crash_at: str, where: dict[str, str]) -> None:
        spec = {**job, "options": {**options, **where}}
        program = programs.start("run_topology.py", tmp_path / f"life-{number}", spec, crash_at)
        programs.finish(program, code=-signal.SIGKILL)

    die(1, "published:60", {"runs": str(tmp_path / "runs")})
    folder = (tmp_path / "runs" / "chain" / "latest").resolve()
    cuts = CutLog(folder, "read").read()
    assert main(["reset", str(folder), "read", "--cut", str(cuts[-1].sequence)]) == 0
    ((element, part),) = cuts[-1].elements.items()
    die(2, "computed-again:*", {"folder": str(folder)})
    assert chosen_cut(folder / "elements" / element) == part.batch
    app = application("chain", "each", tmp_path, place, period="100ms")
    with app.run(spark=spark, folder=folder, batch_rows=20, buckets=4, parallelism=2) as run:
        run.wait()
        sink = next(iter(run.progress().tuples_out))
    (again,) = events(folder, "computed again")
    assert again["batches"] >= 60 - part.batch
    found = KINDS["each"].read(place, sink.removesuffix("_out"), app.graph()[sink].schema.names)
    golden = application("chain", "each", tmp_path / "golden", Place(str(tmp_path / "golden-out")))
    with golden.run(spark=spark, runs=tmp_path / "golden-runs", batch_rows=ROWS) as run:
        run.wait()
        rows = run.table(sink).to_pylist()
    assert comparable(rows, "each") == found
