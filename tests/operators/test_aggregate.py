"""Aggregates against a plain reference: the newest tuples of each key, after every tuple."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracle import aggregate_oracle, fold
from tests.stages import Stage, cut, cuts, dealings, run_batches

import riprap as rr
from riprap.expressions import parse_schema

SCHEMA = parse_schema(
    "k string, v double, f float, n bigint, i int, d decimal(12,2), s string, t timestamp, b boolean, y date"
)
CALLS = [
    *((function, column) for function in ("sum", "avg") for column in "vfnid"),
    *((function, column) for function in ("min", "max", "first", "last", "count") for column in "vfnidstby"),
]
SELECT = ", ".join(f"{f}({c}) as {f}_{c}" for f, c in CALLS) + ", count(*) as n"


@lru_cache
def windowed(size: int, every: int, by: str | None = "k", select: str = SELECT) -> rr.Application:
    app = rr.Application("windowed")
    source = app.source("source", rr.rows(SCHEMA.empty_table()))
    window, emit = rr.sliding(tuples=size), rr.every(tuples=every)
    results = app.aggregate("agg", source, by=by or (), window=window, emit=emit, select=select)
    app.sink("out", results, rr.memory())
    return app


def expected(table: pa.Table, size: int, every: int, by: str | None = "k") -> list[dict[str, Any]]:
    def result(window: list[dict[str, Any]]) -> dict[str, Any]:
        return {f"{f}_{c}": fold(f, [row[c] for row in window]) for f, c in CALLS} | {"n": len(window)}

    return aggregate_oracle(table.to_pylist(), by=by, size=size, every=every, result=result)


def same(got: Any, wanted: Any) -> bool:
    if isinstance(got, float) and isinstance(wanted, float) and math.isnan(wanted):
        return math.isnan(got)
    return got == wanted and (got is None) == (wanted is None)


def assert_same(got: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> None:
    assert len(got) == len(wanted)
    for number, (mine, other) in enumerate(zip(got, wanted, strict=True)):
        wrong = {n: (mine[n], other[n]) for n in other if not same(mine[n], other[n])}
        assert not wrong, f"row {number}: {wrong}"


def maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


FEW_KEYS = st.sampled_from(["a", "a", "a", "b", "c", "", None, "zebra"])
TUPLES = st.fixed_dictionaries(
    {
        "k": FEW_KEYS,
        "v": maybe(st.floats() | st.sampled_from([0.0, -0.0, 1e308, -1e308, 5e-324, 0.1])),
        "f": maybe(st.floats(width=32)),
        "n": maybe(st.integers(-(2**56), 2**56)),
        "i": maybe(st.integers(-(2**31), 2**31 - 1)),
        "d": maybe(st.decimals(-(10**10) + 1, 10**10 - 1, places=2)),
        "s": maybe(st.text(st.characters(codec="utf-8"), max_size=4)),
        "t": maybe(
            st.datetimes(datetime(1700, 1, 1), datetime(2200, 1, 1)).map(lambda t: t.replace(tzinfo=UTC))
        ),
        "b": maybe(st.booleans()),
        "y": maybe(st.dates(date(1700, 1, 1), date(2200, 1, 1))),
    }
)
TABLES = st.lists(TUPLES, max_size=40).map(lambda rows: pa.Table.from_pylist(rows, SCHEMA))


@settings(max_examples=60, deadline=None)
@given(
    data=st.data(), table=TABLES, size=st.sampled_from([1, 2, 3, 5, 20]), every=st.sampled_from([1, 1, 2, 3])
)
def test_aggregate_is_the_fold_of_each_keys_newest_tuples(
    data: st.DataObject, table: pa.Table, size: int, every: int
) -> None:
    ends = data.draw(cuts(table.num_rows))
    batches = cut(table, ends)

    got = run_batches(
        windowed(size, every),
        batches,
        buckets=7,
        tasks=data.draw(dealings(batches, 7)),
    )

    # Buckets are merged by position, so the order is that of one task that has them all.
    assert_same(got, expected(table, size, every))


@settings(max_examples=20, deadline=None)
@given(data=st.data(), table=TABLES, size=st.integers(1, 8), every=st.integers(1, 4))
def test_aggregate_without_key_has_one_window(
    data: st.DataObject, table: pa.Table, size: int, every: int
) -> None:
    batches = cut(table, data.draw(cuts(table.num_rows)))

    got = run_batches(windowed(size, every, by=None), batches)

    assert_same(got, expected(table, size, every, by=None))


@settings(max_examples=30, deadline=None)
@given(data=st.data(), keys=st.lists(FEW_KEYS, max_size=60), size=st.integers(1, 9), every=st.integers(1, 5))
def test_count_of_all_keeps_no_values_at_all(
    data: st.DataObject, keys: list[str | None], size: int, every: int
) -> None:
    table = pa.Table.from_pylist([{"k": key} for key in keys], SCHEMA)
    batches = cut(table, data.draw(cuts(len(keys))))

    got = run_batches(windowed(size, every, select="count(*) as n"), batches)

    assert got == aggregate_oracle(
        table.to_pylist(), by="k", size=size, every=every, result=lambda window: {"n": len(window)}
    )


KEY_TYPES: dict[str, list[Any]] = {
    "tinyint": [None, 0, 1, -1],
    "bigint": [None, 0, 2**62, -(2**62)],
    "double": [None, 0.0, -0.0, math.nan, -math.nan, math.inf, 1.5],
    "float": [None, 0.0, -0.0, math.nan, 1.5],
    "decimal(20,10)": [None, Decimal("0E-10"), Decimal("1E-10"), Decimal("1E-9"), Decimal("2.5000000000")],
    "boolean": [None, True, False],
    "date": [None, date(1969, 12, 31), date(2024, 2, 29)],
    "timestamp": [None, datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), datetime(2024, 2, 29, tzinfo=UTC)],
    "timestamp_ntz": [None, datetime(1969, 12, 31), datetime(2024, 2, 29)],
    "binary": [None, b"", b"\0", b"\0\0"],
    "string": [None, "", "\0", "é", "e"],
}


@pytest.mark.parametrize("kind", KEY_TYPES)
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_any_type_can_be_a_key(data: st.DataObject, kind: str) -> None:
    schema = parse_schema(f"k {kind}, v bigint")
    row = {"k": st.sampled_from(KEY_TYPES[kind]), "v": st.integers(0, 9)}
    rows = data.draw(st.lists(st.fixed_dictionaries(row)))
    table = pa.Table.from_pylist(rows, schema)
    app = rr.Application("keyed")
    source = app.source("source", rr.rows(schema.empty_table()))
    sums = app.aggregate("sums", source, by="k", window=rr.sliding(tuples=3), select="sum(v) as total")
    app.sink("out", sums, rr.memory())
    batches = cut(table, data.draw(cuts(len(rows))))

    got = run_batches(app, batches, buckets=3, tasks=data.draw(dealings(batches, 3)))

    wanted = aggregate_oracle(
        table.to_pylist(), by="k", size=3, every=1, result=lambda w: {"total": sum(r["v"] for r in w)}
    )
    assert_same(got, wanted)


@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_two_columns_can_be_a_key(data: st.DataObject) -> None:
    schema = parse_schema("a string, b int, v bigint")
    pair = {
        "a": st.sampled_from(["x", "y", None]),
        "b": st.sampled_from([1, 2, None]),
        "v": st.integers(0, 9),
    }
    rows = data.draw(st.lists(st.fixed_dictionaries(pair), max_size=40))
    app = rr.Application("keyed")
    source = app.source("source", rr.rows(schema.empty_table()))
    sums = app.aggregate("sums", source, by=("a", "b"), window=rr.sliding(tuples=4), select="sum(v) as total")
    app.sink("out", sums, rr.memory())
    batches = cut(pa.Table.from_pylist(rows, schema), data.draw(cuts(len(rows))))

    got = run_batches(app, batches, buckets=5, tasks=data.draw(dealings(batches, 5)))

    wanted = aggregate_oracle(
        [{**row, "ab": (row["a"], row["b"])} for row in rows],
        by="ab",
        size=4,
        every=1,
        result=lambda w: {"total": sum(r["v"] for r in w)},
    )
    assert [(r["a"], r["b"], r["total"]) for r in got] == [(*r["ab"], r["total"]) for r in wanted]


def test_a_dictionary_encoded_key_is_the_same_key() -> None:
    table = pa.Table.from_pylist([{"k": k, "v": 1.0} for k in ["a", "b", None, "a"]], SCHEMA)
    encoded = table.set_column(0, "k", table.column("k").dictionary_encode())
    app = windowed(9, 1, select="sum(v) as total")

    got = run_batches(app, [{"source": encoded}, {"source": table}, {"source": encoded}])

    assert [(r["k"], r["total"]) for r in got] == [
        ("a", 1.0), ("b", 1.0), (None, 1.0), ("a", 2.0),
        ("a", 3.0), ("b", 2.0), (None, 2.0), ("a", 4.0),
        ("a", 5.0), ("b", 3.0), (None, 3.0), ("a", 6.0),
    ]  # fmt: skip


BIG = 2**63 - 1


def numbers(column: str, values: list[Any]) -> pa.Table:
    return pa.Table.from_pylist([{"k": "a", column: value} for value in values], SCHEMA)


def test_a_bigint_sum_that_overflows_is_an_error_at_its_tuple() -> None:
    app = windowed(2, 1, select="sum(n) as total")
    line = app.graph()["agg"].location

    with pytest.raises(rr.OperatorError) as caught:
        run_batches(app, [{"source": numbers("n", [1, 2])}, {"source": numbers("n", [3, BIG, 5])}])

    assert str(caught.value) == (
        f"Aggregate 'agg' ({line}) failed at position 3 of source 'source': "
        "EvaluationError: bigint overflow in: sum(n)"
    )


@pytest.mark.parametrize("sign", [1, -1])
def test_a_bigint_sum_may_touch_both_ends(sign: int) -> None:
    app = windowed(3, 1, select="sum(n) as total")
    end = BIG if sign > 0 else -BIG - 1

    got = run_batches(app, [{"source": numbers("n", [end - sign, sign, 0])}])

    assert [r["total"] for r in got] == [end - sign, end, end]


def test_a_sum_that_overflows_only_between_outputs_is_no_error() -> None:
    app = windowed(2, 2, select="sum(n) as total")

    got = run_batches(app, [{"source": numbers("n", [0, BIG, 5, -BIG, BIG, 0])}])

    assert [r["total"] for r in got] == [BIG, 5 - BIG, BIG]


def test_a_decimal_sum_may_use_38_digits_and_no_more() -> None:
    schema = parse_schema("d decimal(38,0)")
    app = rr.Application("wide")
    source = app.source("source", rr.rows(schema.empty_table()))
    sums = app.aggregate("sums", source, window=rr.sliding(tuples=2), select="sum(d) as total")
    app.sink("out", sums, rr.memory())
    top = 10**38 - 1

    def run(*values: int) -> list[Decimal]:
        table = pa.Table.from_pylist([{"d": Decimal(v)} for v in values], schema)
        return [r["total"] for r in run_batches(app, [{"source": table}])]

    assert run(top - 1, 1, -1) == [top - 1, top, 0]
    assert run(-top, 0) == [-top, -top]
    with pytest.raises(
        rr.OperatorError, match=r"at position 1 of source 'source': EvaluationError: .* overflow"
    ):
        run(top, 1)
    with pytest.raises(
        rr.OperatorError, match=r"at position 1 of source 'source': EvaluationError: .* overflow"
    ):
        run(top, top)


def test_the_mean_of_decimals_rounds_half_up_away_from_zero() -> None:
    schema = parse_schema("d decimal(3,0)")
    app = rr.Application("means")
    source = app.source("source", rr.rows(schema.empty_table()))
    means = app.aggregate(
        "means", source, window=rr.sliding(tuples=32), emit=rr.every(tuples=32), select="avg(d) as m"
    )
    app.sink("out", means, rr.memory())

    def mean(first: int) -> Decimal:
        table = pa.Table.from_pylist([{"d": Decimal(d)} for d in [first, *[0] * 31]], schema)
        return run_batches(app, [{"source": table}])[0]["m"]

    # 1/32 is 0.03125: at four places it lies half way.
    assert (mean(1), mean(-1), mean(3)) == (Decimal("0.0313"), Decimal("-0.0313"), Decimal("0.0938"))


def test_outputs_may_compute_with_aggregates_and_keys() -> None:
    app = windowed(2, 1, select="concat(k, '!') as shout, sum(n) / 2 as half, max(i) - min(i) as spread")
    table = pa.Table.from_pylist([{"k": "a", "n": 3, "i": 1}, {"k": "a", "n": 4, "i": 7}], SCHEMA)

    got = run_batches(app, [{"source": table}])

    assert got == [
        {"k": "a", "shout": "a!", "half": 1.5, "spread": 0},
        {"k": "a", "shout": "a!", "half": 3.5, "spread": 6},
    ]


def test_state_grows_with_the_windows_and_not_with_the_input(tmp_path: Path) -> None:
    stage = Stage(windowed(4, 1, select="sum(v) as total"), tmp_path, buckets=2)
    for _ in range(200):
        stage.feed({"source": numbers("v", [1.0, 2.0, 3.0])})

    (manifest,) = stage.record.manifests
    pages = [stage.pages.read(p) for p in manifest.pages["agg/0"]]
    assert sum(len(w) for page in pages for w in page.column("window").to_pylist()) <= 8
