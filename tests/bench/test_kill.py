"""How long a run is silent after a kill: the sums; and the whole benchmark, whatever the figures."""

import json

import pytest

from riprap_bench import kill
from riprap_bench.kill import Plan, longest_silence


@pytest.mark.parametrize(
    ("moments", "seconds"),
    [
        ([9.9, 10.7, 10.8, 10.9, 11.0, 11.1], 0.7),
        ([9.9, 10.01, 10.5, 10.6, 10.7, 10.8], 0.5),  # the first was finished before the kill
        ([9.9, 10.7, 10.8, 10.9, 11.0, 11.1, 99.0], 0.7),  # what comes later is no matter
    ],
)
def test_the_end_of_the_longest_silence_counts(moments: list[float], seconds: float) -> None:
    assert longest_silence(moments, killed=10.0) == pytest.approx(seconds)


@pytest.mark.slow
def test_a_worker_and_a_driver_are_killed() -> None:
    result = kill.run_plan(Plan(kills={"worker": 1, "driver": 1}, rate=500.0), lambda _: None)

    json.dumps(result)
    assert all(found["seconds"] > 0 for found in result["killed"].values())
    assert set(result["killed"]["driver"]["parts"]) == {"detect", "restart", "restore", "catch_up"}
    assert "the driver, with a spare" in kill.table(result)
