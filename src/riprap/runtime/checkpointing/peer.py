"""How a replica comes back: with the state of another that is ahead, as of a batch of that one's record.

    peer (a)    ... | 40 | 41 | 42 | 43 |          its results up to 42 are in its log
    own  (b)    ... | 31 |                          died here, or lost its memory
                          '-> 32: state of a after 42, input on record up to where that one had read

Pages are immutable: on one host they are linked, not copied. The record that is made is what computing all of that
input in one batch would have made; its results are not made again, since the peer's log has them. So the
replica's own log begins anew behind them, before the record is written: whoever dies in between does all of it again.
"""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from riprap.adapters.retrying import Tell
from riprap.channels.folder import scan
from riprap.channels.replicas import newest_log
from riprap.compiler import Plan
from riprap.errors import MissingPageError
from riprap.graph.replicas import WayBack, copy_name, split_copy_name
from riprap.runtime.backlog import results_gone
from riprap.runtime.checkpointing.recovery import state_pages
from riprap.runtime.crash import reach
from riprap.runtime.delivery import Delivery
from riprap.runtime.inlets import Inlets
from riprap.runtime.outflow import Outflow
from riprap.runtime.site import Site
from riprap.state.ledger import BatchRecord, Manifest, page_name

# A peer that goes on collects pages while they are linked; its newest record has others by then.
_TRIES = 5
# The active replica, of which the others come back if nobody has anything, restores its checkpoints in that time.
_WAIT_SECONDS = 60.0
_LOOK_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Peer:
    """Another replica's copy of an element: its name, its places, and its folder in the run's."""

    element: str
    site: Site
    home: Path

    def newest(self) -> BatchRecord | None:
        """Return the newest batch whose results are in its log, None if there is none."""
        handed = Delivery(self.home).batch
        batches = [batch for batch in self.site.ledger.batches() if 0 <= batch <= handed]
        return self.site.ledger.find(batches[-1]) if batches else None


def peers_of(
    plan: Plan, letters: tuple[str, ...], site_of: Callable[[str], Site], elements: Path
) -> list[Peer]:
    """Return the copies of an element that other replicas have."""
    assert plan.replica is not None
    name = split_copy_name(plan.name)[0]
    others = [copy_name(name, letter) for letter in letters if letter != plan.replica]
    # Who has not begun has nothing to give.
    return [
        Peer(other, site_of(other), elements / other)
        for other in others
        if (elements / other / "ledger").exists()
    ]


