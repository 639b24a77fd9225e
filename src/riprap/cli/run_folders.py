"""The RUN of a command line: a run's folder, the name of an application, or ``latest``."""

from __future__ import annotations

import argparse
from pathlib import Path

from riprap.cli.applications import UsageError

_LATEST = "latest"


def add_run(parser: argparse.ArgumentParser) -> None:
    """Add RUN, and where to look for it."""
    parser.add_argument(
        "run", metavar="RUN", help="a run's folder; or an application, or 'latest', for its newest run"
    )
    parser.add_argument(
        "--runs", type=Path, default=Path("runs"), metavar="DIR", help="where run folders are (runs)"
    )


def find_run(asked: str, runs: Path) -> Path:
    """Return the run folder that a command line names."""
    newest = sorted(
        (p for p in runs.glob(f"*/{_LATEST}") if _is_run(p)), key=lambda path: path.resolve().name
    )
    if asked == _LATEST and newest:
        return newest[-1].resolve()
    for path in (Path(asked), Path(asked) / _LATEST, runs / asked / _LATEST):
        if _is_run(path):
            return path.resolve()
    there = ", ".join(path.parent.name for path in newest)
    known = f"There are runs of: {there}" if there else "There is none: name its folder, or say --runs DIR"
    raise UsageError(f"no run '{asked}' under {runs}. {known}")


def _is_run(path: Path) -> bool:
    return (path / "run.json").is_file()
