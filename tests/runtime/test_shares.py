"""Tasks that share the decoding of a batch get the rows that each would have read alone, to the last bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import riprap as rr
from riprap.compiler import Plan, compile_graph
from riprap.errors import RunError
from riprap.feeds.segments import FeedSegment
from riprap.runtime.offsets import Piece
from riprap.runtime.shares import is_worth_sharing, leave_share, take_up
from riprap.runtime.site import Site
from riprap.runtime.source_inflow import read_source
from riprap.stage.arrival import Arrival, ReadRows, arrive
from riprap.state.ledger import Ledger
from riprap.state.pages import PageStore

ROWS = 3_000
FLOATS = [0.0, -0.0, float("nan"), None, 1.5, 2.5, -7.25]
KEYS: dict[str, Any] = {
    "few": lambda rng: pa.array(rng.choice(["a", "b", "c", None, "d", "e", "f"], ROWS), pa.string()),
    "many": lambda rng: pa.array([f"key {n}" for n in rng.integers(0, 10**9, ROWS)]),
    "number": lambda rng: pa.array([n if n % 7 else None for n in rng.integers(0, 50, ROWS)], pa.int64()),
    "double": lambda rng: pa.array([FLOATS[n] for n in rng.integers(0, len(FLOATS), ROWS)], pa.float64()),
}


def make_files(folder: Path) -> list[FeedSegment]:
    """Write three files, with row groups that fit no batch; in one of them texts are not dictionary-coded."""
    rng = np.random.default_rng(5)
    columns = {name: make(rng) for name, make in KEYS.items()}
    text = pa.array(map(str, rng.integers(0, 9, ROWS)))
    table = pa.table({**columns, "at": np.arange(ROWS) * 3, "x": rng.random(ROWS), "text": text})
    segments, start = [], 0
    for number, (rows, group) in enumerate([(1_300, 400), (200, 1_000), (1_500, 700)]):
        path = str(folder / f"{number}.parquet")
        pq.write_table(table.slice(start, rows), path, row_group_size=group, use_dictionary=number != 1)
        segments.append(FeedSegment(file=path, path=path, kind="parquet", start=start, rows=rows))
        start += rows
    return segments


def make_plan(folder: Path, by: str | tuple[str, ...], *, tasks: int, position: str | None = None) -> Plan:
    app = rr.Application("sums")
    source = app.source("source", rr.files(folder / "*.parquet"), position=position)
    sums = app.aggregate(
        "sums", source, by=by, window=rr.sliding(tuples=2), emit=rr.every(tuples=1),
        select="sum(x) as x, last(text) as text",
    )  # fmt: skip
    app.sink("out", sums, rr.memory())
    (plan,) = compile_graph(app.graph(), buckets=8, tasks=tasks).plans
    return plan


def make_site(folder: Path) -> Site:
    pages, results = (PageStore(str(folder / name)) for name in ("pages", "results"))
    pages.make()
    results.make()
    return Site(ledger=Ledger(str(folder / "ledger")), pages=pages, results=results, key="")


def arrival_of(plan: Plan, task: int, rows: dict[str, ReadRows]) -> Arrival:
    return arrive(
        plan.entries, rows, batch=3, root=plan.origin + 2, span=plan.span(task), buckets=plan.buckets
    )


def as_text(column: pa.Array) -> str:
    """Write values so that NaN is like NaN, and -0.0 is not like 0.0."""
    return str(column.to_pylist())


@pytest.mark.parametrize("by", [*KEYS, ("few", "number")])
@pytest.mark.parametrize(
    ("tasks", "low", "high"), [(2, 0, 3_000), (3, 399, 1_301), (7, 1_250, 1_260), (8, 5, 5)]
)
def test_shared_rows_arrive_as_if_read_alone(
    tmp_path: Path, by: str | tuple[str, ...], tasks: int, low: int, high: int
) -> None:
    segments = make_files(tmp_path)
    plan = make_plan(tmp_path, by, tasks=tasks, position="at" if tasks % 2 else None)
    site = make_site(tmp_path)
    pieces = [Piece(task, {"source": (low, high, segments)}) for task in range(tasks)]
    parts = [p for piece in pieces for p in leave_share(plan, site, piece, batch=3, attempt=str(piece.task))]
    assert len({part.page for part in parts}) == len(parts)
    for piece in pieces:
        shared = arrival_of(plan, piece.task, take_up(plan, site, piece, parts))
        whole = read_source(plan, "source", *piece.sources["source"])
        alone = arrival_of(plan, piece.task, {"source": whole})
        assert np.array_equal(shared.keys.hashes, alone.keys.hashes)
        assert all(np.array_equal(a, b) for a, b in zip(shared.tags, alone.tags, strict=True))
        ours, theirs = shared.chunks["source"], alone.chunks["source"]
        assert np.array_equal(ours.code, theirs.code)
        assert ours.columns.keys() == theirs.columns.keys()
        for name, column in ours.columns.items():
            assert as_text(column) == as_text(theirs.columns[name])


def test_of_two_attempts_either_may_count(tmp_path: Path) -> None:
    segments = make_files(tmp_path)
    plan, site = make_plan(tmp_path, "few", tasks=2), make_site(tmp_path)
    first, second = (Piece(task, {"source": (0, ROWS, segments)}) for task in (0, 1))
    other = leave_share(plan, site, second, batch=0, attempt="1.0")
    lost = leave_share(plan, site, first, batch=0, attempt="0.0")
    again = leave_share(plan, site, first, batch=0, attempt="0.1")
    assert {p.page for p in lost}.isdisjoint(p.page for p in again)
    rows = [take_up(plan, site, second, [*parts, *other])["source"] for parts in (lost, again)]
    assert np.array_equal(rows[0].position, rows[1].position)
    assert rows[0].columns == rows[1].columns


def test_a_file_that_changed_or_went_is_told(tmp_path: Path) -> None:
    segments = make_files(tmp_path)
    plan, site = make_plan(tmp_path, "few", tasks=3), make_site(tmp_path)
    piece = Piece(0, {"source": (0, ROWS, segments)})
    parts = leave_share(plan, site, piece, batch=0, attempt="0")
    with pytest.raises(RunError, match=r"source 'source' .* have not left all of rows 0 to 3000"):
        take_up(plan, site, piece, parts)
    Path(segments[2].path).unlink()
    with pytest.raises(RunError, match=r"source 'source' .*cannot read .*2\.parquet, which it saw before"):
        leave_share(plan, site, piece, batch=0, attempt="1")


def test_few_tasks_or_rows_share_nothing(tmp_path: Path) -> None:
    first, *_ = make_files(tmp_path)
    many = FeedSegment(file="f", path="f", kind="parquet", start=0, rows=100_000)
    mapped = FeedSegment(file="f", path="f", kind="arrow", start=0, rows=100_000)
    for tasks, segment, worth in [(3, many, True), (2, many, False), (3, first, False), (3, mapped, False)]:
        plan = make_plan(tmp_path, "few", tasks=tasks)
        assert is_worth_sharing(plan, Piece(0, {"source": (0, segment.rows, [segment])})) == worth
