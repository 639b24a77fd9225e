"""Tuples that come after newer ones of their key are counted, wherever batches end and buckets are."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.stages import Stage, cut, cuts, dealings

import riprap as rr
from riprap.expressions import parse_schema
from riprap.runtime.task import Answer

SCHEMA = parse_schema("k string, at timestamp")
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
OPERATORS = {
    "sliding": lambda app, source: app.aggregate(
        "kept", source, by="k", window=rr.sliding(time="2s", on="at"), select="count(*) as n"
    ),
    "tumbling": lambda app, source: app.aggregate(
        "kept", source, by="k", window=rr.tumbling(time="2s", on="at"), select="count(*) as n"
    ),
    "sort": lambda app, source: app.sort(
        "kept", source, by="k", order="at", window=rr.tumbling(time="2s", on="at")
    ),
    "by count": lambda app, source: app.aggregate(
        "kept", source, by="k", window=rr.sliding(tuples=3), select="count(*) as n"
    ),
}


def late(rows: Sequence[dict[str, Any]]) -> int:
    """Count by hand: a tuple is late that has a time before the newest its key has told."""
    newest: dict[str, datetime] = {}
    count = 0
    for row in rows:
        if row["at"] is not None:
            count += row["at"] < newest.get(row["k"], row["at"])
            newest[row["k"]] = max(row["at"], newest.get(row["k"], row["at"]))
    return count


@pytest.mark.parametrize("kind", OPERATORS)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_late_tuples_are_counted(
    tmp_path_factory: pytest.TempPathFactory, kind: str, data: st.DataObject
) -> None:
    times = st.none() | st.integers(0, 12).map(lambda half: BEGIN + timedelta(seconds=half / 2))
    rows = data.draw(st.lists(st.builds(lambda k, at: {"k": k, "at": at}, st.sampled_from("abc"), times)))
    app = rr.Application("late")
    app.sink("out", OPERATORS[kind](app, app.source("source", rr.rows([], SCHEMA))), rr.memory())
    stage = Stage(app, tmp_path_factory.mktemp("late") / Path("state"), buckets=4)
    counted: list[int] = []

    def note(answers: Sequence[Answer]) -> None:
        counted.extend(answer.activity["kept"].late for answer in answers)

    stage.elements[stage.plan.name].note = note  # type: ignore[method-assign]
    batches = cut(pa.Table.from_pylist(rows, SCHEMA), data.draw(cuts(len(rows))))
    for tables, tasks in zip(batches, data.draw(dealings(batches, 4)), strict=True):
        stage.feed(tables, tasks=tasks)

    assert sum(counted) == (0 if kind == "by count" else late(rows))
