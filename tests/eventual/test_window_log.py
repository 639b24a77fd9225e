"""The account of windows when hand-over lags, a check is slow, or nothing comes out; and when policies change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.eventual.test_log import Clock, Recorded, streams

import riprap as rr
from riprap.compiler import describe_state
from riprap.errors import FormatError
from riprap.protection import WindowTerms
from riprap.runtime.checkpointing.recollection import Recollection
from riprap.runtime.window_log import WindowLog


def _log(home: Path, terms: WindowTerms) -> WindowLog:
    return WindowLog(terms, home, lambda kind, **_: None, operator="sums", clock=Clock())


def test_one_batch_renews_all_though_the_next_is_asked_for_before_it_is_counted(tmp_path: Path) -> None:
    windows = _log(tmp_path, WindowTerms())
    windows.take_up(Recollection(batch=9, base=9, damaged=True), {9: (5, 5)})
    assert windows.due(10).most > 10**6
    # Computed again after a crash it is to renew all as well.
    assert windows.due(10).most > 10**6
    assert windows.due(11).most <= 1
    windows.count(10, [], 5, 5)
    windows.noted(10)
    assert windows.due(12).most <= 10**6
    assert windows.count(11, [], 5, 5) is not None


def test_a_slow_check_is_paid_for_and_does_not_end_checking(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path, "tumbling", WindowTerms(replay=20, share=0.05))
    for number, rows in enumerate(streams(3, 12)):
        recorded.run(rows)
        if number == 5:
            recorded.windows.learn(0.9, 1, 1)
    orders = []
    for _ in range(30):
        for rows in streams(4, 1):
            orders.append(recorded.run(rows).most)
    # For 0.9 s at a share of 5%, and a second a look, there are none; then there are again.
    assert orders[0] == 0
    assert max(orders[20:]) >= 1


def test_where_nothing_comes_out_a_window_is_recorded_anew_too(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path, "functor", WindowTerms(share=1.0))
    for rows in streams(7, 3):
        recorded.run(rows)
    quiet = {"source": [], "other": []}
    for _ in range(60):
        recorded.run(quiet)
    assert recorded.windows.oldest > 3
    assert recorded.windows.kept > 3


def test_segments_of_another_version_are_not_taken_for_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = Recorded(tmp_path, "tumbling", WindowTerms())
    for rows in streams(2, 4):
        recorded.run(rows)
    before = sorted(path.name for path in recorded.log.iterdir())

    def unreadable(*args: Any, **options: Any) -> None:
        raise FormatError("it is of another version")

    monkeypatch.setattr("riprap.channels.log.SegmentFile", unreadable)
    with pytest.raises(FormatError):
        recorded._writer()
    assert sorted(path.name for path in recorded.log.iterdir()) == before


def test_state_with_records_is_told_from_state_without() -> None:
    def layout(protect: rr.Policy | None) -> str:
        app = rr.Application("sums")
        source = app.source("source", rr.rows([], "k int, v bigint"))
        total = app.aggregate(
            "total", source, by="k", window=rr.tumbling(tuples=2), select="sum(v) as t", protect=protect
        )
        app.sink("out", total, rr.console())
        return describe_state(app.graph())["total"]

    bare = layout(None)
    assert layout(rr.checkpoint(every="1s")) == bare
    assert layout(rr.eventual()) == layout(rr.eventual(extent=100_000)) != bare
