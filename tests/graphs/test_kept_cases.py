"""Cases in which a run once put out something else than its graph means, made small and kept."""

from __future__ import annotations

import pyarrow as pa
from tests.stages import run_batches

import riprap as rr
from riprap.expressions import parse_schema

SCHEMA = parse_schema("at bigint, k string, j string")


def test_paths_of_different_length_compare_alike_in_one_element_and_in_several() -> None:
    """A tuple from a channel goes on from the path it took before; lengthened paths changed who came first."""
    app = rr.Application("kept")
    first = app.source("first", rr.rows(SCHEMA.empty_table()), ordering="at")
    second = app.source("second", rr.rows(SCHEMA.empty_table()), ordering="at")
    both = app.union("both", second, first)
    windows = (rr.sliding(tuples=0), rr.sliding(tuples=2))
    joined = app.join("joined", both, second, by="k", windows=windows, select="both.j as j")
    counted = app.functor(
        "counted", second, variables={"n": "0"}, update="n + 1 as n", select="'barrier' as j"
    )
    paired = app.barrier("paired", counted, second, select="counted.j as j")
    app.sink("out", [joined, paired], rr.memory())
    row = pa.Table.from_pylist([{"at": 2, "k": "b", "j": "join"}], SCHEMA)

    got = run_batches(app, [{"first": SCHEMA.empty_table(), "second": row}], path=None)

    assert got == [{"j": "join"}, {"j": "barrier"}]
