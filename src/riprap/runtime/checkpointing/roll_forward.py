"""How an element comes back that must not lose anything: from a cut, by computing the recorded batches again.

    records        ... | 40 | 41 | 42 | 43 | 44 |        state, or results that are still to be published, are gone
    newest cut           40                              its values are durable, and its results published
    computed again            41   42   43   44          from the input that each has on record, as large as it was

A batch computed again has the number it had, and so the tags; its results are those that it had, which their digests
confirm. So nothing is rolled back: who had them goes on, and who had not gets them now. Where memory is as it was,
there is nothing to do; who dies on the way begins where it was. Somebody may have chosen an older cut to begin with.

A replica that was out has no input of that time, and says of it on one record what another's state had come of
(:mod:`riprap.runtime.checkpointing.peer`). A cut from before that is of no use to it, unless the input is there by
chance.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from riprap.errors import CorruptValueError, FormatError, RunError
from riprap.runtime.checkpointing.chosen_cut import chosen_cut, forget_choice
from riprap.runtime.checkpointing.recovery import FRESH, Recovery, read_wishes, state_pages
from riprap.runtime.crash import reach
from riprap.runtime.inlets import Inlets, replicas_of
from riprap.runtime.offsets import ACTIVE
from riprap.runtime.task import Answer
from riprap.state.checkpoints.restoring import Restored
from riprap.state.ledger import BatchRecord, Output, page_prefix
from riprap.state.stores import Store


class RollForward:
    """Brings an element to where it was. ``had`` says whether a sink or channel has had a batch for good."""

    def __init__(self, recovery: Recovery, had: Callable[[str, int], bool]) -> None:
        self._recovery = recovery
        self._had = had
        self._element = recovery.plan.name
        # Pages that stay until all is computed again.
        self._holding: frozenset[str] = frozenset()

    def run(self, compute: Callable[[BatchRecord], Sequence[Answer]]) -> int:
        """Bring back what is gone; ``compute`` takes a batch again, from the record before it.

        Return up to which batch whose results are gone sinks have had them, -1 if that is not known.
        """
        recovery = self._recovery
        batches = recovery.site.ledger.batches()
        if not batches:
            return -1
        records = {batch: recovery.site.ledger.get(batch) for batch in batches}
        newest = records[batches[-1]]
        with self._opened() as store:
            cuts = self._cuts(store) if store is not None else {}
            wanting = self._first_wanting(records, cuts)
            usable, chosen = self._computable(records), self._chosen()
            intact = [batch for batch in usable if self._is_intact(records[batch])]
            if chosen is None and newest.batch in intact and newest.batch < wanting:
                return -1
            began = recovery.clock()
            if chosen is not None:
                base = self._base(records, [], cuts, [b for b in usable if b == chosen], store)
                self._check_chosen(chosen, base)
            else:
                base = self._base(records, intact, cuts, [b for b in usable if b < wanting], store)
            if base is None and not recovery.plan.holds:
                # If results are gone that nothing can make again, at least the state need not be.
                base = self._base(records, intact, cuts, usable, store)
        if base is None:
            what = f"what '{self._element}' read is not kept any more from its newest cut on: its tuples are lost"
            self._lose_state(
                newest, what, f"its store, {recovery.durable.url}, as it was (is its disk mounted?)"
            )
            return -1
        self._go_on(records, base, compute)
        if chosen is not None:
            self._forget_cuts(base)
        forget_choice(recovery.home)
        seconds = recovery.clock() - began
        recovery.tell("state restored", element=self._element, seconds=seconds, host_lost=True)
        # What was noted of that may have gone with the power.
        return min(base, wanting - 1)

    def can_run(self) -> bool:
        """Say whether there is a batch whose state is there, or saved, and all input since; nothing is changed."""
        batches = self._recovery.site.ledger.batches()
        records = {batch: self._recovery.site.ledger.get(batch) for batch in batches}
        if not records:
            return True
        done = {name: end for name, (_, end) in records[batches[-1]].sources.items()}
        with self._opened() as store:
            cuts = self._cuts(store) if store is not None else {}
            based = any(
                batch in cuts or self._is_intact(records[batch]) for batch in self._computable(records)
            )
        return based and Inlets(self._recovery.plan, self._recovery.run_folder).has_all_since(done)

    def _computable(self, records: Mapping[int, BatchRecord]) -> list[int]:
        """Return the usable batches after which all on record can be computed again, the newest first."""
        computable, newest = list[int](), max(records)
        for batch in self._usable(list(records)):
            if batch < newest and not self._has_input(records[batch + 1]):
                break
            computable.append(batch)
        return computable

    def _has_input(self, record: BatchRecord) -> bool:
        _, active = record.sources.get(ACTIVE, ({}, {}))
        inlets = Inlets(self._recovery.plan, self._recovery.run_folder, replicas_of(active))
        return inlets.has(record.sources)

    def _lose_state(self, newest: BatchRecord, what: str, source: str) -> None:
        """Begin afresh after a batch, and say why; in a region that is an error."""
        recovery = self._recovery
        if recovery.plan.region is not None:
            # Going on would put out something else, and the cuts may only be out of reach.
            raise RunError(
                f"{what}. It belongs to the consistent region '{recovery.plan.region}', and is not begun "
                f"afresh. Take the run up with {source}, or start a new run"
            )
        recovery.tell("state lost", operator=self._element, message=what)
        recovery.replace(newest, {}, gone=True)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[Store | None]:
        """Open what saves the element, if there is anything."""
        if not self._recovery.plan.protected or self._recovery.durable.never_made:
            yield None
            return
        # Only to read: a store that is not there, because nothing is mounted, must not be taken for an empty one.
        with contextlib.closing(self._recovery.durable.open(self._element, readonly=True)) as store:
            yield store

    def _chosen(self) -> int | None:
        """Return the batch of the cut that somebody has chosen to go on from, None if nobody has."""
        return chosen_cut(self._recovery.home)

    def _check_chosen(self, chosen: int, base: int | None) -> None:
        if base is None:
            raise RunError(
                f"the cut of '{self._element}' after batch {chosen}, which was chosen, cannot be used: it is not in "
                f"{self._recovery.durable.url}, or what came after it is not kept any more. Choose another with "
                "'riprap reset RUN REGION --cut N', or none with '--cut newest'"
            )

    def _usable(self, batches: Sequence[int]) -> list[int]:
        """Return the batches on record after which none is missing, the newest first."""
        return _unbroken(batches)

    def _go_on(
        self,
        records: dict[int, BatchRecord],
        base: int,
        compute: Callable[[BatchRecord], Sequence[Answer]],
    ) -> None:
        """Compute the batches after one again, whose state is there."""
        newest = max(records)
        began, rows = self._recovery.clock(), 0
        # Its state may have been brought back.
        records[base] = self._recovery.site.ledger.get(base)
        # While batches are computed again nobody is given any: what is owed is worked out once.
        owed = {number: self._owed(record) for number, record in records.items()}
        # What attempts that came to nothing have left, too: there must be room for what comes.
        self._collect(records[base], owed, before=newest + 2)
        for batch in range(base + 1, newest + 1):
            answers = compute(records[batch])
            reach("computed-again", batch, self._element)
            rows += sum(a.activity[e.name].tuples_in for a in answers for e in self._recovery.plan.entries)
            records[batch] = self._put_on_record(records[batch], answers)
            owed[batch] = self._owed(records[batch])
            self._collect(records[batch], owed, before=batch)
        seconds = self._recovery.clock() - began
        self._recovery.tell(
            "computed again", element=self._element, batches=newest - base, tuples=rows, seconds=seconds
        )

    def _is_intact(self, record: BatchRecord) -> bool:
        return all(self._recovery.site.has_page(name) for name in state_pages(record))

    def _first_wanting(self, records: Mapping[int, BatchRecord], cuts: Mapping[int, object]) -> int:
        """Return the first batch of which results are gone that a sink or channel is still to get."""
        # A cut that another follows is complete, whatever else says how far sinks have come.
        complete = sorted(cuts)[-2] if len(cuts) > 1 else -1
        wanting = (batch for batch in sorted(records) if batch > complete and self._wants(records[batch]))
        return next(wanting, max(records) + 1)

    def _wants(self, record: BatchRecord) -> bool:
        site = self._recovery.site
        return any(
            not site.has_result(page)
            for name, outputs in record.outputs.items()
            if not self._had(name, record.batch)
            for output in outputs
            if output.rows or output.punctuations or output.control
            for page in output.pages
        )

    def _base(
        self,
        records: Mapping[int, BatchRecord],
        intact: Sequence[int],
        cuts: Mapping[int, Mapping[str, int]],
        usable: Sequence[int],
        store: Store | None,
    ) -> int | None:
        """Return the newest usable batch whose state is there, or can be brought back from a cut."""
        for batch in usable:
            if batch in intact:
                return batch
            if store is not None and batch in cuts and self._bring_back(records, batch, cuts[batch], store):
                return batch
        return None

    def _cuts(self, store: Store) -> dict[int, dict[str, int]]:
        """Return the batches of which all operators are saved, with the version of each.

        Those that are to start afresh are not asked for.
        """
        wishes = read_wishes(self._recovery.home)
        asked = [operator for operator in self._recovery.plan.protected if wishes.get(operator) != FRESH]
        saved = {o: self._recovery.durable.versions(store, o).by_batch() for o in asked}
        batches = set.intersection(*map(set, saved.values())) if saved else set()
        return {batch: {o: by_batch[batch] for o, by_batch in saved.items()} for batch in batches}

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

    def _forget_cuts(self, after: int) -> None:
        """Remove the cuts of batches after one: what came of those then need not be what comes of them now."""
        durable = self._recovery.durable
        if not self._recovery.plan.protected or durable.never_made:
            return
        with contextlib.closing(durable.open(self._element)) as store:
            for operator in self._recovery.plan.protected:
                versions = durable.versions(store, operator)
                for number in versions.numbers():
                    with contextlib.suppress(CorruptValueError, FormatError):
                        if versions.manifest(number).batch > after:
                            versions.drop(number)

    def _is_whole(self, batch: int) -> bool:
        """Say whether the results of a batch are all there when it is computed again."""
        return True

    def _owed(self, record: BatchRecord) -> set[str]:
        """Return the pages of results that a sink or channel is still to get."""
        outputs = (o for name, o in record.outputs.items() if not self._had(name, record.batch))
        return {page for each in outputs for output in each for page in output.pages}

    def _collect(self, record: BatchRecord, owed: Mapping[int, set[str]], *, before: int) -> None:
        """Remove the pages of batches before one that neither a batch's state nor a sink is in need of."""
        site, wanted = self._recovery.site, record.pages().union(self._holding, *owed.values())
        site.collect(lambda: wanted, before=page_prefix(epoch=site.ledger.epoch, batch=before))

    def _put_on_record(self, record: BatchRecord, answers: Sequence[Answer]) -> BatchRecord:
        """Let a record say what was computed, and tell if it is not what it had."""
        manifests = tuple(sorted((a.manifest for a in answers), key=lambda m: m.buckets))
        # Digests are of what each task put out.
        alike = [m.buckets for m in record.manifests] == [m.buckets for m in manifests]
        for name, before in record.outputs.items() if alike and self._is_whole(record.batch) else ():
            now = [answer.outputs[name] for answer in answers if name in answer.outputs]
            if _differ(before, now):
                self._recovery.tell(
                    "results differ",
                    element=self._element,
                    operator=name,
                    batch=record.batch,
                    message=f"batch {record.batch} of '{name}' came out otherwise when it was computed again: an "
                    "operator before it is not deterministic, and results from this batch on may not count exactly "
                    "once. Let it say deterministic=False, and its results are held until they cannot come out "
                    "otherwise; or take it out of the region with protect=rr.autonomous()",
                )
        outputs = {
            name: tuple(a.outputs[name] for a in sorted(answers, key=lambda a: a.task) if name in a.outputs)
            for name in record.outputs
        }
        record = replace(record, manifests=manifests, outputs=outputs)
        self._recovery.site.ledger.write(record)
        return record


def can_roll_forward(recovery: Recovery) -> bool:
    """Say whether an element that must not lose anything can compute again what is gone, by itself."""
    return RollForward(recovery, lambda name, batch: True).can_run()


def _unbroken(batches: Sequence[int]) -> list[int]:
    """Return the batches on record after which none is missing, the newest first.

    >>> _unbroken([3, 6, 7, 8])
    [8, 7, 6]
    """
    newest = batches[-1]
    return [batch for number, batch in enumerate(reversed(batches)) if batch == newest - number]


def _differ(before: Sequence[Output], now: Sequence[Output]) -> bool:
    if any(output.digest is None for output in (*before, *now)):
        # Of a version that kept none.
        return False
    # By whichever task.
    was, came = (sorted((o.rows, o.digest or 0) for o in outputs) for outputs in (before, now))
    return was != came
