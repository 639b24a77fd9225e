"""``riprap state`` where operators have replicas: each copy has checkpoints of its own, and a name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Command
from tests.cli.saved_run import SavedRun, three_versions

import riprap as rr
from riprap.compiler import compile_graph, describe_state
from riprap.runtime.changes import accept_changes, elements_of
from riprap.runtime.checkpointing.inspection import Inspection, cuts_of, list_versions
from riprap.runtime.checkpointing.recovery import read_wishes
from riprap.runtime.folder import RunFolder


@pytest.fixture
def run(tmp_path: Path) -> SavedRun:
    """Leave a run of two replicas, of which only b has been saved."""
    return three_versions(tmp_path / "runs", replica="b")


def test_every_copy_is_listed_with_its_own_versions(riprap: Command, run: SavedRun) -> None:
    listed = json.loads(riprap("state", "list", "latest", "--json").out)["operators"]

    names = {each["operator"]: each["element"] for each in listed}
    operators = ("sums", "bare", "fresh")
    assert names == {f"{o}~{x}": f"main~{x}" for x in "ab" for o in operators}, "and no inlet"
    versions = {each["operator"]: [v["version"] for v in each["versions"]] for each in listed}
    assert {name: numbers for name, numbers in versions.items() if numbers} == {"sums~b": [3, 2, 1]}
    out = riprap("state", "list", "latest").out
    assert "sums~a: no checkpoints, none was saved yet" in out


def test_a_copy_is_shown_verified_and_compared_by_its_name(riprap: Command, run: SavedRun) -> None:
    shown = json.loads(riprap("state", "show", "app", "sums~b", "--version", "1", "--json").out)
    (slot,) = shown["slots"].values()
    assert slot["tuples"] == sum(map(len, run.saved[1].values()))
    assert riprap("state", "verify", "app", "sums~b").code == 0
    compared = riprap("state", "diff", "app", "sums~b", "2", "3").out
    assert "2 tuples came, 3 went; keys: 2 changed, 0 new, 1 gone, 1 same" in compared

    refused = riprap("state", "show", "app", "sums")
    assert (refused.code, "It has: sums~a, bare~a, fresh~a, sums~b" in refused.err) == (2, True)
    none = riprap("state", "show", "app", "sums~a")
    assert (none.code, "'sums~a' has no checkpoints" in none.err) == (2, True)


def test_a_wish_is_that_copys(riprap: Command, run: SavedRun) -> None:
    done = riprap("state", "restore", "app", "sums~b", "--version", "2")

    assert done.code == 0, done.err
    assert "what they put out differs" in done.out.replace("\n", " ")
    homes = {x: run.folder / "elements" / f"main~{x}" for x in "ab"}
    assert {x: read_wishes(home) for x, home in homes.items()} == {"a": {}, "b": {"sums": 2}}
    assert "sums~b: starts from version 2 when the run is taken up" in riprap("state", "list", "app").out
    refused = riprap("state", "drop", "app", "sums~b", "--version", "2")
    assert (refused.code, "is to start from version 2" in refused.err) == (2, True)
    assert riprap("state", "restore", "app", "sums~b", "--cancel").code == 0
    assert read_wishes(homes["b"]) == {}


def test_versions_of_a_copy_are_dropped(riprap: Command, run: SavedRun) -> None:
    done = riprap("state", "drop", "app", "sums~b", "--version", "1")
    assert done.code == 0, done.err
    assert run.versions.numbers() == [3, 2]


def test_cuts_are_those_of_each_copy(run: SavedRun) -> None:
    layout = json.loads((run.folder / "state.json").read_text())
    layout["about"]["sums"]["region"] = "r"
    (run.folder / "state.json").write_text(json.dumps(layout))
    inspection = Inspection.of(run.folder)
    listed = []
    for about in inspection.operators.values():
        with inspection.reading(about.name) as versions:
            listed.append((about, list_versions(versions)))

    cuts = cuts_of(inspection, [each for each in listed if each[0].operator == "sums"])

    assert [(cut.region, cut.element, cut.batch) for cut in cuts] == [("r", "main~b", n) for n in (3, 2, 0)]
    assert cuts[0].versions == {"sums~b": 3}


def app_of(size: int) -> rr.Application:
    app = rr.Application("changing")
    source = app.source("source", rr.rows([{"k": 1, "v": 2}], "k int, v int"))
    sums = app.aggregate("sums", source, by="k", window=rr.sliding(tuples=size), select="sum(v) as s")
    totals = app.aggregate("totals", sums, by="s", window=rr.sliding(tuples=2), select="count(*) as n")
    app.sink("out", totals, rr.memory())
    app.replicate("hot", sums)
    return app


def test_state_that_may_go_goes_in_every_copy_and_nowhere_else(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, lambda: 0.0)
    graph = app_of(5).graph()
    elements = elements_of(compile_graph(graph, buckets=1, tasks=1))
    reads = [name for name, streams in elements.items() if "sums" in streams and "~" not in name]
    assert reads, "another element has an inlet of that name"
    folder.keep_state_layout({"elements": elements, "buckets": 1, "operators": describe_state(graph)})

    accept_changes(folder, app_of(6).graph(), ignore_state=["sums"]).make()

    wishes = {name: read_wishes(tmp_path / "elements" / name) for name in elements}
    copies = [name for name in elements if "~" in name]
    assert len(copies) == 2
    assert {name: wish for name, wish in wishes.items() if wish} == {key: {"sums": "fresh"} for key in copies}
