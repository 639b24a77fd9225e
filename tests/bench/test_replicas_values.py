"""Full replication by values: against the algorithm a tuple at a time, and replicas that really die or stand still."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.checkpointing.leaving import lines_so_far
from tests.runtime.harness import read_parts, wait_until, whole

import riprap as rr
from riprap.runtime import Patience, supervise
from riprap.testing import Rehearsal
from riprap_bench import replicas
from riprap_bench.answers import read_answer
from riprap_bench.baselines import run_bare
from riprap_bench.feed import make_feed
from riprap_bench.replicas_doubles import count_errors
from riprap_bench.replicas_plan import Plan, Stretch, options
from riprap_bench.replicas_switch import driver_of
from riprap_bench.replicas_values import bargain_twice, unseen

MARK = "|"
EVENTS = 6_000


class Table:
    """The algorithm as it is written: a tuple at a time."""

    def __init__(self) -> None:
        self.seen: set[Any] = set()
        self.marks = {"a": 0, "b": 0}

    def take(self, letter: str, items: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        for item in items:
            values = tuple(item.values())
            if values not in self.seen:
                self.seen.add(values)
                yield item
            if item["word"] == MARK:
                self.marks[letter] += 1
                if self.marks[letter] > max(count for other, count in self.marks.items() if other != letter):
                    self.seen.clear()


def twice() -> rr.Application:
    app = rr.Application("twice")
    copies = []
    for letter in "ab":
        source = app.source(f"feed_{letter}", rr.rows([], "word string, n double"))
        copies.append(app.punctor(f"marked_{letter}", source, where=f"word = '{MARK}'"))
        app.place(f"copy_{letter}", source, copies[-1])
    app.sink("out", unseen(app, "once", *copies), rr.memory())
    return app


@pytest.mark.parametrize("seed", range(20))
def test_it_is_the_algorithm_whatever_the_batches(seed: int) -> None:
    chance = random.Random(seed)
    items = [
        {"word": chance.choice(["tea", "salt", None, MARK]), "n": chance.choice([0.5, 1.0, None])}
        for _ in range(chance.randrange(1, 120))
    ]
    app, table, at = Rehearsal(twice()), Table(), {"a": 0, "b": 0}
    while min(at.values()) < len(items):
        batch = {}
        for letter in "ab":
            rows = items[at[letter] : at[letter] + chance.choice([0, 0, 1, 3, 20])]
            at[letter] += len(rows)
            batch[letter] = rows
        # In a batch what one has comes before what the other has.
        expected = [item for letter in "ab" for item in table.take(letter, batch[letter])]
        came = app.feed({f"feed_{letter}": rows for letter, rows in batch.items()})
        assert came == {"out": expected}
        if chance.random() < 0.1:
            app.crash("once")


def test_of_the_table_nothing_is_left_that_was_cleared() -> None:
    app = Rehearsal(twice())
    rows = [{"word": "tea", "n": float(n)} for n in range(100)]
    app.feed({"feed_a": rows})
    assert held(app) == 100
    app.feed({"feed_a": [{"word": MARK, "n": 0.0}]})
    assert held(app) == 0


def held(app: Rehearsal) -> int:
    (element,) = [each for each in app.elements.values() if "once" in [o.name for o in each.plan.graph]]
    return sum(page.num_rows for page in element._state["once/seen"])


def test_what_is_the_same_between_two_punctuations_is_lost_and_what_comes_late_doubled() -> None:
    tea, salt, mark = {"word": "tea", "n": 1.0}, {"word": "salt", "n": 1.0}, {"word": MARK, "n": 0.0}
    app = Rehearsal(twice())
    assert app.feed({"feed_a": [tea, tea, salt, mark, salt]})["out"] == [tea, salt, mark, salt]
    # The other has these yet to put out: the table has only what came after the punctuation.
    assert app.feed({"feed_b": [tea, tea, salt, mark, salt]})["out"] == [tea, mark]


@pytest.mark.parametrize("signal", ["kill", "suspend"])
def test_a_replica_dies_or_stands_still(signal: str, tmp_path: Path) -> None:
    files = make_feed(tmp_path / "feed", EVENTS, rows_per_file=EVENTS // 2, seed=3).files
    run_bare(files, out=tmp_path / "oracle")
    right = read_answer(tmp_path / "oracle")
    (tmp_path / "in").mkdir()
    shutil.copy(files[0], tmp_path / "in")
    # Killed: the table is never cleared. Standing still: it is, meanwhile.
    every = EVENTS + 1 if signal == "kill" else EVENTS // 3
    app = bargain_twice(rr.files(str(tmp_path / "in")), rr.parquet(tmp_path / "out", roll=0), every=every)
    described = replace(options(tmp_path / "runs", strikes=1), trigger="50ms")
    with supervise(app.graph(), described, patience=Patience(silent=600.0), spare=False) as run:
        run.await_up()
        wait_until(lambda: run.progress().tuples_out["Sink"])
        victim = driver_of(run.folder, "all_b")
        getattr(victim, signal)()
        shutil.copy(files[1], tmp_path / "in" / ".half")
        (tmp_path / "in" / ".half").rename(tmp_path / "in" / files[1].name)
        wait_until(lambda: run.progress().tuples_out["Sink"] >= right.num_rows)
        if signal == "suspend":
            victim.resume()
        # All that both have put out has come to where they meet.
        wait_until(lambda: came(run.folder) == 2 * right.num_rows)
        run.stop()
        assert run.wait(120.0)
    errors = count_errors(right, whole(read_parts(tmp_path / "out")))
    assert errors["lost"] == 0
    assert bool(errors["doubled"]) == (signal == "suspend")


def came(folder: Path) -> int:
    """Count the tuples that have come to the operator in which the replicas' streams meet."""
    lines = (line["operators"].get("Unseen") for line in lines_so_far(folder / "metrics.jsonl"))
    return sum(line["in"] for line in lines if line is not None)


@pytest.mark.slow
def test_values_are_measured_beside_tags() -> None:
    short = Stretch(name="generated", events=6_000, rate=1_000.0, section=1_000, offset=2_000)
    plan = Plan(only=("values",), outage=2.0, doubles=short, intervals=(1_000,))
    result = replicas.run_plan(plan, lambda _: None)
    json.dumps(result)
    cases = result["parts"]["values"]["cases"]
    assert [(case["lost"], case["doubled"]) for case in cases if case["every"] is None] == [(0, 0)] * 2
    assert not any(case["lost"] for case in cases)
    assert "by values, a punctuation every 1,000 events, one is killed" in replicas.table(result)
