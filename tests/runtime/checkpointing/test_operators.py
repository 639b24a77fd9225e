"""Every operator that has state: what it had when it was saved comes back, and it goes on as if nothing had been."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.runtime.checkpointing import toolkit
from tests.runtime.checkpointing.leaving import (
    Contents,
    LeftError,
    contents_on_host,
    events,
    lose_host,
    manifests,
    newest_record,
    still_running,
)
from tests.runtime.harness import wait_until
from tests.stages import Stage

import riprap as rr
from riprap.state.leases import sweep
from riprap.state.pages import page_root

BUCKETS = 4
# Files of input before the host is lost, and in all.
BEFORE, PARTS = 3, 5
OPTIONS: dict[str, Any] = {"trigger": "50ms", "batch_rows": 25, "parallelism": 2}
CASES = [
    *(("columns", name) for name in (
        "sliding_tuples", "sliding_now_and_then", "sliding_time", "sliding_delta", "tumbling_tuples",
        "tumbling_time", "tumbling_delta", "tumbling_punctuation", "join_inner", "join_left", "join_full",
        "barrier", "deduplicate_tuples", "deduplicate_time", "delay", "throttle", "gate", "sort", "top", "functor",
        "custom_declared", "custom_saves_itself",
    )),
    *(("clock", f"{name}_clock") for name in (
        "sliding", "tumbling", "join", "sort", "deduplicate", "delay", "throttle",
    )),
]  # fmt: skip


@dataclass(frozen=True)
class TakenUp:
    """What an application had before its host was lost and after, what it put out, and what it should have."""

    before: Mapping[str, Contents]
    after: Mapping[str, Contents]
    restored: Mapping[str, dict[str, Any]]
    found: Mapping[str, list[dict[str, Any]]]
    expected: Mapping[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def taken_up(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], TakenUp]:
    """Return a function that loses the host of a group of operators, once, and takes the run up."""
    return cache(lambda group: take_up(spark, group, tmp_path_factory.mktemp(group)))


def take_up(spark: SparkSession, group: str, folder: Path) -> TakenUp:
    sources = folder / "sources"

    def write(first: int, end: int) -> None:
        for part in range(first, end):
            toolkit.write(sources / "clock", part, toolkit.ticks(part))
            toolkit.write(sources / "calls", part, toolkit.number(part))

    write(0, BEFORE)
    app = toolkit.application(group, sources, folder / "out")
    run = app.run(spark=spark, runs=folder / "runs", buckets=BUCKETS, **OPTIONS)
    elements = [plan.name for plan in run.layout.plans]
    try:
        with contextlib.suppress(LeftError), run:
            wait_until(lambda: settled(run, toolkit.complete(group, BEFORE)))
            raise LeftError
        before = on_host(run.folder, elements)
        lose_host(run.folder)

        with app.run(spark=spark, folder=run.folder, **OPTIONS) as again:
            wait_until(lambda: still_running(again) and not any(e.restoring for e in again._crew.going))
            after = on_host(run.folder, elements)
            write(BEFORE, PARTS)
            wait_until(lambda: settled(again, toolkit.complete(group, PARTS)))
        found = {sink: again.table(sink).to_pylist() for sink in again.progress().tuples_out}
    finally:
        sweep(page_root())
    restored = {e["operator"]: e for e in events(run.folder, "restored")}
    return TakenUp(before, after, restored, found, unharmed(group, sources, folder / "unharmed"))


def settled(run: rr.Run, complete: int) -> bool:
    """Say whether all input is on record everywhere, and every operator saved as of the last batch."""
    still_running(run)
    newest = {plan.name: newest_record(run.folder, plan.name) for plan in run.layout.plans}
    if newest[run.layout.plans[0].name].sources.get("calls", (0, 0))[1] != complete:
        return False
    if any(element.behind(element.edge()) for element in run._crew.going if element.plan.inlets):
        return False
    return all(
        [m.batch for m in manifests(run.folder, operator)[:1]] == [newest[plan.name].batch]
        for plan in run.layout.plans
        for operator in plan.protected
    )


def on_host(folder: Path, elements: list[str]) -> dict[str, Contents]:
    return {slot: c for e in elements for slot, c in contents_on_host(folder, e, BUCKETS).items()}


def unharmed(group: str, sources: Path, folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Return what reaches the sinks of the application without Spark, checkpoints or faults."""
    stage = Stage(toolkit.application(group, sources, None), folder, buckets=BUCKETS)
    calls = pa.concat_tables(map(toolkit.number, range(PARTS))).slice(0, toolkit.complete(group, PARTS))
    ticks = pa.concat_tables(map(toolkit.ticks, range(PARTS)))
    return stage.feed({"calls": calls, "clock": ticks.slice(0, ticks.num_rows - 1)})


@pytest.mark.parametrize(("group", "operator"), CASES, ids=[name for _, name in CASES])
def test_it_comes_back(taken_up: Callable[[str], TakenUp], group: str, operator: str) -> None:
    run = taken_up(group)
    mine = [slot for slot in run.before if slot.startswith((f"{operator}/", "clock/"))]
    assert mine, "it has state"
    for slot in mine:
        assert run.after[slot] == run.before[slot]
    told = run.restored[operator]
    assert (told["behind"], told["stale"], told["damaged"]) == (0, 0, 0)
    sink = f"{operator}_out"
    assert run.found[sink] == run.expected[sink]
    assert run.expected[sink]


def test_every_operator_was_tried(taken_up: Callable[[str], TakenUp]) -> None:
    for group in toolkit.GROUPS:
        assert {f"{name}_out" for g, name in CASES if g == group} == taken_up(group).expected.keys()
