"""What each operation computes, by example. `test_same_as_spark.py` asks Spark itself."""

from __future__ import annotations

import math
import pickle
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from riprap.expressions import EvaluationError, Expression, Scope, UserFunction, parse_select, type_name

NAN, INF = math.nan, math.inf
MONEY, WIDE = pa.decimal128(10, 2), pa.decimal128(38, 10)


def build(text: str, columns: dict[str, pa.Array], *functions: UserFunction) -> Expression:
    scope = Scope.of(pa.schema({name: array.type for name, array in columns.items()}))
    (output,) = parse_select(f"{text} as result", scope, {each.name: each for each in functions})
    return output.expression


def run(text: str, *functions: UserFunction, **columns: pa.Array) -> list[object]:
    rows = len(next(iter(columns.values()))) if columns else 1
    expression = build(text, columns, *functions)
    result = expression.evaluate(columns, rows)
    assert isinstance(result, pa.Array)
    assert (result.type, len(result)) == (expression.type, rows)
    return list(result.to_pylist())


@pytest.mark.parametrize(
    ("text", "type", "value"),
    [
        ("1", "int", 1),
        ("3000000000", "bigint", 3_000_000_000),
        ("12345678901234567890", "decimal(20,0)", Decimal("12345678901234567890")),
        ("-2147483648", "int", -(2**31)),
        ("1.50", "decimal(3,2)", Decimal("1.50")),
        ("0.05", "decimal(2,2)", Decimal("0.05")),
        (".5", "decimal(1,1)", Decimal("0.5")),
        ("1e0", "double", 1.0),
        ("'it''s'", "string", "it's"),
        (r"'a\nb'", "string", "a\nb"),
        ("true", "boolean", True),
        ("cast(null as int)", "int", None),
        ("date'2020-02-29'", "date", date(2020, 2, 29)),
        ("timestamp'2020-01-01 01:02:03.5'", "timestamp", datetime(2020, 1, 1, 1, 2, 3, 500_000, tzinfo=UTC)),
        ("timestamp_ntz'2020-01-01 00:00:00'", "timestamp_ntz", datetime(2020, 1, 1)),
    ],
)
def test_literals_are_typed_as_in_spark(text: str, type: str, value: object) -> None:
    assert type_name(build(text, {}).type) == type
    assert run(text) == [value]


@pytest.mark.parametrize(
    ("left", "right", "operator", "type"),
    [
        (pa.int32(), pa.int64(), "+", "bigint"),
        (pa.int8(), pa.int8(), "*", "tinyint"),
        (pa.int32(), pa.int32(), "/", "double"),
        (pa.int32(), pa.int32(), "div", "bigint"),
        (pa.int32(), pa.float32(), "+", "double"),
        (pa.float32(), pa.float32(), "*", "float"),
        (pa.float32(), pa.float32(), "/", "double"),
        (MONEY, pa.int32(), "+", "decimal(13,2)"),
        (MONEY, pa.float64(), "*", "double"),
        (MONEY, MONEY, "/", "decimal(23,13)"),
        (WIDE, WIDE, "*", "decimal(38,6)"),
        (WIDE, MONEY, "%", "decimal(18,10)"),
    ],
)
def test_arithmetic_result_types(left: pa.DataType, right: pa.DataType, operator: str, type: str) -> None:
    columns = {"a": pa.array([], left), "b": pa.array([], right)}
    assert type_name(build(f"a {operator} b", columns).type) == type


def test_an_int_literal_beside_a_decimal_takes_only_the_digits_it_has() -> None:
    assert type_name(build("m * 2", {"m": pa.array([], MONEY)}).type) == "decimal(12,2)"


def test_arithmetic_passes_nulls_on() -> None:
    assert run("a + b", a=pa.array([1, None, 3]), b=pa.array([10, 20, None])) == [11, None, None]


@pytest.mark.parametrize(
    ("text", "value", "problem"),
    [
        ("a + 1", pa.array([2**63 - 1]), "bigint overflow"),
        ("a * a", pa.array([100], pa.int8()), "tinyint overflow"),
        ("-a", pa.array([-(2**31)], pa.int32()), "int overflow"),
        ("abs(a)", pa.array([-128], pa.int8()), "tinyint overflow"),
        ("1 / a", pa.array([0]), "division by zero"),
        ("1e0 / a", pa.array([-0.0]), "division by zero"),
        ("1 % a", pa.array([0]), "division by zero"),
        ("a % 0e0", pa.array([NAN]), "division by zero"),
        ("1 div a", pa.array([0]), "division by zero"),
        ("a div (-1)", pa.array([-(2**63)]), "bigint overflow"),
        ("1.0 / a", pa.array([Decimal(0)], MONEY), "division by zero"),
        ("a * a", pa.array([Decimal(10) ** 27], WIDE), "decimal(38,6) overflow"),
        ("cast(a as tinyint)", pa.array([128]), "tinyint overflow"),
        ("cast(a as int)", pa.array([NAN]), "int overflow"),
        ("cast(a as decimal(3,2))", pa.array([10]), "decimal(3,2) overflow"),
        ("cast(a as int)", pa.array(["1.5"]), "not a int"),
        ("cast(a as boolean)", pa.array(["maybe"]), "not a boolean"),
        ("floor(a)", pa.array([INF]), "bigint overflow"),
    ],
)
def test_a_row_without_a_value_raises(text: str, value: pa.Array, problem: str) -> None:
    with pytest.raises(EvaluationError) as raised:
        run(text, a=value)
    assert raised.value.problem == problem
    assert raised.value.expression == text


