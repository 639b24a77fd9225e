"""A replica on its way back: with another's state, its own, or none, wherever it dies meanwhile."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import riprap as rr
from riprap.channels import ChannelWriter, ReplicatedReader
from riprap.channels.replicas import begin_log, list_logs
from riprap.compiler import Plan, compile_graph
from riprap.graph.replicas import WayBack
from riprap.operators.channel import Outlet
from riprap.runtime.checkpointing import peer as peer_module
from riprap.runtime.checkpointing.peer import (
    Peer,
    ReturningReplica,
    forget_unused_logs,
    peers_of,
    was_taken,
)
from riprap.runtime.checkpointing.roll_forward import RollForward
from riprap.runtime.delivery import Delivery
from riprap.runtime.outflow import Outflow
from riprap.runtime.retention import Retention
from riprap.runtime.site import Site
from riprap.runtime.switch import Switch
from riprap.state.ledger import BatchRecord, Ledger, Manifest, Output, page_name
from riprap.state.pages import PageStore

LETTERS = ("a", "b", "c")
SLOT = "sums/0"
STATE = pa.schema([("n", pa.int64())])


def plans() -> dict[str, Plan]:
    """Compile a group of one element, of three replicas."""
    app = rr.Application("app")
    feed = app.source("feed", rr.rows([], "k int, v int"))
    sums = app.aggregate("sums", feed, by="k", window=rr.sliding(tuples=2), select="sum(v) as v")
    app.replicate("hot", sums, replicas=3)
    app.sink("out", sums, rr.memory())
    # Read by another key, by another channel.
    counts = app.aggregate("counts", sums, by="v", window=rr.sliding(tuples=2), select="count(*) as n")
    app.place("apart", counts)
    app.sink("more", counts, rr.memory())
    layout = compile_graph(app.graph(), buckets=4, tasks=1)
    return {p.replica: p for p in layout.plans if p.replica is not None}


PLANS = plans()
ROOT = PLANS["a"].root


@dataclass
class Copy:
    """A replica's copy of the element, without Spark: its state after a frontier is the numbers up to there."""

    run: Path
    letter: str
    told: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.plan = PLANS[self.letter]
        self.home.mkdir(parents=True, exist_ok=True)
        self.site = self.site_of(self.plan.name)
        self.site.ledger.begin(self.plan.buckets)
        self.open()

    def open(self) -> None:
        """Open its logs, as a process that starts."""
        forget_unused_logs(self.plan, self.run, self.site)
        self.outlets = {
            o.name: Outflow(
                o, self.plan.outlets[o.ports[0][0]], self.run, self.site.results, replica=self.letter
            )
            for o in self.plan.graph.of_kind(Outlet)
        }

    @property
    def home(self) -> Path:
        return self.run / "elements" / self.plan.name

    def site_of(self, element: str) -> Site:
        memory = self.run / "memory" / element
        memory.mkdir(mode=0o700, parents=True, exist_ok=True)
        stores = [PageStore(str(memory / what)) for what in ("state", "results")]
        for store in stores:
            store.make()
        return Site(
            ledger=Ledger(str(self.run / "elements" / element / "ledger")),
            pages=stores[0],
            results=stores[1],
            key="",
        )

    @property
    def newest(self) -> BatchRecord:
        return self.site.ledger.get(self.site.ledger.batches()[-1])

    @property
    def state(self) -> list[int]:
        """What it has of the numbers, from its newest record."""
        pages = [p for m in self.newest.manifests for pages in m.pages.values() for p in pages]
        return sorted(n for page in pages for n in self.site.find_page(page).column("n").to_pylist())

    def compute(self, upto: int, *, hand_over: bool = True) -> None:
        """Have a batch: a page of the new numbers, which are its results too."""
        before = self.newest
        batch, start = before.batch + 1, -1 if before.frontier is None else before.frontier
        older = {p for m in before.manifests for p in m.pages.get(SLOT, ())}
        kept = sorted(older, reverse=True)
        new = page_name(epoch=0, batch=batch, attempt="t", slot=SLOT)
        self.site.pages.write(new, pa.record_batch([range(start + 1, upto + 1)], schema=STATE))
        (outlet,) = self.plan.graph.of_kind(Outlet)
        tags = [f"${n}" for n in range(next(iter(self.plan.outlets.values()))[0].tags)]
        rows = [
            dict.fromkeys([*outlet.schema.names, *tags], 0) | {"$0": n} for n in range(start + 1, upto + 1)
        ]
        schema = pa.schema([*outlet.schema, *((tag, pa.int64()) for tag in tags)])
        self.site.results.write(f"result-{batch}", pa.RecordBatch.from_pylist(rows, schema=schema))
        record = BatchRecord(
            epoch=0,
            batch=batch,
            sources={ROOT: (None if before.frontier is None else start, upto)},
            manifests=(Manifest((0, self.plan.buckets), {SLOT: (new, *kept)}),),
            outputs={outlet.name: (Output(f"result-{batch}", len(rows)),)},
            frontier=upto,
            time=float(batch),
        )
        self.site.ledger.write(record)
        if hand_over:
            self.hand_over(record)

    def hand_over(self, record: BatchRecord) -> None:
        for outflow in self.outlets.values():
            outflow.publish(record)
        delivery = Delivery(self.home)
        delivery.note(record.batch)
        delivery.close()

    def lose_memory(self) -> None:
        for path in (self.run / "memory" / self.plan.name).rglob("*.page"):
            path.unlink()

    def peers(self) -> list[Peer]:
        return peers_of(self.plan, LETTERS, self.site_of, self.run / "elements")

    def come_back(
        self, back: WayBack = "peer", *, active: bool = True, computes_again: bool | None = None
    ) -> None:
        """Start again, as a process does; ``computes_again`` as one of a region that can do so, or cannot."""
        self.open()
        ReturningReplica(
            plan=replace(self.plan, kept=computes_again is not None),
            can_compute_again=lambda: bool(computes_again),
            run=self.run,
            site=self.site,
            home=self.home,
            outlets=self.outlets,
            back=back,
            clock=lambda: 7.0,
            tell=lambda event, **more: self.told.append({"event": event, **more}),
        ).take_from(self.peers(), active=active)

    def logs(self, channel: int = 0) -> list[tuple[int, int]]:
        """List its logs in one of the two channels: number, and how far each is."""
        home = self.run / "channels" / self.plan.outlets["sums"][channel].name
        return [(log.number, log.frontier) for log in list_logs(home) if log.letter == self.letter]

    def read(self, after: int | None, upto: int) -> list[int]:
        """Read its results as one behind the group does, who prefers it."""
        channel = self.plan.outlets["sums"][0]
        reader = ReplicatedReader(self.run / "channels" / channel.name, channel.readers[0], self.letter)
        return reader.read(after, upto, [])[0].column("$0").to_pylist()


