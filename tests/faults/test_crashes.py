"""Crashes under each protection: on both paths, and against a plain model of what the operator holds afterwards."""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.faults.replaying import assert_same

import riprap as rr
from riprap.faults import Campaign, Crash, Replicas, Sum
from riprap.faults.crash_effects import come_back
from riprap.faults.setup import Setup
from riprap.protection import Policy

RATE = 10.0
COUNT = 400
WINDOW = 5


def feed(seed: int = 3) -> pa.Table:
    luck = np.random.default_rng(seed)
    return pa.table(
        {
            "n": np.arange(COUNT),
            "k": luck.choice(["a", "b", "c", "d"], COUNT, p=[0.5, 0.3, 0.15, 0.05]),
            "kind": luck.choice(["t", "q"], COUNT, p=[0.4, 0.6]),
            "v": luck.integers(1, 50, COUNT),
        }
    )


def application(
    protect: Policy | None = None,
    *,
    region: Policy | None = None,
    cut: Policy | None = None,
    failover: Any = None,
) -> rr.Application:
    app = rr.Application("crashing")
    rows = app.source("Rows", rr.rows(feed()), position="n", protect=region)
    trades = app.functor("Trades", rows, where="kind = 't'", select="n, k, v")
    quotes = app.functor("Quotes", rows, where="kind = 'q'", select="n, k, v", protect=cut)
    sums = app.aggregate(
        "Sums", trades, by="k", window=rr.sliding(tuples=WINDOW), emit=rr.every(tuples=1),
        select="last(n) as at, sum(v) as total", protect=protect,
    )  # fmt: skip
    met = app.join(
        "Met", sums, quotes, by="k", windows=(rr.sliding(tuples=1), rr.sliding(tuples=0)),
        select="Quotes.n as n, k, at, total, v",
    )  # fmt: skip
    app.sink("Out", met, rr.memory())
    if failover is not None:
        app.replicate("hot", trades, sums, failover=failover, detect="1s")
    return app


def campaign(crash: Crash, targets: tuple[str, ...], **more: Any) -> Campaign:
    told: dict[str, Any] = {
        "sink": "Out", "score": Sum("total"), "offsets": (150, 220), "seconds": (2.0, 6.0), "rates": {"": RATE},
        "section": 20, "by": "n", "key": ("n",), "stretch": "source", "targets": (targets,), "models": {"crash": crash},
    }  # fmt: skip
    return Campaign(**told | more)


PROTECTIONS: dict[str, Crash] = {
    "none": Crash(protection=None, restart="live"),
    "none, and resumes": Crash(protection=None),
    "checkpoint": Crash(protection=rr.checkpoint(every="3s"), age=2.0, restart="live"),
    "checkpoint, and resumes": Crash(protection=rr.checkpoint(every="3s"), age=2.0),
    "checkpoint of any age": Crash(protection=rr.checkpoint(every="3s"), restart="live"),
    "consistent": Crash(protection=rr.consistent(period="1s")),
    "eventual": Crash(protection=rr.eventual()),
    "memory kept": Crash(protection=None, memory="kept", restart="live"),
    "replicas": Crash(protection=Replicas(failover=1.0)),
    "replicas of a group": Crash(protection=Replicas(failover=1.0, group=("Trades", "Sums"))),
    "exact replicas": Crash(protection=Replicas(failover="exact", group=("Trades", "Sums"))),
}


@pytest.mark.parametrize("crash", PROTECTIONS.values(), ids=PROTECTIONS)
@pytest.mark.parametrize("targets", [("Sums",), ("Met",), ("Trades",), ("Sums", "Met")], ids="+".join)
def test_the_fast_path_is_the_slow_path(crash: Crash, targets: tuple[str, ...]) -> None:
    setup = Setup.of(application().graph(), campaign(crash, targets), block_rows=37)
    seeded = setup.seeded(0)

    for task in setup.campaign.tasks():
        assert_same(seeded.golden, seeded.run(task), seeded.run(task, shortcut=False))


