"""Batches as tables on the screen."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from rich.console import Console as Screen
from rich.table import Table
from rich.text import Text


def show(name: str, rows: int, screen: Screen | None = None) -> Callable[[int, pa.Table], None]:
    """Return a function that shows a batch's first rows as a table; a batch without rows is not shown."""
    out = screen or Screen()

    def shown(batch: int, table: pa.Table) -> None:
        if not table.num_rows:
            return
        left = f", {table.num_rows - rows:,} more" if table.num_rows > rows else ""
        picture = Table()
        for field in table.schema:
            number = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
            picture.add_column(field.name, justify="right" if number else "left")
        for row in table.slice(0, rows).to_pylist():
            picture.add_row(*(Text("" if value is None else str(value)) for value in row.values()))
        # Not as the table's title, which would be broken to the width of a narrow one.
        out.print(Text(f"{name}, batch {batch}: {table.num_rows:,} rows{left}"))
        out.print(picture)

    return shown
