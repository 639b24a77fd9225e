"""How far a supervised run has come: the lines its drivers add to ``metrics.jsonl``, summed up as they come."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from riprap.runtime.meter import Progress, rate_of
from riprap.state.saving import parse_line

_REMEMBERED = 10


class MetricsTail:
    """Follows the metrics of a run from where they end now. Whichever process wrote a line, it counts once."""

    def __init__(self, path: Path, sinks: Iterable[str]) -> None:
        self._path = path
        self._place = path.stat().st_size if path.exists() else 0
        self._recent: dict[str, list[dict[str, Any]]] = {}
        self._tuples_in = 0
        self._tuples_out = dict.fromkeys(sinks, 0)

    def progress(self, seconds: float) -> Progress:
        """Read what is new, and sum up the run so far, ``seconds`` after it began."""
        for line in self._new_lines():
            self._add(line)
        newest = [lines[-1] for lines in self._recent.values()]
        if not newest:
            return Progress(tuples_out=dict(self._tuples_out), seconds=seconds)
        return Progress(
            batches=max(line["batch"] for line in newest) + 1,
            tuples_in=self._tuples_in,
            tuples_out=dict(self._tuples_out),
            seconds=seconds,
            tuples_per_second=sum(rate_of(lines) for lines in self._recent.values()),
            latency=max(float(line["latency"]["oldest"]) for line in newest),
            state_bytes=int(
                sum(o.get("state_bytes", 0) for line in newest for o in line["operators"].values())
            ),
        )

    def _new_lines(self) -> list[dict[str, Any]]:
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._place)
            whole = file.read().rpartition(b"\n")[0]
        if not whole:
            return []
        self._place += len(whole) + 1
        return [data for line in whole.splitlines() if (data := parse_line(line)) is not None]

    def _add(self, line: dict[str, Any]) -> None:
        element = line["element"]
        self._recent[element] = [*self._recent.get(element, []), line][-_REMEMBERED:]
        self._tuples_in += line["rows"]
        for sink in self._tuples_out:
            self._tuples_out[sink] += int(line["operators"].get(sink, {}).get("in", 0))
