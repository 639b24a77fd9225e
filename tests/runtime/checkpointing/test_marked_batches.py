"""Where a start says when a cut is made: which batches are marked, and that what is saved is the state of those."""

from __future__ import annotations

import dataclasses
import random
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.runtime.checkpointing.hosts import Fleet, Host, World
from tests.runtime.checkpointing.leaving import Contents, contents_of

import riprap as rr
from riprap.channels import ChannelWriter
from riprap.compiler import compile_graph
from riprap.compiler.passes import describe_state
from riprap.feeds import listed_feed
from riprap.feeds.listed_feed import ListedFeed
from riprap.operators.source import Source
from riprap.runtime.checkpointing.checkpointer import Checkpointer
from riprap.runtime.checkpointing.schedule import comes_back
from riprap.runtime.inlets import ChannelInflow
from riprap.runtime.task import Answer
from riprap.state.checkpoints.restoring import restore
from riprap.state.ledger import MARK, BatchRecord, Ledger, mark_of
from riprap.state.windows import restrict

SCHEMA = "k string, v bigint"
BY_FILE = rr.consistent(trigger="operator")
BUCKETS = 4


def feed_of(folder: Path, work: Path) -> ListedFeed:
    """Open the files of a folder as lines of CSV with a number each."""
    app = rr.Application("files")
    read = app.source("read", rr.files(f"{folder}/*", format="csv", schema="n bigint"))
    app.sink("out", read, rr.memory())
    (source,) = app.graph().of_kind(Source)
    return ListedFeed(source, work, work / "quarantine", finite=False, by_file=True)


@pytest.mark.parametrize("seed", range(8))
def test_where_files_end_is_known_however_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(listed_feed, "SPOOL_ROWS", 40)
    luck, ends, rows = random.Random(seed), set[int](), 0
    (tmp_path / "in").mkdir()
    for number in range(12):
        good = luck.choice([0, 0, 1, 39, 40, 41, 80, 95])
        lines = [*["1"] * good, *["bad"] * luck.choice([0, 0, 1, 45])]
        if luck.random() < 0.5:
            lines.reverse()
        (tmp_path / "in" / f"{number:02d}.csv").write_text("\n".join(["n", *lines, ""]))
        rows += good
        ends.add(rows)
    feed, at, seen = feed_of(tmp_path / "in", tmp_path / "work"), 0, set[int]()
    while (end := feed.upto(at, luck.choice([1, 17, 40, 60, 200]))) != at:
        assert not any(at < each < end for each in ends), "a batch has rows of two files"
        if feed.ends_file(end):
            seen.add(end)
        if luck.random() < 0.2:
            # Another process goes on with what is on record.
            feed = feed_of(tmp_path / "in", tmp_path / "work")
            feed.find(end)
            assert feed.ends_file(end) == (end in seen)
        at = end
    assert (seen, at) == (ends - {0}, rows)


def two_roots() -> rr.Application:
    """Describe an element that reads the start of a region, and what another made of it and of what is autonomous."""
    app = rr.Application("roots")
    start = app.source("start", rr.files("in/*", format="csv", schema=SCHEMA), protect=BY_FILE)
    other = app.source("other", rr.rows([], SCHEMA))
    met = app.barrier("met", start, other, by="k", select="k, start.v as v")
    both = app.barrier("both", start, met, by="v", select="start.v as v, met.k as k")
    app.sink("out", both, rr.memory())
    return app


@pytest.mark.parametrize("seed", range(8))
def test_streams_of_several_roots_meet_at_each_mark(tmp_path: Path, seed: int) -> None:
    plans = {p.name: p for p in compile_graph(two_roots().graph(), buckets=1, tasks=1).plans}
    (plan,) = (plan for plan in plans.values() if any(o.name == "both" for o in plan.graph))
    assert len(plan.marked) == len(plan.roots) == 2
    luck, marks = random.Random(seed), [100, 200, 300, 400]
    waiting: dict[str, list[int | None]] = {}
    writers: dict[str, tuple[str, ChannelWriter]] = {}
    for stream, channel in plan.inlets.items():
        # Each root has its own batches between marks, and comes by channels that are written on at their own pace.
        waiting[stream] = []
        for mark in marks:
            waiting[stream] += [*[None] * luck.randrange(3), mark]
        waiting[stream] += [None] * luck.randrange(2)
        writers[stream] = channel.root, ChannelWriter(
            tmp_path / "channels" / channel.name, stream=stream, schema=channel.schema, tags=channel.tags,
            key=channel.key, buckets=1, readers=(plan.name,),
        )  # fmt: skip
    assert len({root for root, _ in writers.values()}) == len(writers)
    inflow = ChannelInflow(plan, tmp_path, flush=False, tell=lambda *_, **__: None)
    offset, seen = inflow.initial(), []
    newest = dict.fromkeys(waiting, 0)
    while True:
        streams = [stream for stream, left in waiting.items() if left]
        if streams and luck.random() < 0.6:
            stream = luck.choice(streams)
            mark = waiting[stream].pop(0)
            append(writers[stream][1], newest[stream], newest[stream] if mark is None else mark)
            newest[stream] = newest[stream] if mark is None else mark
            continue
        end = inflow.latest(offset, luck.choice([1, 2, 5]))
        if end == offset and not streams:
            break
        mark = mark_of({MARK: (offset[MARK], end[MARK])})
        if mark is not None:
            seen.append(mark)
            assert set(end[MARK].values()) == {mark}, "one is further than the others"
        offset = end
    assert seen == marks
    assert {root: offset[root] for root in plan.roots} == {r: w.frontier for r, w in writers.values()}


