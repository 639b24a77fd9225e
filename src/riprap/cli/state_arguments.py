"""What the actions of ``riprap state`` share: finding the run, the operator and the version; writing times."""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Iterator
from typing import Any

from riprap.cli.applications import UsageError
from riprap.cli.run_folders import find_run
from riprap.cli.screen import shown
from riprap.runtime.checkpointing.inspection import About, Inspection
from riprap.state.checkpoints.versions import Versions

_UNITS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"))


def inspect(arguments: argparse.Namespace) -> Inspection:
    """Find the run, and the operator if one is named."""
    inspection = Inspection.of(find_run(arguments.run, arguments.runs))
    if arguments.operator is not None and arguments.operator not in inspection.operators:
        names = ", ".join(inspection.operators) or "none"
        raise UsageError(
            f"{shown(inspection.folder.path)} has no operator '{arguments.operator}' with state. It has: {names}"
        )
    return inspection


def asked_for(arguments: argparse.Namespace, run: Inspection) -> list[About]:
    """Return the operator that is named, or all."""
    named = arguments.operator
    return list(run.operators.values()) if named is None else [run.operators[named]]


@contextlib.contextmanager
def reading(run: Inspection, operator: str) -> Iterator[Versions]:
    """Open the versions of an operator that has any."""
    with run.reading(operator) as versions:
        if versions is None or not versions.numbers():
            raise UsageError(f"'{operator}' has no checkpoints: {why_none(run.operators[operator])}")
        yield versions


def check_version(versions: Versions, operator: str, number: int) -> int:
    """Refuse a version that is not there."""
    numbers = versions.numbers()
    if number not in numbers:
        listed = ", ".join(map(str, numbers))
        raise UsageError(f"'{operator}' has no version {number}. It has: {listed}")
    return number


def why_none(about: About) -> str:
    """Say why an operator has no checkpoints."""
    if about.recorded:
        return "its open windows are recorded in its output log"
    return "it has no protect= policy" if about.protected is False else "none was saved yet"


def age(when: float) -> str:
    """Say how long ago something was.

    >>> age(time.time() - 300)
    '5 min ago'
    """
    seconds = max(0.0, time.time() - when)
    for length, name in _UNITS:
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {name} ago"
    return f"{seconds:.0f} s ago"


def as_json(value: Any) -> Any:
    """Return a value of a state as JSON has it; what JSON has not is text."""
    if isinstance(value, dict):
        return {str(k): as_json(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(v) for v in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def as_text(value: Any) -> str:
    """Return a value of a state as a cell of a table."""
    if isinstance(value, float):
        return f"{value:.6g}" if value == 0 or 1e-4 <= abs(value) < 1e6 else f"{value:.6e}"
    return "" if value is None else str(value)
