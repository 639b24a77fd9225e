"""Aggregates by name: what they are called, what they take and what type they have."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from riprap.expressions import (
    AggregateCall,
    ExpressionError,
    Scope,
    UserAggregate,
    UserFunction,
    parse_aggregates,
    parse_schema,
    parse_select,
    type_name,
)

SCHEMA = parse_schema(
    "ticker string, price double, size bigint, money decimal(10,2), raw binary, xs array<double>"
)
SCOPE = Scope.of(SCHEMA)


def oldest(values: pa.ListArray, *more: pa.ListArray) -> pa.Array:
    return pc.list_element(values, 0)


OLDEST = UserAggregate("oldest", oldest, pa.float64())


def calls(text: str, *users: UserAggregate) -> tuple[AggregateCall, ...]:
    users_by_name = {user.name: user for user in users}
    return parse_aggregates(text, SCOPE, keys=["ticker"], aggregates=users_by_name).calls


@pytest.mark.parametrize(
    ("text", "type"),
    [
        ("count(distinct price)", "bigint"),
        ("count(distinct raw)", "bigint"),
        ("count(xs)", "bigint"),
        ("count(null)", "bigint"),
        ("mean(money)", "decimal(14,6)"),
        ("stddev(size)", "double"),
        ("stddev_pop(money)", "double"),
        ("variance(price)", "double"),
        ("var_pop(price)", "double"),
        ("percentile(money, 0.9)", "double"),
        ("median(size)", "double"),
        ("collect_list(ticker)", "array<string>"),
        ("collect_list(money)", "array<decimal(10,2)>"),
        ("first(xs)", "array<double>"),
        ("COLLECT_LIST(size)", "array<bigint>"),
    ],
)
def test_types(text: str, type: str) -> None:
    made = parse_aggregates(f"{text} as y", SCOPE)
    assert type_name(made.calls[0].type) == type_name(made.outputs[0].expression.type) == type


@pytest.mark.parametrize(
    ("text", "sql"),
    [
        ("count(*)", "count(*)"),
        ("count(distinct price)", "count(distinct price)"),
        ("stddev(price)", "stddev_samp(price)"),
        ("Variance(price)", "var_samp(price)"),
        ("percentile(price, 0.90)", "percentile(price, 0.9)"),
        ("percentile(price, 1)", "percentile(price, 1.0)"),
        ("percentile(price, 1e-5)", "percentile(price, 1e-05)"),
        ("median(price)", "percentile(price, 0.5)"),
    ],
)
def test_a_call_has_one_text_however_it_was_written(text: str, sql: str) -> None:
    (call,) = calls(f"{text} as y")
    assert call.sql == sql
    assert calls(f"{call.sql} as y") == (call,)


def test_equal_calls_share_a_slot_and_others_do_not() -> None:
    equal = "median(price) - percentile(price, 0.5) + stddev(price) - stddev_samp(price) as y"
    different = "count(price) + count(distinct price) + count(*) as y"
    quantiles = "percentile(price, 0.1) - percentile(price, 0.9) as y"
    assert [len(calls(text)) for text in (equal, different, quantiles)] == [2, 3, 2]


def test_arguments_of_a_call() -> None:
    (counted,) = calls("count(*) as n")
    assert (counted.arguments, counted.argument) == ((), None)
    (summed,) = calls("sum(price * size) as n")
    assert summed.argument is summed.arguments[0]
    (asked,) = calls("oldest(price, size + 1, ticker) as y", OLDEST)
    assert [argument.sql for argument in asked.arguments] == ["price", "size + 1", "ticker"]
    assert (asked.function, asked.user, asked.type) == ("oldest", OLDEST, pa.float64())
    assert asked.sql == "oldest(price, size + 1, ticker)"


def test_a_user_aggregate_is_called_without_regard_to_case_and_inside_expressions() -> None:
    made = parse_aggregates(
        "Oldest(price) / sum(size) as y, oldest(price) as z", SCOPE, aggregates={"oldest": OLDEST}
    )
    assert [call.function for call in made.calls] == ["oldest", "sum"]
    assert [output.expression.sql for output in made.outputs] == ["`$0` / `$1`", "`$0`"]


def test_a_user_aggregate_goes_before_one_of_the_same_name() -> None:
    mine = UserAggregate("median", oldest, pa.int32())
    (call,) = calls("median(price, size) as y", mine)
    assert call.user is mine


def test_a_user_function_works_inside_a_user_aggregate() -> None:
    twice = UserFunction("twice", lambda x: pc.multiply(x, 2.0), pa.float64())
    made = parse_aggregates("oldest(twice(price)) as y", SCOPE, (), {"twice": twice}, {"oldest": OLDEST})
    assert made.calls[0].sql == "oldest(twice(price))"


def test_calls_travel_to_other_processes() -> None:
    made = calls("percentile(price, 0.9) + count(distinct size) + oldest(price) as y", OLDEST)
    assert pickle.loads(pickle.dumps(made)) == made


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("percentile(price) as y", "percentile() takes 2 arguments, got 1", "percentile(x, 0.9)"),
        ("percentile(price, size) as y", "percentile needs a literal from 0 to 1 here, got size", ""),
        ("percentile(price, 90) as y", "percentile needs a literal from 0 to 1 here, got 90", ""),
        ("percentile(price, -0.1) as y", "percentile needs a literal from 0 to 1 here, got -0.1", ""),
        ("percentile(price, '0.5') as y", "percentile needs a literal from 0 to 1 here, got '0.5'", ""),
        ("percentile(price, null) as y", "percentile needs a literal from 0 to 1 here, got null", ""),
        ("median(ticker) as y", "median needs numbers, got string: ticker", "Write a cast"),
        ("stddev(ticker) as y", "stddev needs numbers, got string: ticker", "Write a cast"),
        ("sum(xs) as y", "sum needs numbers, got array<double>: xs", ""),
        ("max(xs) as y", "max of array<double> is not supported: xs", ""),
        ("collect_list(xs) as y", "collect_list of array<double> is not supported: xs", ""),
        ("count(distinct xs) as y", "count(distinct) of array<double> is not supported: xs", ""),
        ("collect_list(null) as y", "collect_list(null) has no type", "cast(null as int)"),
        ("count(distinct price, size) as y", "count() takes 1 argument, got 2", ""),
        ("count(distinct *) as y", "count(distinct *) does not exist", "count(*)"),
        ("median(distinct price) as y", "median(distinct ...) is not supported", "count(distinct x)"),
        ("median(*) as y", "median(*) does not exist", "count(*)"),
        ("oldest() as y", "oldest() needs at least one argument", ""),
        ("oldest(*) as y", "oldest() takes expressions, got *", ""),
        ("oldest(distinct price) as y", "oldest() takes expressions, got DISTINCT price", ""),
        ("oldest(null) as y", "null has no type as an argument of oldest()", "cast(null as int)"),
        ("sum(oldest(price)) as y", "oldest() inside an aggregate", "do not nest"),
        ("oldest(median(price)) as y", "median() inside an aggregate", "do not nest"),
        ("ticker", "no aggregate in it", "min, oldest, percentile"),
    ],
)
def test_mistakes_are_explained(text: str, message: str, hint: str) -> None:
    with pytest.raises(ExpressionError) as raised:
        calls(text, OLDEST)
    assert message in raised.value.problem
    assert hint in raised.value.hint


@pytest.mark.parametrize("name", ["median", "collect_list", "percentile", "stddev_pop"])
def test_an_aggregate_has_no_place_in_a_select(name: str) -> None:
    with pytest.raises(ExpressionError, match=rf"{name}\(\) is an aggregate, which has no place here"):
        parse_select(f"{name}(price) as y", SCOPE)
