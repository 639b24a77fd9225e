"""Columns of lists: they have a type, pass through, and are refused where nothing can be done with them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from riprap.expressions import (
    ExpressionError,
    Scope,
    UserFunction,
    check_type,
    normalise,
    parse_condition,
    parse_schema,
    parse_select,
    type_name,
)

SCHEMA = parse_schema("xs array<double>, ys array<double>, names array<string>, k int")
SCOPE = Scope.of(SCHEMA)
XS = pa.array([[1.0, None], None, []], pa.list_(pa.float64()))


@pytest.mark.parametrize(
    "element",
    ["boolean", "tinyint", "bigint", "float", "double", "decimal(10,2)", "string", "binary", "timestamp_ntz"],
)
def test_a_list_of_any_type_has_a_name_that_reads_back(element: str) -> None:
    (field,) = parse_schema(f"xs array<{element}>")
    assert field.type == pa.list_(parse_schema(f"x {element}").field(0).type)
    assert type_name(field.type) == f"array<{element}>"
    assert check_type(field.type) == field.type


@pytest.mark.parametrize("text", ["array<array<int>>", "array", "array<map<int, int>>", "array<uint>"])
def test_other_lists_are_refused(text: str) -> None:
    with pytest.raises(ExpressionError):
        parse_schema(f"xs {text}")


@pytest.mark.parametrize(
    "type",
    [
        pa.list_(pa.list_(pa.int64())),
        pa.list_(pa.uint8()),
        pa.list_(pa.struct({"a": pa.int64()})),
        pa.list_view(pa.int64()),
    ],
)
def test_other_lists_are_refused_in_schemas(type: pa.DataType) -> None:
    with pytest.raises(ExpressionError, match="of column xs is not supported") as raised:
        Scope.of(pa.schema({"xs": type}))
    assert "array<T>" in raised.value.hint


@pytest.mark.parametrize(
    "type",
    [
        pa.large_list(pa.large_string()),
        pa.list_(pa.string_view()),
        pa.list_(pa.field("element", pa.string(), nullable=False)),
        pa.list_(pa.dictionary(pa.int32(), pa.string())),
    ],
)
def test_other_layouts_are_normalised(type: pa.DataType) -> None:
    array = normalise(pa.array([["x"], ["a", "b"], None, [], ["c"], ["y"]], type)[1:5])
    assert array.type == check_type(type) == pa.list_(pa.string())
    assert array.to_pylist() == [["a", "b"], None, [], ["c"]]


def test_lists_pass_through() -> None:
    outputs = parse_select("*, xs as zs", SCOPE)
    columns = {"xs": XS, "ys": XS, "names": pa.nulls(3, pa.list_(pa.string())), "k": pa.array([1, 2, 3])}
    for output in outputs:
        if output.name in ("xs", "ys", "zs"):
            assert output.expression.evaluate(columns, 3).equals(XS)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("coalesce(xs, ys)", [[1.0, None], [2.0], []]),
        ("if(k > 1, ys, xs)", [[1.0, None], [2.0], [3.0]]),
        ("case when xs is null then ys end", [None, [2.0], None]),
        ("cast(null as array<double>)", [None, None, None]),
        ("cast(xs as array<double>)", [[1.0, None], None, []]),
    ],
)
def test_lists_can_be_chosen(text: str, wanted: list[object]) -> None:
    (output,) = parse_select(f"{text} as y", SCOPE)
    ys = pa.array([[0.0], [2.0], [3.0]], pa.list_(pa.float64()))
    assert output.expression.type == XS.type
    got = output.expression.evaluate({"xs": XS, "ys": ys, "k": pa.array([1, 2, 3], pa.int32())}, 3)
    assert got.to_pylist() == wanted


def test_a_user_function_may_take_and_return_lists() -> None:
    same = UserFunction("same", lambda xs: xs, pa.list_(pa.float64()))
    (output,) = parse_select("same(xs) as y", SCOPE, {"same": same})
    assert output.expression.evaluate({"xs": XS}, 3).equals(XS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("xs + 1", "+ needs numbers, got array<double>: xs"),
        ("-xs", "- needs a number, got array<double>: xs"),
        ("abs(xs)", "abs needs a number, got array<double>: xs"),
        ("sqrt(xs)", "sqrt needs a number, got array<double>: xs"),
        ("round(xs)", "round needs a number, got array<double>: xs"),
        ("isnan(xs)", "isnan needs a float or double, got array<double>: xs"),
        ("upper(names)", "upper needs a string, got array<string>: names"),
        ("names || 'a'", "|| needs a string, got array<string>: names"),
        ("names like 'a'", "like needs a string, got array<string>: names"),
        ("year(xs)", "got array<double>: xs"),
        ("xs and true", "and needs a condition, got array<double>: xs"),
        ("cast(xs as double)", "cannot cast array<double> to double"),
        ("cast(k as array<int>)", "cannot cast int to array<int>"),
        ("cast(xs as array<int>)", "cannot cast array<double> to array<int>"),
        ("xs = k", "array<double> columns can only be passed through: xs"),
        ("xs in (1, 2)", "array<double> columns can only be passed through: xs"),
        ("coalesce(xs, names)", "array<double> and array<string> do not mix: names"),
    ],
)
def test_what_cannot_be_done_with_lists_is_refused_when_built(text: str, message: str) -> None:
    with pytest.raises(ExpressionError) as raised:
        parse_select(f"{text} as y", SCOPE)
    assert message in raised.value.problem


def test_a_list_is_no_condition() -> None:
    with pytest.raises(ExpressionError, match="a condition is boolean, this is array<double>"):
        parse_condition("xs", SCOPE)


@pytest.mark.parametrize(
    "text", ["xs = ys", "xs < ys", "xs <=> ys", "nullif(xs, ys)", "greatest(xs, ys)", "xs in (null)"]
)
def test_lists_are_not_compared(text: str) -> None:
    with pytest.raises(ExpressionError):
        parse_select(f"{text} as y", SCOPE)
