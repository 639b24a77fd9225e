"""What Spark says of a failure is told as what it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import riprap as rr
from riprap.runtime.failures import as_riprap_error

# As Spark 4.3 words it where a session's workers run on another Python.
NO_RIPRAP = """[PYTHON_DATA_SOURCE_ERROR] Failed to create Python data source instance: Traceback (most recent):
  File "<string>", line 6, in find_spec
ModuleNotFoundError: No module named 'riprap'
 SQLSTATE: 38000"""


def test_workers_without_riprap_are_told() -> None:
    said = str(as_riprap_error(RuntimeError(NO_RIPRAP)))

    assert said.startswith("Spark's Python workers have no module 'riprap'. Install it for the Python")
    assert "leave out spark=" in said
    assert "SQLSTATE" not in said


@pytest.mark.parametrize(
    "master", ["local[x]", "local[0]", "localhost", "local[2", "here", "", 2, "LOCAL[2]"]
)
def test_a_master_that_is_none_is_refused_before_spark_starts(master: Any, tmp_path: Path) -> None:
    app = rr.Application("nowhere")
    app.sink("out", app.source("in", rr.rows([], "n int")), rr.memory())

    with pytest.raises(rr.GraphError, match=r"is no address of Spark\. Write 'local\[2\]'"):
        app.run(master=master, runs=tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_folder_to_take_up_that_is_not_there(tmp_path: Path) -> None:
    app = rr.Application("nowhere")
    app.sink("out", app.source("in", rr.rows([], "n int")), rr.memory())

    with pytest.raises(
        rr.RunError, match=r"there is no folder .*new.* A new one gets a folder of its own, under runs="
    ):
        app.run(folder=tmp_path / "new", runs=tmp_path)
