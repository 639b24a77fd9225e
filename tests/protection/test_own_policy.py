"""A policy of the user's, in one file: the one of docs/extending.md, from the builder to a lost host."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.pages import code_of
from tests.runtime.checkpointing.leaving import LeftError, events, lose_host, manifests
from tests.runtime.harness import wait_until

import riprap as rr
from riprap.compiler import compile_graph, explain
from riprap.faults import Campaign, Crash, Sum
from riprap.faults.campaign_file import read_campaign
from riprap.faults.setup import Setup
from riprap.model import Annotated
from riprap.protection import OperatorOutage, Protectable, Protection, Saving

ROWS = [{"n": n, "k": n % 5, "v": n * n % 97} for n in range(3_000)]
SCHEMA = "n bigint, k bigint, v bigint"


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Return the page's policy, as a module that workers find."""
    file = tmp_path_factory.mktemp("own") / "own_policy.py"
    file.write_text(code_of("extending.md", "class Journal"))
    found = importlib.util.spec_from_file_location("own_policy", file)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules["own_policy"] = module
    found.loader.exec_module(module)
    yield module.Journal
    del sys.modules["own_policy"]


def application(protect: rr.Policy | None, out: Path | None = None) -> rr.Application:
    app = rr.Application("totals")
    rows = app.source("rows", rr.rows(ROWS, SCHEMA), position="n")
    totals = app.aggregate(
        "totals_of",
        rows,
        by="k",
        window=rr.sliding(tuples=400),
        select="last(n) as n, sum(v) as s",
        emit=rr.every(tuples=1),
        protect=protect,
    )
    app.sink("out", totals, rr.memory() if out is None else rr.parquet(out, roll=0))
    return app


def expected() -> list[tuple[int, int]]:
    """Sum each key's newest values plainly."""
    held: dict[int, list[int]] = {}
    found = []
    for row in ROWS:
        window = held.setdefault(row["k"], [])
        window.append(row["v"])
        found.append((row["n"], sum(window[-400:])))
    return found


def test_it_is_built_compiled_and_explained(journal: Any) -> None:
    app = rr.Application("totals")
    rows = app.source("rows", rr.rows(ROWS, SCHEMA))
    with pytest.raises(
        rr.GraphError, match=r"a journal is of state, and a functor has none\. Leave protect= out"
    ):
        app.functor("passing", rows, where="n > 0", protect=journal())

    layout = compile_graph(application(journal()).graph(), buckets=4, tasks=2)

    assert [(plan.name, plan.replays) for plan in layout.plans] == [("totals", False), ("totals_of", True)]
    assert ("protect", "totals_of: saved every 0.2 s, and nothing that came in is lost") in explain(layout)


@dataclass(frozen=True)
class Hoarder(rr.Policy):
    """Keeps input, and saves nothing."""

    def keeps_input(self, operator: Protectable) -> bool:
        return True


def test_input_is_not_kept_for_what_is_never_saved() -> None:
    (plan,) = compile_graph(application(Hoarder()).graph(), buckets=4, tasks=2).plans[-1:]

    assert (plan.replays, plan.protected) == (False, {})
    back = Hoarder().after(plan.graph["totals_of"], OperatorOutage(misses=True, memory="lost"))
    assert (back.misses, back.holds) == (True, "empty")
    for wrong in ({"every": 0.0}, {"every": 1.0, "keep": 0}, {"every": 1.0, "group": 0}):
        with pytest.raises(rr.GraphError, match="give seconds above zero"):
            Saving(**wrong)  # type: ignore[arg-type]


def test_it_is_injected_and_modelled(journal: Any) -> None:
    graph = application(journal()).graph()
    back = journal().after(graph["totals_of"], OperatorOutage(misses=True, memory="lost", chance=0.5))
    assert (back.misses, back.holds) == (False, "kept")
    campaign = Campaign(
        sink="out",
        score=Sum("s"),
        offsets=(1_500,),
        seconds=(2.0,),
        rates={"": 100.0},
        section=50,
        by="n",
        key=("n",),
        stretch="source",
        targets=(("totals_of",),),
        models={"own": Crash(), "none": Crash(protection=None)},
    )
    seeded = Setup.of(graph, campaign).seeded(0)

    wrong = {
        task.model: sum(d.more.rows for d in seeded.run(task).differences.get("out", {}).values())
        for task in campaign.tasks()
    }

    assert wrong["own"] == 0
    assert wrong["none"] > 0
    assert Annotated(graph).protect(()) == {"totals_of": Protection(restore="whole", kept=True, every=0.2)}


def test_a_campaign_names_it(journal: Any, tmp_path: Path) -> None:
    file = tmp_path / "campaign.yaml"
    told = "{sink: out, score: count, by: n, key: n, section: 10, stretch: source, offsets: [20], "
    told += "outages: {seconds: [5], rates: {'': 10}}, models: %s}"

    file.write_text(told % '{own: {crash: {protection: {"own_policy:Journal": {every: 0.5}}}}}')
    assert read_campaign(file).models == {"own": Crash(protection=journal(every=0.5))}
    file.write_text(told % '{own: {crash: {protection: "own_policy:Paper"}}}')
    with pytest.raises(
        rr.GraphError, match=r"no dataclass 'Paper' that derives from riprap\.protection\.Policy"
    ):
        read_campaign(file)


def leave(app: rr.Application, spark: SparkSession, runs: Path) -> Path:
    """Run some batches and a checkpoint, and leave the run as a crash would."""
    try:
        with app.run(spark=spark, runs=runs, batch_rows=50) as run:
            wait_until(lambda: run.progress().batches >= 10)
            wait_until(lambda: manifests(run.folder, "totals_of"))
            raise LeftError
    except LeftError:
        return run.folder


def test_nothing_is_lost_with_the_host(spark: SparkSession, journal: Any, tmp_path: Path) -> None:
    app = application(journal(), tmp_path / "out")
    folder = leave(app, spark, tmp_path / "runs")
    lose_host(folder)

    with app.run(spark=spark, folder=folder, batch_rows=50) as run:
        run.wait()
        found = run.table("out").to_pylist()

    assert sorted((row["n"], row["s"]) for row in found) == expected()
    assert events(folder, "restored")
    assert events(folder, "computed again")
