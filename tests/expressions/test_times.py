"""Texts, numbers and intervals become times, and times texts and numbers, as in Spark."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from riprap.expressions import EvaluationError, Expression, Scope, parse_schema, parse_select
from riprap.expressions.types import check_type

TEXTS = [
    *("2020-01-31", "2020", "2020-1", "2020-1-3", "2020-01-31T", "2020-01-31 10", "2020-01-31 10:20"),
    *("2020-01-31 10:20:30", "2020-01-31T10:20:30Z", "2020-01-31 10:20:30.", "2020-01-31 10:20:30.5"),
    *("2020-01-31 10:20:30.123456789", "2020-01-31 10:20:30+01:00", "2020-01-31 10:20:30 -01:30", " 2020-01-31\n"),
    *("2020-01-31 10:20:30+1", "2020-01-31 10:20:30+0130", "2020-01-31 10:20:30+130", "2020-01-31 10:20:30-18:01"),
    *("2020-01-31 10:20:30 UTC", "2020-01-31 10:20:30  GMT+1", "2020-01-31 10:20:30z", "2020-01-31 10:20Z", "x", ""),
    *("2020-02-30", "2020-13-01", "2020-01-31 24:00:00", "2020-01-31 23:60:00", "-2020-01-31", "12345-01-31", "123"),
    *("2020-01-31 foo", "2020/01/31", "20200131", "2020-01-31  10:20:30", "2020-01-31 1:2:3", "1234567-01-01"),
    *("1.005", "-1.0049", ".5", "1.", "1e3", "1.5e-2", "99999999.995", "1e400", "1e-400", "00012.50", "+3", "1e", "1d"),
    *("31/Jan/2020:10:20:30 +0100", "31/jan/2020:10:20:30 -0130", "20200131102030", "2020-01-31t10:20:30.5Z"),
    *("2020-01-31 12:00:00 AM", "2020-01-31 12:00:00 pm", "January 5 2020", "2020-001-3 1:2:3", "0000-01-01 00:00:00"),
    None,
]  # fmt: skip
FORMATS = [
    *("yyyy-MM-dd HH:mm:ss", "dd/MMM/yyyy:HH:mm:ss Z", "yyyy-M-d H:m:s", "yyyyMMddHHmmss", "yyyy-MM-dd"),
    *(
        "yyyy-MM-dd\\'T\\'HH:mm:ss.SSSSSSXXX",
        "yyyy-MM-dd hh:mm:ss a",
        "MMMM d yyyy",
        "yyyy-MM-dd HH:mm:ss.SSSSSS",
    ),
]
FROM_TEXT = [
    *(
        f"try_cast(a as {type})"
        for type in ("timestamp", "timestamp_ntz", "date", "decimal(10,2)", "decimal(38,6)")
    ),
    *(f"to_timestamp(a, '{format}')" for format in FORMATS),
]
MOMENTS = [0, 1, -1, 1580466030123456, -62135596800000000, 253402300799999999, -1234567, None]
FROM_TIME = [
    *(f"date_trunc('{unit}', a)" for unit in ("year", "quarter", "mon", "week", "dd", "hour", "minute", "second")),
    *("cast(a as double)", "cast(a as float)", "try_cast(a as int)", "cast(a as bigint)", "unix_seconds(a)"),
    *("unix_millis(a)", "unix_micros(a)", "a - interval '1 day 2 hours'", "a - interval 5 minutes 3 seconds"),
    *("a + 3 * interval -1 hour", "a - (- interval -1.5 seconds)", "a - timestamp'2020-01-01' > interval 1 day"),
    *("timestamp'2020-01-31 10:20:30+01:00' - a < interval 0 seconds", "a + coalesce(a - a, interval 1 second)"),
]  # fmt: skip
SECONDS = [0, 1, -1, 10**12, 10**13, -(10**13), None]
FROM_NUMBER = ["cast(a as timestamp)", "timestamp_micros(a)", "cast(cast(a as double) / 3 as timestamp)"]


def built(text: str, column: pa.Array) -> Expression:
    return parse_select(f"{text} as y", Scope.of(pa.schema({"a": column.type})))[0].expression


def row_by_row(text: str, column: pa.Array) -> pa.Array:
    """Evaluate each row alone; one that raises is null."""
    expression = built(text, column)
    rows: list[pa.Array] = []
    for number in range(len(column)):
        try:
            rows.append(expression.evaluate({"a": column.slice(number, 1)}, 1))
        except EvaluationError:
            rows.append(pa.nulls(1, expression.type))
    return pa.concat_arrays(rows)


def plain(values: pa.Array | pa.ChunkedArray) -> list[object]:
    """Take times for numbers: Python has none beyond the year 9999."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if pa.types.is_timestamp(values.type):
        values = values.view(pa.int64())
    elif pa.types.is_date(values.type):
        values = values.view(pa.int32())
    return list(values.to_pylist())


