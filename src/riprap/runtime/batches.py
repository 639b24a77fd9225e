"""One batch, from the driver's side: compute once, record, publish, collect.

    tasks answer -> every bucket accounted for -> ledger record -> sinks publish -> old pages go -> Spark commits

A batch that is on record already, because the driver died after writing it, is not computed again: only its publishing
is repeated, and that changes nothing. It must be planned with the input it has on record.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyspark.errors import PySparkException

from riprap.compiler import Plan
from riprap.errors import LedgerError, RunError
from riprap.runtime.checkpointing.checkpointer import Checkpointer
from riprap.runtime.crash import reach
from riprap.runtime.failures import as_riprap_error
from riprap.runtime.folder import RunFolder
from riprap.runtime.meter import Meter
from riprap.runtime.outflow import Outflow
from riprap.runtime.sinks import Publisher
from riprap.runtime.site import Site
from riprap.runtime.spark_log import SparkLog
from riprap.runtime.tables import Tables
from riprap.runtime.task import Answer
from riprap.state.ledger import Record

# The record before the newest is what a repeated batch starts from; one more is there for people to look at.
_KEEP_RECORDS = 3


class BatchRunner:
    """The function Spark calls with each batch."""

    def __init__(
        self,
        plan: Plan,
        site: Site,
        publishers: Mapping[str, Publisher],
        outlets: Mapping[str, Outflow],
        tables: Tables,
        folder: RunFolder,
        log: SparkLog,
        meter: Meter,
        checkpointer: Checkpointer | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._plan = plan
        self._site = site
        self._publishers = publishers
        self._outlets = outlets
        self._tables = tables
        self._folder = folder
        self._log = log
        self._meter = meter
        self._checkpointer = checkpointer
        self._clock = clock
        self._at_hand = threading.Lock()
        self._closed = False
        self.refused = False
        self.failure: BaseException | None = None
        on_record = [batch for batch in site.ledger.batches() if batch >= 0]
        self.last: Record | None = site.ledger.get(on_record[-1]) if on_record else None
        # A batch on record that Spark has not committed comes again, for those sinks that may not have had it.
        self.owes = bool(on_record) and not log.committed(on_record[-1])

    def __call__(self, answers: Any, batch: int) -> None:
        with self._at_hand:
            if self._closed:
                # Raised so that Spark does not commit it: whoever takes the run up computes it.
                self.refused = True
                raise RunError(f"batch {batch} came after the run was stopped")
            try:
                self._run(answers, batch)
            except BaseException as error:
                self.failure = as_riprap_error(error) if isinstance(error, PySparkException) else error
                raise self.failure from error

    def close(self) -> None:
        """Let the batch at hand finish, and refuse any other."""
        with self._at_hand:
            self._closed = True

    def _run(self, dataframe: Any, batch: int) -> None:
        began = self._clock()
        ledger = self._site.ledger
        record = ledger.find(batch)
        answers: list[Answer] = []
        if record is None:
            before = ledger.get(batch - 1)
            self._tables.settle(batch)
            answers = [Answer.from_json(bytes(row.answer)) for row in dataframe.collect()]
            record = self._record(batch, before, answers)
            reach("gathered", batch, self._plan.name)
            ledger.write(record)
            if self._checkpointer is not None:
                self._checkpointer.note(record, answers)
        else:
            self._log.compare(record)
        gathered = self._clock()
        reach("recorded", batch, self._plan.name)
        for outflow in self._outlets.values():
            outflow.publish(record)
        for name, publisher in self._publishers.items():
            if name in record.outputs:
                publisher.publish(batch, record.outputs[name])
            else:
                # Gone with the host, and told: what the sink has of it must not be replaced by nothing.
                publisher.take_up(batch, ())
        published = self._clock()
        reach("published", batch, self._plan.name)
        self._collect(batch)
        line = self._meter.add(record, answers, began, gathered, published)
        if self._checkpointer is not None:
            line["checkpoints"] = self._checkpointer.statuses()
        self._folder.metrics({"element": self._plan.name, **line})
        self.last = record
        self.owes = False
        reach("collected", batch, self._plan.name)

    def _record(self, batch: int, before: Record, answers: Sequence[Answer]) -> Record:
        if len({a.task for a in answers}) != len(answers):
            raise LedgerError(f"batch {batch}: a task answered twice")
        manifests = [a.manifest for a in answers]
        # A task without rows may not have been called: its buckets keep the pages they had.
        for task in sorted(set(range(self._plan.tasks)) - {a.task for a in answers}):
            if self._plan.path == "direct":
                raise LedgerError(f"batch {batch}: task {task} did not answer, so its buckets are unknown")
            manifests += before.state_of(*self._plan.span(task))
        outputs = {
            sink: tuple(a.outputs[sink] for a in sorted(answers, key=lambda a: a.task) if sink in a.outputs)
            for sink in (*self._publishers, *self._outlets)
        }
        planned = self._log.planned(batch)
        if planned is None:
            raise LedgerError(f"batch {batch}: Spark's log in {self._log.folder} does not say what it had")
        return Record(
            epoch=self._site.ledger.epoch,
            batch=batch,
            sources={
                n: (before.sources[n][1] if n in before.sources else None, end)
                for n, end in planned.ends.items()
            },
            manifests=tuple(sorted(manifests, key=lambda m: m.buckets)),
            outputs=outputs,
            frontier=planned.frontier,
            time=self._clock(),
        )

    def _collect(self, batch: int) -> None:
        """Let go of records and pages that neither a repeated batch nor a waiting sink needs."""
        ledger = self._site.ledger
        on_record = [b for b in ledger.batches() if b >= 0]
        published = [p.published for p in self._publishers.values()] + [
            o.published for o in self._outlets.values()
        ]
        waiting = min(published, default=batch) + 1
        again = self._checkpointer.oldest_batch if self._checkpointer is not None else None
        self._tables.forget(batch - _KEEP_RECORDS)
        keep: set[str] = set()
        for number in on_record:
            recent = number > batch - _KEEP_RECORDS
            if not recent and number < waiting:
                if again is None or number < again:
                    ledger.forget([number])
                elif (record := ledger.get(number)).outputs:
                    # How far the batch went is needed to compute it again, and no more.
                    ledger.write(replace(record, outputs={}))
                continue
            record = ledger.get(number)
            keep |= (
                record.pages()
                if recent
                else {p for o in record.outputs.values() for out in o for p in out.pages}
            )
        checkpointer = self._checkpointer
        self._site.collect(lambda: keep | checkpointer.holding() if checkpointer is not None else keep)