def numbers(first: int, last: int) -> list[int]:
    return list(range(first, last + 1))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    Switch.begun(0.0).save(tmp_path, "hot")
    return tmp_path


@pytest.fixture
def pair(run: Path) -> tuple[Copy, Copy]:
    """Return a, up to 42, and b, which died at 20."""
    a, b = Copy(run, "a"), Copy(run, "b")
    for upto in (10, 20, 42):
        a.compute(upto)
    b.compute(20)
    return a, b


def test_it_takes_the_state_of_one_that_is_ahead(pair: tuple[Copy, Copy]) -> None:
    a, b = pair
    b.come_back()

    record = b.newest
    assert (record.batch, record.frontier, record.time, record.outputs) == (1, 42, 7.0, {})
    assert record.sources == {ROOT: (20, 42)}, "as if it had computed all of it in one batch"
    assert b.state == numbers(0, 42) == a.state
    assert Delivery(b.home).batch == 1
    (told,) = b.told
    assert {**told, "seconds": 0} == {
        "event": "state taken",
        "element": "sums~b",
        "peer": "sums~a",
        "batch": 1,
        "frontier": 42,
        "behind": 22,
        "seconds": 0,
    }
    assert b.logs() == [(0, 20), (1, 42)]
    b.compute(50)
    assert b.read(42, 50) == numbers(43, 50)
    assert b.read(20, 42) == numbers(21, 42), "what lies before is in the other's log"


def test_pages_are_linked_and_outlive_the_other(pair: tuple[Copy, Copy]) -> None:
    a, b = pair
    pages = {p.name: p.stat().st_ino for p in (b.run / "memory" / "sums~a" / "state").glob("*.page")}
    b.come_back()
    taken = {p.stat().st_ino for p in (b.run / "memory" / "sums~b" / "state").glob("*peer*.page")}

    assert taken == set(pages.values())
    assert len(taken) == 3
    a.lose_memory()
    assert b.state == numbers(0, 42)