def test_replicas_that_diverge_hold_what_another_order_makes() -> None:
    app = rr.Application("meeting")
    rows = app.source("Rows", rr.rows(feed()), position="n")
    kinds = [
        app.functor(name, rows, where=f"kind = '{kind}'", select="n, k, v")
        for name, kind in (("T", "t"), ("Q", "q"))
    ]
    newest = app.aggregate(
        "Newest", app.union("Both", *kinds), by="k", window=rr.sliding(tuples=WINDOW), emit=rr.every(tuples=1),
        select="last(n) as n, sum(v) as total",
    )  # fmt: skip
    app.sink("Out", newest, rr.memory())
    found = []
    for diverging in (True, False):
        crash = Crash(protection=Replicas(failover=0.5, diverging=diverging))
        setup = Setup.of(app.graph(), campaign(crash, ("Newest",), interleave=25), block_rows=37)
        seeded = setup.seeded(0)
        trials = [seeded.run(task) for task in setup.campaign.tasks()]
        for task, fast in zip(setup.campaign.tasks(), trials, strict=True):
            assert_same(seeded.golden, fast, seeded.run(task, shortcut=False))
        found.append([sum(d.more.rows for d in t.differences.get("Out", {}).values()) for t in trials])

    # Other state makes other output, also after another copy took over; the same state does not.
    assert not any(found[1])
    assert any(found[0])


@pytest.mark.parametrize("failover", ["exact", "plain", "ahead"])
@pytest.mark.parametrize("targets", [("Sums",), ("Sums", "Met"), ("Trades", "Quotes")], ids="+".join)
def test_the_fast_path_is_the_slow_path_with_groups_of_the_application(
    failover: str, targets: tuple[str, ...]
) -> None:
    crash = Crash(restart="live")
    setup = Setup.of(application(failover=failover).graph(), campaign(crash, targets), block_rows=37)
    seeded = setup.seeded(0)

    for task in setup.campaign.tasks():
        assert_same(seeded.golden, seeded.run(task), seeded.run(task, shortcut=False))


def plain(begin: int, end: int, *, saved: int | None, stale: dict[str, int] | None = None) -> dict[int, int]:
    """Say what each quote meets if Sums misses a stretch of the source and comes back as it was at ``saved``."""
    held: dict[str, deque[int]] = {}
    newest: dict[str, int] = {}
    at_saved: dict[str, deque[int]] = {}
    found = {}
    for row in feed().to_pylist():
        if row["n"] == saved:
            at_saved = {k: window.copy() for k, window in held.items()}
        if row["n"] == begin:
            held = at_saved
            for k, many in (stale or {}).items():
                for _ in range(min(many, len(held.get(k, ())))):
                    held[k].popleft()
        if row["kind"] == "t":
            if begin <= row["n"] < end:
                continue
            window = held.setdefault(row["k"], deque(maxlen=WINDOW))
            window.append(row["v"])
            newest[row["k"]] = sum(window)
        elif row["k"] in newest:
            found[row["n"]] = newest[row["k"]]
    return found


def output(
    crash: Crash,
    offset: int,
    seconds: float,
    *,
    failover: str | None = None,
    targets: tuple[str, ...] = ("Sums",),
) -> dict[int, int]:
    graph = application(failover=failover).graph()
    setup = Setup.of(graph, campaign(crash, targets, offsets=(offset,), seconds=(seconds,)))
    seeded = setup.seeded(0)
    (task,) = setup.campaign.tasks()
    pieces = seeded.run(task).output(seeded.golden, "Out")
    rows = [row for p in pieces for row in pa.table({c: p.columns[c] for c in ("n", "total")}).to_pylist()]
    return {row["n"]: row["total"] for row in rows}


