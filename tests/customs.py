"""What the tests of custom operators share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from tests.stages import Stage, Tables

import riprap as rr
from riprap.expressions import parse_schema
from riprap.testing import forget_instances

SCHEMA = parse_schema("k string, v int")
ROW = st.fixed_dictionaries({"k": st.sampled_from(["a", "b", None]), "v": st.integers(0, 5)})
ROWS = st.lists(ROW, max_size=25)
Rows = list[dict[str, Any]]


def source_app() -> tuple[rr.Application, rr.Stream]:
    app = rr.Application("custom")
    return app, app.source("source", rr.rows(SCHEMA.empty_table()))


def table_of(*values: int, k: str = "a") -> pa.Table:
    return pa.Table.from_pylist([{"k": k, "v": v} for v in values], SCHEMA)


def feed_all(
    stage: Stage, batches: Sequence[Tables], fresh: Callable[[], bool] = lambda: False
) -> dict[str, Rows]:
    """Run batches, before some of which all instances are forgotten; return the rows that reached each sink."""
    found: dict[str, Rows] = {}
    for tables in batches:
        if fresh():
            forget_instances()
        for sink, rows in stage.feed(tables).items():
            found.setdefault(sink, []).extend(rows)
    return found


def telling(made_by: type[rr.CustomOperator], **options: Any) -> rr.Application:
    """Describe an operator that puts out what it has to tell."""
    app, source = source_app()
    app.sink("out", app.custom("it", made_by, source, schema="told string", **options), rr.memory())
    return app


@dataclass
class Seen:
    count: int = 0
    by_key: dict[str | None, int] = field(default_factory=dict)
