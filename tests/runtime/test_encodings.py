"""Files may differ in how they hold a text column; nothing downstream may notice."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet
import pytest
from tests.stages import run_batches

import riprap as rr


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