def test_where_pages_cannot_be_linked_they_are_copied(
    pair: tuple[Copy, Copy], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = pair

    def refused(*_: Any, **__: Any) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refused)
    b.come_back()
    a.lose_memory()

    assert b.state == numbers(0, 42)


def test_one_that_never_began_takes_all(run: Path) -> None:
    a = Copy(run, "a")
    a.compute(10)
    b = Copy(run, "b")
    b.come_back()

    assert (b.newest.batch, b.newest.sources, b.state) == (0, {ROOT: (None, 10)}, numbers(0, 10))
    assert b.told[0]["behind"] is None
    b.compute(15)
    assert b.read(10, 15) == numbers(11, 15)


def test_without_another_it_goes_on_as_it_is(run: Path) -> None:
    b = Copy(run, "b")
    assert b.peers() == []
    b.compute(20)
    b.come_back()
    Copy(run, "a").site.ledger.begin(4)  # has begun, and had no batch
    b.come_back()

    assert (b.newest.batch, b.state, b.told, b.logs()) == (0, numbers(0, 20), [], [(0, 20)])


def test_one_that_is_not_behind_keeps_what_it_has(pair: tuple[Copy, Copy]) -> None:
    a, _ = pair
    a.come_back()

    assert (a.newest.batch, a.told, a.logs()) == (2, [], [(0, 42)])


def test_of_two_as_far_one_may_have_lost_its_memory(pair: tuple[Copy, Copy]) -> None:
    _, b = pair
    b.compute(42)
    b.come_back()
    assert b.told == []
    b.lose_memory()
    b.come_back()

    assert (b.newest.batch, b.newest.frontier, b.state) == (2, 42, numbers(0, 42))
    b.compute(44)
    assert b.read(42, 44) == [43, 44]


def test_the_state_of_one_that_lost_its_memory_is_not_taken(run: Path) -> None:
    a, b, c = (Copy(run, letter) for letter in LETTERS)
    a.compute(42)
    b.compute(20)
    c.compute(30)
    a.lose_memory()
    b.come_back()

    assert b.told[0]["peer"] == "sums~c"
    assert b.state == numbers(0, 30)


def test_only_what_is_in_its_log_is_taken(pair: tuple[Copy, Copy]) -> None:
    a, b = pair
    a.compute(60, hand_over=False)
    b.come_back()

    assert (b.newest.frontier, b.state) == (42, numbers(0, 42))


def test_a_page_that_goes_meanwhile(pair: tuple[Copy, Copy], monkeypatch: pytest.MonkeyPatch) -> None:
    """The other goes on, merges its pages, and removes those that its next record does not name."""
    a, b = pair
    taken: list[str] = []
    take_page = Site.take_page

    def slowly(self: Site, name: str, other: Site, page: str) -> None:
        taken.append(page)
        if len(taken) == 2:
            merged = page_name(epoch=0, batch=3, attempt="t", slot=SLOT)
            a.site.pages.write(merged, pa.record_batch([range(44)], schema=STATE))
            for old in a.newest.pages():
                (Path(a.site.pages.folder) / f"{old}.page").unlink(missing_ok=True)
            record = BatchRecord(
                epoch=0,
                batch=3,
                sources={ROOT: (42, 43)},
                manifests=(Manifest((0, 4), {SLOT: (merged,)}),),
                frontier=43,
            )
            a.site.ledger.write(record)
            a.hand_over(record)
        take_page(self, name, other, page)

    monkeypatch.setattr(Site, "take_page", slowly)
    b.come_back()

    assert (b.newest.frontier, b.state) == (43, numbers(0, 43))
    assert b.logs() == [(0, 20), (1, 43)]
    collected(b)


def collected(copy: Copy) -> None:
    """Let go of what is not needed, and see that no page is left that the record does not name."""
    Retention(copy.site).collect(copy.newest, copy.newest.batch + 1)
    left = {p.stem for p in Path(copy.site.pages.folder).glob("*.page")}
    named = {p for batch in copy.site.ledger.batches() for p in copy.site.ledger.get(batch).pages()}
    assert {name for name in left if "peer" in name} == {name for name in named if "peer" in name}


