"""Where windows cannot be recorded one by one it is said why, and what to do; and what is made of it where they can."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import riprap as rr
from riprap.compiler import compile_graph, explain
from riprap.drawing import draw_svg, draw_text
from riprap.graph.guarantees import guarantees
from riprap.protection import WindowTerms

POLICY = rr.eventual()


def described(protect: Any = None) -> tuple[rr.Application, rr.Stream]:
    app = rr.Application("shop")
    return app, app.source("sales", rr.rows([], "item string, price bigint, at timestamp"), protect=protect)


class Counts(rr.CustomOperator):
    """Counts, in an object."""

    def on_tuple(self, port: int | str, tuple: dict[str, Any]) -> None:
        self.submit({"n": 1})

    def checkpoint(self) -> int:
        return 1

    def reset(self, saved: int) -> None:
        """Nothing is remembered."""


@pytest.mark.parametrize(
    ("add", "why"),
    [
        (
            lambda a, s: a.deduplicate("d", s, by="item", tuples=10, protect=POLICY),
            "tuples= counts all of the stream in one. Write time=",
        ),
        (
            lambda a, s: a.custom("c", Counts, s, schema="n bigint", protect=POLICY),
            "a custom keeps more than windows, each under its key. Write rr.checkpoint",
        ),
        (
            lambda a, s: a.sort("c", s, order="price", window=rr.tumbling(tuples=4), protect=POLICY),
            "a sort keeps more than windows",
        ),
        (lambda a, s: a.functor("f", s, where="price > 3", protect=POLICY), "a functor has none"),
    ],
    ids=["deduplicate", "custom", "sort", "functor"],
)
def test_what_is_not_kept_by_key_is_refused(
    add: Callable[[rr.Application, rr.Stream], Any], why: str
) -> None:
    app, sales = described()
    with pytest.raises(rr.GraphError) as caught:
        add(app, sales)
    assert why in str(caught.value)


def sums(app: rr.Application, stream: rr.Stream, name: str = "sums") -> rr.Stream:
    return app.aggregate(
        name, stream, by="item", window=rr.tumbling(tuples=3), select="sum(price) as t", protect=POLICY
    )


def test_options_are_checked() -> None:
    for wrong in (
        {"extent": 0},
        {"replay": 1.5},
        {"extent": True},
        {"share": "0%"},
        {"share": 2},
        {"share": "much"},
    ):
        with pytest.raises(rr.GraphError, match=f"eventual.{next(iter(wrong))}="):
            rr.eventual(**wrong)  # type: ignore[arg-type]
    assert rr.eventual(share=0.5).terms == rr.eventual(share="50%").terms == WindowTerms(share=0.5)


def test_it_is_alone_with_its_log() -> None:
    app, sales = described()
    app.sink("out", app.functor("big", sums(app, sales), where="t > 3"), rr.memory())
    plans = {p.name: [o.name for o in p.graph] for p in compile_graph(app.graph(), buckets=4, tasks=2).plans}
    assert plans["sums"] == ["sales", "sums", "to:sums"]
    assert plans["big"] == ["sums", "big", "out"]
    app.place("together", "sums", "big")
    with pytest.raises(rr.GraphError, match="placed in 'together' with it"):
        compile_graph(app.graph(), buckets=4, tasks=2)


def test_in_a_replica_group_it_is_refused() -> None:
    app, sales = described()
    total = sums(app, sales)
    app.sink("out", total, rr.memory())
    app.replicate("hot", total)
    with pytest.raises(rr.GraphError, match="a log that begins anew when it comes back"):
        compile_graph(app.graph(), buckets=4, tasks=2)


def test_in_a_region_results_count_exactly_once() -> None:
    app, sales = described(rr.consistent(period="2s"))
    app.sink("out", sums(app, sales), rr.parquet("out"))
    graph = app.graph()
    assert guarantees(graph)["out"]["host"].word == "exactly once"
    layout = compile_graph(graph, buckets=4, tasks=2)
    (plan,) = (p for p in layout.plans if p.recorded is not None)
    assert (plan.region, plan.replays, dict(plan.protected)) == ("sales", True, {})
    lines = [text for what, text in explain(layout) if what == "protect"]
    assert "sums: each open window recorded in its output log" in lines[1]


def test_outside_of_a_region_its_state_is_not_what_is_lost() -> None:
    app, sales = described()
    app.sink("out", sums(app, sales), rr.parquet("out"))
    held = guarantees(app.graph())["out"]["host"]
    assert (held.word, held.why) == ("at most once", ("results that are not published yet are lost",))


def test_a_drawing_says_whose_windows_are_recorded() -> None:
    app, sales = described()
    app.sink("out", sums(app, sales), rr.memory())
    counts = app.functor("counts", sales, variables={"n": "0L"}, update="n + 1 as n", protect=POLICY)
    app.sink("all", counts, rr.memory())
    drawn = draw_text(app.graph())
    assert "3 tuples, recorded" in drawn
    assert drawn.count("recorded") == 2
    assert "3 tuples, recorded" in draw_svg(app.graph())
