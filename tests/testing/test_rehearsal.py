"""An application in memory comes back from a crash as a run does: with pages, from what was saved, or with nothing."""

from __future__ import annotations

from typing import Any

import pytest

import riprap as rr
from riprap.testing import Rehearsal, compare

WINDOW = rr.sliding(tuples=4)


def application(
    protect: rr.Policy | None = None, sink: Any = None, restart: Any = "resume"
) -> rr.Application:
    """Sum the newest four values of each key, in an element of its own."""
    app = rr.Application("sums")
    numbers = app.source("numbers", rr.rows([], "k string, v bigint"))
    sums = app.aggregate("sums", numbers, by="k", window=WINDOW, select="sum(v) as s", protect=protect)
    app.sink("out", sums, sink or rr.memory())
    app.place("apart", sums, "out", restart=restart)
    return app


def rows(*values: int) -> dict[str, Any]:
    return {"numbers": [{"k": "a", "v": value} for value in values]}


def sums(reached: dict[str, Any]) -> list[int]:
    return [row["s"] for row in reached["out"]]


@pytest.mark.parametrize("step", ["idle", "computed", "recorded", "published"])
def test_with_a_process_nothing_is_lost(step: Any) -> None:
    rehearsal = Rehearsal(application(), buckets=3)
    rehearsal.feed(rows(1, 2))
    rehearsal.crash("sums", step=step)
    assert sums(rehearsal.feed(rows(3), tasks=2)) == [6]
    assert sums(rehearsal.feed(rows(4, 5))) == [10, 14]


def test_a_sink_that_repeats_has_the_newest_batch_again() -> None:
    rehearsal = Rehearsal(application(sink=rr.callback(print)))
    rehearsal.crash("apart", step="published")
    assert sums(rehearsal.feed(rows(1, 2))) == [1, 3, 1, 3]
    assert sums(rehearsal.feed(rows(3))) == [6]


def test_with_a_host_goes_what_was_not_saved() -> None:
    rehearsal = Rehearsal(application())
    rehearsal.feed(rows(1, 2))
    rehearsal.crash("sums", lost="host", step="recorded")
    assert sums(rehearsal.feed(rows(3))) == [], "results that were computed and not published"
    assert sums(rehearsal.feed(rows(4))) == [4]
    rehearsal.crash("sums", lost="host", step="computed")
    assert sums(rehearsal.feed(rows(5))) == [5]
    with pytest.raises(rr.GraphError, match=r"'sums' is not saved.*Saved are: none"):
        rehearsal.save("sums")


def test_a_checkpoint_comes_back_without_what_would_have_left() -> None:
    rehearsal = Rehearsal(application(rr.checkpoint(every="1s")))
    rehearsal.feed(rows(1, 2, 3, 4))
    rehearsal.save()
    rehearsal.feed(rows(5))
    rehearsal.crash("sums", lost="host")
    # 5 is lost, and has pushed out 1.
    assert sums(rehearsal.feed(rows(6))) == [2 + 3 + 4 + 6]


def test_an_element_that_starts_live_misses_its_input() -> None:
    rehearsal = Rehearsal(application(restart="live"))
    rehearsal.feed(rows(1))
    rehearsal.feed(rows(2), held_back=["apart"])
    rehearsal.crash("apart")
    assert sums(rehearsal.feed(rows(3))) == [4]


def test_a_protected_barrier_loses_nothing() -> None:
    app = rr.Application("pairs")
    numbers = app.source("numbers", rr.rows([], "k string, v bigint"))
    low, high = (
        app.functor(name, numbers, where=f"v {sign} 10") for name, sign in (("low", "<"), ("high", ">="))
    )
    pairs = app.barrier("pairs", low, high, select="low.v + high.v as s", protect=rr.checkpoint(every="1s"))
    app.sink("out", pairs, rr.memory())
    rehearsal = Rehearsal(app)
    rehearsal.feed(rows(1, 2, 10))
    rehearsal.crash("pairs", lost="host", step="recorded")
    assert sums(rehearsal.feed(rows(20))) == [22]


def test_what_does_not_exist_is_named() -> None:
    rehearsal = Rehearsal(application())
    with pytest.raises(rr.GraphError, match="no source 'words'; there are: numbers"):
        rehearsal.feed({"words": []})
    with pytest.raises(
        rr.GraphError, match=r"no processing element or operator 'sum'; there are: sums, apart"
    ):
        rehearsal.crash("sum")
    with pytest.raises(rr.GraphError, match="is one of process, host, got 'disk'"):
        rehearsal.crash("sums", lost="disk")  # type: ignore[arg-type]


def test_several_sources_are_compared_in_the_order_given() -> None:
    app = rr.Application("both")
    schema = "at bigint, v bigint"
    left, right = (app.source(name, rr.rows([], schema), ordering="at") for name in ("left", "right"))
    app.sink("out", app.aggregate("all", [left, right], window=WINDOW, select="sum(v) as s"), rr.memory())
    events = [(("left", "right")[n * n % 3 % 2], {"at": n, "v": n * n}) for n in range(30)]

    def plainly(events: list[Any]) -> list[dict[str, int]]:
        values = [row["v"] for _, row in events]
        return [{"s": sum(values[max(0, n - 3) : n + 1])} for n in range(len(values))]

    compare(app, events, plainly)
    compare(app, events)
    with pytest.raises(AssertionError, match=r"part at tuple 9, \('left', {'at': 9.*\n.*row 9: {'s'"):
        compare(
            app, events, lambda events: plainly([e if e[1]["at"] < 9 else ("", {"v": 0}) for e in events])
        )
    with pytest.raises(rr.GraphError, match=r"give rows as pairs such as \('left', {...}\)"):
        compare(app, [{"at": 1, "v": 1}])