def test_an_error_survives_the_way_between_processes() -> None:
    error = pickle.loads(pickle.dumps(EvaluationError("a / b", "division by zero")))
    assert (error.expression, error.problem) == ("a / b", "division by zero")


def test_null_beside_a_zero_divisor_is_null() -> None:
    assert run("a / b", a=pa.array([None, 4]), b=pa.array([0, 2])) == [None, 2.0]


def test_remainder_takes_the_sign_of_the_dividend() -> None:
    assert run("a % 3", a=pa.array([-7, 7])) == [-1, 1]
    assert run("a % -1", a=pa.array([-(2**63)])) == [0]


def test_decimals_round_half_up() -> None:
    a = pa.array([Decimal("2.00"), Decimal("-2.00")], MONEY)
    assert run("a / 3", a=a) == [Decimal("0.666667"), Decimal("-0.666667")]
    assert run("round(a, 1)", a=pa.array([Decimal("1.25"), Decimal("-1.25")], MONEY)) == [
        Decimal("1.3"),
        Decimal("-1.3"),
    ]


def test_products_of_38_digits_are_exact() -> None:
    a = pa.array([Decimal("12345678901.1234567891")], WIDE)
    exact = Decimal("12345678901.1234567891") ** 2
    assert run("a * a", a=a) == [Decimal(str(exact)).quantize(Decimal("0.000001"))]


def test_nan_equals_nan_and_is_greatest_and_zeros_are_equal() -> None:
    a, b = pa.array([NAN, NAN, 1.0, -0.0, None]), pa.array([NAN, INF, NAN, 0.0, NAN])
    assert run("a = b", a=a, b=b) == [True, False, False, True, None]
    assert run("a <> b", a=a, b=b) == [False, True, True, False, None]
    assert run("a > b", a=a, b=b) == [False, True, False, False, None]
    assert run("a >= b", a=a, b=b) == [True, True, False, True, None]
    assert run("a < b", a=a, b=b) == [False, False, True, False, None]
    assert run("a <= b", a=a, b=b) == [True, False, True, True, None]
    assert run("a <=> b", a=a, b=b) == [True, False, False, True, False]


def test_three_valued_logic() -> None:
    x = pa.array([True, True, True, False, False, False, None, None, None])
    y = pa.array([True, False, None] * 3)
    assert run("x and y", x=x, y=y) == [True, False, None, False, False, False, None, False, None]
    assert run("x or y", x=x, y=y) == [True, True, True, True, False, None, True, None, None]
    assert run("not x", x=pa.array([True, None])) == [False, None]


def test_in_with_a_null_is_unknown_unless_found() -> None:
    assert run("a in (1, null)", a=pa.array([1, 2, None])) == [True, None, None]
    assert run("a not in (1, 2)", a=pa.array([1, 3, None])) == [False, True, None]


@pytest.mark.parametrize(
    "text",
    [
        "case when b <> 0 then a / b end",
        "if(b = 0, null, a / b)",
        "case when b = 0 then cast(null as double) else a / b end",
        "coalesce(if(b = 0, -1e0, null), a / b)",
    ],
)
def test_a_branch_is_evaluated_only_on_the_rows_that_take_it(text: str) -> None:
    expected = [-1.0, 2.0] if "coalesce" in text else [None, 2.0]
    assert run(text, a=pa.array([1, 4]), b=pa.array([0, 2])) == expected


def test_and_or_do_not_evaluate_the_right_side_where_the_left_decides() -> None:
    columns = {"a": pa.array([1, 4]), "b": pa.array([0, 2])}
    assert run("b <> 0 and a / b > 1", **columns) == [False, True]
    assert run("b = 0 or a / b > 1", **columns) == [True, True]
    with pytest.raises(EvaluationError):
        run("a / b > 1 and b <> 0", **columns)


def test_an_operand_is_not_evaluated_where_the_one_before_it_is_null() -> None:
    assert run("c + a div b", a=pa.array([1, 4]), b=pa.array([0, 2]), c=pa.array([None, 1])) == [None, 3]


