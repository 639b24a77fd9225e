"""Write down what came of the fault matrix, case by case: ``--faults-table FILE``."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.regions.cases import CASES
from tests.regions.outcomes import Outcome, commit_of, merge

_OPTION = "--faults-table"
_CASE = re.compile(r"test_matrix\.py::.*\[(.+)\]$")


class Table:
    """Writes the outcome of each case as soon as it is over."""

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()
        self._commit = commit_of(Path(__file__).parents[2], self._path)
        self._cases = {case.id for case in CASES}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        case = _CASE.search(report.nodeid)
        if case is None or (report.when != "call" and report.outcome == "passed"):
            return
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
        told = " ".join(f"{report.outcome}{reason.removeprefix('Skipped')}".replace("|", "/").split())
        merge(self._path, case[1], Outcome(told, report.duration, self._commit), self._cases)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(_OPTION, type=Path, help="where to write what came of the fault matrix")


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption(_OPTION, default=None)
    # Of several processes the one that the others report to.
    if path is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Table(path))
