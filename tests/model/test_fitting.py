"""How long state stays wrong after an outage: counted by another program, known in advance, or refused."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import riprap as rr
from riprap.errors import ModelError
from riprap.model import OperatorProfile, Profile
from riprap.model.causes import UNFITTED
from riprap.model.factors import explained, fit_factors
from riprap.model.fitted_profile import blank_profile, put_in
from riprap.model.fitting import Fit, fit_graph
from riprap.model.outages import held_by_key, renewals
from riprap.windows import Every, Window

ROWS = [{"n": n, "k": f"k{n * 7 % 10}", "v": n % 3} for n in range(600)]
SCHEMA = "n bigint, k string, v bigint"


class Fixed(np.random.Generator):
    """Draws the points one after the other, so that every one is looked at."""

    def __init__(self) -> None:
        super().__init__(np.random.PCG64(0))

    def integers(self, low: int, high: int, size: int) -> np.ndarray:  # type: ignore[override]
        return low + np.arange(size) % (high - low)


def tuple_by_tuple(keys: list[int], window: int, start: int, lost: int) -> int:
    """Say how many tuples renew the windows, looking at one tuple after the other."""
    affected = set()
    for key in keys[start : start + lost]:
        affected.add(key)
    return sum(min(window, sum(1 for k in keys if k == key)) for key in affected)


@settings(max_examples=60, deadline=None)
@given(
    keys=st.lists(st.integers(0, 6), min_size=1, max_size=40),
    window=st.integers(1, 6),
    data=st.data(),
)
def test_renewals_are_those_that_are_counted_tuple_by_tuple(
    keys: list[int], window: int, data: st.DataObject
) -> None:
    lost = data.draw(st.integers(0, len(keys)))
    points = len(keys) - lost + 1
    numbers = np.array(keys)

    got = renewals(numbers, held_by_key(numbers, window), lost, points=points, rng=Fixed())

    assert got.tolist() == [tuple_by_tuple(keys, window, start, lost) for start in range(points)]


@pytest.mark.parametrize("lost", [1, 50, 200, 1000])
def test_uniform_keys_have_the_expectation_of_the_formula(lost: int) -> None:
    rng = np.random.default_rng(5)
    keys, window = rng.integers(0, 200, 100_000), 5

    got = renewals(keys, held_by_key(keys, window), lost, points=4000, rng=rng).mean()

    assert got == pytest.approx(window * 200 * (1 - (1 - 1 / 200) ** lost), rel=0.01)


def test_an_outage_longer_than_the_stream_is_refused() -> None:
    keys = np.zeros(5, np.int64)
    with pytest.raises(ModelError, match="takes 6 tuples, and the stream has 5"):
        renewals(keys, held_by_key(keys, 1), 6, points=1, rng=np.random.default_rng(0))


@pytest.mark.parametrize(("alpha", "beta"), [(0.035, 1.98), (0.0, 0.4), (0.3, 0.0)])
def test_factors_are_found_again_below_and_beyond_the_cap(alpha: float, beta: float) -> None:
    lost = np.linspace(10, 20_000, 60)
    exact = np.minimum(alpha * 15_495 + beta * lost, 15_495)

    found = fit_factors(lost, exact, 15_495)

    assert found == pytest.approx((alpha, beta), abs=1e-3)
    assert explained(exact, np.minimum(found[0] * 15_495 + found[1] * lost, 15_495)) > 0.999


def test_a_fit_that_explains_nothing_says_so() -> None:
    observed = np.array([1.0, 2.0, 3.0])
    assert explained(observed, np.full(3, 2.0)) == pytest.approx(0.0)
    assert explained(np.full(3, 2.0), np.full(3, 2.0)) == 1.0
    assert explained(np.full(3, 2.0), np.full(3, 3.0)) == 0.0


def keyed(window: Window, emit: Every | None = None) -> rr.Graph:
    app = rr.Application("keyed")
    rows = app.source("Rows", rr.rows(ROWS, SCHEMA), position="n")
    some = app.functor("Some", rows, where="v > 0", select="n, k, v")
    options = {} if emit is None else {"emit": emit}
    sums = app.aggregate("Sums", some, by="k", window=window, select="sum(v) as total", **options)
    app.sink("Out", sums, rr.memory())
    return app.graph()


def test_a_window_of_tuples_is_fitted_to_what_comes_in() -> None:
    graph = keyed(rr.sliding(tuples=3), rr.every(tuples=1))

    (fit,) = fit_graph(graph, rates=(30.0,), recoveries=(0.1, 1.0), points=50)

    # Two thirds of the tuples come in, and any ten that follow one another in the source have ten keys.
    assert (fit.operator, fit.port, fit.how, fit.state) == ("Sums", 0, "tuples", 30.0)
    assert fit.share == pytest.approx(2 / 3)
    assert [point.lost for point in fit.points] == [2, 20]
    assert [point.observed for point in fit.points] == [6.0, 30.0]
    assert fit_graph(graph, rates=(30.0,), recoveries=(0.1, 1.0), points=50) == (fit,)


def test_streams_that_meet_at_a_port_are_in_order() -> None:
    app = rr.Application("meeting")
    rows = app.source("Rows", rr.rows(ROWS, SCHEMA), position="n")
    even = app.functor("Even", rows, where="n % 2 = 0", select="n, k, v")
    odd = app.functor("Odd", rows, where="n % 2 = 1", select="n, k, v")
    last = app.aggregate(
        "Last",
        [even, odd],
        by="k",
        window=rr.sliding(tuples=1),
        emit=rr.every(tuples=1),
        select="last(n) as n",
    )
    app.sink("Out", last, rr.memory())

    (fit,) = fit_graph(app.graph(), rates=(10.0,), recoveries=(1.0,), points=20)

    # Ten keys in ten tuples; one stream after the other, there would be five.
    assert fit.points[0].observed == 10.0


def test_a_port_of_a_join_without_a_window_has_nothing_to_fit() -> None:
    app = rr.Application("joined")
    rows = app.source("Rows", rr.rows([*ROWS, {"n": 600, "k": None, "v": 1}], SCHEMA), position="n")
    left = app.functor("Left", rows, where="v = 1", select="k, v")
    right = app.functor("Right", rows, where="v = 2", select="k, v as w")
    both = app.join(
        "Both", left, right, by="k", windows=(rr.sliding(tuples=1), rr.sliding(tuples=0)), select="k, v, w"
    )
    app.sink("Out", both, rr.memory())

    (fit,) = fit_graph(app.graph(), rates=(30.0,), recoveries=(1.0,), points=10)

    assert (fit.operator, fit.port, fit.state) == ("Both", 0, 10.0)
    assert fit.share == pytest.approx(200 / 601), "a null key is not kept"


def test_a_window_of_time_is_renewed_by_what_comes_in_its_length() -> None:
    app = rr.Application("timed")
    rows = [{"n": n, "t": datetime(2026, 1, 1, 0, n // 60, n % 60)} for n in range(200)]
    source = app.source("Rows", rr.rows(rows, "n bigint, t timestamp"), position="n")
    recent = app.aggregate(
        "Recent",
        source,
        window=rr.sliding(time="10s", on="t"),
        emit=rr.every(tuples=1),
        select="count(*) as c",
    )
    app.sink("Out", recent, rr.memory())

    (fit,) = fit_graph(app.graph(), rates=(1.0,), recoveries=(5.0,))

    assert (fit.how, fit.state, fit.alpha, fit.beta) == ("time", 10.0, 1.0, 0.0)
    assert "one length of its window" in fit.note


def test_state_without_a_window_is_said_not_to_renew_itself() -> None:
    app = rr.Application("counting")
    rows = app.source("Rows", rr.rows(ROWS, SCHEMA), position="n")
    counts = app.functor(
        "Count", rows, by="k", variables={"c": "cast(0 as bigint)"}, update="c + 1 as c", select="k, c"
    )
    app.sink("Out", counts, rr.memory())

    (fit,) = fit_graph(app.graph(), rates=(1.0,), recoveries=(1.0,))

    assert (fit.how, fit.alpha, fit.beta, fit.gamma, fit.r2) == ("other", 1.0, 0.0, 1.0, None)
    assert fit.state == 10.0
    assert "does not renew itself by tuples alone" in fit.note


def test_a_feed_that_is_too_short_is_refused() -> None:
    with pytest.raises(ModelError, match=r"Sums: an outage of 9 s at 100 .* takes 600 .* the feed has 400"):
        fit_graph(keyed(rr.sliding(tuples=3), rr.every(tuples=1)), rates=(50.0, 100.0), recoveries=(1.0, 9.0))


def test_an_empty_feed_is_refused() -> None:
    app = rr.Application("empty")
    rows = app.source("Rows", rr.rows([], SCHEMA))
    sums = app.aggregate(
        "Sums", rows, by="k", window=rr.sliding(tuples=2), emit=rr.every(tuples=1), select="sum(v) as s"
    )
    app.sink("Out", sums, rr.memory())

    with pytest.raises(ModelError, match="the feed of 'empty' has no tuples"):
        fit_graph(app.graph())


def test_the_example_of_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    page = Path(__file__).parents[2] / "docs" / "profiles.md"
    (example,) = re.findall(r"```python\n(.*?)```", page.read_text(), re.S)

    exec(example, {})

    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [
        "Aggregator",
        "BargainIndex",
    ]


FIT = Fit(operator="Sums", port=0, how="tuples", state=30.0, alpha=0.2, beta=1.5, note="Sums: full")


def test_a_fit_goes_into_the_profile_and_its_advice_goes() -> None:
    graph = keyed(rr.sliding(tuples=3), rr.every(tuples=1))
    blank = blank_profile(graph, 450.0)
    known = Profile(rates=blank.rates, operators=blank.operators, assumed=("a", f"Sums: {UNFITTED}"))

    made = put_in(known, [FIT])

    (port,) = made.operators["Sums"].ports
    assert (port.state, port.alpha, port.beta) == (30.0, 0.2, 1.5)
    assert made.assumed == ("a", "Sums: full")
    assert made.operators["Some"] == known.operators["Some"]


def test_a_profile_with_too_few_ports_is_refused() -> None:
    profile = Profile(rates={"Rows": 1.0}, operators={"Sums": OperatorProfile()})
    with pytest.raises(ModelError, match="has a port 1, and its profile has 1 ports"):
        put_in(profile, [Fit(operator="Sums", port=1, how="tuples", state=1.0, alpha=0.0, beta=0.0)])
