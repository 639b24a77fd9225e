"""How an element comes back whose operator records its open windows: from its own output log.

    log            ... | 40 | 41 | 42 | 43 | 44 |        has the results of these, and a record of each open window
    oldest record        40                              the state of its windows is put in place after this batch
    computed again            41   42   43   44 | 45     what is in the log already is not put out again

The log is read backwards until all windows are found. A window comes into the state with the batch of its record, and
what it had until then is left out (`riprap.stage.recording`): so results of batches in the log are not whole, and are
not compared. Those of later batches, which are on record and not in the log, are what they were. Who dies on the way
begins anew: what there is of state in between is not whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from riprap.runtime.checkpointing.recollection import Recollection, recollect, sizes_of
from riprap.runtime.checkpointing.recovery import FRESH, Recovery, read_wishes
from riprap.runtime.checkpointing.roll_forward import RollForward
from riprap.runtime.crash import reach
from riprap.runtime.outflow import Outflow
from riprap.runtime.task import Answer
from riprap.runtime.window_log import WindowLog
from riprap.stage.batch import clock_page
from riprap.stage.plan import clock_slot
from riprap.stage.recording import RecordOrder, recollected
from riprap.state.ledger import BatchRecord, page_name

_NAME = "recollection"


class FromLog(RollForward):
    """Brings an element back from the log of its ``outflow``."""

    def __init__(self, recovery: Recovery, had: Callable[[str, int], bool], outflow: Outflow) -> None:
        super().__init__(recovery, had)
        assert outflow.windows is not None
        self._windows: WindowLog = outflow.windows
        self._outflow = outflow
        # Results of batches up to this one are not whole when they are computed again.
        self._partial = -1

    def come_back(self, compute: Callable[[BatchRecord, RecordOrder], Sequence[Answer]]) -> int:
        """Bring back what is gone, and let the account of the windows go on from what is in the log.

        Return up to which batch whose results are gone readers have had them.
        """
        recovery = self._recovery
        batches = recovery.site.ledger.batches()
        if not batches:
            return -1
        records = {batch: recovery.site.ledger.get(batch) for batch in batches}
        newest = records[batches[-1]]
        if FRESH in read_wishes(recovery.home).values():
            self._windows.begin_afresh(newest.batch)
        began, found = recovery.clock(), self._recollect()
        intact = self._is_intact(newest) and newest.batch < self._first_wanting(records, {})
        if not intact:
            reach("windows-read", found.base, self._element)
            if found.base not in self._usable(batches):
                what = f"what '{self._element}' read from batch {found.base + 1} on is not kept any more"
                self._lose_state(newest, f"{what}: its tuples are lost", "its channels as they were")
                found = self._recollect()
                self._windows.take_up(found, self._sizes())
                return found.batch
            order = self._load(records, found)
            self._partial = found.batch
            self._go_on(records, found.base, lambda record: compute(record, order))
            recovery.tell(
                "state restored", element=self._element, seconds=recovery.clock() - began, host_lost=True
            )
        self._windows.take_up(found, self._sizes())
        return found.batch

    def _recollect(self) -> Recollection:
        name = self._recovery.plan.recorded
        assert name is not None
        return recollect(
            self._outflow.log,
            upto=self._outflow.published,
            after=self._windows.after,
            tell=self._recovery.tell,
            operator=name.name,
        )

    def _sizes(self) -> dict[int, tuple[int, int]]:
        return sizes_of(self._outflow.log, after=self._windows.after, upto=self._outflow.published)

    def _load(self, records: dict[int, BatchRecord], found: Recollection) -> RecordOrder:
        """Put the windows that were found into host memory, and those with the oldest record into the state."""
        recovery, plan, base = self._recovery, self._recovery.plan, records[found.base]
        assert plan.recorded is not None
        pages = dict(recollected(plan, found.page, found.base)) if found.page is not None else {}
        if found.clock is not None and plan.recorded.clock is not None:
            pages[clock_slot(plan.recorded.clock)] = clock_page(plan, found.clock)
        named = {
            slot: recovery.site.pages.write(self._page_name(base, f"{number}", slot), page)
            for number, (slot, page) in enumerate(pages.items())
        }
        order = RecordOrder()
        if found.page is not None:
            # Of no batch that any is computed after: it stays until all is computed again.
            name = recovery.site.pages.write(self._page_name(records[max(records)], "all", _NAME), found.page)
            self._holding = frozenset({name})
            order = RecordOrder(recollection=name)
        recovery.replace(base, {slot: (name,) for slot, name in named.items()}, gone=True)
        reach("windows-loaded", found.base, self._element)
        recovery.tell(
            "restored from its log",
            operator=plan.recorded.name,
            batch=found.batch,
            base=found.base,
            behind=max(records) - found.base,
            windows=sum(found.live.values()),
            size=0 if found.page is None else found.page.nbytes,
        )
        return order

    def _page_name(self, record: BatchRecord, part: str, slot: str) -> str:
        return page_name(
            epoch=record.epoch,
            batch=record.batch,
            attempt=f"{self._recovery.start}.restored.{part}",
            slot=slot,
        )

    def _is_whole(self, batch: int) -> bool:
        return batch > self._partial

    def _lose_state(self, newest: BatchRecord, what: str, source: str) -> None:
        if self._recovery.plan.region is None:
            # First: records of windows that are gone must not be taken for those of new ones.
            self._windows.begin_afresh(newest.batch)
        super()._lose_state(newest, what, source)
