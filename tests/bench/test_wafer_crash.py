"""The model of wafer yield goes down and comes back, at the live edge; what comes out is what a loop says."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from riprap.apps.wafer_feed import make_wafers
from riprap_bench.wafer import Plan, run_plan, table
from riprap_bench.wafer_trial import Pace, Point, Wafers


@pytest.mark.slow
def test_a_crash_with_a_checkpoint_and_without(spark: SparkSession) -> None:
    plan = Plan(
        wafers=Wafers.of(make_wafers(900, seed=5)),
        points=(Point(number=0, crash=260, down=1.0),),
        pace=Pace(rate=100.0, every=0.5, trigger=0.2),
        at_once=2,
    )
    heard: list[str] = []
    # A run whose output is not, bit by bit, that of a plain loop with the same outage ends it.
    result = run_plan(plan, heard.append, session=spark)

    saved, none = result["trials"]
    assert (saved["scenario"], none["scenario"]) == ("checkpoint", "none")
    for line in (saved, none):
        assert (line["crash"], line["asked"]) == (260, 260)
        # Fewer, if the machine is so slow that the source has not put all of them out by then.
        assert 260 < line["back"] <= 360
        assert line["down_s"] >= 1.0
    assert none["saved"] is None
    assert saved["saved"] is not None
    assert 0 <= saved["saved"] <= 260
    assert saved["age_s"] > 0.0
    assert result["agreed"] == {"session": 2, "processes": 0}
    assert result["golden"]["lots"] == 17
    assert none["rmse"] > 0.0
    assert heard[-1].startswith("3 of 3, crash 1 (")
    assert "of 1 crashes" in table(result)
