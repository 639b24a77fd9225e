"""One batch, from the driver's side: compute once, record, publish, collect.

    tasks answer -> every bucket accounted for -> ledger record -> synced -> sinks publish -> old pages go
                                                               '-> the next batch

A record is synced, and sinks and channels get its batch, while the next is computed, a few behind at most. A batch that
is on record already, because the driver died after writing it, is not computed again: only its publishing is repeated,
and that changes nothing. It must be planned with the input it has on record.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from riprap.compiler import Plan
from riprap.errors import LedgerError, StoreError
from riprap.feeds.tables import Tables
from riprap.runtime.agent.handle import Saver
from riprap.runtime.background import BackgroundThread
from riprap.runtime.crash import reach
from riprap.runtime.delivery import Delivery
from riprap.runtime.file_publisher import FilePublisher
from riprap.runtime.folder import RunFolder
from riprap.runtime.late_cuts import LateCuts
from riprap.runtime.meter import Meter
from riprap.runtime.offsets import Planned
from riprap.runtime.outflow import Outflow
from riprap.runtime.retention import Retention, oldest_tables
from riprap.runtime.sinks import Publisher
from riprap.runtime.site import Site
from riprap.runtime.task import Answer
from riprap.stage.recording import RecordOrder
from riprap.state.ledger import BatchRecord

# So many batches may wait behind the one that is being handed over; one more may be on record by then.
_BEHIND = 2
# The one at hand, those that wait, and one that waits to wait.
MOST_UNHANDED = _BEHIND + 2


class BatchRunner:
    """Takes a processing element from record to record, and sees to it that sinks and channels have each."""

    def __init__(
        self,
        plan: Plan,
        site: Site,
        publishers: Mapping[str, Publisher],
        outlets: Mapping[str, Outflow],
        tables: Tables,
        folder: RunFolder,
        handed: Delivery,
        meter: Meter,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._plan = plan
        self._site = site
        self._publishers = publishers
        self._outlets = outlets
        self._tables = tables
        self._folder = folder
        self._handed = handed
        self._meter = meter
        self._windows = next((o.windows for o in outlets.values() if o.windows is not None), None)
        self.saver: Saver | None = None
        self.late: LateCuts | None = None
        self._retention = Retention(site)
        self._asked_from = self._forgotten = self._entered = 0
        self._clock = clock
        self._behind = BackgroundThread(f"{plan.name} publishes", _BEHIND)
        self.last: BatchRecord | None = None
        self.take_up()

    @property
    def next(self) -> int:
        """The number of the batch after the newest on record."""
        return 0 if self.last is None else self.last.batch + 1

    @property
    def owes(self) -> bool:
        """Whether a batch is on record that some sinks may not have had."""
        return self.last is not None and self.last.batch > self._handed.batch

    @property
    def owes_earlier(self) -> bool:
        """Whether a batch that an earlier process had on record is still to be handed over."""
        return self._handed.batch < self._earlier

    @property
    def handed(self) -> int:
        """The newest batch that is on record and handed over, -1 if none is."""
        return self._handed.batch

    @property
    def settled(self) -> int:
        """The newest batch whose input nobody will ask for again, -1 if there is none."""
        if not self._plan.replays:
            return self._handed.batch
        if self.saver is not None:
            return self.saver.oldest
        settled = min(self._handed.batch, self._asked_from - 1)
        return settled if self._windows is None else min(settled, self._windows.kept)

    @property
    def due(self) -> RecordOrder:
        """What the next batch is to record beside what it must, where open windows are recorded."""
        return RecordOrder() if self._windows is None else self._windows.due(self.next)

    def take_up(self) -> None:
        """Go on from what is on record: it may have been computed again."""
        batches = self._site.ledger.batches()
        self.last = self._site.ledger.get(batches[-1]) if batches and batches[-1] >= 0 else None
        self._earlier = self.last.batch if self.last is not None else -1

    def catch_up(self) -> None:
        """Hand over once more what an earlier process had on record, and may have died before it could."""
        for batch in self._site.ledger.batches():
            if batch > self._handed.batch:
                self._hand_over(self._site.ledger.get(batch), [], self._clock())
        self._tell_waiting()

    def settle(self) -> None:
        """Wait until what is on record by now has been handed over."""
        self._behind.wait()

    def look(self) -> None:
        """Have files written that are due, though no batch comes; raise what went wrong when one was handed over."""
        for publisher in self._publishers.values():
            if isinstance(publisher, FilePublisher) and publisher.due and self._behind.idle:
                self._behind.do(lambda p=publisher: self._write_due(p))  # type: ignore[misc]
        if self._plan.holds:
            self.release()
        if self.late is not None and self.saver is not None:
            self.late.look(self.saver.cut)
        elif self.late is not None:
            self.late.look_without_state(self._handed.batch, self._entered)
        self._behind.check()

    def _write_due(self, publisher: FilePublisher) -> None:
        publisher.flush()
        self._tell_waiting()

    def _tell_waiting(self) -> None:
        """Let who saves the element know what sinks and channels have by now, though no batch comes."""
        if self.saver is not None:
            self._asked_from = self.first_wanted()
            self.saver.wait_from(self._asked_from)

    def first_wanted(self) -> int:
        """Return the first batch that a sink or channel may still ask for."""
        published = [p.published for p in self._publishers.values()]
        published += [o.published for o in self._outlets.values()]
        return min(published, default=self._handed.batch) + 1

    def release(self) -> None:
        """Let readers see held results that will not come out otherwise any more: a cut has what they came of."""
        upto = self._handed.batch if self.saver is None else min(self.saver.cut, self._handed.batch)
        for outflow in self._outlets.values():
            outflow.release(upto)

    def release_all(self, store: str) -> None:
        """Let readers see all there is, after a last cut; that there is none in the ``store`` is an error."""
        self.release()
        held = max((outflow.published - outflow.released for outflow in self._outlets.values()), default=0)
        if held:
            raise StoreError(
                f"what '{self._plan.name}' has put out in its newest {held} batches is held until a cut has it, and "
                f"none could be saved in {store}. The events 'checkpoint failed' say why; take the run up when the "
                "store is there"
            )

    def finish(self) -> None:
        """Wait until all that is on record has been handed over."""
        self._behind.finish()

    def abandon(self) -> None:
        """Hand over no more, as after a crash."""
        self._behind.abandon()

    def run(self, batch: int, planned: Planned, compute: Callable[[], Sequence[Answer]]) -> None:
        """Have a batch computed as it was planned, record it, and have it handed over.

        One that is on record already is not computed again, and must have been planned alike.
        """
        began = self._clock()
        ledger = self._site.ledger
        record = ledger.find(batch)
        answers: Sequence[Answer] = []
        if record is None:
            before = ledger.get(batch - 1)
            self._tables.settle(batch)
            answers = compute()
            self._learn(answers)
            record = self._record(batch, before, planned, answers)
            reach("gathered", batch, self._plan.name)
            # What Spark has planned it goes on from, synced or not: such a record is at once.
            ledger.write(record, synced=self._plan.ingests)
        else:
            planned.compare(record, self._plan.name)
        self.last = record
        self._behind.do(lambda: self._hand_over(record, answers, began))

    def _hand_over(self, record: BatchRecord, answers: Sequence[Answer], began: float) -> None:
        batch, gathered = record.batch, record.time or began
        reach("recorded", batch, self._plan.name)
        if self._plan.replays and answers:
            self._tables.sync(batch)
        self._site.ledger.sync(batch)
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
        # Counted first: a batch that is noted does not come again, and one that comes again is counted once.
        line = self._meter.add(record, answers, began, gathered, published)
        if self.saver is not None:
            line["checkpoints"] = self.saver.statuses(published, batch)
        self._entered += sum(a.activity[e.name].tuples_in for a in answers for e in self._plan.entries)
        if self._windows is not None:
            line["windows"] = self._windows.status
        self._folder.metrics({"element": self._plan.name, **line})
        reach("counted", batch, self._plan.name)
        self._handed.note(batch)
        self._let_go(record, answers)
        reach("collected", batch, self._plan.name)

    def _learn(self, answers: Sequence[Answer]) -> None:
        """Take note of what recording windows took."""
        if self._windows is None:
            return
        told = [o.windows for a in answers for o in a.outputs.values() if o.windows is not None]
        if told:
            seconds = sum(a.seconds["record"] for a in answers)
            self._windows.learn(seconds, sum(w["records"] for w in told), sum(w["checks"] for w in told))

    def _record(
        self, batch: int, before: BatchRecord, planned: Planned, answers: Sequence[Answer]
    ) -> BatchRecord:
        if len({a.task for a in answers}) != len(answers):
            raise LedgerError(f"batch {batch}: a task answered twice")
        # What Spark reads it cuts up as it likes, and there is no state.
        manifests = [] if self._plan.ingests else [a.manifest for a in answers]
        manifests.sort(key=lambda m: m.buckets)
        bounds = [0, *(bound for m in manifests for bound in m.buckets), self._plan.buckets]
        if bounds[::2] != bounds[1::2] and not self._plan.ingests:
            raise LedgerError(
                f"batch {batch}: what is answered is of buckets {bounds[1:-1]}, and not of each once"
            )
        outputs = {
            sink: tuple(a.outputs[sink] for a in sorted(answers, key=lambda a: a.task) if sink in a.outputs)
            for sink in (*self._publishers, *self._outlets)
        }
        return BatchRecord(
            epoch=self._site.ledger.epoch,
            batch=batch,
            sources={
                n: (before.sources[n][1] if n in before.sources else None, end)
                for n, end in planned.ends.items()
            },
            manifests=tuple(manifests),
            outputs=outputs,
            frontier=planned.frontier,
            time=self._clock(),
        )

    def _let_go(self, record: BatchRecord, answers: Sequence[Answer]) -> None:
        """Have what nobody needs after a batch removed: by whoever saves the element, or here."""
        self._asked_from = waiting = self.first_wanted()
        if self.saver is not None:
            self.saver.take(record, answers, waiting)
        else:
            self._retention.collect(record, waiting, again=self.settled if self._plan.replays else None)
        before = min(oldest_tables(record.batch), self.settled + 1)
        if before > self._forgotten:
            self._tables.forget(before)
            self._forgotten = before
