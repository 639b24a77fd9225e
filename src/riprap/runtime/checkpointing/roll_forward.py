"""How an element comes back that must not lose anything: from a cut, by computing the recorded batches again.

    records        ... | 40 | 41 | 42 | 43 | 44 |        state, or results that are still to be published, are gone
    newest cut           40                              its values are durable, and its results published
    computed again            41   42   43   44          from the input that each has on record, as large as it was

A batch computed again has the number it had, and so the tags; its results are those that it had, which their digests
confirm. So nothing is rolled back: who had them goes on, and who had not gets them now. Where memory is as it was,
there is nothing to do; who dies on the way begins where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from riprap.errors import RunError
from riprap.runtime.checkpointing.recovery import Recovery, state_pages
from riprap.runtime.crash import reach
from riprap.runtime.task import Answer
from riprap.state.checkpoints.restoring import Restored
from riprap.state.ledger import BatchRecord, Output, page_prefix
from riprap.state.stores import Store

# How many batches are computed again before pages are looked at that may go.
_COLLECT_EVERY = 16


class RollForward:
    """Brings an element to where it was. ``had`` says whether a sink or channel has had a batch for good."""

    def __init__(self, recovery: Recovery, had: Callable[[str, int], bool]) -> None:
        self._recovery = recovery
        self._had = had
        self._element = recovery.plan.name

    def run(self, compute: Callable[[BatchRecord], Sequence[Answer]]) -> None:
        """Bring back what is gone; ``compute`` takes a batch again, from the record before it."""
        ledger, tell = self._recovery.site.ledger, self._recovery.tell
        batches = ledger.batches()
        if not batches:
            return
        records = {batch: ledger.get(batch) for batch in batches}
        newest = records[batches[-1]]
        wanting = min((b for b in batches if self._wanting(records[b])), default=newest.batch + 1)
        # Of what is kept of old records, all that follow one are there, or it is of no use.
        usable = [
            b for b in reversed(batches) if b < wanting and newest.batch - b < len(records) - batches.index(b)
        ]
        base = next((b for b in usable if self._is_intact(records[b])), None)
        if base == newest.batch:
            return
        began = self._recovery.clock()
        base = self._from_cut(records, [b for b in usable if base is None or b > base], base)
        if base is None:
            what = f"what '{self._element}' read is not kept any more from its newest cut on: its tuples are lost"
            if self._recovery.plan.region is not None:
                # Going on would put out something else, and the cuts may only be out of reach.
                raise RunError(
                    f"{what}. It belongs to the consistent region '{self._recovery.plan.region}', and is not begun "
                    f"afresh. Take the run up with its store, {self._recovery.durable.url}, as it was (is its disk "
                    "mounted?), or start a new run"
                )
            tell("state lost", operator=self._element, message=what)
            self._recovery.replace(newest, {}, gone=True)
            return
        restored, rows = self._recovery.clock(), 0
        for batch in range(base + 1, newest.batch + 1):
            answers = compute(records[batch])
            reach("computed-again", batch, self._element)
            rows += sum(a.activity[e.name].tuples_in for a in answers for e in self._recovery.plan.entries)
            records[batch] = self._put_on_record(records[batch], answers)
            if (batch - base) % _COLLECT_EVERY == 0:
                self._collect(records, base, batch)
        now = self._recovery.clock()
        count = newest.batch - base
        if count:
            tell("computed again", element=self._element, batches=count, tuples=rows, seconds=now - restored)
        tell("state restored", element=self._element, seconds=now - began, host_lost=True)

    def _is_intact(self, record: BatchRecord) -> bool:
        return all(self._recovery.site.has_page(name) for name in state_pages(record))

    def _wanting(self, record: BatchRecord) -> bool:
        """Say whether results of a batch are gone that a sink or channel is still to get."""
        site = self._recovery.site
        return any(
            not site.has_result(page)
            for name, outputs in record.outputs.items()
            if not self._had(name, record.batch)
            for output in outputs
            for page in output.pages
        )

    def _from_cut(
        self, records: Mapping[int, BatchRecord], batches: Sequence[int], base: int | None
    ) -> int | None:
        """Bring back the state of a cut at one of some batches, if there is one; return the batch to go on from."""
        if not self._recovery.plan.protected or self._recovery.durable.never_made:
            return base
        # Only to read: a store that is not there, because nothing is mounted, must not be taken for an empty one.
        store = self._recovery.durable.open(self._element, readonly=True)
        try:
            cuts = self._cuts(store)
            found = (b for b in batches if b in cuts and self._bring_back(records, b, cuts[b], store))
            return next(found, base)
        finally:
            store.close()

    def _cuts(self, store: Store) -> dict[int, dict[str, int]]:
        """Return the batches of which all operators are saved, with the version of each."""
        saved: dict[int, dict[str, int]] = {}
        for operator in self._recovery.plan.protected:
            versions = self._recovery.durable.versions(store, operator)
            for number in versions.numbers():
                saved.setdefault(versions.manifest(number).batch, {})[operator] = number
        whole = len(self._recovery.plan.protected)
        return {batch: versions for batch, versions in saved.items() if len(versions) == whole}

    def _bring_back(
        self, records: Mapping[int, BatchRecord], batch: int, versions: Mapping[str, int], store: Store
    ) -> bool:
        newest, found = records[max(records)], dict[str, Restored]()
        for number, (operator, version) in enumerate(versions.items()):
            restored = self._recovery.restore(operator, records[batch], version, store)
            reach("restore-read", number, self._element)
            if restored is None:
                # It is said why; the cut before it may do.
                return False
            found[operator] = restored
        pages: dict[str, tuple[str, ...]] = {}
        for number, (operator, restored) in enumerate(found.items()):
            pages |= self._recovery.put(operator, restored, records[batch])
            reach("restore-paged", number, self._element)
            self._recovery.tell_restored(operator, restored, newest)
        self._recovery.replace(records[batch], pages, gone=True)
        reach("restore-recorded", batch, self._element)
        return True

    def _collect(self, records: Mapping[int, BatchRecord], base: int, batch: int) -> None:
        """Remove pages that are of no more use: of what is computed again there is as much as there is input."""
        site = self._recovery.site
        wanted = records[batch].pages()
        for number in range(base, batch):
            for name, outputs in records[number].outputs.items():
                if not self._had(name, number):
                    wanted.update(*(output.pages for output in outputs))
        site.collect(lambda: wanted, before=page_prefix(epoch=site.ledger.epoch, batch=batch))

    def _put_on_record(self, record: BatchRecord, answers: Sequence[Answer]) -> BatchRecord:
        """Let a record say what was computed, and tell if it is not what it had."""
        for name, before in record.outputs.items():
            now = [answer.outputs[name] for answer in answers if name in answer.outputs]
            if _differ(before, now):
                self._recovery.tell(
                    "results differ",
                    element=self._element,
                    operator=name,
                    batch=record.batch,
                    message=f"batch {record.batch} of '{name}' came out otherwise when it was computed again: an "
                    "operator before it is not deterministic, and results from this batch on may not count exactly "
                    "once. Take it out of the region with protect=rr.autonomous(), or make it deterministic",
                )
        outputs = {
            name: tuple(a.outputs[name] for a in sorted(answers, key=lambda a: a.task) if name in a.outputs)
            for name in record.outputs
        }
        manifests = tuple(sorted((a.manifest for a in answers), key=lambda m: m.buckets))
        record = replace(record, manifests=manifests, outputs=outputs)
        self._recovery.site.ledger.write(record)
        return record


def _differ(before: Sequence[Output], now: Sequence[Output]) -> bool:
    if any(output.digest is None for output in (*before, *now)):
        # Of a version that kept none, or pages that are gone with what they had.
        return False
    return _sum(before) != _sum(now)


def _sum(outputs: Sequence[Output]) -> tuple[int, int]:
    """Return rows and digest of a batch's results, however they were dealt out to tasks."""
    return sum(o.rows for o in outputs), sum(o.digest or 0 for o in outputs) % 2**64
