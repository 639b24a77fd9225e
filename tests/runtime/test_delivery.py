"""The mark of how far an element's results were handed over: read as it was written, whatever was taken back."""

from __future__ import annotations

from pathlib import Path

import pytest

from riprap.errors import FormatError
from riprap.runtime.delivery import NAME, Delivery


@pytest.mark.parametrize("batch", [7, 0, -1])
def test_what_was_taken_back_stays_so_for_who_comes_next(batch: int, tmp_path: Path) -> None:
    delivery = Delivery(tmp_path)
    delivery.note(12)
    delivery.take_back(batch)
    delivery.close()

    assert Delivery(tmp_path).batch == batch


@pytest.mark.parametrize(
    "mark", ["riprap-handed/2 0000000012", "riprap-handed/1", "riprap-handed/1 --00000001"]
)
def test_a_mark_of_another_format_is_an_error(mark: str, tmp_path: Path) -> None:
    (tmp_path / NAME).write_text(mark)
    with pytest.raises(FormatError, match="is not of format riprap-handed/1"):
        Delivery(tmp_path)
