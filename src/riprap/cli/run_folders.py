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
    add_folder(parser, "--runs", "where run folders are")


def add_folder(parser: argparse._ActionsContainer, option: str, help: str) -> None:
    """Add the option that says where folders of some kind are: by default in one that is called as the option is."""
    folder = option.removeprefix("--")
    parser.add_argument(option, type=Path, default=Path(folder), metavar="DIR", help=f"{help} ({folder})")


def find_run(
    asked: str, runs: Path, *, kind: str = "a run", sign: str = "run.json", option: str = "--runs"
) -> Path:
    """Return the run folder that a command line names; the folder of such a run has ``sign`` in it."""
    latest = (path for path in runs.glob(f"*/{_LATEST}") if (path / sign).exists())
    newest = sorted(latest, key=lambda path: path.lstat().st_mtime_ns)
    if asked == _LATEST and newest:
        return newest[-1].resolve()
    for path in (Path(asked), Path(asked) / _LATEST, runs / asked / _LATEST):
        if (path / sign).exists():
            return path.resolve()
    if newest:
        names = ", ".join(path.parent.name for path in newest)
        raise UsageError(f"no run '{asked}' under {runs}. There are runs of: {names}")
    raise UsageError(
        f"{asked} is not the folder of {kind}, and there is no run under {runs}. Name a folder, or say {option} DIR"
    )