def test_least_and_greatest_skip_nulls_and_put_nan_last() -> None:
    a, b = pa.array([NAN, None, 1.0]), pa.array([1.0, 2.0, None])
    assert run("least(a, b)", a=a, b=b) == [1.0, 2.0, 1.0]
    greatest = run("greatest(a, b)", a=a, b=b)
    assert math.isnan(greatest[0])  # type: ignore[arg-type]
    assert greatest[1:] == [2.0, 1.0]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("upper(s)", "STRASSE 1"),
        ("lower(s)", "straße 1"),
        ("length(s)", 8),
        ("trim('  x\t ')", "x\t"),
        ("s || '!'", "Straße 1!"),
        ("concat(s, null_text)", None),
        ("substring(s, 2, 3)", "tra"),
        ("substring(s, 0, 2)", "St"),
        ("substring(s, -3)", "e 1"),
        ("substring(s, -20, 15)", "Str"),
        ("s like 'Str_%'", True),
        (r"'50%' like '%\\%'", True),
        ("startswith(s, 'Str')", True),
        ("endswith(s, 'Str')", False),
        ("contains(s, 'ß')", True),
    ],
)
def test_strings(text: str, value: object) -> None:
    assert run(text, s=pa.array(["Straße 1"]), null_text=pa.array([None], pa.string())) == [value]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("year(ts)", 1969),
        ("month(ts)", 12),
        ("day(ts)", 31),
        ("hour(ts)", 23),
        ("minute(ts)", 59),
        ("second(ts)", 59),
        ("cast(ts as date)", date(1969, 12, 31)),
        ("cast(ts as bigint)", -1),
        ("date'1969-12-31' < ts", True),
        ("cast(date'2020-02-29' as string)", "2020-02-29"),
    ],
)
def test_times_before_1970(text: str, value: object) -> None:
    assert run(text, ts=pa.array([-1], pa.timestamp("us", tz="UTC"))) == [value]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("floor(-1.5e0)", -2),
        ("ceil(1.25)", Decimal(2)),
        ("round(2.5e0)", 3.0),
        ("round(-2.5e0)", -3.0),
        ("sqrt(-1)", NAN),
        ("ln(0)", None),
        ("pow(2, 10)", 1024.0),
        ("pow(1, cast('NaN' as double))", NAN),
        ("isnan(cast(null as double))", False),
        ("nullif(1, 1)", None),
        ("try_cast(300 as tinyint)", None),
        ("try_cast('x' as int)", None),
        ("cast(' +7 ' as int)", 7),
        ("cast(1.25 as string)", "1.25"),
        ("cast(9.3e18 as boolean)", True),
    ],
)
def test_functions_and_casts(text: str, value: object) -> None:
    (result,) = run(text)
    same_nan = (
        isinstance(value, float) and math.isnan(value) and isinstance(result, float) and math.isnan(result)
    )
    assert same_nan or result == value


def test_try_cast_keeps_the_rows_that_fit() -> None:
    assert run("try_cast(a as tinyint)", a=pa.array([1, 300, None, -128, 1000])) == [
        1,
        None,
        None,
        -128,
        None,
    ]


def test_user_functions_get_arrays_and_only_the_rows_that_need_them() -> None:
    seen: list[int] = []

    def twice(values: pa.Array) -> pa.Array:
        seen.append(len(values))
        return pc.multiply(values, 2)

    function = UserFunction("twice", twice, pa.int64())
    assert run("twice(a) + 1", function, a=pa.array([1, None])) == [3, None]
    assert run("if(a > 1, twice(a), 0)", function, a=pa.array([1, 2, 3])) == [0, 4, 6]
    assert seen == [2, 2]


@pytest.mark.parametrize(
    ("result", "problem"),
    [
        (pa.array([1, 2], pa.int32()), "user function f returned int, not the declared bigint"),
        (pa.array([1]), "user function f returned 1 rows for 2"),
        ([1, 2], "user function f returned a list, not an Arrow array"),
    ],
)
def test_what_a_user_function_returns_is_checked(result: object, problem: str) -> None:
    with pytest.raises(EvaluationError) as raised:
        run("f(a)", UserFunction("f", lambda values: result, pa.int64()), a=pa.array([1, 2]))
    assert raised.value.problem == problem


def test_no_rows_give_no_rows_even_where_every_row_would_fail() -> None:
    assert build("1 / 0", {}).evaluate({}, 0).to_pylist() == []


def test_expressions_travel_to_other_processes() -> None:
    expression = build("case when a > 1 then round(a * 1.5, 1) end", {"a": pa.array([1])})
    copy = pickle.loads(pickle.dumps(expression))
    assert copy.evaluate({"a": pa.array([1, 2])}, 2).to_pylist() == [None, Decimal("3.0")]


def test_sliced_arrays_are_read_from_their_offset() -> None:
    a = pa.array([9.0, NAN, 1.0, 2.0])[2:]
    assert run("a > 1", a=a) == [False, True]
    m = pa.array([Decimal(9), Decimal(1), Decimal(2)], WIDE)[1:]
    assert run("m * m", m=m) == [Decimal("1.000000"), Decimal("4.000000")]