@pytest.mark.parametrize(
    ("type", "values", "texts"),
    [
        ("string", TEXTS, FROM_TEXT),
        ("timestamp", MOMENTS, [*FROM_TIME, "cast(a as date)"]),
        ("timestamp_ntz", MOMENTS, FROM_TIME[:8]),
        ("bigint", SECONDS, FROM_NUMBER),
        ("decimal(20,9)", [Decimal("1.123456789"), Decimal("-1.123456789"), None], FROM_NUMBER[:1]),
    ],
)
def test_times_are_those_of_spark(
    spark: SparkSession, type: str, values: list[object], texts: list[str]
) -> None:
    wanted = parse_schema(f"a {type}").field(0).type
    numbers = pa.types.is_timestamp(wanted)
    column = pa.array(values, pa.int64()).view(wanted) if numbers else pa.array(values, wanted)
    frame = spark.createDataFrame(pa.table({"a": column}), f"a {type}").coalesce(1)
    asked = [
        text.replace("to_timestamp(", "try_to_timestamp(", 1) if type == "string" else text for text in texts
    ]
    if type == "string":
        asked += [built(text, column).sql.replace("to_timestamp(", "try_to_timestamp(", 1) for text in texts]
    answer = frame.selectExpr(*(f"{text} as c{number}" for number, text in enumerate(asked))).toArrow()
    for number, text in enumerate(texts):
        mine = row_by_row(text, column)
        for place in range(number, len(asked), len(texts)):
            theirs = answer.column(place)
            assert check_type(theirs.type) == mine.type, text
            wrong = [
                each for each in zip(values, plain(theirs), plain(mine), strict=True) if each[1] != each[2]
            ]
            assert not wrong, f"{text}: (value, Spark, here) {wrong}"


def test_all_rows_at_once_are_the_rows_one_by_one() -> None:
    column = pa.array(["2020-01-31 10:20:30", None, "2020-01-31T10:20:30+02:00", "2021"])
    for text in ("cast(a as timestamp)", "cast(a as date)", "to_timestamp(a)"):
        assert plain(built(text, column).evaluate({"a": column}, 4)) == plain(row_by_row(text, column))
    assert plain(built("cast(a as string)", column).evaluate({"a": column}, 4)) == column.to_pylist()


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (datetime(2020, 1, 31, 10, 20, 30), "2020-01-31 10:20:30"),
        (datetime(2020, 1, 31, 10, 20, 30, 120_000), "2020-01-31 10:20:30.12"),
        (datetime(1, 1, 1), "0001-01-01 00:00:00"),
    ],
)
def test_a_timestamp_is_written_without_idle_zeros(moment: datetime, text: str) -> None:
    for column in (pa.array([moment]), pa.array([moment.replace(tzinfo=UTC)])):
        assert built("cast(a as string)", column).evaluate({"a": column}, 1).to_pylist() == [text]


def test_times_of_other_zones_are_the_same_instants() -> None:
    berlin = pa.array(
        [datetime(2020, 7, 1, 12, tzinfo=timezone(timedelta(hours=2)))], pa.timestamp("us", "Europe/Berlin")
    )
    assert built("hour(a)", berlin).evaluate({"a": berlin}, 1).to_pylist() == [10]


@pytest.mark.parametrize("text", ["2020-01-31 10:20:30 Europe/Berlin", "10:20:30", "soon"])
def test_text_that_is_no_time_raises(text: str) -> None:
    column = pa.array([text])
    with pytest.raises(EvaluationError, match=r"not a timestamp in: cast\(a as timestamp\)"):
        built("cast(a as timestamp)", column).evaluate({"a": column}, 1)
