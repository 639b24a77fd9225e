"""Draw random tables and random expressions over them, for the comparison with Spark."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
from hypothesis import strategies as st

SCHEMA = pa.schema(
    {
        "t": pa.int8(),
        "h": pa.int16(),
        "i": pa.int32(),
        "b": pa.int64(),
        "f": pa.float32(),
        "d": pa.float64(),
        "m": pa.decimal128(7, 2),
        "n": pa.decimal128(18, 6),
        "w": pa.decimal128(38, 10),
        "x": pa.bool_(),
        "y": pa.bool_(),
        "s": pa.string(),
        "u": pa.string(),
        "dt": pa.date32(),
        "ts": pa.timestamp("us", tz="UTC"),
        "nz": pa.timestamp("us"),
    }
)
TEXTS = [
    "",
    "a",
    "abc",
    "trade",
    " x ",
    "Straße",
    "日本語",
    "a%b_c",
    "ΑΣ",
    "😀z",
    "12",
    "-7",
    " +3 ",
    "true",
    "no",
    "1.5e3",
    "-.5",
    "NaN",
    "-Infinity",
    "2d",
    "2020-01-31 10:20:30+01:00",
    "1969-12-31",
]


def _integers(bits: int, wild: bool) -> st.SearchStrategy[int]:
    small = st.integers(-5, 9)
    edges = st.sampled_from([-(2 ** (bits - 1)), 2 ** (bits - 1) - 1, 1 - 2 ** (bits - 1)])
    return (
        st.one_of(small, small, edges, st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1))
        if wild
        else small
    )


def _decimals(precision: int, scale: int, wild: bool) -> st.SearchStrategy[Decimal]:
    limit = 10**precision - 1
    small = st.integers(-999, 999)
    unscaled = (
        st.one_of(small, st.sampled_from([limit, -limit]), st.integers(-limit, limit)) if wild else small
    )
    return unscaled.map(lambda digits: Decimal((int(digits < 0), tuple(map(int, str(abs(digits)))), -scale)))


def _doubles(width: int, wild: bool) -> st.SearchStrategy[float]:
    small = st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -2.5, 3.25, 100.0])
    if not wild:
        return small
    odd = st.sampled_from([float("nan"), float("inf"), float("-inf"), 2.0**63, -(2.0**31), 2.0**31])
    return st.one_of(small, odd, st.floats(width=width))


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """Draw a table of a few rows; wild ones have values at the limits of their types."""
    rows = draw(st.integers(2, 5))
    wild = draw(st.sampled_from([True, True, False]))
    moment = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999))
    values: dict[str, st.SearchStrategy[object]] = {
        "t": _integers(8, wild),
        "h": _integers(16, wild),
        "i": _integers(32, wild),
        "b": _integers(64, wild),
        "f": _doubles(32, wild),
        "d": _doubles(64, wild),
        "m": _decimals(7, 2, wild),
        "n": _decimals(18, 6, wild),
        "w": _decimals(38, 10, wild),
        "x": st.booleans(),
        "y": st.booleans(),
        "s": st.sampled_from(TEXTS),
        "u": st.one_of(st.sampled_from(TEXTS), st.text(alphabet="aAbéßİ\u03c3Σ \t%_\\日😀", max_size=4)),
        "dt": st.dates(date(1, 1, 1), date(9999, 12, 31)),
        "ts": moment.map(lambda each: each.replace(tzinfo=UTC)),
        "nz": moment,
    }
    columns = {
        name: pa.array(
            draw(st.lists(st.one_of(st.none(), each, each, each), min_size=rows, max_size=rows)), type
        )
        for (name, each), type in zip(values.items(), SCHEMA.types, strict=True)
    }
    return pa.table(columns, schema=SCHEMA)


def _calls(name: str, *arguments: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(*arguments).map(lambda parts: f"{name}({', '.join(parts)})")


def _binary(
    operators: list[str], left: st.SearchStrategy[str], right: st.SearchStrategy[str]
) -> st.SearchStrategy[str]:
    return st.tuples(left, st.sampled_from(operators), right).map(
        lambda parts: f"({parts[0]} {parts[1]} {parts[2]})"
    )


NUMBERS = st.sampled_from(["t", "h", "i", "b", "f", "d", "m", "n", "w", "i", "d", "m"])
NUMBER_LITERALS = st.sampled_from(
    [
        "0",
        "1",
        "2",
        "-1",
        "3000000000",
        "1.5",
        "-0.05",
        "100.0",
        "1e0",
        "2.5e0",
        "0.333",
        "12345678901234567890",
    ]
)
CAST_NUMBERS = st.sampled_from(
    [
        "tinyint",
        "smallint",
        "int",
        "bigint",
        "float",
        "double",
        "decimal(5,1)",
        "decimal(20,4)",
        "decimal(38,12)",
        "boolean",
    ]
)


def numbers(depth: int) -> st.SearchStrategy[str]:
    if depth == 0:
        return st.one_of(NUMBERS, NUMBERS, NUMBER_LITERALS)
    n, c, s, t = numbers(depth - 1), conditions(depth - 1), texts(depth - 1), times(depth - 1)
    return st.one_of(
        n,
        _binary(["+", "-", "*", "/", "%", "div"], n, n),
        _binary(["+", "-", "*"], n, n),
        n.map(lambda each: f"(- {each})"),
        st.sampled_from(["abs", "floor", "ceil", "round", "sqrt"]).flatmap(lambda name: _calls(name, n)),
        st.tuples(n, st.integers(-3, 8)).map(lambda parts: f"round({parts[0]}, {parts[1]})"),
        st.sampled_from(["coalesce", "least", "greatest", "nullif"]).flatmap(lambda name: _calls(name, n, n)),
        st.tuples(c, n, n).map(lambda parts: f"case when {parts[0]} then {parts[1]} else {parts[2]} end"),
        st.tuples(c, n).map(lambda parts: f"case when {parts[0]} then {parts[1]} end"),
        st.tuples(n, n, n).map(lambda parts: f"case {parts[0]} when {parts[1]} then {parts[2]} end"),
        _calls("if", c, n, n),
        st.tuples(st.sampled_from(["cast", "try_cast"]), st.one_of(n, c, s), CAST_NUMBERS).map(
            lambda parts: f"{parts[0]}({parts[1]} as {parts[2]})"
        ),
        _calls("length", s),
        st.sampled_from(["year", "month", "day", "hour", "minute", "second"]).flatmap(
            lambda name: _calls(name, t)
        ),
    )


def conditions(depth: int) -> st.SearchStrategy[str]:
    if depth == 0:
        return st.sampled_from(["x", "y", "true", "false", "cast(null as boolean)", "x", "y"])
    n, c, s, t = numbers(depth - 1), conditions(depth - 1), texts(depth - 1), times(depth - 1)
    comparisons = ["=", "<>", "<", "<=", ">", ">=", "<=>"]
    return st.one_of(
        _binary(comparisons, n, n),
        _binary(comparisons, n, n),
        _binary(comparisons, s, s),
        _binary(comparisons, t, t),
        _binary(["and", "or"], c, c),
        _binary(comparisons, c, c),
        c.map(lambda each: f"(not {each})"),
        st.one_of(n, s, t, c).map(lambda each: f"({each} is null)"),
        st.one_of(n, s, t, c).map(lambda each: f"({each} is not null)"),
        st.tuples(n, NUMBER_LITERALS, NUMBER_LITERALS).map(
            lambda parts: f"({parts[0]} in ({parts[1]}, {parts[2]}))"
        ),
        n.map(lambda each: f"({each} not in (1, null))"),
        st.tuples(n, n, n).map(lambda parts: f"({parts[0]} between {parts[1]} and {parts[2]})"),
        st.tuples(s, st.sampled_from(["a%", "%b_c", "_", "%\\\\%%", "日%", "", "%ss%"])).map(
            lambda parts: f"({parts[0]} like '{parts[1]}')"
        ),
        st.tuples(
            st.sampled_from(["startswith", "endswith", "contains"]), s, st.sampled_from(["a", "", "ß"])
        ).map(lambda parts: f"{parts[0]}({parts[1]}, '{parts[2]}')"),
        st.sampled_from(
            ["isnan(d)", "isnan(f)", "(s in ('a', 'abc'))", "(ts - timestamp'2020-01-01' > interval 1 day)"]
        ),
        st.tuples(s, st.sampled_from(["^a", "[a-c]+$", "ß|日", r"\\\\d", "(?i)S"])).map(
            lambda parts: f"({parts[0]} rlike '{parts[1]}')"
        ),
    )


def texts(depth: int) -> st.SearchStrategy[str]:
    if depth == 0:
        return st.sampled_from(["s", "u", "'a'", "'Straße'", "s", "u"])
    n, c, s = numbers(depth - 1), conditions(depth - 1), texts(depth - 1)
    return st.one_of(
        s,
        st.sampled_from(["upper", "lower", "trim"]).flatmap(lambda name: _calls(name, s)),
        _binary(["||"], s, s),
        _calls("concat", s, s, s),
        st.tuples(s, st.integers(-4, 4), st.integers(-1, 4)).map(
            lambda parts: f"substring({parts[0]}, {parts[1]}, {parts[2]})"
        ),
        st.tuples(s, st.integers(-4, 4)).map(lambda parts: f"substring({parts[0]}, {parts[1]})"),
        st.one_of(n, c, st.just("dt")).map(lambda each: f"cast({each} as string)"),
        st.sampled_from(
            ["cast(ts as string)", "cast(nz as string)", "split(s, 'a')[0]", "get(split(u, '%'), 1)"]
        ),
        st.tuples(s, st.sampled_from(["[a-z]+", r"(\\\\w)\\\\W?", "s(.)"])).flatmap(
            lambda parts: st.sampled_from(
                [
                    f"regexp_replace({parts[0]}, '{parts[1]}', '<$0>')",
                    f"regexp_extract({parts[0]}, '{parts[1]}', 0)",
                ]
            )
        ),
        _calls("if", c, s, s),
        st.sampled_from(["coalesce", "least", "greatest", "nullif"]).flatmap(lambda name: _calls(name, s, s)),
    )


def times(depth: int) -> st.SearchStrategy[str]:
    leaf = st.sampled_from(["dt", "ts", "nz", "date'2020-02-29'", "timestamp'1969-12-31 23:59:59.5'"])
    if depth == 0:
        return leaf
    t, c = times(depth - 1), conditions(depth - 1)
    return st.one_of(
        leaf,
        _calls("if", c, t, t),
        _calls("coalesce", t, t),
        st.tuples(st.sampled_from(["date", "timestamp", "timestamp_ntz"]), t).map(
            lambda parts: f"cast({parts[1]} as {parts[0]})"
        ),
        st.sampled_from(["try_cast(s as timestamp)", "try_cast(u as date)"]),
        st.tuples(
            t, st.sampled_from(["+", "-"]), st.sampled_from(["5 minutes", "'1 day 2 hours'", "1.5 seconds"])
        ).map(lambda parts: f"({parts[0]} {parts[1]} interval {parts[2]})"),
        st.tuples(st.sampled_from(["hour", "week", "year"]), t).map(
            lambda parts: f"date_trunc('{parts[0]}', {parts[1]})"
        ),
    )


def expressions(depth: int) -> st.SearchStrategy[str]:
    """Draw the text of an expression; some are outside the dialect, which the parser must say."""
    return st.one_of(
        numbers(depth), numbers(depth), numbers(depth), conditions(depth), texts(depth), times(depth)
    )
