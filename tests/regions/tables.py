"""The table of a lookup that changes while it is used."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from riprap.expressions import parse_schema

TABLE = parse_schema("k string, version bigint")
NAME = "table.parquet"


def write_table(work: Path, version: int) -> None:
    """Let the table of the lookup say another version."""
    rows = [{"k": k, "version": version} for k in "abcde"]
    pq.write_table(pa.Table.from_pylist(rows, TABLE), work / ".table")
    (work / ".table").rename(work / NAME)
