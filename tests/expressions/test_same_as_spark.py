"""Any expression means here what it means in Spark: the same type, the same values, or both raise."""

from __future__ import annotations

import math
import struct
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr

from riprap.expressions import (
    EvaluationError,
    Expression,
    ExpressionError,
    Scope,
    check_type,
    parse_aggregates,
    parse_schema,
    parse_select,
    type_name,
)
from riprap.kernels.functions import compute_call

from .drawing import SCHEMA, expressions, tables

SCOPE = Scope.of(SCHEMA)


@settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(table=tables(), texts=st.lists(expressions(2), min_size=40, max_size=40, unique=True))
def test_random_expressions_agree_with_spark(spark: SparkSession, table: pa.Table, texts: list[str]) -> None:
    frame = frame_of(spark, table)
    columns = {name: table[name].combine_chunks() for name in table.column_names}
    computed: list[tuple[str, Expression, pa.Array]] = []
    failed: dict[str, str] = {}
    for text in texts:
        expression = parsed(text)
        if expression is None:
            continue
        try:
            computed.append((text, expression, expression.evaluate(columns, table.num_rows)))
        except EvaluationError as error:
            failed[text] = str(error)
    for text, problem in failed.items():
        assert raises_in_spark(frame, text), f"Spark has values for {text}, here: {problem}"
    compare_with_spark(frame, computed)


def frame_of(spark: SparkSession, table: pa.Table) -> DataFrame:
    """Name the types, since PySpark takes a timestamp without a zone for one in the session's zone."""
    return spark.createDataFrame(
        table, schema=", ".join(f"{each.name} {type_name(each.type)}" for each in SCHEMA)
    )


def parsed(text: str) -> Expression | None:
    try:
        return parse_select(f"{text} as result", SCOPE)[0].expression
    except ExpressionError:
        return None


def raises_in_spark(frame: DataFrame, text: str) -> bool:
    try:
        frame.selectExpr(f"{text} as result").toArrow()
    except PySparkException:
        return True
    return False


def compare_with_spark(frame: DataFrame, computed: list[tuple[str, Expression, pa.Array]]) -> None:
    """Ask Spark for all expressions in one query, as the user wrote them and as we normalised them."""
    if not computed:
        return
    try:
        answer = select(frame, [text for each in computed for text in (each[0], each[1].sql)])
    except PySparkException:
        if len(computed) == 1:
            text, expression, values = computed[0]
            raise AssertionError(
                f"Spark raises for {text} = {expression.sql}, here: {values.to_pylist()}"
            ) from None
        for each in computed:
            compare_with_spark(frame, [each])
        raise
    for position, (text, expression, values) in enumerate(computed):
        for theirs in (answer.column(2 * position), answer.column(2 * position + 1)):
            assert check_type(theirs.type) == values.type, (
                f"{text}: {theirs.type} in Spark, {type_name(values.type)} here"
            )
            mine, other = exact(values), exact(theirs)
            assert mine == other, f"{text}: {other} in Spark, {mine} here ({expression.sql})"


def select(frame: DataFrame, texts: list[str]) -> pa.Table:
    return frame.selectExpr(*(f"{text} as c{number}" for number, text in enumerate(texts))).toArrow()


def exact(values: pa.Array | pa.ChunkedArray) -> list[object]:
    """Make values that are equal only if they are the same bits; one NaN is as good as another."""
    if pa.types.is_timestamp(values.type):  # some are beyond Python's
        values = pc.cast(values, pa.int64())
    return [_exact(value) for value in values.to_pylist()]


def _exact(value: Any) -> object:
    if isinstance(value, list):
        return [_exact(each) for each in value]
    if not isinstance(value, float):
        return value
    return "nan" if math.isnan(value) else (value, struct.pack(">d", value))


def test_transcendental_functions_agree_within_an_ulp(spark: SparkSession) -> None:
    numbers = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.1,
        2.5,
        -2.5,
        1e-300,
        1e300,
        709.7,
        -745.0,
        math.nan,
        math.inf,
        -math.inf,
        None,
    ]
    table = pa.table(
        {
            "a": pa.array([a for a in numbers for _ in numbers], pa.float64()),
            "b": pa.array([b for _ in numbers for b in numbers], pa.float64()),
        }
    )
    columns = {name: table[name].combine_chunks() for name in table.column_names}
    texts = ["exp(a)", "ln(a)", "sqrt(a)", "pow(a, b)", "pow(a, 2)"]
    answer = select(spark.createDataFrame(table), texts)
    for text, theirs in zip(texts, answer.columns, strict=True):
        expression = parse_select(f"{text} as result", Scope.of(table.schema))[0].expression
        for mine, other in zip(
            expression.evaluate(columns, len(numbers) ** 2).to_pylist(), theirs.to_pylist(), strict=True
        ):
            same = exact(pa.array([mine])) == exact(pa.array([other]))
            assert same or abs(mine - other) <= math.ulp(other), f"{text}: {other} in Spark, {mine} here"