class Dies(Exception):
    """What a step raises."""


def dying_at(step: str) -> Callable[..., None]:
    def reach(at: str, *_: Any) -> None:
        if at == step:
            raise Dies

    return reach


@pytest.mark.parametrize("step", ["peer-read", "peer-logs", "peer-recorded"])
@pytest.mark.parametrize("times", [1, 3])
def test_one_that_dies_in_between_does_it_again(
    step: str, times: int, pair: tuple[Copy, Copy], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = pair
    monkeypatch.setattr(peer_module, "reach", dying_at(step))
    for n in range(times):
        if step != "peer-recorded" or n == 0:
            with pytest.raises(Dies):
                b.come_back()
        a.compute(43 + n)
    monkeypatch.setattr(peer_module, "reach", lambda *_: None)
    b.come_back()

    reached = 42 + times
    assert (b.newest.frontier, b.state) == (reached, numbers(0, reached))
    # Of logs that were begun and not put on record nothing is left.
    begun = [(1, 42)] if step == "peer-recorded" else []
    assert b.logs() == [(0, 20), *begun, (1 + len(begun), reached)]
    assert all(outlet.published == b.newest.batch for outlet in b.outlets.values()), (
        "nothing is computed or published again"
    )
    b.compute(60)
    assert b.read(reached, 60) == numbers(reached + 1, 60)
    assert b.read(20, 42) == numbers(21, 42)
    collected(b)


def test_who_dies_between_two_channels_begins_both_anew(
    pair: tuple[Copy, Copy], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, b = pair
    begun: list[str] = []

    def once(folder: Path, letter: str, frontier: int) -> Any:
        if begun:
            raise Dies
        begun.append(folder.name)
        return begin_log(folder, letter, frontier)

    with monkeypatch.context() as patch:
        patch.setattr("riprap.runtime.outflow.begin_log", once)
        with pytest.raises(Dies):
            b.come_back()
    b.come_back()

    assert [b.logs(0), b.logs(1)] == [[(0, 20), (1, 42)]] * 2


def test_with_its_own_state_where_that_is_whole(pair: tuple[Copy, Copy]) -> None:
    _, b = pair
    b.come_back("own")
    assert (b.newest.batch, b.told, b.state, b.logs()) == (0, [], numbers(0, 20), [(0, 20)])
    b.lose_memory()
    b.come_back("own")
    assert (b.newest.batch, b.told[0]["peer"], b.state) == (1, "sums~a", numbers(0, 42))


def test_its_own_state_is_no_use_without_the_input_since(pair: tuple[Copy, Copy]) -> None:
    """While it was out, nothing was kept for it."""
    _, b = pair
    (channel,) = b.plan.inlets.values()
    home = b.run / "channels" / channel.name
    writer = ChannelWriter(
        home,
        stream=channel.stream,
        schema=channel.schema,
        tags=channel.tags,
        key=channel.key,
        buckets=channel.buckets,
        readers=channel.readers,
        counts=lambda reader: reader == "sums~a",
    )
    tags = [(f"${n}", pa.int64()) for n in range(channel.tags)]
    for batch, upto in enumerate((20, 30, 42, 50)):
        empty = pa.RecordBatch.from_pylist([], schema=pa.schema([*channel.schema, *tags]))
        writer.append(batch, empty, None, frontier=upto, sources={})
    reading = peer_module.Inlets(PLANS["a"], b.run).reader("feed")
    reading.acknowledge(20)
    writer.trim()
    b.come_back("own")
    assert b.told == [], "all since is there"
    reading.acknowledge(42)
    writer.trim()
    b.come_back("own")

    assert (b.told[0]["peer"], b.state) == ("sums~a", numbers(0, 42))


def test_with_nothing(pair: tuple[Copy, Copy]) -> None:
    a, b = pair
    a.lose_memory()  # nobody's state is needed
    b.come_back("empty")

    assert (b.newest.batch, b.newest.frontier, b.state) == (1, 42, [])
    assert b.newest.manifests == (Manifest((0, 4), {}),)
    assert b.newest.sources == {ROOT: (20, 42)}
    b.compute(50)
    assert b.state == numbers(43, 50)
    assert b.read(42, 50) == numbers(43, 50)


def test_who_has_lost_its_memory_goes_back_to_one_that_is_behind(tmp_path: Path) -> None:
    a, b = Copy(tmp_path, "a"), Copy(tmp_path, "b")
    a.compute(4)
    a.compute(7, hand_over=False)
    b.compute(5)
    a.lose_memory()
    a.come_back()
    assert a.state == numbers(0, 5)
    assert a.newest.sources[ROOT] == (7, 5)
    a.compute(9)
    assert a.state == numbers(0, 9)
    # Its first log ends where its results did, and nobody takes the other for one from the beginning.
    assert a.logs() == [(0, 4), (1, 9)]
    assert a.read(5, 9) == numbers(6, 9)


def test_one_of_a_region_takes_the_state_of_one_that_is_not_ahead_only_if_it_cannot_compute_again(
    pair: tuple[Copy, Copy],
) -> None:
    _, b = pair
    b.compute(42)
    b.lose_memory()
    b.come_back(computes_again=True)
    assert b.told == []
    b.come_back(computes_again=False)
    assert b.told[0]["peer"] == "sums~a"
    assert b.state == numbers(0, 42)


def test_one_of_a_region_that_cannot_compute_again_waits_for_another_that_does(tmp_path: Path) -> None:
    a, b = Copy(tmp_path, "a"), Copy(tmp_path, "b")
    for copy in (a, b):
        copy.compute(4)
    (name,) = a.newest.manifests[0].pages[SLOT]
    saved = a.site.find_page(name)
    for copy in (a, b):
        copy.lose_memory()
    b.come_back(active=False, computes_again=True)
    assert b.told == []
    computing = threading.Timer(0.3, lambda: a.site.pages.write(name, saved))
    computing.start()
    b.come_back(active=False, computes_again=False)
    computing.join()
    assert b.state == numbers(0, 4)


def computable(copy: Copy) -> list[int]:
    """Say from which batches all can be computed again."""
    recovery: Any = SimpleNamespace(plan=copy.plan, site=copy.site, run_folder=copy.run)
    records = {batch: copy.site.ledger.get(batch) for batch in copy.site.ledger.batches()}
    return RollForward(recovery, lambda name, batch: True)._computable(records)


def test_of_batches_from_before_what_it_took_none_will_do_without_their_input(
    pair: tuple[Copy, Copy],
) -> None:
    _, b = pair
    (channel,) = b.plan.inlets.values()
    writer = ChannelWriter(
        b.run / "channels" / channel.name,
        stream=channel.stream,
        schema=channel.schema,
        tags=channel.tags,
        key=channel.key,
        buckets=channel.buckets,
        readers=channel.readers,
        counts=lambda reader: reader == "sums~a",
    )
    tags = [(f"${n}", pa.int64()) for n in range(channel.tags)]
    for batch, upto in enumerate((20, 42, 50)):
        empty = pa.RecordBatch.from_pylist([], schema=pa.schema([*channel.schema, *tags]))
        writer.append(batch, empty, None, frontier=upto, sources={})
    b.come_back()
    b.compute(50)
    assert [was_taken(b.site.ledger.get(batch)) for batch in range(3)] == [False, True, False]
    assert computable(b) == [2, 1, 0, -1], "all input is there"
    peer_module.Inlets(PLANS["a"], b.run).reader("feed").acknowledge(42)
    writer.trim()
    assert computable(b) == [2, 1]


def test_from_before_it_went_back_nothing_is_computed(tmp_path: Path) -> None:
    a, b = Copy(tmp_path, "a"), Copy(tmp_path, "b")
    a.compute(4)
    a.compute(7, hand_over=False)
    b.compute(5)
    a.lose_memory()
    a.come_back()
    a.compute(9)
    assert a.newest.batch == 3
    assert computable(a) == [3, 2]


def test_who_has_nothing_to_go_on_from_waits_for_the_active_one(tmp_path: Path) -> None:
    a, b = Copy(tmp_path, "a"), Copy(tmp_path, "b")
    for copy in (a, b):
        copy.compute(4)
    (name,) = a.newest.manifests[0].pages[SLOT]
    saved = a.site.find_page(name)
    for copy in (a, b):
        copy.lose_memory()
    restoring = threading.Timer(0.3, lambda: a.site.pages.write(name, saved))
    restoring.start()
    b.come_back(active=False)
    restoring.join()
    assert b.state == numbers(0, 4)
    assert [event["event"] for event in b.told] == ["state taken"]
