"""One batch, from the driver's side: compute once, record, publish, collect.

    tasks answer -> every bucket accounted for -> ledger record -> sinks publish -> old pages go -> Spark commits

A batch that is on record already, because the driver died after writing it, is not computed again: only its publishing
is repeated, and that changes nothing.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException

from riprap.compiler import Plan
from riprap.errors import LedgerError
from riprap.graph.connectors import FromSpark
from riprap.graph.operators import Source
from riprap.runtime.crash import reach
from riprap.runtime.failures import as_riprap_error
from riprap.runtime.folder import RunFolder
from riprap.runtime.sinks import Publisher
from riprap.runtime.task import Answer, Site
from riprap.state.ledger import Manifest, Record

# The record before the newest is what a repeated batch starts from; one more is there for people to look at.
_KEEP_RECORDS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a run has come."""

    batches: int
    tuples_in: int
    tuples_out: Mapping[str, int]
    seconds: float
    tuples_per_second: float
    latency: float
    state_bytes: int


class BatchRunner:
    """The function Spark calls with each batch."""

    def __init__(
        self,
        plan: Plan,
        site: Site,
        publishers: Mapping[str, Publisher],
        folder: RunFolder,
        checkpoint: Path,
        arrivals: Mapping[str, Callable[[int], float]],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._plan = plan
        self._site = site
        self._publishers = publishers
        self._folder = folder
        self._checkpoint = checkpoint
        self._arrivals = arrivals
        self._clock = clock
        self._lock = threading.Lock()
        self._metrics: list[dict[str, Any]] = []
        self._totals = {"in": 0, "out": dict.fromkeys(publishers, 0)}
        self.failure: BaseException | None = None
        self.last: Record | None = None

    def __call__(self, answers: Any, batch: int) -> None:
        try:
            self._run(answers, batch)
        except BaseException as error:
            self.failure = as_riprap_error(error) if isinstance(error, PySparkException) else error
            raise self.failure from error

    def _run(self, dataframe: Any, batch: int) -> None:
        began = self._clock()
        ledger = self._site.ledger
        record = ledger.find(batch)
        answers: list[Answer] = []
        if record is None:
            before = ledger.get(batch - 1)
            answers = [Answer.from_json(bytes(row.answer)) for row in dataframe.collect()]
            record = self._record(batch, before, answers)
            ledger.write(record)
        gathered = self._clock()
        reach("recorded", batch)
        for name, publisher in self._publishers.items():
            publisher.publish(batch, record.outputs.get(name, ()))
        self.last = record
        published = self._clock()
        reach("published", batch)
        self._collect(batch)
        self._measure(record, answers, began, gathered, published)
        reach("collected", batch)

    def _record(self, batch: int, before: Record, answers: Sequence[Answer]) -> Record:
        if len({a.task for a in answers}) != len(answers):
            raise LedgerError(f"batch {batch}: a task answered twice")
        manifests = [a.manifest for a in answers]
        # A task without rows may not have been called: its buckets keep the pages they had.
        for task in sorted(set(range(self._plan.tasks)) - {a.task for a in answers}):
            if self._plan.path == "direct":
                raise LedgerError(f"batch {batch}: task {task} did not answer, so its buckets are unknown")
            span = self._plan.span(task)
            manifests.append(Manifest(span, {k: tuple(v) for k, v in before.state_of(*span).items()}))
        outputs = {
            sink: tuple(a.outputs[sink] for a in sorted(answers, key=lambda a: a.task) if sink in a.outputs)
            for sink in self._publishers
        }
        ends = self._offsets(batch)
        return Record(
            epoch=self._site.ledger.epoch,
            batch=batch,
            sources={n: (before.sources[n][1] if n in before.sources else None, end) for n, end in ends.items()},
            manifests=tuple(sorted(manifests, key=lambda m: m.buckets)),
            outputs=outputs,
        )

    def _offsets(self, batch: int) -> dict[str, Any]:
        """Read where the batch ends off Spark's own log, which it writes before the batch runs."""
        lines = (self._checkpoint / "offsets" / str(batch)).read_text().splitlines()[2:]
        sources = self._plan.graph.of_kind(Source)
        ends: dict[str, Any] = {}
        if any(not isinstance(s.connector, FromSpark) for s in sources):
            ends.update(json.loads(lines.pop(0)))
        for source in sources:
            if isinstance(source.connector, FromSpark):
                ends[source.name] = lines.pop(0) if lines else None
        return ends

    def _collect(self, batch: int) -> None:
        """Let go of records and pages that neither a repeated batch nor a waiting sink needs."""
        ledger = self._site.ledger
        on_record = [b for b in ledger.batches() if b >= 0]
        waiting = min((p.published for p in self._publishers.values()), default=batch) + 1
        keep: set[str] = set()
        for number in on_record:
            recent = number > batch - _KEEP_RECORDS
            if not recent and number < waiting:
                ledger.forget([number])
                continue
            record = ledger.get(number)
            keep |= record.pages() if recent else {o.page for outs in record.outputs.values() for o in outs}
        self._site.results.collect(keep)
        if "{" not in self._site.pages.folder:
            self._site.pages.collect(keep)

    def _measure(
        self, record: Record, answers: Sequence[Answer], began: float, gathered: float, published: float
    ) -> None:
        operators: dict[str, dict[str, float]] = {}
        for answer in answers:
            for name, did in answer.activity.items():
                line = operators.setdefault(name, {"in": 0, "out": 0, "seconds": 0.0})
                line["in"] += did.tuples_in
                line["out"] += did.tuples_out
                line["seconds"] += did.seconds
            for slot, (tuples, size) in answer.state.items():
                line = operators[slot.split("/")[0]]
                line["state_tuples"] = line.get("state_tuples", 0) + tuples
                line["state_bytes"] = line.get("state_bytes", 0) + size
        rows = sum(int(operators[s.name]["in"]) for s in self._plan.graph.of_kind(Source)) if answers else 0
        latency = self._latency(record, began, published)
        line = {
            "batch": record.batch,
            "time": published,
            "rows": rows,
            "repeated": not answers,
            "seconds": {
                "compute": gathered - began,
                "publish": published - gathered,
                "task": {k: max(a.seconds[k] for a in answers) for k in answers[0].seconds} if answers else {},
            },
            "latency": {"oldest": latency[0], "newest": latency[1]},
            "operators": operators,
        }
        self._folder.metrics(line)
        with self._lock:
            self._metrics.append(line)
            del self._metrics[:-100]
            self._totals["in"] += rows
            for sink, outputs in record.outputs.items():
                self._totals["out"][sink] += sum(o.rows for o in outputs)

    def _latency(self, record: Record, began: float, published: float) -> tuple[float, float]:
        """Return how long the batch's oldest and newest tuple took from arriving to being published."""
        due = [
            (arrived(start or 0), arrived(max(end - 1, start or 0)))
            for name, arrived in self._arrivals.items()
            for start, end in [record.sources[name]]
            if end > (start or 0)
        ]
        if not due:
            return published - began, published - began
        return published - min(d[0] for d in due), published - max(d[1] for d in due)

    def progress(self, since: float) -> Progress:
        """Sum up the run so far; the rate is over the newest ten batches."""
        with self._lock:
            recent = self._metrics[-10:]
            batches = self._metrics[-1]["batch"] + 1 if self._metrics else 0
            totals_in, totals_out = self._totals["in"], dict(self._totals["out"])
        if not recent:
            return Progress(
                batches=0, tuples_in=0, tuples_out=totals_out, seconds=self._clock() - since,
                tuples_per_second=0.0, latency=0.0, state_bytes=0,
            )  # fmt: skip
        span = recent[-1]["time"] - recent[0]["time"] if len(recent) > 1 else recent[-1]["seconds"]["compute"]
        rows = sum(m["rows"] for m in (recent[1:] if len(recent) > 1 else recent))
        return Progress(
            batches=batches,
            tuples_in=totals_in,
            tuples_out=totals_out,
            seconds=self._clock() - since,
            tuples_per_second=rows / span if span > 0 else 0.0,
            latency=recent[-1]["latency"]["oldest"],
            state_bytes=int(sum(o.get("state_bytes", 0) for o in recent[-1]["operators"].values())),
        )