def append(writer: ChannelWriter, before: int, mark: int) -> None:
    """Append a batch of a tuple, with a mark if that is a new one."""
    batch = writer.batch + 1
    fields = writer._channel.fields(writer._channel.schema.names)
    row = {f.name: batch if pa.types.is_integer(f.type) else "a" for f in fields}
    sources = {MARK: [{"start": before}, {"start": mark}]}
    writer.append(batch, pa.RecordBatch.from_pylist([row], fields), None, frontier=batch, sources=sources)


class Marking(Host):
    """Marks batches as the test says."""

    mark = False

    def note(self, answers: Sequence[Answer]) -> None:
        ends = ({"in": self.record.batch}, {"in": self.record.batch + self.mark})
        self.record = dataclasses.replace(self.record, sources={MARK: ends})
        self._site.ledger.write(self.record)
        super().note(answers)


def state_of(host: Host, record: BatchRecord) -> dict[str, Contents]:
    found: dict[str, Contents] = {}
    for manifest in record.manifests:
        for slot, names in manifest.pages.items():
            pages = [restrict(host.pages.read(name), *manifest.buckets, BUCKETS) for name in names]
            found.setdefault(slot, {}).update(contents_of(pages))
    return found


def saved_state(fleet: Fleet, operator: str) -> tuple[int, dict[str, Contents]] | None:
    layout = describe_state(fleet.graph)[operator]
    fail: Any = pytest.fail
    restored = restore(
        fleet.versions(operator), layout=layout, lost_until=None, slides=set(), sealed=False, whole=True,
        version=None, warn=fail, refuse=fail,
    )  # fmt: skip
    if restored is None:
        return None
    return restored.manifest.batch, {slot: contents_of(pages) for slot, pages in restored.slots.items()}


@pytest.mark.parametrize("seed", range(5))
def test_what_is_saved_is_the_state_of_a_marked_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr("tests.runtime.checkpointing.hosts.Host", Marking)
    monkeypatch.setattr("riprap.runtime.checkpointing.merging._MANY_WAIT", 6)
    app = rr.Application("marked")
    read = app.source("read", rr.files("in/*", format="csv", schema=SCHEMA), protect=BY_FILE)
    counted = app.functor(
        "counted", read, by="k", variables={"n": "0L"}, update="n + 1 as n", select="k, v, n"
    )
    sums = app.aggregate(
        "sums", counted, by="k", window=rr.sliding(tuples=4), select="sum(v) as v, last(n) as n"
    )
    app.sink("out", sums, rr.memory())
    fleet, luck = Fleet(app, tmp_path, World(), buckets=BUCKETS), random.Random(seed)
    ((name, host),) = fleet.hosts.items()
    assert isinstance(host, Marking)
    states: dict[int, dict[str, Contents]] = {}
    saved: set[int] = set()
    for _ in range(80):
        fleet.world.now += 1.0
        host.mark = luck.random() < 0.3
        rows = luck.choice([1, 5, 20])
        fleet.run(
            {"read": pa.table({"k": luck.choices("abcdefg", k=rows), "v": luck.choices(range(9), k=rows)})}
        )
        if host.mark:
            states[host.record.batch] = state_of(host, host.record)
        what = luck.random()
        if what < 0.4:
            fleet.world.answers = luck.choice([None, None, None, luck.randrange(8)])
            host.checkpointer._save(host.checkpointer._groups[name])
            fleet.world.answers = None
        elif what < 0.6:
            for operator in host.checkpointer._operators.values():
                host.checkpointer._make_room(operator)
        elif what < 0.66:
            # Another agent takes over.
            host.checkpointer.stop()
            host.checkpointer = Checkpointer(
                host.protection, host.record, clock=host.now, tell=fleet._tell, turn=threading.Lock()
            )
            host.checkpointer.wait_from(host.record.batch + 1)
        for operator in ("counted", "sums"):
            found = saved_state(fleet, operator)
            if found is not None:
                batch, state = found
                assert state == {slot: states[batch][slot] for slot in state}
                saved.add(batch)
    assert len(saved) > 4
    # A stop that asks for it saves things as they are.
    host.checkpointer.stop(save=True)
    now = saved_state(fleet, "sums")
    assert now is not None
    assert now[0] == host.record.batch


@pytest.mark.parametrize(
    ("marked", "unmarked", "cuts", "expected"),
    [
        ([], [], [], True),  # nothing has come in yet
        ([0, 1, 2], [], [], True),  # from the beginning
        ([], [0, 1, 2], [], False),  # the region is new: before it, input was not kept
        ([2, 3], [0, 1], [], False),
        ([4, 5, 6], [], [], False),  # what was before is kept no more
        ([4, 5, 6], [], [4], True),
        ([], [4, 5, 6], [6], True),
        ([6], [4, 5], [5], True),
        ([4], [5, 6], [4], False),
        ([5, 6], [], [3], False),
    ],
)
def test_what_an_element_can_come_back_from(
    tmp_path: Path, marked: list[int], unmarked: list[int], cuts: list[int], expected: bool
) -> None:
    ledger = Ledger(str(tmp_path))
    ledger.begin(BUCKETS)
    for batch in marked:
        ledger.write(BatchRecord(epoch=0, batch=batch, sources={MARK: ({"read": 0}, {"read": 0})}))
    for batch in unmarked:
        ledger.write(BatchRecord(epoch=0, batch=batch))
    assert comes_back(ledger, cuts) == expected
