"""What the sinks of a case must hold: what they hold when nothing happens to a run that has no policy.

What is in a region owes what has entered it. Where a source before it is in none, what that had read and not put out is
lost with a host, and told: each event says of which batch, and so which rows did not enter. They are left out of the
source of the run that is compared with, and nothing else is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from tests.regions.brokers import BROKERS_BATCH
from tests.regions.building import application
from tests.regions.cases import Case
from tests.regions.drawn import check_dice
from tests.regions.making import BATCH, ROWS, Lost, less, rows_of
from tests.regions.running import OPTIONS
from tests.regions.sinks import KINDS, Place, Row, comparable
from tests.regions.topologies import TOPOLOGIES, Topology
from tests.stages import Stage

Held = Mapping[str, list[Row]]
Golden = Callable[[str, Lost], Held]
Event = Mapping[str, Any]
SEEDS = {"left": 0, "right": 4, "plain": 2, "read": 0}
# The last ticks of a clock come when the input ends, which takes a run.
_RUN = ("clock",)


def golden_of(spark: SparkSession, folder: Callable[[str], Path]) -> Golden:
    """Return a function that gives what reaches the sinks of a topology without policy and fault, by stream.

    It is given what its sources lack.
    """

    def make(topology: str, lost: Lost) -> Held:
        work = folder(topology)
        app = application(topology, "each", work, Place(str(work / "out")), lost=lost)
        if topology == "loop":
            return {"passed": [{"seq": n, "told": n // BATCH * BATCH - 1} for n in range(ROWS)]}
        if topology in _RUN:
            with app.run(spark=spark, runs=work / "runs", **OPTIONS) as run:
                run.wait()
                return {s.removesuffix("_out"): run.table(s).to_pylist() for s in run.progress().tuples_out}
        feeds: dict[str, pa.Table] = {name: less(lost, name, rows_of(seed)) for name, seed in SEEDS.items()}
        feeds["messages"] = rows_of().select(["seq", "k", "v"])
        found = Stage(app, work / "stage", buckets=4).feed(feeds)
        return {sink.removesuffix("_out"): rows for sink, rows in found.items()}

    return cache(make)


def lost_outside(topology: Topology, events: Sequence[Event]) -> Lost:
    """Return the rows that were told to be lost before they entered a region; nothing else may be lost."""
    lost: list[tuple[str, int, int]] = []
    for event in (e for e in events if e["event"] == "results lost"):
        for name, rows in event["rows"].items():
            if name.removesuffix("_out") in topology.may_lack:
                continue
            assert name in topology.outside, f"what is in a region was lost: {event}"
            source, size = topology.outside[name]
            first = event["batch"] * size
            assert 0 < rows <= size, event
            lost.append((source, first, first + rows))
    return tuple(sorted(lost))


def check_events(topology: Topology, events: Sequence[Event]) -> None:
    """Check that nothing was told that may not be told of what is in a region."""
    assert not [e for e in events if e["event"] == "results differ"]
    gone = [e for e in events if e["event"] == "state lost" and e["operator"] not in topology.forgets]
    assert not gone, gone


def check(case: Case, found: Held, events: Sequence[Event], golden: Golden) -> None:
    """Check what the sinks of a case hold, and what its run has told."""
    topology = TOPOLOGIES[case.topology]
    check_events(topology, events)
    lost = lost_outside(topology, events)
    assert not lost or any(life.loses_memory for life in case.lives), lost
    if case.topology == "lookup":
        check_lookup(found, case)
    elif case.topology == "dice":
        check_dice(found)
    else:
        for name, rows in golden(case.topology, lost).items():
            held = once(found[name], len(case.lives)) if KINDS[case.sink].repeats else found[name]
            _compare(held, comparable(rows, case.sink), name, case)


def _compare(found: list[Row], expected: list[Row], name: str, case: Case) -> None:
    topology = TOPOLOGIES[case.topology]
    assert expected, name
    if name in topology.may_lack and any(life.loses_memory for life in case.lives):
        check_part(found, expected)
    elif topology.ordered:
        assert found == expected, name
    else:
        assert by_text(found) == by_text(expected), name


def once(rows: list[Row], crashes: int) -> list[Row]:
    """Return rows without those that are there again, of which each crash may leave a batch."""
    kept = list({repr(row): row for row in rows}.values())
    assert len(rows) - len(kept) <= crashes * BROKERS_BATCH, (
        "more is there twice than the newest batch of a crash"
    )
    return kept


def by_text(rows: list[Row]) -> list[Row]:
    """Put rows in an order of their own."""
    return sorted(rows, key=repr)


def check_part(found: list[Row], expected: list[Row]) -> None:
    """Check that rows are some of others, and none of them is there twice."""
    assert len({repr(row) for row in found}) == len(found)
    assert {repr(row) for row in found} <= {repr(row) for row in expected}


def check_lookup(found: Held, case: Case) -> None:
    """Check that each tuple has met one version of the table, and what remembers them has remembered these."""
    met = [(int(row["seq"]), int(row["version"])) for row in found["met"]]
    assert [seq for seq, _ in met] == list(range(ROWS))
    versions = [version for _, version in met]
    assert versions == sorted(versions)
    assert set(versions) <= {1, *(seq for life in case.lives for what, seq in life.traps if what == "table")}
    assert [int(row["total"]) for row in found["added"]] == list(accumulate(versions))