def forget_unused_logs(plan: Plan, run: Path, site: Site) -> None:
    """Remove logs that were begun for a record that was never written: their process died in between."""
    assert plan.replica is not None
    newest = max(site.ledger.batches(), default=-1)
    for channel in {c.name: c for leaving in plan.outlets.values() for c in leaving}.values():
        log = newest_log(run / "channels" / channel.name, plan.replica)
        segments = scan(log.folder)
        if log.number and (not segments or segments[0].batch > newest):
            shutil.rmtree(log.folder)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturningReplica:
    """A replica's copy of an element on its way back."""

    plan: Plan
    run: Path
    site: Site
    home: Path
    outlets: Mapping[str, Outflow]
    back: WayBack
    clock: Callable[[], float]
    tell: Tell
    # Of one that must not lose anything: whether it can compute again by itself what is gone.
    can_compute_again: Callable[[], bool] = lambda: False

    def take_from(self, peers: list[Peer], *, active: bool) -> None:
        """Take the state of the peer that is most ahead, if that is better than what there is.

        Who is ``active`` and has nothing to go on from begins by itself; the others wait for it.
        """
        own = self._own()
        if not active:
            self._await(peers, own)
        for _ in range(_TRIES):
            ahead = self._most_ahead(peers, own)
            if ahead is None:
                return
            peer, record = ahead
            if own is not None and _frontier(record) < _frontier(own):
                # What it has read once more must be kept for it, before anybody who is ahead of that lets go of it.
                for stream in self.plan.inlets:
                    Inlets(self.plan, self.run).reader(stream).withdraw(_frontier(record))
                peer, record = self._most_ahead(peers, own) or ahead
            began = time.monotonic()
            try:
                manifests = () if self.back == "empty" else self._linked(peer, record, self._next(own))
            except MissingPageError:
                continue
            self._put_on_record(own, record, manifests)
            self.tell(
                "state taken",
                element=self.plan.name,
                peer=peer.element,
                batch=self._next(own),
                frontier=record.frontier,
                behind=None if own is None else _frontier(record) - _frontier(own),
                seconds=round(time.monotonic() - began, 6),
            )
            return

    def _await(self, peers: list[Peer], own: BatchRecord | None) -> None:
        """Wait a while for a peer that is whole, where there is nothing else to go on from."""
        deadline = time.monotonic() + _WAIT_SECONDS
        alone = own is not None and self._is_sound(own) and self._can_go_on(own)
        lost = not (self._can_begin() if own is None else alone or self._computes_again())
        while lost and peers and time.monotonic() < deadline:
            newest = [(peer, record) for peer in peers if (record := peer.newest()) is not None]
            if any(_is_whole(peer.site, record) for peer, record in newest):
                return
            time.sleep(_LOOK_SECONDS)

    def _can_begin(self) -> bool:
        """Say whether all input since the beginning is there."""
        return Inlets(self.plan, self.run).has_all_since({})

    def _is_sound(self, own: BatchRecord) -> bool:
        """Say whether its state is there, and all results that its logs may lack."""
        handed, ledger = Delivery(self.home).batch, self.site.ledger
        waiting = (ledger.get(batch) for batch in ledger.batches() if batch > handed)
        return _is_whole(self.site, own) and not any(results_gone(self.site, record) for record in waiting)

    def _computes_again(self) -> bool:
        """Say whether it can compute again by itself what is gone."""
        return self.plan.replays and self.can_compute_again()

    def _own(self) -> BatchRecord | None:
        batches = self.site.ledger.batches()
        return self.site.ledger.get(batches[-1]) if batches and batches[-1] >= 0 else None

    def _next(self, own: BatchRecord | None) -> int:
        return 0 if own is None else own.batch + 1

    def _most_ahead(self, peers: list[Peer], own: BatchRecord | None) -> tuple[Peer, BatchRecord] | None:
        """Choose a peer, None if the replica's own state will do."""
        newest = [(peer, record) for peer in peers if (record := peer.newest()) is not None]
        # One may have lost its memory.
        sound = [each for each in newest if self.back == "empty" or _is_whole(each[0].site, each[1])]
        if not sound:
            return None
        peer, record = max(sound, key=lambda each: _frontier(each[1]))
        if own is None or _frontier(record) > _frontier(own):
            own_will_do = own is not None and self.back == "own" and self._can_go_on(own)
            return None if own_will_do else (peer, record)
        # One that is not ahead is worth it only to who has lost something, and cannot compute it again by itself.
        return None if self._is_sound(own) or self._computes_again() else (peer, record)

    def _can_go_on(self, own: BatchRecord) -> bool:
        """Say whether its state is there, and all input since: for one that was out none is kept."""
        done = {name: end for name, (_, end) in own.sources.items()}
        return Inlets(self.plan, self.run).has_all_since(done) and _is_whole(self.site, own)

    def _linked(self, peer: Peer, record: BatchRecord, batch: int) -> tuple[Manifest, ...]:
        attempt, epoch = f"peer{uuid.uuid4().hex[:8]}", self.site.ledger.epoch
        names: dict[str, str] = {}
        for slot, name in dict.fromkeys(
            (s, p) for m in record.manifests for s, pages in m.pages.items() for p in pages
        ):
            if name not in names:
                new = page_name(epoch=epoch, batch=batch, attempt=f"{attempt}-{len(names)}", slot=slot)
                self.site.take_page(new, peer.site, name)
                names[name] = new
        return tuple(
            replace(m, pages={slot: tuple(names[p] for p in pages) for slot, pages in m.pages.items()})
            for m in record.manifests
        )

    def _put_on_record(
        self, own: BatchRecord | None, record: BatchRecord, manifests: tuple[Manifest, ...]
    ) -> None:
        batch, ledger = self._next(own), self.site.ledger
        ends: dict[str, Any] = {name: end for name, (_, end) in record.sources.items()}
        before = {} if own is None else {name: end for name, (_, end) in own.sources.items()}
        made = BatchRecord(
            epoch=ledger.epoch,
            batch=batch,
            sources={name: (before.get(name), end) for name, end in ends.items()},
            manifests=manifests or (Manifest((0, self.plan.buckets), {}),),
            outputs={},
            frontier=record.frontier,
            time=self.clock(),
        )
        reach("peer-read", batch, self.plan.name)
        for outflow in self.outlets.values():
            outflow.begin_again(made)
        reach("peer-logs", batch, self.plan.name)
        ledger.write(made)
        reach("peer-recorded", batch, self.plan.name)
        delivery = Delivery(self.home)
        delivery.note(batch)
        delivery.close()


def was_taken(record: BatchRecord) -> bool:
    """Say whether a record is of a state that was taken from another: nothing was put out with it."""
    return record.batch >= 0 and not record.outputs


def _is_whole(site: Site, record: BatchRecord) -> bool:
    """Say whether all pages of a batch's state are there."""
    return all(site.has_page(name) for name in state_pages(record))


def _frontier(record: BatchRecord) -> int:
    assert record.frontier is not None
    return record.frontier
