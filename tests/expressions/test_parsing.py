"""Names, scopes, outputs and aggregates: what a text becomes, before any row is seen."""

from __future__ import annotations

import pyarrow as pa
import pytest

from riprap.expressions import (
    ExpressionError,
    Scope,
    check_type,
    normalise,
    parse_aggregates,
    parse_condition,
    parse_schema,
    parse_select,
    type_name,
)

FEED = parse_schema("ticker string, price double, size bigint, money decimal(10,2), n int")
VWAP = parse_schema("ticker string, vwap double")
JOIN = Scope.qualified({"vwap": VWAP, "quotes": FEED}, shared=["ticker"])


def names(text: str, scope: Scope) -> list[tuple[str, str]]:
    return [(each.name, each.expression.sql) for each in parse_select(text, scope)]


def test_schemas_are_written_as_spark_ddl() -> None:
    text = (
        "a boolean, b tinyint, c smallint, d int, e bigint, f float, g double, h string, i binary, j date, "
        "k timestamp, l timestamp_ntz, m decimal(10,2)"
    )
    schema = parse_schema(text)
    assert ", ".join(f"{field.name} {type_name(field.type)}" for field in schema) == text
    assert not parse_schema("a int not null").field("a").nullable


def test_other_layouts_of_strings_are_normalised() -> None:
    assert check_type(pa.large_string()) == check_type(pa.dictionary(pa.int8(), pa.string())) == pa.string()
    assert normalise(pa.array(["a", None, "a"]).dictionary_encode()).to_pylist() == ["a", None, "a"]
    large = pa.array(["a", "b"], pa.large_string())
    scope = Scope.of(pa.schema({"s": large.type}))
    assert parse_condition("s = 'a'", scope).evaluate({"s": large}, 2).to_pylist() == [True, False]


def test_select_names_columns_by_themselves_and_expands_the_star() -> None:
    scope = Scope.of(VWAP)
    assert names("*, vwap * 2 as twice", scope) == [
        ("ticker", "ticker"),
        ("vwap", "vwap"),
        ("twice", "vwap * 2"),
    ]


def test_names_match_without_regard_to_case_and_keep_their_own() -> None:
    assert names("TICKER, Vwap as V", Scope.of(VWAP)) == [("ticker", "ticker"), ("V", "vwap")]


def test_qualified_names_are_keys_of_the_columns() -> None:
    condition = parse_condition("vwap.vwap > quotes.price", JOIN)
    assert condition.sql == "vwap.vwap > quotes.price"
    assert condition.columns == {"vwap.vwap", "quotes.price"}
    columns = {"vwap.vwap": pa.array([2.0, 1.0]), "quotes.price": pa.array([1.0, 2.0])}
    assert condition.evaluate(columns, 2).to_pylist() == [True, False]


def test_bare_names_resolve_where_they_are_not_ambiguous() -> None:
    ticker, gain = parse_select("ticker, (vwap - price) * size as gain", JOIN)
    assert ticker.name == "ticker"
    assert ticker.expression.columns == {"vwap.ticker"}
    assert gain.expression.columns == {"vwap.vwap", "quotes.price", "quotes.size"}
    with pytest.raises(ExpressionError, match="column 'ticker' is ambiguous"):
        parse_select("ticker", Scope.qualified({"vwap": VWAP, "quotes": FEED}))


def test_stars_of_joins_show_shared_columns_once() -> None:
    assert [name for name, _ in names("*", JOIN)] == ["ticker", "vwap", "price", "size", "money", "n"]
    assert names("vwap.*", JOIN) == [("ticker", "vwap.ticker"), ("vwap", "vwap.vwap")]


def test_odd_names_are_quoted() -> None:
    scope = Scope.of(pa.schema({"a b": pa.int64(), "date": pa.int64(), "select": pa.int64()}))
    (output,) = parse_select("`a b` + `date` + `select` as `my sum`", scope)
    assert output.name == "my sum"
    assert output.expression.sql == "(`a b` + `date`) + `select`"
    assert output.expression.columns == {"a b", "date", "select"}


def test_equal_texts_make_equal_expressions() -> None:
    first, second = (parse_condition("price > 1", Scope.of(FEED)) for _ in range(2))
    assert first == second
    assert hash(first) == hash(second)


@pytest.mark.parametrize(
    ("text", "type"),
    [
        ("count(*)", "bigint"),
        ("count(price)", "bigint"),
        ("sum(n)", "bigint"),
        ("sum(price)", "double"),
        ("sum(money)", "decimal(20,2)"),
        ("avg(n)", "double"),
        ("avg(money)", "decimal(14,6)"),
        ("min(ticker)", "string"),
        ("last(money)", "decimal(10,2)"),
    ],
)
def test_aggregate_result_types(text: str, type: str) -> None:
    made = parse_aggregates(f"{text} as y", Scope.of(FEED))
    assert type_name(made.calls[0].type) == type_name(made.outputs[0].expression.type) == type


def test_outputs_are_expressions_over_slots_and_keys() -> None:
    text = "ticker, sum(price * size) / sum(size) as vwap, sum(size) as volume, count(*) + 1 as n"
    made = parse_aggregates(text, Scope.of(FEED), keys=["ticker"])
    calls = [(call.slot, call.function, call.argument and call.argument.sql) for call in made.calls]
    assert calls == [("$0", "sum", "price * size"), ("$1", "sum", "size"), ("$2", "count", None)]
    assert [output.name for output in made.outputs] == ["ticker", "vwap", "volume", "n"]
    columns = {"ticker": pa.array(["A"]), "$0": pa.array([6.0]), "$1": pa.array([3]), "$2": pa.array([2])}
    values = [output.expression.evaluate(columns, 1).to_pylist() for output in made.outputs]
    assert values == [["A"], [2.0], [3], [3]]
