"""The model of an outage: which wafers are lost, and what the model knows afterwards."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from riprap.apps.wafer_feed import make_wafers
from riprap.apps.wafer_model import Learned
from riprap_bench.wafer_outage import (
    ModelOutage,
    YieldPrediction,
    crash_points,
    deviations,
    outage_at,
    predict,
    quality,
    root_mean_square,
)

WAFERS = make_wafers(900, seed=11).to_pylist()


def learn(wafers: list[dict[str, Any]], learned: Learned) -> list[float | None]:
    return [learned.take(w["product"], w["sensors"], w["measured"]) for w in wafers]


def of(predictions: list[YieldPrediction]) -> list[float | None]:
    return [p.predicted for p in predictions]


def test_what_was_saved_is_what_the_model_goes_on_with() -> None:
    golden = predict(WAFERS)
    crashed = predict(WAFERS, ModelOutage(crash=500, back=560, saved=480))
    assert crashed[:500] == golden[:500]
    assert [p.wafer for p in crashed[500:]] == list(range(561, 901))
    restored = Learned()
    learn(WAFERS[:480], restored)
    assert of(crashed[500:]) == learn(WAFERS[560:], pickle.loads(pickle.dumps(restored)))


def test_without_a_copy_it_begins_anew() -> None:
    crashed = predict(WAFERS, ModelOutage(crash=500, back=560))
    assert crashed[:500] == predict(WAFERS)[:500]
    assert of(crashed[500:]) == learn(WAFERS[560:], Learned())


def test_an_outage_that_loses_nothing_changes_nothing() -> None:
    assert predict(WAFERS, ModelOutage(crash=500, back=500, saved=500)) == predict(WAFERS)


@pytest.mark.parametrize(
    ("crash", "every", "phase", "saved"),
    [(100, 1.0, 0.0, 100), (109, 1.0, 0.0, 100), (109, 1.0, 0.5, 105), (4, 1.0, 0.5, None), (5, 1.0, 0.5, 5),
     (109, None, 0.0, None), (109, 4.0, 0.0, 80)],
)  # fmt: skip
def test_the_newest_checkpoint_is_the_last_before_the_crash(
    crash: int, every: float | None, phase: float, saved: int | None
) -> None:
    outage = outage_at(crash, down=2.5, rate=10.0, every=every, phase=phase)
    assert outage == ModelOutage(crash=crash, back=crash + 25, saved=saved)


@pytest.mark.parametrize("wrong", [(5, 4, None), (5, 6, 7), (-1, 6, None)])
def test_an_impossible_outage_is_refused(wrong: tuple[int, int, int | None]) -> None:
    with pytest.raises(ValueError, match="0 <= saved <= crash <= back"):
        ModelOutage(crash=wrong[0], back=wrong[1], saved=wrong[2])


def test_both_scenarios_crash_at_the_same_wafers() -> None:
    pairs = crash_points(40, wafers=5_381, rate=100.0, seed=1)
    assert len({saved.crash for saved, _ in pairs}) > 35
    for saved, fresh in pairs:
        assert (saved.crash, saved.back) == (fresh.crash, fresh.back)
        assert fresh.saved is None
        assert 200 <= saved.back - saved.crash <= 500
        assert saved.back < 5_381
        assert (saved.saved is None and saved.crash < 100) or 0 <= saved.crash - (saved.saved or 0) <= 100
    assert crash_points(40, wafers=5_381, rate=100.0, seed=1) == pairs
    with pytest.raises(ValueError, match="are over before"):
        crash_points(1, wafers=500, rate=100.0)


def test_a_lot_is_off_by_its_error() -> None:
    golden = [
        YieldPrediction(1, 1, 80.0, 83.0),
        YieldPrediction(2, 1, 80.0, 76.0),
        YieldPrediction(3, 2, 80.0, 81.0),
    ]
    crashed = [
        *golden[:2],
        YieldPrediction(3, 2, 80.0, 84.0),
        YieldPrediction(4, 3, None, 1.0),
        YieldPrediction(5, 3, 1.0, None),
    ]
    assert quality(golden) == {1: (12.5) ** 0.5, 2: 1.0}
    assert deviations(quality(golden), quality(crashed), 1) == {1: 0.0, 2: 3.0}
    assert deviations(quality(golden), quality(crashed), 2) == {2: 3.0}
    assert root_mean_square([3.0, 4.0]) == 12.5**0.5
    assert root_mean_square([]) == 0.0


def test_a_copy_of_a_second_ago_is_worth_having() -> None:
    wafers = make_wafers(2_500, seed=12).to_pylist()
    golden = quality(predict(wafers))
    off: tuple[list[float], list[float]] = [], []
    for pair in crash_points(6, wafers=len(wafers), rate=20.0, seed=2):
        for errors, outage in zip(off, pair, strict=True):
            found = quality(predict(wafers, outage))
            errors += deviations(golden, found, wafers[outage.crash]["lot"]).values()
    assert 0 < root_mean_square(off[0]) < 0.6 * root_mean_square(off[1])
