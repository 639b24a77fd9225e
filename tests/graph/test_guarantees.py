"""What holds of a sink's results after a loss, in words and as data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import riprap as rr
from riprap.graph.guarantees import Guarantee, describe_guarantees, guarantees

SCHEMA = "k int, v int"
UNPUBLISHED = "results that are not published yet are lost"
AGAIN = "the newest batch may come again"
POWER = "region 'a' has durable='host', and need not survive it"


def region(**terms: Any) -> rr.Policy:
    return rr.consistent(period="2s", **terms)


def source(app: rr.Application, name: str = "a", **more: Any) -> rr.Stream:
    return app.source(name, rr.rows([], SCHEMA), **more)


def sums(app: rr.Application, stream: rr.Stream, name: str = "sums", **more: Any) -> rr.Stream:
    return app.aggregate(name, stream, by="k", window=rr.sliding(tuples=2), select="sum(v) as v", **more)


def said(build: Callable[[rr.Application], object]) -> dict[str, str]:
    app = rr.Application("said")
    build(app)
    held = guarantees(app.graph())
    assert list(held) == ["out"]
    return {loss: str(guarantee) for loss, guarantee in held["out"].items()}


def placed_live(app: rr.Application) -> None:
    made = sums(app, source(app))
    app.place("late", made, restart="live")
    app.sink("out", made, rr.memory())


def after_a_region(app: rr.Application) -> None:
    cut = sums(app, sums(app, source(app, protect=region()), "inside"), "beside", protect=rr.autonomous())
    app.sink("out", cut, rr.memory())


def mixed(app: rr.Application) -> None:
    slow = sums(app, source(app, "slow"), "slower")
    met = app.barrier("met", source(app, protect=region()), slow, select="a.k as k, slower.v as v")
    app.sink("out", met, rr.memory())


def merged(app: rr.Application) -> None:
    one, other = source(app, protect=region()), source(app, "b", protect=region(durable="power"))
    app.sink("out", [one, other], rr.memory())


def in_a_group(app: rr.Application, *, behind: bool = False, **more: Any) -> None:
    made = sums(app, source(app))
    app.replicate("hot", made, **more)
    app.sink("out", sums(app, made, "behind") if behind else made, rr.memory())


BETWEEN = "results of 'hot' between one replica and the next are lost"
TWO = ("spark://one:7077", "spark://two:7077")


# For each loss what is said: of a process, a host's memory, the power.
TABLE: dict[str, tuple[Callable[[rr.Application], object], tuple[str, str, str]]] = {
    "a sink that takes once, nothing kept": (
        lambda app: app.sink("out", source(app), rr.memory()),
        ("exactly once", *[f"at most once ({UNPUBLISHED})"] * 2),
    ),
    "a sink that repeats, nothing kept": (
        lambda app: app.sink("out", source(app), rr.console()),
        (f"at least once ({AGAIN})", *[f"best effort ({UNPUBLISHED}; {AGAIN})"] * 2),
    ),
    "state that nobody saves": (
        lambda app: app.sink("out", sums(app, source(app)), rr.memory()),
        ("exactly once", *[f"approximately ({UNPUBLISHED}; the state of 'sums' starts afresh)"] * 2),
    ),
    "state that is saved": (
        lambda app: app.sink("out", sums(app, source(app), protect=rr.checkpoint(every="1s")), rr.memory()),
        (
            "exactly once",
            *[f"approximately ({UNPUBLISHED}; the state of 'sums' is as of the last checkpoint)"] * 2,
        ),
    ),
    "a barrier whose input is kept": (
        lambda app: app.sink(
            "out",
            app.barrier("met", source(app), source(app, "b"), select="a.k as k", protect=rr.checkpoint(every="1s")),
            rr.memory(),
        ),
        ("exactly once", *[f"at most once ({UNPUBLISHED})"] * 2),
    ),
    "an element that restarts live": (
        placed_live,
        (
            "approximately (what comes while 'late' is down is passed over)",
            *[
                f"approximately (what comes while 'late' is down is passed over; {UNPUBLISHED}; "
                "the state of 'sums' starts afresh)"
            ]
            * 2,
        ),
    ),
    "a source in no order": (
        lambda app: app.sink("out", app.source("a", rr.from_spark(str, schema=SCHEMA)), rr.memory()),
        (
            "approximately ('a': a DataFrame without position= cannot be replayed)",
            *[f"approximately ({UNPUBLISHED}; 'a': a DataFrame without position= cannot be replayed)"] * 2,
        ),
    ),
    "a source that forgets": (
        lambda app: app.sink("out", app.source("a", rr.from_tcp("h", 9, schema=SCHEMA, format="csv")), rr.memory()),
        ("exactly once, of what 'a' has read", *[f"at most once, of what 'a' has read ({UNPUBLISHED})"] * 2),
    ),
    "a region": (
        lambda app: app.sink("out", sums(app, source(app, protect=region())), rr.memory()),
        ("exactly once", "exactly once", f"approximately ({POWER})"),
    ),
    "a region that survives all": (
        lambda app: app.sink("out", sums(app, source(app, protect=region(durable="power"))), rr.memory()),
        ("exactly once",) * 3,
    ),
    "a region that survives a process": (
        lambda app: app.sink("out", sums(app, source(app, protect=region(durable="process"))), rr.memory()),
        ("exactly once", *["approximately (region 'a' has durable='process', and need not survive it)"] * 2),
    ),
    "a region and a sink that repeats": (
        lambda app: app.sink("out", sums(app, source(app, protect=region())), rr.console()),
        (*[f"at least once ({AGAIN})"] * 2, f"approximately ({POWER}; {AGAIN})"),
    ),
    "a region and a source that forgets": (
        lambda app: app.sink(
            "out", app.source("a", rr.from_tcp("h", 9, schema=SCHEMA, format="csv"), protect=region()), rr.memory()
        ),
        (*["exactly once, of what 'a' has read"] * 2, f"approximately, of what 'a' has read ({POWER})"),
    ),
    "a region with a port that others feed": (
        mixed,
        (
            *["exactly once, of what 'slower' puts out"] * 2,
            f"approximately ({POWER}; {UNPUBLISHED}; the state of 'slower' starts afresh)",
        ),
    ),
    "behind a region": (
        after_a_region,
        (
            "exactly once",
            f"approximately ({UNPUBLISHED}; the state of 'beside' starts afresh)",
            f"approximately ({POWER}; {UNPUBLISHED}; the state of 'beside' starts afresh)",
        ),
    ),
    "an exact group on one host": (
        in_a_group,
        ("exactly once", *[f"approximately ({UNPUBLISHED}; the state of 'sums' starts afresh)"] * 2),
    ),
    "a group that is read wherever it is ahead": (
        lambda app: in_a_group(app, failover="ahead"),
        ("exactly once", *[f"approximately ({UNPUBLISHED}; the state of 'sums' starts afresh)"] * 2),
    ),
    "an exact group on two hosts": (
        lambda app: in_a_group(app, hosts=TWO),
        (
            "exactly once",
            f"at most once ({UNPUBLISHED})",
            f"approximately ({UNPUBLISHED}; the state of 'sums' starts afresh)",
        ),
    ),
    "a group on two hosts that are one": (
        lambda app: in_a_group(app, hosts=TWO[:1] * 2),
        ("exactly once", *[f"approximately ({UNPUBLISHED}; the state of 'sums' starts afresh)"] * 2),
    ),
    "an exact group on two hosts, and state behind it": (
        lambda app: in_a_group(app, hosts=TWO, behind=True),
        (
            "exactly once",
            f"approximately ({UNPUBLISHED}; the state of 'behind' starts afresh)",
            f"approximately ({UNPUBLISHED}; the state of 'sums', 'behind' starts afresh)",
        ),
    ),
    "a plain group": (
        lambda app: in_a_group(app, failover="plain"),
        (
            f"at most once ({BETWEEN})",
            *[f"approximately ({BETWEEN}; {UNPUBLISHED}; the state of 'sums' starts afresh)"] * 2,
        ),
    ),
    "a plain group on two hosts": (
        lambda app: in_a_group(app, failover="plain", hosts=TWO),
        (
            f"at most once ({BETWEEN})",
            f"at most once ({BETWEEN}; {UNPUBLISHED})",
            f"approximately ({BETWEEN}; {UNPUBLISHED}; the state of 'sums' starts afresh)",
        ),
    ),
    "a plain group, and state behind it": (
        lambda app: in_a_group(app, failover="plain", hosts=TWO, behind=True),
        (
            f"approximately ({BETWEEN})",
            f"approximately ({BETWEEN}; {UNPUBLISHED}; the state of 'behind' starts afresh)",
            f"approximately ({BETWEEN}; {UNPUBLISHED}; the state of 'sums', 'behind' starts afresh)",
        ),
    ),
    "a plain group that comes back empty": (
        lambda app: in_a_group(app, failover="plain", hosts=TWO, back="empty"),
        (
            f"approximately ({BETWEEN}; a replica of 'hot' comes back with empty state)",
            f"approximately ({BETWEEN}; a replica of 'hot' comes back with empty state; {UNPUBLISHED})",
            f"approximately ({BETWEEN}; a replica of 'hot' comes back with empty state; {UNPUBLISHED}; the state of "
            "'sums' starts afresh)",
        ),
    ),
    "regions that are one": (merged, ("exactly once",) * 3),
}  # fmt: skip


@pytest.mark.parametrize("case", TABLE)
def test_what_holds_after_a_loss(case: str) -> None:
    build, wanted = TABLE[case]

    assert said(build) == dict(zip(("process", "host", "power"), wanted, strict=True))


def test_it_is_data_too() -> None:
    app = rr.Application("data")
    app.sink("out", sums(app, source(app)), rr.console())

    held = guarantees(app.graph())["out"]

    assert held["process"] == Guarantee(repeated=True, why=(AGAIN,))
    lost = (UNPUBLISHED, "the state of 'sums' starts afresh", AGAIN)
    assert held["host"] == Guarantee(missing=True, repeated=True, differing=True, why=lost)


def test_losses_that_come_to_the_same_are_said_once() -> None:
    app = rr.Application("words")
    a = source(app, protect=region())
    app.sink("kept", a, rr.memory())
    app.sink("safe", source(app, "b", protect=region(durable="power")), rr.memory())

    assert list(describe_guarantees(app.graph())) == [
        f"kept: after the loss of a process or a host's memory: exactly once; after the loss of the power: "
        f"approximately ({POWER})",
        "safe: after the loss of a process, a host's memory or the power: exactly once",
    ]
