"""Tables that others made, as Parquet files and in memory: what fits is taken, and what does not is named."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import riprap as rr
from riprap.errors import GraphError, RunError
from riprap.feeds.listed_feed import ListedFeed, spool_rows
from riprap.feeds.reading import read_rows
from riprap.graph.connectors import SourceConnector
from riprap.operators.source import Source

AT = datetime(2024, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
ZONED = pd.Timestamp(AT).tz_convert("Europe/Berlin")
FRAME = pd.DataFrame(
    {
        "at": [pd.Timestamp(AT).tz_localize(None)] * 3,
        "zoned": [ZONED] * 3,
        "kind": pd.Categorical(["b", "a", "b"]),
        "level": pd.Categorical([7, 5, 7]),
        "small": pd.array([1, 2, 255], "uint8"),
        "large": pd.array([1, 2, 2**63 - 1], "uint64"),
        "day": [date(2024, 1, 2)] * 3,
        "list": [[1.5], [], None],
    }
)
DDL = (
    "at timestamp_ntz, zoned timestamp, kind string, level bigint, small smallint, large bigint, day date, "
    "list array<double>"
)
ROWS = [
    {
        "at": AT.replace(tzinfo=None), "zoned": AT, "kind": kind, "level": level, "small": small, "large": large,
        "day": date(2024, 1, 2), "list": numbers,
    }
    for kind, level, small, large, numbers in (
        ("b", 7, 1, 1, [1.5]), ("a", 5, 2, 2, []), ("b", 7, 255, 2**63 - 1, None)
    )
]  # fmt: skip


def source_of(connector: SourceConnector) -> Source:
    app = rr.Application("foreign")
    app.sink("out", app.source("in", connector), rr.memory())
    source = app.graph()["in"]
    assert isinstance(source, Source)
    return source


def rows_of(connector: SourceConnector, folder: Path) -> list[dict[str, Any]]:
    """Read all rows of a source, as tasks do."""
    source = source_of(connector)
    spool_rows(source, folder)
    feed = ListedFeed(source, folder, folder / "quarantine", finite=True)
    end = feed.upto(0, 1000)
    rows = read_rows(feed.log.segments, 0, end, source, source.schema.names)
    table = pa.table({name: rows.columns[name] for name in source.schema.names})
    return [{name: row[name] for name in source.schema.names} for row in table.to_pylist()]


@pytest.mark.parametrize("declared", [None, DDL])
def test_a_parquet_file_of_pandas(tmp_path: Path, declared: str | None) -> None:
    FRAME.to_parquet(tmp_path / "a.parquet", row_group_size=2)
    assert rows_of(rr.files(tmp_path / "a.parquet", schema=declared), tmp_path / "log") == ROWS


@pytest.mark.parametrize(
    "table", [FRAME, FRAME.set_index("day", drop=False), pa.Table.from_pandas(FRAME), pl.from_pandas(FRAME)]
)
def test_tables_in_memory(tmp_path: Path, table: Any) -> None:
    found = rows_of(rr.rows(table), tmp_path)
    assert found == ROWS
    assert rr.rows(table, "large bigint, kind string").table.column_names == ["large", "kind"]
    with pytest.raises(
        GraphError, match=r"rows\(...\) have no column 'lost', which schema= names. They have: at"
    ):
        rr.rows(table, "lost bigint")


def test_what_would_be_cut_off_is_named(tmp_path: Path) -> None:
    for column, problem in (
        (pa.array([1], pa.timestamp("ns")), r"which does not fit timestamp_ntz.*floor\('us'\)"),
        (pa.array([2**64 - 1], pa.uint64()), "which does not fit bigint.*signed integer"),
    ):
        path = tmp_path / "a.parquet"
        pq.write_table(pa.table({"c": column}), path)
        with pytest.raises(RunError, match=rf"a.parquet has 'c' as {re.escape(str(column.type))}, {problem}"):
            rows_of(rr.files(path), tmp_path / str(column.type))
        with pytest.raises(GraphError, match=r"rows\(...\): column 'c' is"):
            rr.rows(pa.table({"c": column}))


def test_a_struct_is_left_out_by_the_schema(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table({"a": pa.array([1], pa.uint16()), "s": [{"x": 1}], "two words": ["t"]})
    pq.write_table(table, path)
    said = r"column 's' is struct<x: int64>, .* Leave it out: schema='a int, `two words` string'"
    with pytest.raises(GraphError, match=said):
        rr.files(path)
    with pytest.raises(GraphError, match=said):
        rr.rows(table)
    assert rows_of(rr.files(path, schema="a int"), tmp_path / "log") == [{"a": 1}]
    with pytest.raises(GraphError, match=r"cannot hold. There is no column that it can hold$"):
        rr.rows(table.select(["s"]))


def test_a_parquet_file_that_lacks_a_column(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1], "b": [1]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"a": [2], "c": [2]}), tmp_path / "2.parquet")
    with pytest.raises(
        RunError, match=r"source 'in' .*2.parquet has no column 'b'. It has: a, c. Name in schema="
    ):
        rows_of(rr.files(tmp_path), tmp_path / "log")


def test_a_misspelt_key_of_a_row_is_refused() -> None:
    with pytest.raises(GraphError, match="row 1 has 'pirce', which is not in the schema: id, price"):
        rr.rows([{"id": 1, "price": 2.0}, {"id": 2, "pirce": 3.0}], "id bigint, price double")
