"""Profiles from the metrics of runs: what the lines say, what they cannot, and lines that say too little."""

from __future__ import annotations

from typing import Any

import pytest

import riprap as rr
from riprap.errors import ModelError
from riprap.graph.graph import Graph
from riprap.model import Profile, parts_of
from riprap.model.profiling import measure_profile

SCHEMA = "n bigint, k string, v bigint"


def lines_of(*batches: dict[str, Any], element: str = "main", seconds: float = 1.0) -> list[dict[str, Any]]:
    """Write metrics as a run does, a batch a second: of each operator (in, out, seconds, what else there is)."""
    return [
        {
            "element": element,
            "batch": number,
            "time": 100.0 + number,
            "rows": batch["Rows"][0],
            "repeated": False,
            "seconds": {"compute": seconds, "publish": 0.2, "task": {"read": 0.3, "arrive": 0.1}},
            "operators": {
                name: {"in": came, "out": made, "seconds": spent, **(more[0] if more else {})}
                for name, (came, made, spent, *more) in batch.items()
            },
        }
        for number, batch in enumerate(batches)
    ]


def plain() -> Graph:
    app = rr.Application("plain")
    rows = app.source("Rows", rr.rows([], SCHEMA))
    some = app.functor("Some", rows, where="v > 0", select="k, v")
    sums = app.aggregate(
        "Sums", some, by="k", window=rr.sliding(tuples=3), emit=rr.every(tuples=1), select="sum(v) as total"
    )
    app.sink("Out", sums, rr.memory())
    return app.graph()


