"""JSON lines that any JSON reader takes, and that lose nothing."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from riprap.adapters.json_lines import json_lines, write_json


def lines(values: list[Any], kind: pa.DataType, name: str = "v") -> list[Any]:
    """Write values as JSON lines and read them with Python's own reader, numbers left as text."""
    written = json_lines(pa.record_batch([pa.array(values, kind)], [name])).to_pylist()
    assert all(line.endswith("}\n") and line.count("\n") == 1 for line in written)
    return [json.loads(line, parse_float=str, parse_int=str)[name] for line in written]


TEXT = st.text(st.characters(codec="utf-8")) | st.sampled_from(
    ["\\", '"', "\\u0000", "\0", "\x1f\x7f", "a\r\nb", "\u2028"]
)


@settings(deadline=None)
@given(st.lists(st.none() | TEXT))
def test_text_comes_back(values: list[str | None]) -> None:
    assert lines(values, pa.string()) == values


@settings(deadline=None)
@given(TEXT)
def test_names_come_back(name: str) -> None:
    assert lines(["x"], pa.string(), name) == ["x"]


@settings(deadline=None)
@given(st.lists(st.none() | st.floats(allow_nan=False, allow_infinity=False)))
def test_doubles_come_back_to_the_last_bit(values: list[float | None]) -> None:
    got = [None if v is None else float(v) for v in lines(values, pa.float64())]

    assert got == values
    assert [math.copysign(1, v) for v in got if v is not None] == [
        math.copysign(1, v) for v in values if v is not None
    ]


@settings(deadline=None)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32)))
def test_floats_come_back_as_floats(values: list[float]) -> None:
    assert pa.array([float(v) for v in lines(values, pa.float32())], pa.float32()).to_pylist() == values


def test_what_json_has_no_number_for_is_named() -> None:
    assert lines([math.nan, math.inf, -math.inf, None], pa.float64()) == [
        "NaN",
        "Infinity",
        "-Infinity",
        None,
    ]


@settings(deadline=None)
@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)))
def test_whole_numbers_come_back(values: list[int | None]) -> None:
    assert [None if v is None else int(v) for v in lines(values, pa.int64())] == values


@settings(deadline=None)
@given(st.lists(st.none() | st.decimals(-(10**20), 10**20, places=10)))
def test_decimals_come_back_exactly(values: list[Decimal | None]) -> None:
    assert [None if v is None else Decimal(v) for v in lines(values, pa.decimal128(38, 10))] == values


@settings(deadline=None)
@given(st.lists(st.none() | st.datetimes(datetime(1, 1, 1), timezones=st.just(UTC))))
def test_timestamps_come_back_with_their_microseconds(values: list[datetime | None]) -> None:
    got = lines(values, pa.timestamp("us", "UTC"))

    assert [None if v is None else datetime.fromisoformat(v) for v in got] == values


@settings(deadline=None)
@given(st.lists(st.none() | st.datetimes(datetime(1, 1, 1))))
def test_local_timestamps_and_dates_come_back(values: list[datetime | None]) -> None:
    days = [None if v is None else v.date() for v in values]

    stamps = lines(values, pa.timestamp("us"))

    assert [None if v is None else datetime.fromisoformat(v) for v in stamps] == values
    assert [None if v is None else date.fromisoformat(v) for v in lines(days, pa.date32())] == days


def test_booleans_are_json_booleans() -> None:
    assert lines([True, False, None], pa.bool_()) == [True, False, None]


def test_columns_keep_their_order() -> None:
    batch = pa.record_batch({"b": [1, None], "a": ["x", None]})

    assert json_lines(batch).to_pylist() == ['{"b":1,"a":"x"}\n', '{"b":null,"a":null}\n']


@pytest.mark.parametrize("rows", [0, 1, 120_000])
def test_a_file_has_a_line_a_row(tmp_path: Path, rows: int) -> None:
    table = pa.table(
        {"n": pa.chunked_array([list(range(rows // 2)), list(range(rows // 2, rows))], pa.int64())}
    )

    write_json(table.slice(rows // 3), tmp_path / "out.json")

    written = [json.loads(line)["n"] for line in (tmp_path / "out.json").read_text().splitlines()]
    assert written == list(range(rows // 3, rows))


def test_bytes_have_no_place_in_json() -> None:
    with pytest.raises(pa.ArrowNotImplementedError, match="a JSON file cannot hold binary columns"):
        json_lines(pa.record_batch({"b": [b"x"]}))
