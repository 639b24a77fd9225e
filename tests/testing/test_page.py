"""The code of docs/testing.md."""

from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any, get_args

import pytest
from tests.pages import DOCS, code_of

import riprap as rr
from riprap.runtime.crash import Step

APP = """
import riprap as rr
app = rr.Application("copy")
numbers = app.source("numbers", rr.rows([{"n": n} for n in range(50)], "n bigint"))
app.sink("out", numbers, rr.parquet("out"))
"""


@pytest.fixture(autouse=True)
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the files of the pages where Python finds them."""
    pages = {"extending.md": ("entries_sink", "entries_source", "table_store"), "testing.md": ("sums",)}
    for page, names in pages.items():
        for name in names:
            (tmp_path / f"{name}.py").write_text(code_of(page, f"# {name}.py"))
            monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")


def code(file: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(code_of("testing.md", f"# {file}"), names)
    return names


def test_batches_crashes_and_what_is_meant() -> None:
    code("test_batches.py")["test_the_oldest_price_leaves"]()
    code("test_crashes.py")["test_a_host_is_lost"]()
    code("test_meaning.py")["test_the_newest_three_are_added_up"]()


def test_parts(tmp_path: Path) -> None:
    def held(path: str) -> list[Any]:
        with closing(sqlite3.connect(path)) as db:
            db.execute("create table if not exists entries (run text, batch integer, row text)")
            return [json.loads(row) for (row,) in db.execute("select row from entries order by rowid")]

    code("test_parts.py")["test_parts"](tmp_path, held)


def test_every_step_is_named() -> None:
    page = (DOCS / "testing.md").read_text()
    assert [step for step in get_args(Step) if f"`{step}`" not in page] == []
    with pytest.raises(rr.GraphError, match=r"is one of read, shared, .*, got 'record'"):
        rr.testing.crash_at("record", 1, marker="died")


@pytest.mark.slow
def test_a_run_goes_through_a_crash(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    code("test_run.py")["run_through_a_crash"](tmp_path)
