"""What the batches did, added up: a line of metrics a batch, totals, and progress for whoever asks."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from riprap.runtime.task import Answer
from riprap.state.ledger import BatchRecord

_REMEMBERED = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a run has come, from its beginning, however often it was taken up. The rate is over the newest batches,
    and ``seconds`` are since it was started or taken up."""

    batches: int = 0
    tuples_in: int = 0
    tuples_out: Mapping[str, int]
    seconds: float
    tuples_per_second: float = 0.0
    latency: float = 0.0
    state_bytes: int = 0
    quarantined: int = 0


class Meter:
    """Adds up batches; asked from other threads than the one that runs them."""

    def __init__(
        self,
        sources: Iterable[str],
        sinks: Iterable[str],
        arrivals: Mapping[str, Callable[[int], float]],
        inlets: Iterable[str] = (),
        before: Mapping[str, Any] | None = None,
    ) -> None:
        self._sources = tuple(sources)
        # An inlet has the name of the operator whose stream it reads, which counts its own tuples elsewhere.
        self._inlets = frozenset(inlets)
        self._arrivals = arrivals
        self._lock = threading.Lock()
        self._recent: list[dict[str, Any]] = []
        # What was counted by earlier processes is in the last line they wrote.
        total = (before or {}).get("total", {"in": 0, "out": {}})
        self._batch = before["batch"] if before is not None else -1
        self._tuples_in: int = total["in"]
        self._tuples_out: dict[str, int] = {sink: total["out"].get(sink, 0) for sink in sinks}

    def add(
        self, record: BatchRecord, answers: Sequence[Answer], began: float, gathered: float, published: float
    ) -> dict[str, Any]:
        """Count a batch and return its line of metrics."""
        operators = {n: activity for n, activity in _operators(answers).items() if n not in self._inlets}
        rows = sum(int(operators[s]["in"]) for s in self._sources) if answers else 0
        oldest, newest = self._latency(record, began, published)
        line: dict[str, Any] = {
            "batch": record.batch,
            "time": published,
            "rows": rows,
            "repeated": not answers,
            "seconds": {
                "compute": gathered - began,
                "publish": published - gathered,
                "task": {
                    k: max(a.seconds[k] for a in answers) for k in (answers[0].seconds if answers else ())
                },
            },
            "latency": {"oldest": oldest, "newest": newest},
            "operators": operators,
        }
        with self._lock:
            self._recent = [*self._recent, line][-_REMEMBERED:]
            if record.batch > self._batch:
                self._batch = record.batch
                self._tuples_in += rows if answers else self._rows_of(record)
                for sink in self._tuples_out:
                    self._tuples_out[sink] += sum(o.rows for o in record.outputs.get(sink, ()))
            line["total"] = {"in": self._tuples_in, "out": dict(self._tuples_out)}
        return line

    def _rows_of(self, record: BatchRecord) -> int:
        """Say how many rows a batch had that a process computed and did not live to count, where they are numbered."""
        spans = (record.sources.get(source, (0, 0)) for source in self._sources)
        return sum(end - (start or 0) for start, end in spans if isinstance(end, int))

    def progress(self, seconds: float) -> Progress:
        """Sum up the run so far, ``seconds`` after it began."""
        with self._lock:
            recent, tuples_in, tuples_out = self._recent, self._tuples_in, dict(self._tuples_out)
            batches = self._batch + 1
        if not recent:
            return Progress(batches=batches, tuples_in=tuples_in, tuples_out=tuples_out, seconds=seconds)
        return Progress(
            batches=batches,
            tuples_in=tuples_in,
            tuples_out=tuples_out,
            seconds=seconds,
            tuples_per_second=rate_of(recent),
            latency=recent[-1]["latency"]["oldest"],
            state_bytes=int(sum(o.get("state_bytes", 0) for o in recent[-1]["operators"].values())),
        )

    def _latency(self, record: BatchRecord, began: float, published: float) -> tuple[float, float]:
        """Return how long the batch's oldest and newest tuple took from arriving to being published."""
        due = [
            (arrived(start or 0), arrived(end - 1))
            for name, arrived in self._arrivals.items()
            for start, end in [record.sources[name]]
            if end > (start or 0)
        ]
        if not due:
            return published - began, published - began
        return published - min(d[0] for d in due), published - max(d[1] for d in due)


def rate_of(lines: Sequence[Mapping[str, Any]]) -> float:
    """Return the tuples a second of some batches, from the end of the first on; of one alone, while it was computed."""
    if len(lines) > 1:
        rows, span = sum(line["rows"] for line in lines[1:]), lines[-1]["time"] - lines[0]["time"]
    else:
        rows, span = lines[0]["rows"], lines[0]["seconds"]["compute"]
    return rows / span if span > 0 else 0.0


def sum_up(meters: Sequence[Meter], seconds: float) -> Progress:
    """Sum up the processing elements of a run. Of latency and batches the greatest counts."""
    parts = [meter.progress(seconds) for meter in meters]
    if len(parts) == 1:
        return parts[0]
    return Progress(
        batches=max(p.batches for p in parts),
        tuples_in=sum(p.tuples_in for p in parts),
        tuples_out={sink: rows for p in parts for sink, rows in p.tuples_out.items()},
        seconds=seconds,
        tuples_per_second=sum(p.tuples_per_second for p in parts),
        latency=max(p.latency for p in parts),
        state_bytes=sum(p.state_bytes for p in parts),
    )


def _operators(answers: Sequence[Answer]) -> dict[str, dict[str, Any]]:
    """Add up what each operator did over the tasks.

    What only operators with several ports, streams or slots of state have, others' lines do not.
    """
    operators: dict[str, dict[str, Any]] = {}
    for answer in answers:
        for name, activity in answer.activity.items():
            line = operators.setdefault(name, {"in": 0, "out": 0, "seconds": 0.0})
            line["in"] += activity.tuples_in
            line["out"] += activity.tuples_out
            line["seconds"] += activity.seconds
            if activity.ports:
                before = line.get("ports", [0] * len(activity.ports))
                line["ports"] = [a + b for a, b in zip(before, activity.ports, strict=True)]
            _add_all(line, "streams", activity.streams)
            if activity.marks_in or activity.marks_out:
                _add_all(line, "punctuations", {"in": activity.marks_in, "out": activity.marks_out})
            if activity.late:
                line["late"] = line.get("late", 0) + activity.late
        slots = Counter(slot.split("/")[0] for slot in answer.state)
        for slot, (tuples, size) in answer.state.items():
            name, _, short = slot.partition("/")
            line = operators[name]
            line["state_tuples"] = line.get("state_tuples", 0) + tuples
            line["state_bytes"] = line.get("state_bytes", 0) + size
            if slots[name] > 1:
                _add_all(line, "slots", {short: tuples})
    return operators


def _add_all(line: dict[str, Any], entry: str, counts: Mapping[str, int]) -> None:
    if counts:
        totals = line.setdefault(entry, {})
        for name, count in counts.items():
            totals[name] = totals.get(name, 0) + count