def batch(came: int = 100, spent: float = 0.05, kept: int = 30) -> dict[str, Any]:
    held = {"state_tuples": kept, "state_bytes": 40 * kept}
    return {
        "Rows": (came, came, 0.0),
        "Some": (came, came // 4, spent),
        "Sums": (came // 4, came // 4, 0.1, held),
        "Out": (came // 4, came // 4, 0.0),
    }


def test_times_leave_out_the_warm_up_and_are_the_median_of_the_rest() -> None:
    spent = [9.0, 0.05, 0.05, 0.07, 0.05, 5.0]

    profile = measure_profile(plain(), lines_of(*(batch(spent=s) for s in spent)))

    (port,) = profile.operators["Some"].ports
    assert port.time == pytest.approx(0.05 / 100)
    assert port.selectivity == 0.25
    assert profile.operators["Rows"].ports[0].time == pytest.approx(0.4 / 100)
    assert profile.operators["Out"].ports[0].time == pytest.approx(0.2 / 25)


def test_a_run_of_one_batch_says_that_its_times_are_those_of_the_warm_up() -> None:
    profile = measure_profile(plain(), lines_of(batch()))

    assert profile.operators["Some"].ports[0].time == pytest.approx(0.05 / 100)
    assert "Some: its time is that of the first batches, in which code is compiled" in profile.assumed
    assert profile.rates == {"Rows": 100.0}


def test_of_what_is_kept_for_a_window_of_tuples_the_least_counts() -> None:
    profile = measure_profile(plain(), lines_of(*(batch(kept=kept) for kept in (3, 9, 27, 30, 44, 33))))

    sums = profile.operators["Sums"]
    assert sums.ports[0].state == 30
    assert sums.tuple_bytes == 40
    assert not profile.operators["Some"].stateful
    assert any("Sums: alpha and beta are not measured" in each for each in profile.assumed)


@pytest.mark.parametrize(
    ("kept", "full"),
    [((0, 100, 200), 200), ((10, 60, 110, 108), 108), ((5, 90), 90), ((0, 100, 96, 101), 96), ((40,), 40)],
)
def test_state_is_counted_when_it_is_full(kept: tuple[int, ...], full: int) -> None:
    profile = measure_profile(plain(), lines_of(*(batch(kept=each) for each in kept)))

    assert profile.operators["Sums"].ports[0].state == full


def test_a_window_that_is_emptied_is_full_before_it_closes() -> None:
    app = rr.Application("emptied")
    rows = app.source("Rows", rr.rows([], SCHEMA))
    sums = app.aggregate("Sums", rows, window=rr.tumbling(tuples=1000), select="sum(v) as total")
    app.sink("Out", sums, rr.memory())
    held = [{"state_tuples": kept, "state_bytes": kept} for kept in (400, 800, 200, 600, 0)]
    lines = lines_of(
        *({"Rows": (400, 400, 0.0), "Sums": (400, 0, 0.1, each), "Out": (0, 0, 0.0)} for each in held)
    )

    assert measure_profile(app.graph(), lines).operators["Sums"].ports[0].state == 600


def test_repeated_batches_do_not_count() -> None:
    lines = lines_of(batch(), batch(), batch())
    again = {**lines[1], "repeated": True, "operators": {}}

    assert measure_profile(plain(), [lines[0], again, *lines[1:]]) == measure_profile(plain(), lines)


def test_rates_are_measured_or_given() -> None:
    lines = lines_of(*(batch(came=200) for _ in range(5)))

    measured = measure_profile(plain(), lines)
    assert measured.rates == {"Rows": 200.0}
    assert any(each.startswith("rates: as fast as the run went") for each in measured.assumed)

    assert measure_profile(plain(), lines, rate=450.0).rates == {"Rows": 450.0}
    live = measure_profile(plain(), lines, live=True)
    assert not any(each.startswith("rates") for each in live.assumed)


def test_a_source_that_is_paced_has_the_rate_it_says() -> None:
    app = rr.Application("paced")
    app.sink("Out", app.source("Rows", rr.rows([], SCHEMA, rate=70)), rr.memory())
    one = {"Rows": (100, 100, 0.0), "Out": (100, 100, 0.0)}

    profile = measure_profile(app.graph(), lines_of(one, one))

    assert profile.rates == {"Rows": 70.0}
    assert not any(each.startswith("rates") for each in profile.assumed)


def test_two_sources_share_a_rate_as_they_share_the_tuples() -> None:
    app = rr.Application("two")
    rows, more = (app.source(name, rr.rows([], SCHEMA)) for name in ("Rows", "More"))
    app.sink("Out", app.union("Both", rows, more), rr.memory())
    one = {"Rows": (100, 100, 0.0), "More": (300, 300, 0.0), "Both": (400, 400, 0.1), "Out": (400, 400, 0.0)}

    profile = measure_profile(app.graph(), lines_of(one, one), rate=1000.0)

    assert profile.rates == {"Rows": 250.0, "More": 750.0}


def joined(right: int) -> Graph:
    app = rr.Application("joined")
    rows = app.source("Rows", rr.rows([], SCHEMA))
    parts = app.split("Parts", rows, outputs={"Left": "v = 1", "Right": "v > 1"})
    windows = (rr.sliding(tuples=1), rr.sliding(tuples=right))
    renamed = app.functor("Renamed", parts["Right"], select="k, v as w")
    both = app.join("Both", parts["Left"], renamed, by="k", windows=windows, select="k, v, w")
    app.sink("Out", both, rr.memory())
    return app.graph()


def join_batch(held: dict[str, Any]) -> dict[str, Any]:
    streams = {"streams": {"Left": 20, "Right": 60}}
    return {
        "Rows": (100, 100, 0.0),
        "Parts": (100, 80, 0.1, streams),
        "Renamed": (60, 60, 0.1),
        "Both": (80, 40, 0.1, {"ports": [20, 60], "state_bytes": 10, **held}),
        "Out": (40, 40, 0.0),
    }


def test_streams_have_selectivities_of_their_own_and_a_port_that_meets_an_empty_window_makes_nothing() -> (
    None
):
    one = join_batch({"state_tuples": 5})
    graph = joined(0)

    profile = measure_profile(graph, lines_of(one, one))

    assert profile.operators["Parts"].ports[0].selectivity == {"Left": 0.2, "Right": 0.6}
    left, right = profile.operators["Both"].ports
    assert (left.selectivity, right.selectivity) == (0.0, pytest.approx(40 / 60, abs=1e-4))
    assert (left.state, right.state) == (5, 0)
    assert left.time == right.time == pytest.approx(0.1 / 80)
    assert not any("shared among the ports" in each for each in profile.assumed)
    assert [part.name for part in parts_of(graph, profile)] == ["Rows", "Parts", "Renamed", "Both", "Out"]


def test_where_either_port_may_bring_results_about_they_are_shared_and_it_is_said() -> None:
    one = join_batch({"state_tuples": 12, "slots": {"0": 5, "1": 7}})

    profile = measure_profile(joined(2), lines_of(one, one))

    left, right = profile.operators["Both"].ports
    assert left.selectivity == right.selectivity == 0.5
    assert (left.state, right.state) == (5, 7)
    assert "Both: what came out is shared among the ports in proportion to what came in" in profile.assumed


def test_what_time_makes_come_out_is_no_selectivity() -> None:
    app = rr.Application("timed")
    rows = app.source("Rows", rr.rows([], "n bigint, t timestamp"))
    counts = app.aggregate("Counts", rows, window=rr.tumbling(time="2s", on="t"), select="count(*) as c")
    app.sink("Out", counts, rr.memory())
    held = {"state_tuples": 50, "state_bytes": 400}
    one = {"Rows": (100, 100, 0.0), "Counts": (100, 3, 0.1, held), "Out": (3, 3, 0.0)}

    profile = measure_profile(app.graph(), lines_of(one, one), rate=50.0)

    counts_ = profile.operators["Counts"]
    # Two hundred tuples take four seconds, in which there are two ticks and six results.
    assert (counts_.tick, counts_.ticked, counts_.ports[0].selectivity) == (2.0, 3.0, 0.0)


def test_punctuations_are_told_where_they_are_made_and_where_they_make_something() -> None:
    app = rr.Application("marked")
    rows = app.source("Rows", rr.rows([], SCHEMA))
    marked = app.punctor("Marked", rows, where="v = 1")
    passed = app.functor("Passed", marked, select="n, k, v")
    counts = app.aggregate(
        "Counts", passed, by="k", window=rr.tumbling(punctuation=True), select="count(*) as c"
    )
    app.sink("Out", counts, rr.memory())
    one = {
        "Rows": (100, 100, 0.0),
        "Marked": (100, 100, 0.1, {"punctuations": {"in": 0, "out": 10}}),
        "Passed": (100, 100, 0.1, {"punctuations": {"in": 10, "out": 10}}),
        "Counts": (100, 40, 0.1, {"punctuations": {"in": 10, "out": 10}}),
        "Out": (40, 40, 0.0),
    }

    operators = measure_profile(app.graph(), lines_of(one, one)).operators

    assert operators["Marked"].punctuated == 0.1
    assert (operators["Passed"].punctuated, operators["Passed"].on_punctuation) == (0.0, 0.0)
    assert (operators["Counts"].on_punctuation, operators["Counts"].ports[0].selectivity) == (4.0, 0.0)


def without(entry: str) -> list[dict[str, Any]]:
    lines = lines_of(join_batch({"state_tuples": 5}))
    for did in lines[0]["operators"].values():
        did.pop(entry, None)
    return lines


@pytest.mark.parametrize(
    ("graph", "lines", "said"),
    [
        (plain(), [], "the run has no metrics"),
        (plain(), [{"repeated": True}], "the run has no metrics"),
        (joined(0), lines_of(batch()), "says nothing of operator 'Parts'; it has: Rows, Some, Sums, Out"),
        (plain(), lines_of(batch(came=0)), "source 'Rows' brought no tuple in"),
        (joined(0), without("ports"), "does not tell the ports of operator 'Both' apart"),
        (joined(0), without("streams"), "does not tell the streams of operator 'Parts' apart"),
    ],
)
def test_lines_that_say_too_little_are_refused(graph: Graph, lines: list[dict[str, Any]], said: str) -> None:
    with pytest.raises(ModelError, match=said):
        measure_profile(graph, lines)


def test_an_operator_that_nothing_reached_is_unknown() -> None:
    quiet = {**batch(), "Sums": (0, 0, 0.0), "Out": (0, 0, 0.0)}

    profile: Profile = measure_profile(plain(), lines_of(quiet, quiet))

    assert profile.operators["Sums"].ports[0].selectivity == 1.0
    assert "Sums: nothing came in, so its time and selectivity are unknown" in profile.assumed
