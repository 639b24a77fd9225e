"""Batches as tables on the screen."""

from __future__ import annotations

import io
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from rich.console import Console as Screen
from tests.edges.sink_rigs import BATCH, BATCHES, application

import riprap as rr
from riprap.adapters.console import show


def shown(table: pa.Table, rows: int = 20) -> str:
    out = io.StringIO()
    show("look", rows, Screen(file=out, width=100))(3, table)
    return out.getvalue()


def test_a_batch_is_a_table() -> None:
    picture = shown(pa.table({"name": ["a", None], "price": [1.5, 20.25], "cost": [Decimal("1.10"), None]}))

    title, _, head, _, first, second, _ = picture.splitlines()
    assert title.strip() == "look, batch 3: 2 rows"
    assert [cell.strip() for cell in head.strip("┃").split("┃")] == ["name", "price", "cost"]
    # Numbers end at the same place, and null is nothing.
    assert first.strip("│").split("│") == [" a    ", "   1.5 ", " 1.10 "]
    assert second.strip("│").split("│") == ["      ", " 20.25 ", "      "]


def test_the_rows_that_are_left_out_are_counted() -> None:
    picture = shown(pa.table({"n": list(range(1_500))}), rows=2)

    assert "look, batch 3: 1,500 rows, 1,498 more" in picture
    assert len(picture.splitlines()) == 7


def test_a_batch_without_rows_is_not_shown() -> None:
    assert shown(pa.table({"n": pa.array([], pa.int64())})) == ""


def test_text_is_shown_as_it_is() -> None:
    # Square brackets are marks to the library that draws the tables.
    assert "[red]x[/red] [/]" in shown(pa.table({"s": ["[red]x[/red] [/]"]}))


def test_a_run_shows_its_batches_in_order(
    spark: SparkSession, tmp_path: object, capsys: pytest.CaptureFixture[str]
) -> None:
    with application({"look": rr.console(rows=1)}).run(
        spark=spark, batch_rows=BATCH, runs=f"{tmp_path}/runs"
    ) as run:
        assert run.wait(timeout=120)
        with pytest.raises(rr.RunError, match="cannot be read back"):
            run.table("look")

    said = capsys.readouterr().out
    places = [said.index(f"look, batch {batch}: {BATCH:,} rows") for batch in range(BATCHES)]
    assert places == sorted(places)