@pytest.mark.parametrize("offset", [90, 150, 233])
def test_a_crash_without_protection_leaves_nothing(offset: int) -> None:
    got = output(Crash(protection=None, restart="live"), offset, 4.0)

    assert got == plain(offset, offset + 40, saved=offset + 1000)


@pytest.mark.parametrize("offset", [90, 150, 233])
def test_a_crash_that_spares_the_memory_loses_input_alone(offset: int) -> None:
    got = output(Crash(protection=None, memory="kept", restart="live"), offset, 4.0)

    assert got == plain(offset, offset + 40, saved=offset)


@pytest.mark.parametrize(("offset", "age"), [(90, 0.0), (150, 2.0), (233, 2.5)])
def test_a_checkpoint_comes_back_without_what_went_stale(offset: int, age: float) -> None:
    every, saved = 30, offset - round(age * RATE)
    stale = {}
    for k in "abcd":
        came = [r["n"] for r in feed().to_pylist() if r["n"] < saved and (r["kind"], r["k"]) == ("t", k)]
        recent = [n for n in came if n >= saved - every]
        rate = len(recent) / every if recent else len(came) / saved
        # At its rate when it was saved, a key has had so many more up to its return.
        stale[k] = round(rate * (offset + 40 - saved))

    got = output(Crash(protection=rr.checkpoint(every="3s"), age=age, restart="live"), offset, 4.0)

    assert got == plain(offset, offset + 40, saved=saved, stale=stale)


@pytest.mark.parametrize("policy", [rr.consistent(period="1s"), rr.eventual()])
def test_what_is_sent_again_is_not_lost(policy: Any) -> None:
    assert output(Crash(protection=policy), 150, 4.0) == plain(150, 150, saved=150)


def differing(target: str, *, durable: Any = "host", memory: Any = "lost") -> int:
    """Crash an operator of an application in a region but for Quotes; count the results that are others or more."""
    region = rr.consistent(period="1s", durable=durable)
    graph = application(region=region, cut=rr.autonomous()).graph()
    setup = Setup.of(graph, campaign(Crash(restart="live", memory=memory), (target,)))
    seeded = setup.seeded(0)
    changed = 0
    for task in setup.campaign.tasks():
        for block in seeded.run(task).differences.get("Out", {}).values():
            changed += block.more.rows + block.missing.rows
    return changed


def test_a_crash_in_a_region_costs_time_and_nothing_else() -> None:
    assert [differing(target) for target in ("Rows", "Trades", "Sums", "Met")] == [0, 0, 0, 0]
    # Outside of it, what comes meanwhile is missed; and so it is where the region does not survive the loss.
    assert differing("Quotes") > 0
    assert differing("Sums", durable="process") > 0
    assert differing("Sums", durable="process", memory="kept") == 0


def failed_over(begin: int, end: int) -> dict[int, int]:
    """Say what each quote meets if nothing comes from Sums in a stretch of the source, and its state is whole."""
    held: dict[str, deque[int]] = {}
    newest: dict[str, int] = {}
    wanted = {}
    for row in feed().to_pylist():
        if row["kind"] == "t":
            window = held.setdefault(row["k"], deque(maxlen=WINDOW))
            window.append(row["v"])
            if not begin <= row["n"] < end:
                newest[row["k"]] = sum(window)
        elif row["k"] in newest:
            wanted[row["n"]] = newest[row["k"]]
    return wanted


def test_a_replica_loses_what_its_group_puts_out_until_it_takes_over() -> None:
    got = output(Crash(protection=Replicas(failover=1.0)), 150, 4.0)

    assert got == failed_over(150, 160)
    assert got != failed_over(150, 150) == plain(150, 150, saved=150)


