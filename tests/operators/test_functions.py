"""Every aggregate function, over windows of any kind, against a plain reference."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.operators.test_sums import Extents, ends, extents, sliding
from tests.oracle import fold, group_of

from riprap.expressions import (
    AggregateCall,
    EvaluationError,
    Scope,
    UserAggregate,
    parse_aggregates,
    parse_schema,
)
from riprap.kernels import functions
from riprap.kernels.functions import compute_call

VALUES: dict[str, tuple[str, st.SearchStrategy[Any]]] = {
    "v": ("double", st.floats() | st.sampled_from([0.0, -0.0, -math.nan, 1e308, -1e308, 5e-324, 0.1])),
    "f": ("float", st.floats(width=32)),
    "n": ("bigint", st.integers(-(2**56), 2**56) | st.integers(-2, 2)),
    "i": ("int", st.integers(-(2**31), 2**31 - 1)),
    "d": ("decimal(12,2)", st.decimals(-(10**10) + 1, 10**10 - 1, places=2)),
    "w": ("decimal(30,3)", st.decimals(-(10**26), 10**26, places=3)),
    "s": ("string", st.text(st.characters(codec="utf-8"), max_size=3)),
    "t": (
        "timestamp",
        st.datetimes(datetime(1700, 1, 1), datetime(2200, 1, 1)).map(lambda t: t.replace(tzinfo=UTC)),
    ),
    "b": ("boolean", st.booleans()),
    "y": ("date", st.dates(date(1700, 1, 1), date(2200, 1, 1))),
    "r": ("binary", st.binary(max_size=2)),
}
SCHEMA = parse_schema(", ".join(f"{name} {kind}" for name, (kind, _) in VALUES.items()))
NUMBERS, ORDERED = "vfnidw", "vfnidwstby"
SPREADS = ("stddev_samp", "stddev_pop", "var_samp", "var_pop")
FRACTIONS = (0.0, 0.1, 0.25, 0.5, 0.9, 1.0)


@lru_cache
def call_of(text: str, aggregates: tuple[UserAggregate, ...] = ()) -> AggregateCall:
    users = {user.name: user for user in aggregates}
    (call,) = parse_aggregates(f"{text} as y", Scope.of(SCHEMA), aggregates=users).calls
    return call


def compute(text: str, values: list[Any] | pa.Array, windows: Extents) -> pa.Array:
    call = call_of(text)
    columns = [
        v if isinstance(v, pa.Array) else pa.array(v, a.type)
        for v, a in zip([values], call.arguments, strict=False)
    ]
    result = compute_call(call, columns, *ends(windows))
    assert (result.type, len(result)) == (call.type, len(windows))
    result.validate(full=True)
    return result


@st.composite
def histories(draw: st.DrawFn, columns: str) -> tuple[str, list[Any], Extents]:
    """Draw a column, its values (often equal ones, and nulls) and windows over them."""
    column = draw(st.sampled_from(columns))
    some = VALUES[column][1]
    few = st.sampled_from(draw(st.lists(some, min_size=1, max_size=4)))
    mixed = draw(st.sampled_from([st.none() | some | few, some, few]))
    values = draw(st.lists(mixed, min_size=8, max_size=30) | st.lists(mixed, max_size=8))
    if column == "f":
        values = pa.array(values, pa.float32()).to_pylist()
    return column, values, draw(extents(len(values)))


def bits(value: Any) -> Any:
    """Tell apart what differs in a single bit, but for NaNs."""
    if isinstance(value, list):
        return [bits(each) for each in value]
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else struct.pack(">d", value)
    return value


def check(text: str, values: list[Any], windows: Extents, reference: Callable[[list[Any]], Any]) -> None:
    got = compute(text, values, windows).to_pylist()
    for (low, high), mine in zip(windows, got, strict=True):
        wanted = reference(values[low:high])
        assert bits(mine) == bits(wanted), f"{text} of {values[low:high]}: {mine}, wanted {wanted}"


@settings(max_examples=300, deadline=None)
@given(drawn=histories(ORDERED))
def test_what_every_type_has(drawn: tuple[str, list[Any], Extents]) -> None:
    column, values, windows = drawn
    for function in ("count", "min", "max", "first", "last"):
        check(f"{function}({column})", values, windows, lambda window, f=function: fold(f, window))
    check("count(*)", values, windows, len)


@settings(max_examples=300, deadline=None)
@given(drawn=histories(NUMBERS))
def test_sums_and_means(drawn: tuple[str, list[Any], Extents]) -> None:
    column, values, windows = drawn
    for function in ("sum", "avg"):
        check(f"{function}({column})", values, windows, lambda window, f=function: fold(f, window))


@settings(max_examples=200, deadline=None)
@given(drawn=histories(ORDERED + "r"))
def test_distinct_values_and_lists(drawn: tuple[str, list[Any], Extents]) -> None:
    column, values, windows = drawn

    def distinct(window: list[Any]) -> int:
        return len({group_of(v) for v in window if v is not None})

    check(f"count(distinct {column})", values, windows, distinct)
    lists = compute(f"collect_list({column})", values, windows).to_pylist()
    assert [len(each) for each in lists] == [sum(v is not None for v in values[a:b]) for a, b in windows]
    for (low, high), each in zip(windows, lists, strict=True):
        assert bits(each) == bits([v for v in values[low:high] if v is not None])


def percentile(values: list[Any], fraction: float) -> float | None:
    """Interpolate between the two nearest of the sorted values, as Spark does, NaN being the greatest."""
    ordered = sorted((v for v in values if v is not None), key=lambda v: (v != v, 0.0 if v != v else v))
    if not ordered:
        return None
    position = (len(ordered) - 1) * fraction
    below, above = (ordered[int(f(position))] for f in (math.floor, math.ceil))
    if bits(below) == bits(above):
        return float(below) + 0.0
    return float(below) + (position - math.floor(position)) * (float(above) - float(below))


@settings(max_examples=300, deadline=None)
@given(drawn=histories(NUMBERS), fraction=st.sampled_from(FRACTIONS) | st.floats(0, 1))
def test_percentiles(drawn: tuple[str, list[Any], Extents], fraction: float) -> None:
    column, values, windows = drawn
    check(f"percentile({column}, {fraction!r})", values, windows, lambda w: percentile(w, fraction))
    check(f"median({column})", values, windows, lambda w: percentile(w, 0.5))


@pytest.mark.parametrize("size", [1, 700, 1024, 1025, 5000])
def test_percentiles_across_the_edges_of_blocks(size: int) -> None:
    random = np.random.default_rng(size)
    values = random.integers(0, 2000, 9000).astype(float)
    # Now overlapping windows, now a jump, now one that grows from a fixed start.
    windows = [w for w in sliding(9000, size) if w[1] % 37 == 0 and not 3000 < w[1] < 3500]
    windows = [w for w in windows if w[1] <= 6000] + [(6000, end) for end in range(6001, 9000, 53)]

    got = compute("percentile(v, 0.9)", pa.array(values), windows).to_numpy()

    for (low, high), mine in zip(windows, got, strict=True):
        assert mine == percentile(values[low:high].tolist(), 0.9)


def exact_variance(values: list[Any], sample: bool) -> Fraction | float | None:
    numbers = [float(v) for v in values if v is not None]
    if len(numbers) < (2 if sample else 1):
        return None
    if not all(map(math.isfinite, numbers)):
        return math.nan
    x = [Fraction(v) for v in numbers]
    mean = sum(x) / len(x)
    return Fraction(sum((v - mean) ** 2 for v in x), len(x) - 1 if sample else len(x))


def between(got: float, exact: Fraction, power: int) -> bool:
    """Whether the powers of the doubles two steps below and above enclose the exact value."""
    below, above = (math.nextafter(math.nextafter(got, to), to) for to in (0.0, math.inf))
    return Fraction(below) ** power <= exact and (above == math.inf or exact <= Fraction(above) ** power)


CANCELLING = st.sampled_from(
    [st.floats(1e9, 1e9 + 1e-3), st.floats(allow_nan=False, allow_infinity=False)]
).flatmap(lambda some: st.lists(some, min_size=5, max_size=25))


def check_spreads(column: str, values: list[Any], windows: Extents) -> None:
    for function in SPREADS:
        got = compute(f"{function}({column})", values, windows).to_pylist()
        for (low, high), mine in zip(windows, got, strict=True):
            exact = exact_variance(values[low:high], function.endswith("samp"))
            told = f"{function} of {values[low:high]}: {mine}, exactly {exact}"
            if isinstance(exact, Fraction):
                assert mine is not None, told
                if mine == math.inf:
                    assert function.startswith("var"), told
                    assert exact > Fraction(1.797e308), told
                else:
                    assert between(mine, exact, 1 if function.startswith("var") else 2), told
            else:
                assert bits(mine) == bits(exact), told


@settings(max_examples=150, deadline=None)
@given(drawn=histories(NUMBERS))
def test_variances_and_deviations(drawn: tuple[str, list[Any], Extents]) -> None:
    check_spreads(*drawn)


@settings(max_examples=150, deadline=None)
@given(data=st.data(), values=CANCELLING)
def test_variances_do_not_suffer_from_cancellation(data: st.DataObject, values: list[float]) -> None:
    check_spreads("v", values, data.draw(extents(len(values))))


def test_variance_by_example() -> None:
    big = [1e16, 1e16 + 2, 1e16 + 4, None, 1e16 + 6]
    for text, wanted in [
        ("var_pop(v)", 5.0),
        ("variance(v)", 20 / 3),
        ("stddev_pop(v)", 5.0**0.5),
        ("stddev(v)", (20 / 3) ** 0.5),
    ]:
        assert compute(text, big, [(0, 5)]).to_pylist() == [wanted]
    assert compute("var_samp(v)", [7.0, None], [(0, 1), (0, 2), (1, 2)]).to_pylist() == [None, None, None]
    assert compute("var_pop(v)", [7.0, None], [(0, 1), (0, 2), (1, 2)]).to_pylist() == [0.0, 0.0, None]
    assert compute("stddev(v)", [1e200, -1e200], [(0, 2)]).to_pylist() == [pytest.approx(2**0.5 * 1e200)]


ALL = [
    *(f"{f}({c})" for f in ("sum", "avg", "median", *SPREADS) for c in NUMBERS),
    *(f"{f}({c})" for f in ("min", "max", "first", "last", "count", "collect_list") for c in ORDERED),
    *(f"count(distinct {c})" for c in ORDERED),
]


@settings(max_examples=300, deadline=None)
@given(data=st.data(), text=st.sampled_from(ALL))
def test_a_result_depends_on_its_window_alone_to_the_last_bit(data: st.DataObject, text: str) -> None:
    _, values, windows = data.draw(histories(call_of(text).arguments[0].sql))

    together = compute(text, values, windows).to_pylist()

    for (low, high), mine in zip(windows, together, strict=True):
        (alone,) = compute(text, values[low:high], [(0, high - low)]).to_pylist()
        assert bits(mine) == bits(alone)


@settings(max_examples=100, deadline=None)
@given(data=st.data(), values=st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), min_size=2, max_size=12))
def test_a_bigint_sum_overflows_only_in_a_window_that_is_asked_for(
    data: st.DataObject, values: list[int | None]
) -> None:
    windows = data.draw(extents(len(values)))
    totals = [sum(v for v in values[low:high] if v is not None) for low, high in windows]

    if all(-(2**63) <= total < 2**63 for total in totals):
        check("sum(n)", values, windows, lambda window: fold("sum", window))
    else:
        with pytest.raises(EvaluationError, match=r"bigint overflow in: sum\(n\)"):
            compute("sum(n)", values, windows)


@settings(max_examples=100, deadline=None)
@given(
    data=st.data(),
    values=st.lists(
        st.integers(1 - 10**38, 10**38 - 1) | st.integers(-(10**34), 10**34), min_size=2, max_size=8
    ),
)
@example(data=None, values=[10**38 - 2, 1])
@example(data=None, values=[10**38 - 1, 1])
@example(data=None, values=[2 - 10**38, -1])
@example(data=None, values=[1 - 10**38, -1])
def test_decimals_have_38_digits_and_no_more(data: st.DataObject | None, values: list[int]) -> None:
    scope = Scope.of(parse_schema("w decimal(38,0)"))
    windows = data.draw(extents(len(values))) if data else sliding(2, 2)
    column = pa.array(map(Decimal, values), pa.decimal128(38, 0))
    totals = [sum(values[low:high]) for low, high in windows]
    # The mean has four places more, which leaves 34 digits before the point.
    means = [Fraction(t, high - low) for t, (low, high) in zip(totals, windows, strict=True)]
    fits = {
        "sum": all(abs(t) < 10**38 for t in totals),
        "avg": all(abs(t) < 10**38 for t in totals)
        and all(abs(m) < 10**34 - Fraction(1, 20_000) for m in means),
    }
    for function, fine in fits.items():
        (call,) = parse_aggregates(f"{function}(w) as y", scope).calls
        if fine:
            got = compute_call(call, [column], *ends(windows)).to_pylist()
            assert got == [fold(function, [Decimal(v) for v in values[low:high]]) for low, high in windows]
        else:
            with pytest.raises(EvaluationError, match=rf"decimal\(38,.\) overflow in: {function}\(w\)"):
                compute_call(call, [column], *ends(windows))


SAMPLES: dict[str, list[Any]] = {
    "b": [True, None, False, True],
    "s": ["b", None, "c", "a"],
    "y": [date(2020, 1, day) for day in (3, 1, 9, 5)],
    "t": [datetime(2020, 1, day, tzinfo=UTC) for day in (3, 1, 9, 5)],
    **{column: [Decimal(3), None, Decimal(4), Decimal(1)] for column in "dw"},
    **{column: [3, None, 4, 1] for column in "vfni"},
}


@pytest.mark.parametrize("text", ALL)
def test_a_column_may_be_a_slice_of_a_longer_one(text: str) -> None:
    (argument,) = call_of(text).arguments
    values = SAMPLES[argument.sql]
    longer = pa.array([*values[::-1], *values, None], argument.type)

    sliced, plain = (compute(text, v, sliding(4, 2)).to_pylist() for v in (longer[4:8], values))

    assert bits(sliced) == bits(plain)


def test_no_windows_give_no_results() -> None:
    for text in (*ALL, "count(*)", "collect_list(r)"):
        call = call_of(text)
        values = [pa.array([], a.type) for a in call.arguments]
        assert compute_call(call, values, *ends([])).equals(pa.array([], call.type))


@settings(max_examples=100, deadline=None)
@given(
    data=st.data(),
    rows=st.lists(st.tuples(st.none() | st.integers(0, 9), st.text(max_size=2)), min_size=5, max_size=20),
    most=st.sampled_from([1, 3, 10, 4_000_000]),
)
def test_a_user_aggregate_gets_the_windows_of_each_argument_as_lists(
    data: st.DataObject, rows: list[tuple[int | None, str]], most: int
) -> None:
    windows = data.draw(extents(len(rows)))
    seen: list[tuple[Any, Any]] = []
    sizes: list[tuple[int, int]] = []

    def shown(numbers: pa.ListArray, texts: pa.ListArray) -> pa.Array:
        assert (numbers.type, texts.type) == (pa.list_(pa.int64()), pa.list_(pa.string()))
        sizes.append((len(numbers), len(numbers.values)))
        seen.extend(zip(numbers.to_pylist(), texts.to_pylist(), strict=True))
        return pc.list_value_length(numbers).cast(pa.int64())

    call = call_of("shown(n, s)", (UserAggregate("shown", shown, pa.int64()),))
    columns = [pa.array([n for n, _ in rows], pa.int64()), pa.array([s for _, s in rows], pa.string())]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(functions, "_LISTED_AT_ONCE", most)
        got = compute_call(call, columns, *ends(windows))

    assert got.to_pylist() == [high - low for low, high in windows]
    parts = [rows[low:high] for low, high in windows]
    assert seen == [([n for n, _ in part], [s for _, s in part]) for part in parts]
    assert all(values <= most or count == 1 for count, values in sizes)


def broken(xs: pa.ListArray) -> pa.Array:
    raise KeyError("lost")


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (lambda xs: xs, "user aggregate f returned array<bigint>, not the declared bigint"),
        (lambda xs: pa.array([1]), "user aggregate f returned 1 rows for 2"),
        (lambda xs: [1, 2], "user aggregate f returned a list, not an Arrow array"),
        (broken, "user aggregate f failed: KeyError('lost')"),
    ],
)
def test_what_a_user_aggregate_returns_is_checked(function: Callable[..., pa.Array], problem: str) -> None:
    call = call_of("f(n)", (UserAggregate("f", function, pa.int64()),))

    with pytest.raises(EvaluationError) as raised:
        compute_call(call, [pa.array([1, 2, 3])], *ends([(0, 2), (1, 3)]))

    assert (raised.value.problem, raised.value.expression) == (problem, "f(n)")


def test_a_user_aggregate_may_return_chunks_and_other_layouts() -> None:
    def texts(xs: pa.ListArray) -> pa.ChunkedArray:
        return pa.chunked_array([pc.list_element(xs, 0).cast(pa.string())]).cast(pa.large_string())

    call = call_of("f(n)", (UserAggregate("f", texts, pa.large_string()),))

    got = compute_call(call, [pa.array([1, 2, 3])], *ends([(0, 2), (1, 3)]))

    assert got.equals(pa.array(["1", "2"]))


def test_lists_too_long_for_one_array_are_an_error() -> None:
    rows = 2**17
    values = pa.array(np.zeros(rows))
    with pytest.raises(EvaluationError, match="more than 2147483647 values"):
        compute_call(call_of("collect_list(v)"), [values], *ends([(0, rows)] * 2**14))


def test_first_last_and_lists_take_any_type() -> None:
    scope = Scope.of(parse_schema("xs array<double>"))
    values = pa.array([[1.0], None, []], pa.list_(pa.float64()))
    got = [
        compute_call(parse_aggregates(f"{text} as y", scope).calls[0], [values], *ends([(0, 2), (1, 3)]))
        for text in ("first(xs)", "last(xs)", "count(xs)")
    ]
    assert [each.to_pylist() for each in got] == [[[1.0], None], [None, []], [1, 1]]
