"""When a paced source began: a restart goes on as if it had never stopped."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path

from riprap.graph.operator import Operator
from riprap.operators.source import Source
from riprap.state.durable_files import damage, load_json, save_json

PACE = "pace.json"
_PACE_FORMAT = "riprap-pace/1"
_REMEDY = "Put it back from a copy; or start a new run: what is made by the clock would be made otherwise"


def pace_start(folder: Path, rate: float) -> float:
    """Return when a paced source began: now, if it begins now. A restart goes on as if it had never stopped."""
    path = folder / PACE
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        save_json(path, {"format": _PACE_FORMAT, "start": time.time(), "rate": rate})
    return read_pace(path)[0]


def read_pace(path: Path) -> tuple[float, float]:
    """Return when a paced source began, and its tuples a second."""
    number = int | float
    pace = load_json(path, _PACE_FORMAT, {"start": number, "rate": number}, remedy=_REMEDY)
    if pace is None:
        raise damage(path, "it is gone, and nobody knows when the source began", _REMEDY)
    return pace["start"], pace["rate"]


def arrival(folder: Path, rate: float) -> Callable[[int], float]:
    """Return a function that says when a row of a paced source is due."""
    return lambda row: pace_start(folder, rate) + row / rate


def rates_of(sources: Iterable[Operator]) -> dict[str, float]:
    """Return the tuples a second of sources that are paced."""
    rates = {s.name: getattr(s.connector, "rate", None) for s in sources if isinstance(s, Source)}
    return {name: rate for name, rate in rates.items() if rate is not None}
