"""An operator of the user's, in one file: the one of docs/extending.md, from the builder to a killed worker."""

from __future__ import annotations

import contextlib
import types
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from tests.pages import code_of
from tests.runtime.harness import wait_until
from tests.stages import cut, cuts, dealings, run_batches

import riprap as rr
from riprap.compiler import compile_graph
from riprap.expressions import parse_schema
from riprap.faults import Campaign, Count
from riprap.faults.setup import Setup

SCHEMA = parse_schema("n bigint, k string, status int")
ROWS = [{"n": n, "k": "abc"[n % 3], "status": n * n // 7 % 3} for n in range(4_000)]


def page() -> Any:
    """Return the page's operator as a module that, like a program's own file, nobody can import."""
    module = types.ModuleType("changes")
    code = compile(code_of("extending.md", "class Changes"), "changes.py", "exec", dont_inherit=True)
    exec(code, vars(module))
    return module


def application(source: Any, protect: rr.Policy | None = None) -> rr.Application:
    app = rr.Application("readings")
    readings = app.source("source", source)
    changed = page().changes(app, "changed", readings, by="k", of="status", protect=protect)
    app.sink("out", app.functor("shown", changed, select="n, k, status"), rr.memory())
    return app


def expected(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Compare each tuple with the one before it of its key."""
    by_key: dict[Any, list[dict[str, Any]]] = {}
    for row in rows:
        by_key.setdefault(row["k"], [{"status": None}]).append(row)
    return [
        now
        for of_key in by_key.values()
        for before, now in pairwise(of_key)
        if before["status"] is None or now["status"] is None or before["status"] != now["status"]
    ]


@given(data=st.data())
def test_it_does_what_a_plain_loop_does_wherever_batches_end(data: st.DataObject) -> None:
    row = st.fixed_dictionaries(
        {"k": st.sampled_from(["a", "b", None]), "status": st.sampled_from([0, 0, 1, None])}
    )
    rows = [{"n": n, **each} for n, each in enumerate(data.draw(st.lists(row, max_size=30)))]
    batches = cut(pa.Table.from_pylist(rows, SCHEMA), data.draw(cuts(len(rows))))

    app = application(rr.rows(SCHEMA.empty_table()))
    got = run_batches(app, batches, buckets=3, tasks=data.draw(dealings(batches, 3)))

    assert sorted(got, key=lambda each: each["n"]) == sorted(expected(rows), key=lambda each: each["n"])


def test_it_is_built_compiled_and_injected() -> None:
    app = rr.Application("readings")
    readings = app.source("source", rr.rows(ROWS, SCHEMA))
    with pytest.raises(rr.GraphError, match=r"Changes 'changed' (.*): of= names column 'stat'. It has: n, k"):
        page().changes(app, "changed", readings, by="k", of="stat")

    graph = application(rr.rows(ROWS, SCHEMA), rr.checkpoint(every="1s")).graph()
    layout = compile_graph(graph, buckets=4, tasks=2)

    assert [(o.kind, o.summary()) for o in graph][1] == ("Changes", "of status by k")
    assert [plan.entries[0].key for plan in layout.plans] == [("k",)]
    campaign = Campaign(
        sink="out",
        score=Count(),
        by="n",
        key=("n",),
        section=50,
        offsets=(1_000,),
        tuples=(20,),
        targets=(("changed",),),
    )
    seeded = Setup.of(graph, campaign).seeded(0)
    (differences,) = (seeded.run(task).differences["out"] for task in campaign.tasks())
    assert sum(d.missing.rows for d in differences.values()) > 0


def test_workers_that_are_killed_make_no_difference(spark: SparkSession, tmp_path: Path) -> None:
    app = application(rr.rows(ROWS, SCHEMA))

    with app.run(spark=spark, runs=tmp_path, batch_rows=50) as run:
        wait_until(lambda: run.progress().batches >= 5)
        for worker in workers():
            worker.kill()
        run.wait()
        found = run.table("out").to_pylist()

    assert sorted(found, key=lambda each: each["n"]) == sorted(expected(ROWS), key=lambda each: each["n"])


def workers() -> list[psutil.Process]:
    """Return the processes that compute for this one: children of the one that forks them."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            parent = process.parent()
            if parent is not None and "riprap.runtime.worker_daemon" in parent.cmdline():
                found.append(process)
    return found