@pytest.mark.parametrize("targets", [("Sums",), ("Trades",), ("Trades", "Sums")], ids="+".join)
@pytest.mark.parametrize(
    ("failover", "crash", "lost"),
    [
        # What the application says: a second, or as long as the outage if that is shorter.
        ("plain", Crash(restart="live"), 1.0),
        ("exact", Crash(restart="live"), 0.0),
        ("ahead", Crash(restart="live"), 0.0),
        # What a campaign says in its place, of the group that the application has.
        ("exact", Crash(protection=Replicas(failover=2.0)), 2.0),
        ("plain", Crash(protection=Replicas(failover=0.5)), 0.5),
        ("plain", Crash(protection=Replicas(failover="exact")), 0.0),
        (None, Crash(protection=Replicas(failover="exact", group=("Trades", "Sums"))), 0.0),
        (None, Crash(protection=Replicas(failover=2.0, group=("Trades", "Sums"))), 2.0),
    ],
)
def test_the_two_ways_in_which_a_group_fails_over(
    failover: str | None, crash: Crash, lost: float, targets: tuple[str, ...]
) -> None:
    for seconds in (0.3, 4.0):
        got = output(crash, 150, seconds, failover=failover, targets=targets)

        assert got == failed_over(150, 150 + round(min(lost, seconds) * RATE))


def test_a_policy_that_a_campaign_names_counts_instead_of_the_group() -> None:
    for crash in (Crash(protection=None, restart="live"), Crash(protection=rr.checkpoint(every="3s"), age=2)):
        assert output(crash, 150, 4.0, failover="exact") == output(crash, 150, 4.0)


def test_what_fails_beside_a_group_comes_back_as_it_would_alone() -> None:
    crash = Crash(restart="live")
    got = output(crash, 150, 4.0, failover="exact", targets=("Sums", "Quotes"))

    # Quotes of the outage are missed, and no others; the group loses nothing.
    assert got == {n: total for n, total in failed_over(150, 150).items() if not 150 <= n < 190}
    got = output(crash, 150, 4.0, failover="plain", targets=("Sums", "Quotes"))
    assert got == {n: total for n, total in failed_over(150, 160).items() if not 150 <= n < 190}


def test_an_operators_own_protection_counts_unless_another_is_named() -> None:
    protected = application(rr.checkpoint(every="2s")).graph()["Sums"]
    bare = application().graph()["Sums"]

    backs = [
        come_back(Crash(), protected, restart="live", rate=RATE, chance=0.25),
        come_back(Crash(), bare, restart="resume", rate=RATE, chance=0.25),
    ]

    assert [(b.misses, b.holds, b.age, b.every) for b in backs] == [
        (True, "older", 5, 20),
        (False, "empty", 0, 0),
    ]


def test_an_element_that_resumes_reads_what_came_meanwhile() -> None:
    got = output(Crash(protection=None), 150, 4.0)

    assert got == plain(150, 150, saved=1150)


def test_the_age_of_a_checkpoint_is_drawn_from_its_interval() -> None:
    setup = Setup.of(application().graph(), campaign(PROTECTIONS["checkpoint of any age"], ("Sums",)))
    crash = PROTECTIONS["checkpoint of any age"]
    ages = [setup.come_back(task, crash, "Sums").age for task in setup.campaign.tasks()]

    # By the offset: the outages of one begin at the same moment.
    assert len(set(ages)) == len(setup.campaign.offsets)
    assert all(0 <= age <= 30 for age in ages)


def test_a_group_covers_what_is_in_it_alone() -> None:
    crash = Crash(protection=Replicas(failover=1.0, group=("Trades", "Sums")), memory="kept", restart="live")
    setup = Setup.of(
        application().graph(), campaign(crash, ("Met",)), block_rows=random.Random(1).randrange(20, 60)
    )
    seeded = setup.seeded(0)
    task = list(setup.campaign.tasks())[-1]

    lost = seeded.run(task)

    # Met is out for all of the outage: no quote of it comes out.
    ns = [n for piece in lost.output(seeded.golden, "Out") for n in piece.columns["n"].to_pylist()]
    assert not [n for n in ns if 220 <= n < 280]
