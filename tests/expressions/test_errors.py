"""Every mistake in a text is found when it is parsed, and the message says what to do."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from riprap.expressions import (
    ExpressionError,
    Scope,
    UserAggregate,
    UserFunction,
    check_type,
    parse_aggregates,
    parse_condition,
    parse_schema,
    parse_select,
)

SCHEMA = parse_schema(
    "ticker string, price double, size bigint, kind string, day date, raw binary, money decimal(10,2), "
    "wide decimal(38,10), ok boolean"
)
SCOPE = Scope.of(SCHEMA)


def problem(text: str) -> ExpressionError:
    with pytest.raises(ExpressionError) as raised:
        parse_select(text, SCOPE)
    assert raised.value.text == text
    return raised.value


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("price * sise as y", "no column 'sise'", "did you mean 'size'?"),
        ("uper(ticker) as y", "no function uper()", "did you mean 'upper'"),
        ("sha9(ticker) as y", "no function sha9()", "Or bring your own: app.function('sha9', ...)"),
        ("price + ticker as y", "+ needs numbers, got string: ticker", "Write a cast"),
        ("ticker = 1 as y", "string and int do not mix: 1", "Write a cast"),
        ("price + day as y", "+ needs numbers, got date: day", "A time takes an interval"),
        ("day + interval 1 day as y", "a date has no time of day to move", "cast(x as timestamp)"),
        ("price and ok as y", "and needs a condition, got double: price", "Write a comparison"),
        ("price * size", "price * size has no name", "Write: price * size as name"),
        ("price as y, size as y", "two outputs are named 'y'", "Name one of them"),
        ("price & 1 as y", "bitwiseand is not part of the dialect: price & 1", "Operators:"),
        (
            "interval 1 day as y",
            "y is an interval, which no column can be",
            "unix_micros(a) - unix_micros(b)",
        ),
        ("interval 1 month as y", "interval '1 MONTH' has no unit 'month'", "units: microsecond"),
        (
            "to_timestamp(ticker, 'EEE') as y",
            "format 'EEE' has EEE, which is not supported",
            "There are: yyyy",
        ),
        ("date_trunc('eon', day) as y", "date_trunc has no unit 'eon'", "There are: year, quarter"),
        ("sum(price) as y", "sum() is an aggregate, which has no place here", "aggregate operator"),
        ("upper() as y", "upper() takes 1 argument, got 0", ""),
        ("round(price, size) as y", "round needs an int literal here, got size", ""),
        ("ticker like kind as y", "like needs a string literal here, got kind", ""),
        ("size in (size, 1) as y", "in (...) takes literals only, got size", "Write a = x or a = y"),
        ("raw = raw as y", "binary columns can only be passed through: raw", ""),
        ("cast(price as string) as y", "cannot cast double to string", "To string:"),
        ("cast(price as decimal(10,2)) as y", "cannot cast double to decimal(10,2)", "Java's printing"),
        ("cast(price as map<int, int>) as y", "type map<int, int> is not supported", "Supported types:"),
        ("cast(size as decimal(40,2)) as y", "decimal(40,2) does not exist", "1 <= p <= 38"),
        ("-wide as y", "- of decimal(38,10) is not exact in Spark: wide", "0 - x"),
        (
            "size > 12345678901234567890 as y",
            "12345678901234567890 is beyond every bigint: size",
            "is not null",
        ),
        ("null as y", "y is null without a type", "cast(null as int)"),
        ("null + null as y", "null + null has no type", "cast(null as int)"),
        ("price div 2 as y", "div needs whole numbers or decimals: price div 2", "cast(x / y as bigint)"),
        ("case when 1 then 2 end as y", "when needs a condition, got int: 1", "Write a comparison"),
        ("a.b.c as y", "no nested column a.b.c", "Write source.column"),
        ("quotes.price as y", "no source 'quotes': columns are named without a qualifier here", "There are:"),
        ("date'2020-13-01' as y", "not a date: '2020-13-01'", ""),
        ("price from t", "from has no place in an expression", "Operators:"),
        ("price +", "not valid SQL", ""),
        ("'open", "not valid SQL", ""),
        ("", "the expression is empty", ""),
        ("sum(price) over (partition by ticker) as y", "window is not part of the dialect", "Operators:"),
    ],
)
def test_mistakes_are_explained(text: str, message: str, hint: str) -> None:
    error = problem(text)
    assert message in error.problem
    assert hint in error.hint
    assert error.problem in str(error)
    assert error.hint in str(error)


def test_the_place_is_underlined() -> None:
    assert str(problem("size, price * sise as y")).splitlines()[:3] == [
        "no column 'sise'",
        "  size, price * sise as y",
        "                ^^^^",
    ]


def test_a_condition_is_boolean() -> None:
    with pytest.raises(ExpressionError, match="a condition is boolean, this is double"):
        parse_condition("price", SCOPE)
    with pytest.raises(ExpressionError, match="a condition is one expression without a name"):
        parse_condition("ok as y", SCOPE)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sum(price) as y, size", "column 'size' is neither a key nor inside an aggregate"),
        ("sum(sum(price)) as y", "sum() inside an aggregate"),
        ("sum(distinct price) as y", "sum(distinct ...) is not supported"),
        ("sum(*) as y", "sum(*) does not exist"),
        ("sum(ticker) as y", "sum needs numbers, got string: ticker"),
        ("max(raw) as y", "max of binary is not supported: raw"),
        ("ticker", "no aggregate in it"),
        ("sum(price)", "sum(price) has no name"),
    ],
)
def test_mistakes_in_aggregates(text: str, message: str) -> None:
    with pytest.raises(ExpressionError) as raised:
        parse_aggregates(text, SCOPE, keys=["ticker"])
    assert message in raised.value.problem


def test_an_unknown_key_is_named() -> None:
    with pytest.raises(ExpressionError, match="key: no column 'tickr'"):
        parse_aggregates("sum(price) as y", SCOPE, keys=["tickr"])


@pytest.mark.parametrize(
    "text", ["a", "a bigint b", "a array<array<int>>", "a bigint, a int", "", "a decimal(40,1)"]
)
def test_wrong_schemas(text: str) -> None:
    with pytest.raises(ExpressionError):
        parse_schema(text)


def test_unsupported_column_types_are_refused_when_the_scope_is_made() -> None:
    with pytest.raises(ExpressionError, match="type uint8 of column a is not supported"):
        Scope.of(pa.schema({"a": pa.uint8()}))
    with pytest.raises(ExpressionError, match="Supported types: boolean"):
        check_type(pa.timestamp("ns"))
    with pytest.raises(ExpressionError, match="user function f"):
        UserFunction("f", lambda x: x, pa.list_(pa.list_(pa.int64())))
    with pytest.raises(ExpressionError, match="user aggregate f"):
        UserAggregate("f", lambda x: x, pa.uint8())


def test_errors_survive_the_way_between_processes() -> None:
    error = problem("sise as y")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
