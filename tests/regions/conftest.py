"""Write down what came of the fault matrix, as a table: ``--faults-table FILE``."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

_OPTION = "--faults-table"
_CASE = re.compile(r"test_matrix\.py::.*\[(.+)\]$")


class Table:
    """Gathers outcomes, and writes them when the tests are over."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rows: dict[str, tuple[str, float]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        case = _CASE.search(report.nodeid)
        if case is not None and (report.when == "call" or report.outcome != "passed"):
            self._rows[case[1]] = (report.outcome, report.duration)

    def pytest_sessionfinish(self) -> None:
        outcomes = [outcome for outcome, _ in self._rows.values()]
        counts = ", ".join(
            f"{outcomes.count(o)} {o}" for o in sorted(set(outcomes), key=outcomes.count)[::-1]
        )
        lines = [
            "# The fault matrix of consistent regions",
            "",
            "Made by `make test-faults`; `tests/regions/cases.py` says what the words of a case mean. A case passes if",
            "every sink holds exactly what it holds in a run without policy and without fault.",
            "",
            f"{len(outcomes)} cases: {counts}.",
            "",
            "| case | outcome | seconds |",
            "|---|---|---:|",
            *(f"| `{case}` | {outcome} | {s:.1f} |" for case, (outcome, s) in sorted(self._rows.items())),
        ]
        self._path.write_text("\n".join(lines) + "\n")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(_OPTION, type=Path, help="where to write what came of the fault matrix")


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption(_OPTION, default=None)
    # Of several processes the one that the others report to.
    if path is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Table(path))
