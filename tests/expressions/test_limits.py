"""Operators on every pair of numeric types, at the limits of both, give what Spark gives, row by row."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from riprap.expressions import EvaluationError, Expression, ExpressionError, Scope, parse_select, type_name

from .test_same_as_spark import exact, raises_in_spark, select

EDGES: dict[str, tuple[pa.DataType, list[object]]] = {
    "t": (pa.int8(), [0, 1, -1, 7, 127, -128, None]),
    "i": (pa.int32(), [0, 1, -1, 7, 2**31 - 1, -(2**31), None]),
    "b": (pa.int64(), [0, 1, -1, 7, 2**63 - 1, -(2**63), None]),
    "f": (pa.float32(), [0.0, -0.0, 0.10000000149011612, -2.5, math.nan, -math.inf, 2.0**31]),
    "d": (pa.float64(), [0.0, -0.0, 0.1, -2.5, math.nan, math.inf, 2.0**63]),
    "m": (
        pa.decimal128(7, 2),
        [
            Decimal(0),
            Decimal("0.01"),
            Decimal("-1.25"),
            Decimal("99999.99"),
            None,
            Decimal("-0.05"),
            Decimal("3.33"),
        ],
    ),
    "w": (
        pa.decimal128(38, 10),
        [
            Decimal(0),
            Decimal("1E-10"),
            Decimal("-1.25"),
            Decimal("9" * 28 + "." + "9" * 10),
            None,
            Decimal("-12345678901234.5678901234"),
            Decimal(3),
        ],
    ),
    "z": (
        pa.decimal128(38, 0),
        [
            Decimal(0),
            Decimal(1),
            Decimal(-7),
            Decimal("9" * 38),
            None,
            Decimal("-9" + "0" * 37),
            Decimal(10) ** 19,
        ],
    ),
}
COUNT = 7
OPERATORS = ["+", "*", "/", "%", "div", "=", "<"]
CASTS = [
    "tinyint",
    "smallint",
    "int",
    "bigint",
    "float",
    "double",
    "decimal(7,2)",
    "decimal(38,18)",
    "boolean",
    "string",
]
UNARY = ["-{}", "abs({})", "floor({})", "ceil({})", "round({})", "round({}, 1)", "round({}, -1)", "sqrt({})"]
FEW = 30  # of the rows that raise here, every so many are tried in Spark, one query each


def table() -> pa.Table:
    """Pair each value on the left with each value on the right."""
    columns: dict[str, pa.Array] = {"row": pa.array(range(COUNT * COUNT), pa.int32())}
    for name, (type, values) in EDGES.items():
        columns[f"{name}1"] = pa.array([values[row // COUNT] for row in range(COUNT * COUNT)], type)
        columns[f"{name}2"] = pa.array([values[row % COUNT] for row in range(COUNT * COUNT)], type)
    return pa.table(columns)


def binary() -> Iterator[str]:
    for left, right, operator in itertools.product(EDGES, EDGES, OPERATORS):
        yield f"{left}1 {operator} {right}2"


def unary() -> Iterator[str]:
    for name in EDGES:
        yield from (text.format(f"{name}1") for text in UNARY)
        yield from (f"{how}({name}1 as {type})" for how in ("cast", "try_cast") for type in CASTS)


@pytest.mark.parametrize(
    "texts",
    [
        pytest.param(list(binary()), id="two operands", marks=pytest.mark.slow),
        pytest.param(list(unary()), id="one operand"),
    ],
)
def test_limits(spark: SparkSession, texts: list[str]) -> None:
    data = table()
    ddl = ", ".join(f"{field.name} {type_name(field.type)}" for field in data.schema)
    frame = spark.createDataFrame(data, schema=ddl)
    rows = [
        {name: data[name].combine_chunks()[row : row + 1] for name in data.column_names}
        for row in range(COUNT**2)
    ]
    valued: list[tuple[str, Expression, dict[int, pa.Array]]] = []
    failed: list[tuple[str, int]] = []
    for text in texts:
        try:
            expression = parse_select(f"{text} as result", Scope.of(data.schema))[0].expression
        except ExpressionError:
            continue
        values: dict[int, pa.Array] = {}
        for number, row in enumerate(rows):
            try:
                values[number] = expression.evaluate(row, 1)
            except EvaluationError:
                failed.append((text, number))
        valued.append((text, expression, values))
    compare(frame, valued)
    for text, number in failed[::FEW]:
        # Without the values of other rows; `filter` alone might run after the projection.
        alone = f"case when row = {number} then {text} end"
        assert raises_in_spark(frame, alone), f"Spark has a value for {text}, row {number}"


def compare(frame: DataFrame, valued: list[tuple[str, Expression, dict[int, pa.Array]]]) -> None:
    for start in range(0, len(valued), 100):
        chunk = valued[start : start + 100]
        guarded = [
            f"case when row in ({', '.join(map(str, values))}) then {text} end" if values else "null"
            for text, _, values in chunk
        ]
        answer = select(frame, guarded)
        for (text, expression, values), column in zip(chunk, answer.columns, strict=True):
            if not values:
                continue
            assert column.type == expression.type, f"{text}: {column.type} in Spark, {expression.type} here"
            theirs = exact(column.combine_chunks().take(pa.array(list(values))))
            mine = exact(pa.concat_arrays(list(values.values())))
            wrong = [(row, a, b) for row, a, b in zip(values, theirs, mine, strict=True) if a != b]
            assert not wrong, f"{text}: (row, Spark, here) {wrong[:3]}"
