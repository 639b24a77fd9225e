"""The hidden columns that carry a tuple's tag, in pages of results and in channels: how they are spelled."""

from __future__ import annotations

import pyarrow as pa

_HIDDEN = "$"
# The first number of a tag, by which frontiers are told.
FIRST_NUMBER = f"{_HIDDEN}0"
# In a segment of several blocks: where each row of a block is in the batch.
ROW = f"{_HIDDEN}row"


def tag_columns(count: int) -> list[str]:
    """Name the columns of a tag of so many numbers.

    >>> tag_columns(3)
    ['$0', '$1', '$2']
    """
    return [f"{_HIDDEN}{number}" for number in range(count)]


def tag_fields(count: int) -> list[tuple[str, pa.DataType]]:
    """Return the columns of a tag with their types."""
    return [(name, pa.int64()) for name in tag_columns(count)]


def is_tag(column: str) -> bool:
    """Say whether a column of a page of results is part of the tag."""
    return column.startswith(_HIDDEN)