def test_aggregates_have_the_types_of_spark(spark: SparkSession) -> None:
    plain = (
        "sum",
        "avg",
        "mean",
        "min",
        "max",
        "count",
        "first",
        "collect_list",
        "median",
        "stddev",
        "var_pop",
    )
    texts = [f"{name}({column})" for column in "tibfdmnw" for name in plain]
    texts += [
        text for column in "tfm" for text in (f"percentile({column}, 0.9)", f"count(distinct {column})")
    ]
    frame = spark.createDataFrame(
        [], schema=", ".join(f"{each.name} {type_name(each.type)}" for each in SCHEMA)
    )
    schema = frame.selectExpr(*(f"{text} as c{number}" for number, text in enumerate(texts))).schema
    theirs = [field.dataType.simpleString() for field in schema]
    mine = [type_name(parse_aggregates(f"{text} as y", SCOPE).calls[0].type) for text in texts]
    assert mine == theirs


GROUPS: dict[str, list[list[Any]]] = {
    "d double": [
        [1.0, 2.0, None, 4.0, 8.5],
        [None, None],
        [0.1],
        [math.nan],
        [math.inf],
        [1.0, math.nan, 2.0, -math.nan],
        [1.0, math.inf, -math.inf, 3.0],
        [0.0, -0.0, 0.0, -0.0],
        [5.0, 5.0, 5.0, 1e9],
        [1e-310, 3e-310, 2.0],
    ],
    "f float": [[1.5, None, 2.25, 1.5], [math.nan, 1.0], [0.0, -0.0], [math.inf, 1.0, 2.0], [None]],
    "n bigint": [[2**53, 2**53 + 1, 2**53 + 1], [-3, None, 7, 7, 10], [None], [2**62, -(2**62), 1]],
    "m decimal(20,2)": [
        [Decimal("0.01"), Decimal("0.02"), None],
        [Decimal("123456789012345678.90"), Decimal("-0.01"), Decimal("7.00")],
        [None],
        [Decimal("1.00")] * 3 + [Decimal("2.00")] * 4,
    ],
}
ORDERED = ["first({})", "last({})", "collect_list({})"]
OF_A_GROUP = [
    *("count({})", "count(distinct {})", "min({})", "max({})", "median({})", "percentile({}, 0)"),
    *("percentile({}, 0.1)", "percentile({}, 0.25)", "percentile({}, 0.9)", "percentile({}, 1)"),
]
ROUNDED_BY_SPARK = ["stddev({})", "stddev_pop({})", "variance({})", "var_pop({})"]


@pytest.mark.parametrize("column", GROUPS)
def test_aggregates_have_the_values_of_spark(spark: SparkSession, column: str) -> None:
    groups, name = GROUPS[column], column.split()[0]
    rows = [(number, value) for number, group in enumerate(groups) for value in group]
    frame = spark.createDataFrame(rows, f"g int, {column}").coalesce(1)
    values = pa.array([value for _, value in rows], parse_schema(column).field(0).type)
    high = np.cumsum([len(group) for group in groups])
    low = high - [len(group) for group in groups]
    exactly = [*OF_A_GROUP, "sum({})", "avg({})"] if column.startswith(("n", "m")) else OF_A_GROUP
    # Spark loses the order of a group where something distinct is asked for in the same query.
    for templates in (ORDERED, exactly, ROUNDED_BY_SPARK):
        texts = [template.format(name) for template in templates]
        named = [expr(text).alias(f"c{number}") for number, text in enumerate(texts)]
        answer = frame.groupBy("g").agg(*named).orderBy("g").drop("g").toArrow()
        for text, theirs in zip(texts, answer.columns, strict=True):
            (call,) = parse_aggregates(f"{text} as y", Scope.of(parse_schema(column))).calls
            mine = compute_call(call, [values], low, high)
            if text.startswith(("median", "percentile")):
                theirs = pc.add(theirs, 0.0)  # the order of its hash map decides the sign of a zero
            if templates is ROUNDED_BY_SPARK:
                mine, theirs = (_few_digits(each) for each in (mine, theirs))
            assert exact(mine) == exact(theirs), text


def _few_digits(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    return pa.array([None if value is None else float(f"{value:.9e}") for value in values.to_pylist()])
