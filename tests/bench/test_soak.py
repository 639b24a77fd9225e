"""Soaking: what counts as growing, what as lost or doubled; and some seconds of it, whatever the figures."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from riprap_bench.soak import Plan, Sample, grown, soak
from riprap_bench.soak_loads import Words, between


def sample(number: int, **more: float) -> Sample:
    usual = {"disk_mb": 5.0, "pages_mb": 1.0, "memory_mb": 900.0, "descriptors": 200.0}
    return Sample(seconds=float(number), **{**usual, **more})


def test_what_rises_at_first_and_then_stays_has_not_grown() -> None:
    assert grown([sample(n, disk_mb=min(n, 10) * 5.0) for n in range(30)]) == []


def test_what_rises_on_and_on_has() -> None:
    assert grown([sample(n, descriptors=200.0 + 20 * n) for n in range(30)]) == ["descriptors (490 to 690)"]
    assert grown([sample(n, memory_mb=900.0 + 100 * n) for n in range(30)]) == ["memory_mb (2,350 to 3,350)"]


def test_a_process_that_starts_is_no_growth() -> None:
    assert grown([sample(n, memory_mb=2_000.0 if n in (25, 26) else 900.0) for n in range(30)]) == []


def test_rows_are_lost_or_doubled_or_say_too_much() -> None:
    right = Counter({("a", 2): 1, ("b", 1): 1})
    expected = {("a", 2), ("b", 1)}
    assert between(expected, right) is None
    assert between(expected, right - Counter({("b", 1): 1})) is not None
    assert between(expected, right + Counter({("b", 1): 1})) is not None
    assert between(expected, right + Counter({("a", 3): 1})) is not None


def test_mails_keep_arriving(tmp_path: Path) -> None:
    words = Words(tmp_path, seed=3)
    for _ in range(3):
        words.tick()
    words.close()
    assert [file.name for file in sorted((tmp_path / "mails").iterdir())] == [
        f"{number:07d}.txt" for number in range(1, 5)
    ]
    assert words.arrived() is False
    assert "rows are lost" in (words.wrong() or "")


@pytest.mark.slow
def test_some_seconds_of_it() -> None:
    heard: list[str] = []
    # What is lost or doubled ends it.
    result = soak(Plan(minutes=0.5, seed=3), heard.append)
    for found in result["loads"].values():
        assert found["crashes"]
        assert found["samples"]
    assert sum("nothing lost, nothing doubled" in line for line in heard) == 2
    assert sum("in the second third" in line for line in heard) == 8
