"""Files may differ in how they hold a text column; nothing downstream may notice."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from riprap.runtime.packets import pack, unpack
from tests.stages import run_batches

import riprap as rr
from riprap.compiler import compile_graph
from riprap.graph.operators import Source
from riprap.operators.arrival import Rows
from riprap.runtime.listed_feed import ListedFeed
from riprap.runtime.reading import read_rows
from riprap.runtime.segments import SegmentLog


def counts(by: str | tuple[str, ...]) -> rr.Application:
    app = rr.Application("app")
    source = app.source("source", rr.rows([], "seq bigint, a string, b string"), position="seq")
    counted = app.aggregate("counts", source, by=by, window=rr.sliding(tuples=3), select="count(*) as n")
    app.sink("out", counted, rr.memory())
    return app


def table(start: int, *, encoded: bool) -> pa.Table:
    text = pa.array(["x", "y", None, "x"])
    column = text.dictionary_encode() if encoded else text
    return pa.table({"seq": range(start, start + 4), "a": column, "b": column})


@pytest.mark.parametrize("by", ["a", ("a", "b")])
@pytest.mark.parametrize("order", [(True, False, True), (False, True, False)])
def test_state_of_encoded_and_plain_keys_is_one_state(
    by: str | tuple[str, ...], order: tuple[bool, ...]
) -> None:
    batches = [{"source": table(4 * i, encoded=encoded)} for i, encoded in enumerate(order)]
    plain = [{"source": table(4 * i, encoded=False)} for i in range(len(order))]

    assert run_batches(counts(by), batches) == run_batches(counts(by), plain)


def test_packets_of_encoded_and_plain_columns_are_put_together() -> None:
    plan = compile_graph(counts("a").graph(), buckets=2, tasks=1, path="exchange").plans[0]
    sent = []
    for start, encoded in ((0, True), (4, False)):
        part = table(start, encoded=encoded)
        columns = {name: part.column(name).chunk(0) for name in ("seq", "a")}
        sent += pack(plan, 0, Rows(columns, np.arange(start, start + 4)))

    found = unpack(plan, sent)["source"]

    assert found.columns["a"].to_pylist() == ["x", "y", None, "x"] * 2
    assert found.position.tolist() == list(range(8))


def test_a_file_that_took_the_place_of_another_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    for value in ("old", "new"):
        pa.parquet.write_table(pa.table({"s": [value] * 1000}), tmp_path / "next")
        os.rename(tmp_path / "next", path)
        app = rr.Application("app")
        app.source("source", rr.files(path))
        (source,) = (o for o in app._operators.values() if isinstance(o, Source))
        feed = ListedFeed(source, tmp_path / f"log-{value}", tmp_path / "quarantine", finite=True)
        feed.upto(0, 1000)

        rows = read_rows(feed.log.between(1, 3), 1, 3, source, ["s"])

        assert rows.columns["s"].to_pylist() == [value] * 2


def test_looking_at_a_list_that_is_being_written_repairs_nothing(tmp_path: Path) -> None:
    log = SegmentLog(tmp_path)
    log.finish()
    with (tmp_path / "segments.jsonl").open("a") as file:
        file.write('{"file": "half')
    before = (tmp_path / "segments.jsonl").read_text()

    assert SegmentLog.end_of(tmp_path) == 0
    assert SegmentLog.end_of(tmp_path / "none") is None
    assert (tmp_path / "segments.jsonl").read_text() == before
