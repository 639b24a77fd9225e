"""The public names: what `help(rr)` and docs/api.md say of them is all there, and its examples run."""

from __future__ import annotations

import doctest
import inspect
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import riprap as rr
import riprap.testing

PAGE = runpy.run_path(str(Path(__file__).parents[1] / "docs" / "api_page.py"))
NAMES = [(module, name) for module in (rr, riprap.testing) for name in module.__all__]


def test_the_page_is_up_to_date() -> None:
    assert PAGE["PAGE"].read_text() == PAGE["page"](), "run: python docs/api_page.py"


def test_the_table_of_contents_has_every_name_in_order() -> None:
    listed = [name for names in PAGE["contents"](rr).values() for name in names]
    assert listed == [*rr.__all__, *rr._PARTS]
    assert set(listed) <= set(dir(rr))
    listed = [name for names in PAGE["contents"](riprap.testing).values() for name in names]
    assert sorted(listed) == sorted(riprap.testing.__all__)


@pytest.mark.parametrize(("module", "name"), NAMES, ids=lambda x: x if isinstance(x, str) else "")
def test_it_says_what_it_is(module: Any, name: str) -> None:
    thing = getattr(module, name)
    silent = [member for member, value in PAGE["members"](thing) if not inspect.getdoc(value)]
    assert not silent
    # A dataclass that says nothing has its signature for a docstring.
    assert not (thing.__doc__ or f"{name}(").startswith(f"{name}(")


def test_every_example_of_the_page_runs(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sections = re.split(r"^####? ", PAGE["page"](), flags=re.M)[1:]
    runner = doctest.DocTestRunner()
    for section in sections:
        name, _, text = section.partition("\n")
        text = re.sub(r"^```.*\n", "\n", text, flags=re.M)
        globs = {"rr": rr, "spark": spark, "__name__": "__main__"}
        runner.run(doctest.DocTestParser().get_doctest(text, globs, name, "docs/api.md", 0))
    tried, failed = runner.tries, runner.failures
    assert failed == 0
    assert tried > 100
