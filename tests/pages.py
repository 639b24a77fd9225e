"""The code of the documentation, for tests that run it."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def code_of(page: str, mark: str) -> str:
    """Return the one block of code on a page that has certain words in it."""
    blocks = re.findall(r"```\w+\n(.*?)```", (DOCS / page).read_text(), re.S)
    (found,) = (block for block in blocks if mark in block)
    return str(found)
