"""How far a supervised run has come: the lines its drivers add to ``metrics.jsonl``, as they come."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from riprap.runtime.folder import RunFolder
from riprap.runtime.meter import Progress, rate_of

_REMEMBERED = 10


class MetricsTail:
    """Follows the metrics of a run from where they end now. A line has the totals of its element so far."""

    def __init__(self, folder: RunFolder, elements: Collection[str], sinks: Iterable[str]) -> None:
        self._following = folder.follow_metrics()
        self._newest = folder.last_metrics(elements)
        self._recent: dict[str, list[dict[str, Any]]] = {}
        self._sinks = tuple(sinks)

    def progress(self, seconds: float) -> Progress:
        """Read what is new, and sum up the run so far, ``seconds`` after it began."""
        for line in self._following.new():
            element = line["element"]
            self._newest[element] = line
            self._recent[element] = [*self._recent.get(element, []), line][-_REMEMBERED:]
        totals = [line["total"] for line in self._newest.values() if "total" in line]
        newest = [lines[-1] for lines in self._recent.values()]
        return Progress(
            batches=max((line["batch"] + 1 for line in self._newest.values()), default=0),
            tuples_in=sum(total["in"] for total in totals),
            tuples_out={sink: sum(total["out"].get(sink, 0) for total in totals) for sink in self._sinks},
            seconds=seconds,
            tuples_per_second=sum(rate_of(lines) for lines in self._recent.values()),
            latency=max((float(line["latency"]["oldest"]) for line in newest), default=0.0),
            state_bytes=int(
                sum(o.get("state_bytes", 0) for line in newest for o in line["operators"].values())
            ),
        )
