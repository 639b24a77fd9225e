"""Replicas that put out something else are found while they run, by the thread that compares their logs."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import riprap as rr
from riprap.channels import ChannelWriter
from riprap.channels.notes import COMPARED, Notes
from riprap.channels.replicas import newest_log
from riprap.compiler import ChannelPlan, Layout, compile_graph
from riprap.runtime.divergence import AGAIN_SECONDS, Divergence

ROWS = [{"k": n % 3, "v": n} for n in range(10)]


def layout_of(failover: Any = "exact") -> Layout:
    """Lay out an application whose sums have two replicas."""
    app = rr.Application("watched")
    source = app.source("source", rr.rows(ROWS, "k bigint, v bigint"))
    sums = app.aggregate("sums", source, by="k", window=rr.sliding(tuples=3), select="sum(v) as s")
    app.sink("out", sums, rr.memory())
    app.replicate("hot", sums, failover=failover)
    return compile_graph(app.graph(), buckets=2, tasks=1)


class Written:
    """The logs that replicas write in the channel they leave by."""

    def __init__(self, run: Path, layout: Layout) -> None:
        self.channel: ChannelPlan = next(c for c in layout.channels if c.group == "hot")
        self._folder = run / "channels" / self.channel.name
        self._writers = {letter: self._open(letter) for letter in "ab"}

    def _open(self, letter: str) -> ChannelWriter:
        channel = self.channel
        return ChannelWriter(
            newest_log(self._folder, letter).folder,
            stream=channel.stream,
            schema=channel.schema,
            tags=channel.tags,
            key=channel.key,
            buckets=channel.buckets,
            readers=channel.readers,
            notes=self._folder,
        )

    def put(self, letter: str, value: int = 1, count: int = 1) -> None:
        """Append batches of a row each."""
        writer, channel = self._writers[letter], self.channel
        for _ in range(count):
            number = writer.batch + 1
            row = dict.fromkeys(channel.schema.names, value)
            tags = {f"${n}": number if n == 0 else 0 for n in range(channel.tags)}
            fields = [*channel.schema, *((name, pa.int64()) for name in tags)]
            batch = pa.RecordBatch.from_pylist([{**row, **tags}], schema=pa.schema(fields))
            writer.append(number, batch, None, frontier=number, sources={})

    @property
    def noted(self) -> int | None:
        return Notes.find(self._folder, COMPARED).acknowledged


class Events(list[dict[str, Any]]):
    """What is told, by kind."""

    def tell(self, kind: str, **details: Any) -> None:
        self.append({"event": kind, **details})

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self if event["event"] == kind]


def wait_until(done: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 30
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.fixture
def started(tmp_path: Path) -> Iterator[tuple[Divergence, Written, Events]]:
    events, layout = Events(), layout_of()
    divergence = Divergence(tmp_path, layout, events.tell)
    written = Written(tmp_path, layout)
    divergence.start()
    yield divergence, written, events
    divergence.stop()


def test_a_difference_is_told_within_a_second(started: tuple[Divergence, Written, Events]) -> None:
    divergence, written, events = started
    for letter in "ab":
        written.put(letter, count=20)
    wait_until(lambda: divergence.counts.rows == 40)
    assert not events
    written.put("a", 1)
    written.put("b", 3)
    began = time.monotonic()
    wait_until(lambda: events)
    assert time.monotonic() - began < 1.0

    divergence.stop()
    (event,) = events.of("replicas differ")
    assert (event["group"], event["stream"], event["replicas"], event["wrong"]) == (
        "hot",
        "sums",
        ["a", "b"],
        [],
    )
    assert (event["upto"], event["counts"]) == (20, {"a": 1, "b": 1})
    assert (event["tuples"]["a"][0]["s"], event["tuples"]["b"][0]["s"]) == (1, 3)
    (ended,) = events.of("replicas compared")
    assert (ended["rows"], ended["differences"], ended["missed"]) == (42, 1, 0)
    assert 0 < ended["seconds"] == pytest.approx(divergence.seconds, abs=0.001)
    assert written.noted is None, "nothing is kept for it any more"


def test_what_is_left_is_compared_at_the_end(started: tuple[Divergence, Written, Events]) -> None:
    divergence, written, events = started
    for letter in "ab":
        written.put(letter, count=5)
    written.put("a", 1)
    written.put("b", 2)
    divergence.stop()
    assert len(events.of("replicas differ")) == 1
    assert divergence.counts.rows == 12
    assert divergence.lag == 0.0


def test_what_goes_on_to_differ_is_told_now_and_then(tmp_path: Path) -> None:
    events, layout, now = Events(), layout_of(), 0.0
    divergence = Divergence(tmp_path, layout, events.tell, clock=lambda: now)
    written = Written(tmp_path, layout)
    for _ in range(4):
        written.put("a", 1)
        written.put("b", 2)
        divergence.look()
    now = AGAIN_SECONDS
    written.put("a", 1)
    written.put("b", 2)
    divergence.look()
    assert [(event["upto"], event["further"]) for event in events] == [(0, 0), (4, 3)]


def test_replicas_that_may_differ_are_not_compared(tmp_path: Path) -> None:
    divergence = Divergence(tmp_path, layout_of("plain"), Events().tell)
    assert not divergence.needed
    divergence.start()
    divergence.stop()


def test_a_run_goes_on_when_its_replicas_cannot_be_compared(
    started: tuple[Divergence, Written, Events], tmp_path: Path
) -> None:
    _, written, events = started
    (tmp_path / "switches").mkdir()
    (tmp_path / "switches" / "hot.json").write_text("nonsense")
    written.put("a")
    wait_until(lambda: events)
    assert [event["event"] for event in events] == ["replicas not compared"]
    assert "hot.json is damaged" in events[0]["message"]


def test_it_needs_no_spark() -> None:
    program = "import sys, riprap.runtime.divergence; assert 'pyspark' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
