"""What an element starts from when its run, or the element alone, is started again.

    pages of the last record are all there    nothing is lost: go on from them
    some are gone, or cut short               protected operators come back from their newest usable checkpoint, all
                                              others start afresh; what the record says of state is replaced
    an operator is to be restored by wish     that one alone, from the version that was asked for

Input is not rolled back: what came in between a checkpoint and the crash is lost to the operator's state. Where it is
kept, what is gone is computed again instead (`riprap.runtime.checkpointing.roll_forward`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from riprap.adapters.retrying import Tell
from riprap.compiler import Plan
from riprap.errors import RunError
from riprap.runtime.checkpointing.durable import Durable
from riprap.runtime.crash import reach
from riprap.runtime.site import Site
from riprap.stage.plan import is_clock
from riprap.state.checkpoints.restoring import Restored, restore
from riprap.state.durable_files import load_json, save_json
from riprap.state.ledger import BatchRecord, Manifest, page_name
from riprap.state.stores import Store

WISHES = "restore.json"
FRESH = "fresh"
# Pages are written to host memory by so many threads.
_AT_ONCE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What it takes to bring an element's state back. ``run_folder`` is the run's, ``home`` the element's in it.

    ``start`` counts how often the element was started.
    """

    plan: Plan
    site: Site
    durable: Durable
    layouts: Mapping[str, str]
    run_folder: Path
    home: Path
    start: int
    clock: Callable[[], float]
    tell: Tell

    def run(self) -> None:
        """Bring back what is gone, and put it on record."""
        batches = self.site.ledger.batches()
        if not batches:
            return
        record = self.site.ledger.get(batches[-1])
        wishes = read_wishes(self.home)
        gone = any(not self.site.has_page(name) for name in state_pages(record))
        if record.batch < 0:
            # There is no state yet, so there is nothing to wish for.
            (self.home / WISHES).unlink(missing_ok=True)
        elif gone or wishes:
            self._bring_back(record, wishes, gone=gone)

    def _bring_back(self, record: BatchRecord, wishes: Mapping[str, Any], *, gone: bool) -> None:
        began = self.clock()
        operators = [o.name for o in self.plan.graph if o.stateful]
        if not gone:
            operators = [name for name in operators if name in wishes]
        pages: dict[str, tuple[str, ...]] = {}
        oldest = float("inf")
        # Only to read: a store that is not there, because nothing is mounted, must not be taken for an empty one.
        saved = bool(self.plan.protected) and not self.durable.never_made
        store = self.durable.open(self.plan.name, readonly=True) if saved else None
        try:
            for number, operator in enumerate(operators):
                restored = self._find(operator, record, wishes.get(operator), store, gone=gone)
                reach("restore-read", number, self.plan.name)
                put = self.put(operator, restored, record)
                time = restored.manifest.time if restored is not None else oldest
                for slot, names in put.items():
                    # A clock goes back with nobody's wish; of several times told, the earliest closes no window unseen.
                    if not is_clock(slot) or (gone and time < oldest):
                        pages[slot] = names
                oldest = min(oldest, time)
                reach("restore-paged", number, self.plan.name)
        finally:
            if store is not None:
                store.close()
        self.replace(record, pages, gone=gone)
        reach("restore-recorded", record.batch, self.plan.name)
        (self.home / WISHES).unlink(missing_ok=True)
        self.tell("state restored", element=self.plan.name, seconds=self.clock() - began, host_lost=gone)

    def _find(
        self, operator: str, record: BatchRecord, wish: Any, store: Store | None, *, gone: bool
    ) -> Restored | None:
        """Look for the version an operator comes back from, and say what became of its state."""
        node = self.plan.graph[operator]
        if operator not in self.plan.protected or wish == FRESH:
            policy = (
                "it has no protect= policy"
                if node.protect is None
                else "its protect= policy does not save it"
            )
            why = "as asked for" if wish == FRESH else policy
            self.tell("state lost", operator=operator, message=f"'{operator}' starts afresh: {why}")
            return None
        version = wish if isinstance(wish, int) else None
        restored = self.restore(operator, record, version, store) if store is not None else None
        if restored is None and not gone:
            raise RunError(
                f"'{operator}' is to be restored from version {wish}, which cannot be used; its state is as it was. "
                "'riprap state verify' says what is wrong; 'riprap state restore --cancel' takes the wish back"
            )
        if restored is None:
            self.tell(
                "state lost",
                operator=operator,
                message=f"'{operator}' starts afresh, though it is protected: there is no checkpoint that can be used",
            )
            return None
        self.tell_restored(operator, restored, record)
        return restored

    def tell_restored(self, operator: str, restored: Restored, newest: BatchRecord) -> None:
        """Say which version an operator came back from."""
        manifest = restored.manifest
        self.tell(
            "restored",
            operator=operator,
            version=manifest.version,
            batch=manifest.batch,
            behind=newest.batch - manifest.batch,
            age=self.clock() - manifest.time,
            tuples=restored.tuples,
            stale=restored.stale,
            damaged=restored.damaged,
        )

    def restore(
        self, operator: str, record: BatchRecord, version: int | None, store: Store
    ) -> Restored | None:
        """Read an operator's state in a version, or in the newest that can be used; None if there is none."""
        node = self.plan.graph[operator]

        def warn(text: str) -> None:
            self.tell("warning", what=f"checkpoint of '{operator}'", message=text)

        def refuse(text: str) -> None:
            self.tell("seal refused", operator=operator, message=f"checkpoint of '{operator}': {text}")

        lost_until = self.clock() if self.plan.restart == "live" else record.time
        return restore(
            self.durable.versions(store, operator),
            layout=self.layouts[operator],
            lost_until=None if self.plan.replays else lost_until,
            slides={f"{operator}/{slot}" for slot in node.slides},
            sealed=node.holds_objects,
            # Of an object there is no part: the one before it is better than none.
            whole=self.plan.replays or node.holds_objects,
            version=version,
            warn=warn,
            refuse=refuse,
        )

    def put(
        self, operator: str, restored: Restored | None, record: BatchRecord
    ) -> dict[str, tuple[str, ...]]:
        """Write an operator's pages to host memory, as a record's."""
        put: dict[str, tuple[str, ...]] = {}
        for slot in self.plan.saved_slots(operator):
            pages = restored.slots.get(slot, []) if restored is not None else []
            if is_clock(slot) and not pages:
                continue
            names = [
                page_name(
                    epoch=record.epoch,
                    batch=record.batch,
                    attempt=f"{self.start}.restored.{number}",
                    slot=f"{operator}/{slot}",
                )
                for number in range(len(pages))
            ]
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                put[slot] = tuple(pool.map(self.site.pages.write, names, pages))
        return put

    def replace(self, record: BatchRecord, pages: Mapping[str, tuple[str, ...]], *, gone: bool) -> None:
        """Let a record say what the state is now; the buckets are dealt out to tasks with the next batch."""
        if gone:
            manifests: Iterable[Manifest] = (Manifest((0, self.plan.buckets), pages),)
        else:
            manifests = (Manifest(m.buckets, {**m.pages, **pages}) for m in record.manifests)
        self.site.ledger.write(replace(record, manifests=tuple(manifests)))


def state_pages(record: BatchRecord) -> set[str]:
    """Name the pages of a record's state."""
    return {p for m in record.manifests for pages in m.pages.values() for p in pages}


def read_wishes(home: Path) -> dict[str, Any]:
    """Return which operators are to be restored, by wish: a version, or ``"fresh"``."""
    remedy = "Remove it, or ask again with 'riprap state restore'"
    return load_json(home / WISHES, None, {}, remedy=remedy) or {}


def wish(home: Path, operator: str, what: int | str) -> None:
    """Ask that an operator be restored from a version, or start afresh, when its element starts next."""
    home.mkdir(parents=True, exist_ok=True)
    save_json(home / WISHES, {**read_wishes(home), operator: what})


def cancel_wish(home: Path, operator: str) -> bool:
    """Take back what was asked for an operator; return whether there was anything."""
    wishes = read_wishes(home)
    if wishes.pop(operator, None) is None:
        return False
    save_json(home / WISHES, wishes)
    return True
