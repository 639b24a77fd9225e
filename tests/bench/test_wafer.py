"""The benchmark of wafer yield: its sums on numbers worked out by hand, and that it notices output that is wrong."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from riprap.apps.wafer_feed import make_wafers
from riprap.errors import RunError
from riprap_bench.wafer import draw, figures, open_feed, result_of, table
from riprap_bench.wafer_errors import distribution
from riprap_bench.wafer_outage import ModelOutage, predict
from riprap_bench.wafer_trial import (
    SCENARIOS,
    DisagreementError,
    Pace,
    Point,
    Scenario,
    Seen,
    Trial,
    Wafers,
    Way,
    hand_out,
    judge,
    taken_until,
    told,
)

WAFERS = Wafers.of(make_wafers(420, seed=5))
GOLDEN = {1: 1.0, 2: 1.0, 3: 2.0, 4: 2.0, 5: 3.0}
POINT = Point(number=0, crash=120, down=2.0)


def trial(
    number: int, scenario: Scenario, lots: dict[int, float], way: Way = "session", **more: Any
) -> Trial:
    saved = 90 if scenario == "checkpoint" else None
    given: dict[str, Any] = {
        "outage": ModelOutage(crash=120, back=180, saved=saved),
        "seconds": 2.5,
        "age": 0.5 if scenario == "checkpoint" else None,
    }
    point = Point(number=number, crash=120, down=2.0)
    return Trial(point=point, scenario=scenario, way=way, lots=lots, **{**given, **more})


# Wafer 120 is in lot 3: what is off before it does not count, and lot 5 is missing in one run.
TRIALS = [
    trial(0, "checkpoint", {1: 9.0, 2: 9.0, 3: 5.0, 4: 2.0, 5: 3.0}),
    trial(0, "none", {1: 9.0, 2: 9.0, 3: 2.0, 4: 8.0, 5: -5.0}),
    trial(1, "checkpoint", {3: 2.0, 4: -2.0}, seconds=4.5, age=1.5),
    trial(1, "none", {3: 2.0, 4: 3.0, 5: 3.0}, outage=ModelOutage(crash=121, back=200)),
]


def test_errors_are_summed_up() -> None:
    result = result_of(WAFERS, GOLDEN, TRIALS[::-1], [trial(0, s, {3: 2.0}, "processes") for s in SCENARIOS])
    saved, none = (result["scenarios"][s] for s in SCENARIOS)
    # Errors 3, 0, 0 and 0, -4; 0, 6, -8 and 0, 1, 0.
    assert (saved["rmse"], saved["worst"], saved["median"], saved["lots"]) == (2.236, 4.0, 0.0, 5)
    assert (none["rmse"], none["worst"], none["median"]) == (
        pytest.approx((101 / 6) ** 0.5, rel=1e-3),
        8.0,
        0.5,
    )
    assert saved["wafers_lost"] == {"mean": 60.0, "least": 60, "greatest": 60}
    assert none["wafers_lost"] == {"mean": 69.5, "least": 60, "greatest": 79}
    assert saved["checkpoint_age_s"] == {"mean": 1.0, "least": 0.5, "greatest": 1.5}
    assert none["checkpoint_age_s"] is None
    assert saved["seconds_down"] == {"mean": 3.5, "least": 2.5, "greatest": 4.5}
    compared = result["compared"]
    assert (compared["points"], compared["helped"]) == (2, 1)
    assert compared["crash_apart_wafers"]["greatest"] == 1
    assert compared["back_apart_wafers"] == {"mean": 10.0, "least": 0, "greatest": 20}
    assert result["agreed"] == {"session": 4, "processes": 2}
    assert result["distribution"]["worst_point"] == 0
    worst = result["distribution"]["worst_run"]
    assert [worst["checkpoint"][percent] for percent in (0, 66, 67, 100)] == [0.0, 0.0, 3.0, 3.0]
    assert [worst["none"][percent] for percent in (0, 33, 34, 66, 67, 100)] == [0.0, 0.0, 6.0, 6.0, 8.0, 8.0]
    assert [line["rmse"] for line in result["trials"]][-2:] == [0.0, 0.0]


def test_a_distribution_is_that_of_sizes() -> None:
    assert distribution([5.0, -1.0], steps=2) == [1.0, 1.0, 5.0]
    assert distribution([]) == []
    hundred = distribution([float(-n) for n in range(1, 1001)])
    assert (hundred[0], hundred[1], hundred[50], hundred[100]) == (1.0, 10.0, 500.0, 1000.0)


def test_it_is_shown(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    result = result_of(WAFERS, GOLDEN, TRIALS, [trial(0, s, {3: 2.5}, "processes") for s in SCENARIOS])
    shown = table(json.loads(json.dumps(result)))
    assert "helped in 1 of 2 crashes" in shown
    # The greatest error is that of the first run, 8; with a checkpoint it had 3, and the other run 4.
    saved = [cell.strip() for cell in shown.splitlines()[2].split("|")]
    assert "worst of run 1" in shown
    assert saved[3:5] == ["4", "3"]
    assert "all 4 runs that crashed in one session and in all 2 whose process was killed" in shown
    (drawn,) = figures(result, tmp_path / "wafer.json")
    assert drawn == tmp_path / "wafer.svg"
    before = drawn.read_text()
    assert "All 2 crashes" in before
    assert "without" in before
    figures(result, tmp_path / "wafer.json")
    assert drawn.read_text() == before


def test_crashes_are_drawn_so_that_the_model_comes_back() -> None:
    points = draw(40, 5_381, 300.0, seed=1)
    assert draw(2, 5_381, 300.0, seed=1) == points[:2]
    assert all(2.0 <= p.down <= 5.01 and p.crash + (p.down + 2.9) * 300 < 5_381 for p in points)
    with pytest.raises(RunError, match=r"are over before an outage.*lower --rate"):
        draw(1, 1_000, 300.0, seed=1)


def test_a_feed_is_parquet_or_secom(tmp_path: Path) -> None:
    pa.parquet.write_table(make_wafers(10), tmp_path / "feed.parquet")
    assert open_feed(tmp_path / "feed.parquet") == make_wafers(10)
    with pytest.raises(RunError, match=r"--feed .*none.csv is not a feed of wafers"):
        open_feed(tmp_path / "none.csv")


def test_wafers_that_the_application_leaves_out_are_left_out() -> None:
    rows = make_wafers(20, seed=1).to_pylist()
    rows[3]["product"] = rows[4]["sensors"] = None
    rows[5]["measured"], rows[6]["sensors"][0] = float("nan"), float("inf")
    wafers = Wafers.of(pa.Table.from_pylist(rows, WAFERS.table.schema))
    assert [r["wafer"] for r in wafers.rows] == [1, 2, 3, *range(6, 21)]
    assert (wafers.rows[3]["measured"], wafers.rows[4]["sensors"][0]) == (None, None)


RESTORED = {"event": "restored", "operator": "Model", "batch": 2, "time": 1000.0, "age": 3.0}
LOST = {"event": "state lost", "operator": "Model"}
PASSED = {"event": "passed over", "element": "model"}
METRICS = [
    {"element": "model", "batch": 0, "operators": {"Model": {"in": 0}}},
    {"element": "wafer", "batch": 1, "operators": {"Clean": {"in": 70}}},
    {"element": "model", "batch": 1, "operators": {"Model": {"in": 70}}},
    {"element": "model", "batch": 2, "operators": {"Model": {"in": 20}}},
    {"element": "model", "batch": 3, "operators": {"Model": {"in": 30}}},
    {"element": "model", "batch": 3, "operators": {}},
    {"element": "model", "batch": 4, "operators": {"Model": {"in": 0}}},
]


def seen(outage: ModelOutage, event: dict[str, Any]) -> Seen:
    found = predict(WAFERS.rows, outage)
    names = ("wafer", "lot", "measured", "predicted")
    lots = told(found)
    return Seen(
        predictions=pa.table({name: [getattr(p, name) for p in found] for name in names}),
        lots=pa.table({"lot": list(lots), "error": list(lots.values())}),
        events=[{"event": "started"}, event, {**PASSED, "tuples": outage.back - outage.crash}],
        metrics=METRICS,
    )


def judged(given: Seen, scenario: Scenario = "checkpoint") -> Trial:
    return judge(WAFERS, given, POINT, scenario=scenario, way="session", crashed=998.5, seconds=2.1)


def test_what_a_run_went_through_is_read_off_its_output() -> None:
    outage = ModelOutage(crash=120, back=181, saved=90)
    found = judged(seen(outage, RESTORED))
    assert (found.outage, found.lost, found.age) == (outage, 61, 1.5)
    assert found.lots == told(predict(WAFERS.rows, outage))
    fresh = judged(seen(ModelOutage(crash=120, back=181), LOST), "none")
    assert (fresh.outage.saved, fresh.age) == (None, None)


def test_a_checkpoint_of_a_batch_that_was_not_told_of_has_it_all() -> None:
    assert taken_until(METRICS, 1, crash=150) == 70
    assert taken_until(METRICS, 7, crash=150) == 150


@pytest.mark.parametrize(
    ("outage", "event", "scenario", "says"),
    [
        (ModelOutage(crash=120, back=181, saved=80), RESTORED, "checkpoint", "the first difference"),
        (ModelOutage(crash=120, back=181), RESTORED, "checkpoint", "the first difference"),
        (ModelOutage(crash=120, back=181, saved=90), LOST, "checkpoint", "the first difference"),
        (ModelOutage(crash=120, back=181, saved=90), RESTORED, "none", "nobody had saved"),
        (ModelOutage(crash=120, back=181), {"event": "warning"}, "none", "neither restored nor lost"),
        (ModelOutage(crash=120, back=120, saved=120), RESTORED, "checkpoint", "cannot have been down"),
        (ModelOutage(crash=80, back=90, saved=70), RESTORED, "checkpoint", "saved <= crash"),
    ],
)
def test_output_that_is_wrong_is_noticed(
    outage: ModelOutage, event: dict[str, Any], scenario: Scenario, says: str
) -> None:
    with pytest.raises(DisagreementError, match=says):
        judged(seen(outage, event), scenario)


def test_wafers_that_were_not_counted_as_lost_are_noticed() -> None:
    given = seen(ModelOutage(crash=120, back=181, saved=90), RESTORED)
    less = replace(given, events=[RESTORED, {**PASSED, "tuples": 60}])
    with pytest.raises(DisagreementError, match="60 wafers were counted as passed over, and 61 are missing"):
        judged(less)


def test_a_model_that_was_started_twice_says_nothing() -> None:
    given = seen(ModelOutage(crash=120, back=181, saved=90), RESTORED)
    with pytest.raises(RunError, match="more than once") as raised:
        judged(replace(given, events=[*given.events, RESTORED]))
    assert not isinstance(raised.value, DisagreementError)


def test_a_model_that_is_not_back_in_time_says_nothing() -> None:
    with pytest.raises(RunError, match="not back before the last wafer") as raised:
        judged(seen(ModelOutage(crash=120, back=420, saved=90), RESTORED))
    assert not isinstance(raised.value, DisagreementError)


def test_a_lot_that_is_wrong_is_noticed() -> None:
    given = seen(ModelOutage(crash=120, back=181, saved=90), RESTORED)
    wrong = given.lots.set_column(1, "error", pa.array([9.0] * given.lots.num_rows))
    with pytest.raises(DisagreementError, match="the error of lots"):
        judged(replace(given, lots=wrong))


def test_a_batch_ends_where_the_crash_is_to_come(tmp_path: Path) -> None:
    point = Point(number=0, crash=120, down=1.5)
    connector: Any = WAFERS.connector(tmp_path / "feed", Pace(rate=100.0), point)
    assert [pa.parquet.read_metadata(file).num_rows for file in connector.listing()] == [120, 150]
    hand_out(tmp_path / "feed")
    assert [pa.parquet.read_metadata(file).num_rows for file in connector.listing()] == [120, 150, 150]
    assert (connector.scan, connector.rate) == (True, 100.0)
