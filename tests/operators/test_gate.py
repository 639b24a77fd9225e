"""Gates against a plain reference: count what is unacknowledged, and let the oldest go."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.operators import clocked
from tests.operators.clocked import ENDS, cut_at, numbers
from tests.oracle import Row, gate_oracle
from tests.stages import Stage, cut, cuts, dealings, run_batches

import riprap as rr
from riprap.expressions import parse_schema
from riprap.kernels.chunk import Chunk
from riprap.kernels.given import Given
from riprap.state.keys import encode_keys

SCHEMA = parse_schema("k string, port int, seq int, s string")
ROW = st.tuples(
    st.sampled_from(["a", "a", "a", "b", None]),
    st.sampled_from([0, 0, 1, 1, 2]),
    st.sampled_from(["x", None]),
)


@lru_cache
def one_source(most: int, by: str | None) -> rr.Application:
    """Gate one functor of a source by another: a row of port 0 or 1 goes to that one, a row of port 2 to both."""
    app = rr.Application("gated")
    source = app.source("source", rr.rows(SCHEMA.empty_table()))
    data = app.functor("data", source, where="port <> 1")
    answers = app.functor("answers", source, where="port <> 0", select="k")
    gate = app.gate("gate", data, answers, unacknowledged=most, by=by or ())
    app.sink("out", app.functor("chosen", gate, select="k, seq, s"), rr.memory())
    return app


@settings(max_examples=100, deadline=None)
@given(
    data=st.data(),
    drawn=st.integers(0, 60).flatmap(lambda n: st.lists(ROW, min_size=n, max_size=n)),
    most=st.sampled_from([1, 1, 2, 5]),
    by=st.sampled_from([None, "k", "k"]),
)
def test_tuples_pass_while_few_are_unacknowledged(
    data: st.DataObject, drawn: list[tuple[Any, int, Any]], most: int, by: str | None
) -> None:
    rows = [{"k": k, "port": p, "seq": n, "s": s} for n, (k, p, s) in enumerate(drawn)]
    batches = cut(pa.Table.from_pylist(rows, SCHEMA), data.draw(cuts(len(rows))))

    got = run_batches(one_source(most, by), batches, buckets=5, tasks=data.draw(dealings(batches, 5)))

    # A row that goes to both ports arrives at the lower one first.
    arrivals = [(port, row) for row in rows for port in (0, 1) if row["port"] in (port, 2)]
    wanted = gate_oracle(arrivals, by=by, most=most)
    assert got == [{c: row[c] for c in ("k", "seq", "s")} for row in wanted]


@settings(max_examples=40, deadline=None)
@given(data=st.data(), left=clocked.tuples(), right=clocked.tuples(), most=st.integers(1, 3))
def test_two_sources_and_an_aggregate_of_the_same_key_behind_the_gate(
    data: st.DataObject, left: list[Row], right: list[Row], most: int
) -> None:
    app = rr.Application("gated")
    sources = [
        app.source(name, rr.rows(clocked.SCHEMA.empty_table()), ordering="at") for name in ("data", "answers")
    ]
    gate = app.gate("gate", *sources, unacknowledged=most, by="k")
    counts = app.aggregate("counts", gate, by="k", window=rr.sliding(tuples=1), select="last(seq) as seq")
    app.sink("out", counts, rr.memory())
    batches = cut_at({"data": clocked.table(left), "answers": clocked.table(right)}, data.draw(ENDS))

    got = run_batches(app, batches, buckets=4, tasks=data.draw(dealings(batches, 4)))

    both = [(r["at"], port, r["seq"], r) for port, rows in enumerate((left, right)) for r in rows]
    arrivals = [(port, row) for _, port, _, row in sorted(both, key=lambda each: each[:3])]
    assert numbers(got) == numbers(gate_oracle(arrivals, by="k", most=most))


def test_answers_that_nothing_waits_for_open_nothing(tmp_path: Path) -> None:
    stage = Stage(one_source(1, None), tmp_path)

    def feed(*ports: int) -> list[int]:
        rows = [{"k": "a", "port": p, "seq": n} for n, p in enumerate(ports)]
        return numbers(stage.feed({"source": pa.Table.from_pylist(rows, SCHEMA)})["out"])

    assert feed(1, 1, 1) == []
    assert feed(0, 0) == [0]
    assert feed(1) == [1]
    assert feed(1, 1, 0) == [2]


def test_what_passed_leaves_the_state(tmp_path: Path) -> None:
    stage = Stage(one_source(1, "k"), tmp_path)
    for _ in range(100):
        rows = [{"k": "a", "port": p, "seq": n} for n, p in enumerate([0, 0, 1, 1])]
        stage.feed({"source": pa.Table.from_pylist(rows, SCHEMA)})

    (manifest,) = stage.record.manifests
    pages = [stage.pages.read(p) for p in manifest.pages["gate/0"]]
    assert sum(len(w) for page in pages for w in page.column("window").to_pylist()) <= 4


def test_what_several_answers_of_one_tuple_let_pass_is_told_apart() -> None:
    gate = one_source(1, None).graph()["gate"]
    keys, code = encode_keys([], 3)
    data = Chunk({"seq": pa.array([0, 1, 2])}, np.arange(3), code)
    answers = Chunk({}, np.array([5, 5, 6]), code)
    what = Given(inputs=(data, answers), keys=keys, needed={"gate": frozenset({"seq"})})

    (output,) = gate.run(what).outputs

    assert output.columns["seq"].to_pylist() == [0, 1, 2]
    assert [*zip(output.rank, *output.path, strict=True)] == [(0, 0), (5, 0), (5, 1)]


def test_a_gate_cannot_be_in_a_consistent_region() -> None:
    gate = one_source(1, None).graph()["gate"]

    assert not gate.traits.consistent
    assert gate.traits.why_not == "it blocks: a tuple waits for an acknowledgement that may never come"
    assert gate.traits.holds


@pytest.mark.parametrize(
    ("what", "problem"),
    [
        ({"unacknowledged": 0}, "unacknowledged= is 0"),
        ({"unacknowledged": 1.5}, "unacknowledged= is 1.5"),
        ({"by": "seq"}, "by= names column 'seq', which answers lacks"),
        ({"protect": "much"}, "protect='much' is not a policy"),
    ],
)
def test_a_gate_that_makes_no_sense_is_refused(what: dict[str, Any], problem: str) -> None:
    app = rr.Application("refused")
    source = app.source("source", rr.rows(SCHEMA.empty_table()))
    answers = app.functor("answers", source, select="k")

    with pytest.raises(rr.GraphError, match=rf"Gate 'wrong' \(.*test_gate.py:\d+\): {problem}"):
        app.gate("wrong", source, answers, **what)
