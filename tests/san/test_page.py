"""The page about nets and the examples in docstrings say what is so."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import riprap
from riprap import san

PAGE = (Path(__file__).parents[2] / "docs" / "san.md").read_text(encoding="utf-8")
MODULES = [f"riprap.san.{module.name}" for module in pkgutil.iter_modules(san.__path__)]


def test_the_example_of_the_page_runs() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    exec(example, {})


def test_the_page_names_every_error() -> None:
    errors = [name for name in san.__all__ if name.endswith("Error")]
    assert [name for name in errors if f"`{name}`" not in PAGE] == []
    assert all(issubclass(getattr(san, name), riprap.RiprapError) for name in errors)


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("module", ["riprap.san", *MODULES])
def test_examples_in_docstrings_run(module: str) -> None:
    assert doctest.testmod(importlib.import_module(module)).failed == 0
