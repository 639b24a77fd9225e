"""What is kept how long, once a batch is on record and handed over.

    records                     the newest KEEP_RECORDS, and those from which input may have to be computed again
    pages of state              those of the newest KEEP_RECORDS, and what a checkpoint still has to save
    pages of results            until the sink or channel has them (`waiting`)
    tables of lookups           those of the newest KEEP_RECORDS, and of what may have to be computed again
    rows of sources             until the batch is handed over: a power cut may undo a record until then. Where input is
                                computed again after a loss, until a cut has what came of it (`BatchRunner.settled`)
    segments of channels        until every reader has acknowledged them, which it does for the same two reasons

Records and pages are let go of here; the others by those who own them, when told that a batch is settled
(`ResidentStage._commit`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from riprap.runtime.site import Site
from riprap.state.ledger import BatchRecord, page_prefix

# The record before the newest is what a repeated batch starts from; one more is there for people to look at.
KEEP_RECORDS = 3


def oldest_tables(newest: int) -> int:
    """Return the batch before which tables of lookups may go, once a batch is handed over."""
    return newest - KEEP_RECORDS


class Retention:
    """Lets go of the records and pages of an element that neither a repeated batch nor a waiting sink needs.

    One at a time does so for an element: it knows the ledger, and does not read it again.
    """

    def __init__(self, site: Site) -> None:
        self._site = site
        # Those that name pages of any use, and the numbers of older ones that stay for how far they went.
        self._records: dict[int, BatchRecord] | None = None
        self._old: deque[int] = deque()

    def collect(
        self,
        newest: BatchRecord,
        waiting: int,
        *,
        again: int | None = None,
        holding: Callable[[], set[str]] = set,
    ) -> None:
        """Let go of what is not needed after a batch.

        ``waiting`` is the first batch that a sink may still ask for, ``again`` the oldest after which input may have to
        be computed again. The pages of ``holding`` stay, and so do those of batches after this one, which may be under
        way.
        """
        ledger = self._site.ledger
        if self._records is None:
            self._records = {batch: ledger.get(batch) for batch in ledger.batches() if batch >= 0}
        records = self._records
        records[newest.batch] = newest
        keep: set[str] = set()
        for batch, record in list(records.items()):
            if batch > newest.batch - KEEP_RECORDS:
                keep |= record.pages()
            elif batch >= waiting:
                keep |= {p for outputs in record.outputs.values() for o in outputs for p in o.pages}
            else:
                self._old.append(records.pop(batch).batch)
        while self._old and (again is None or self._old[0] < again):
            ledger.forget([self._old.popleft()])
        self._site.collect(
            lambda: keep | holding(),
            # Of a batch that is being computed, no record names the pages yet.
            before=page_prefix(epoch=ledger.epoch, batch=newest.batch + 1),
        )
