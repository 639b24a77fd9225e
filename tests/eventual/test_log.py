"""The account of windows in an output log: what is due, what may go, and what is found in files that are damaged."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.eventual.simulated import SimulatedElement, plan_of
from tests.eventual.test_mechanism import KINDS, random_batches

from riprap.channels import ChannelReader, ChannelWriter
from riprap.channels.folder import list_segments
from riprap.protection import WindowTerms
from riprap.runtime.checkpointing.recollection import recollect, sizes_of
from riprap.runtime.window_log import WindowLog
from riprap.stage.recording import RecordOrder

SCHEMA = pa.schema([("n", pa.int64())])


class Clock:
    """A clock that a second passes on with each look."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


class Recorded:
    """An operator whose log is in files, as a run has it."""

    def __init__(self, folder: Path, kind: str, terms: WindowTerms) -> None:
        self.told: list[dict[str, Any]] = []
        self.terms = terms
        self.home = folder / "home"
        self.home.mkdir()
        self.log = folder / "log"
        self.element = SimulatedElement(plan_of(KINDS[kind]()))
        self.windows = self._windows()
        self.reader = ChannelReader(self.log, "reader")
        self.writer = self._writer()

    def _windows(self) -> WindowLog:
        return WindowLog(self.terms, self.home, self._tell, operator="sums", clock=Clock())

    def _writer(self) -> ChannelWriter:
        return ChannelWriter(
            self.log, stream="s", schema=SCHEMA, tags=1, key=None, buckets=1, readers=("reader",), mends=True
        )

    def _tell(self, kind: str, **details: Any) -> None:
        self.told.append({"kind": kind, **details})

    def run(self, rows: dict[str, Any], tasks: int = 1) -> RecordOrder:
        """Compute a batch with what is due, and put it into the log; return what was due."""
        batch = len(self.element.log)
        order = self.windows.due(batch)
        self.element.run(rows, tasks=tasks, order=order)
        self._put(batch)
        return order

    def _put(self, batch: int) -> None:
        segment, read = self.element.log[batch], len(self.element.input[batch][0]["source"])
        results = len(segment.outputs)
        opened = self.windows.count(batch, segment.controls, results, read)
        windows = {"read": read, **({} if opened is None else {"open": opened})}
        if opened is not None:
            assert opened == segment.open
        tuples = pa.record_batch(
            {"n": pa.array(np.arange(results)), "$0": pa.array(np.full(results, batch, np.int64))}
        )
        self.writer.append(
            batch, tuples, None, frontier=batch, sources={}, controls=segment.controls, windows=windows
        )
        self.windows.noted(batch)
        self.reader.acknowledge(batch)
        self.writer.trim(wanted=self.windows.kept)

    def take_up(self, *, upto: int | None = None) -> int:
        """Lose all memory, come back from the log, and go on; return up to which batch the log was of use."""
        self.windows, self.writer = self._windows(), self._writer()
        found = recollect(
            self.log, upto=self.writer.batch, after=self.windows.after, tell=self._tell, operator="sums"
        )
        lost = SimulatedElement(self.element.plan, log=list(self.element.log), input=list(self.element.input))
        lost.come_back(found)
        assert lost.contents() == self.element.contents()
        self.element = lost
        self.windows.take_up(found, sizes_of(self.log, after=self.windows.after, upto=10**6))
        # What was set aside is put into the log again.
        for batch in range(self.writer.batch + 1, len(self.element.log)):
            self._put(batch)
        return found.batch


def streams(seed: int, batches: int) -> Iterator[dict[str, Any]]:
    chance = random.Random(seed)
    for batch in random_batches(chance, keys=12, batches=batches):
        yield {"source": batch["source"], "other": batch["other"]}


@pytest.mark.parametrize("kind", ["tumbling", "sliding", "functor", "join"])
@pytest.mark.parametrize("seed", range(2))
def test_whoever_comes_back_again_and_again_goes_on(tmp_path: Path, kind: str, seed: int) -> None:
    recorded = Recorded(tmp_path, kind, WindowTerms(extent=30, replay=40))
    kept = -1
    for number, rows in enumerate(streams(seed, 30)):
        recorded.run(rows, tasks=1 + number % 3)
        if number % 7 == 6:
            assert recorded.take_up() == number
        elif recorded.windows.kept >= 0:
            assert recorded.windows.kept >= kept
            kept = recorded.windows.kept
            assert kept <= recorded.windows.oldest
    assert [name.batch for name in list_segments(recorded.log)][-1] == 29
    assert not [each for each in recorded.told if "damaged" in each.get("message", "")]


@pytest.mark.parametrize("kind", ["tumbling", "sliding", "functor", "join"])
@pytest.mark.parametrize("seed", range(4))
def test_a_flipped_bit_costs_time_and_nothing_else(tmp_path: Path, kind: str, seed: int) -> None:
    chance = random.Random(f"{kind}, {seed}")
    recorded = Recorded(tmp_path, kind, WindowTerms(extent=30, replay=40))
    batches = list(streams(seed, 26))
    for rows in batches[:20]:
        recorded.run(rows)
    beyond = [name for name in list_segments(recorded.log) if name.batch >= recorded.windows.oldest]
    name = chance.choice(beyond)
    (file,) = recorded.log.rglob(name.file)
    data = bytearray(file.read_bytes())
    if chance.random() < 0.3:
        del data[chance.randrange(len(data)) :]
    else:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    file.write_bytes(data)

    found = recorded.take_up()

    assert name.batch - 1 <= found <= 19
    orders = [recorded.run(rows) for rows in batches[20:]]
    if found < 19 and list_segments(recorded.log)[-1].batch > 19:
        # What was recorded in segments that are not read any more is recorded anew, once.
        assert [order.most > 10**6 for order in orders].count(True) <= 1
    assert recorded.take_up() == 25


def test_bounds_are_kept_as_far_as_windows_allow(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path, "tumbling", WindowTerms(extent=40, share=1.0))
    most = 0
    for rows in streams(5, 40):
        recorded.run(rows)
        most = max(most, recorded.windows.status["extent"])
    # A batch may add to it before anything can be done about it.
    assert most <= 40 + 25
    assert recorded.windows.status["records"]["check"] > 0
    (tmp_path / "free").mkdir()
    free, unbounded = Recorded(tmp_path / "free", "tumbling", WindowTerms(extent=10**6)), 0
    for rows in streams(5, 40):
        free.run(rows)
        unbounded = max(unbounded, free.windows.status["extent"])
    assert free.windows.status["records"]["check"] == 0
    assert unbounded > most


def test_what_cannot_be_kept_is_told_once(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path, "sliding", WindowTerms(extent=2, share=1.0))
    for rows in streams(6, 30):
        recorded.run(rows)
    (told,) = recorded.told
    assert "12 open windows" in told["message"] or "open windows, each with a record" in told["message"]


def test_without_a_bound_what_is_worth_it_is_recorded_anew(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path, "functor", WindowTerms(share=1.0))
    for rows in streams(7, 30):
        before = recorded.windows.status["extent"]
        recorded.run(rows)
        assert recorded.windows.status["extent"] <= max(before, 2 * 12) + 25
    assert recorded.take_up() == 29


def test_nothing_open_and_no_log_at_all(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path, "a window of one tuple", WindowTerms())
    assert recorded.take_up() == -1
    for rows in streams(8, 5):
        recorded.run(rows)
    assert recorded.windows.open == 0
    assert recorded.windows.status["records"] == dict.fromkeys(("open", "again", "check", "closed"), 0)
    assert recorded.take_up() == 4


def test_who_begins_afresh_has_none_of_the_windows_before(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path, "sliding", WindowTerms())
    for rows in streams(9, 8):
        recorded.run(rows)
    assert recorded.windows.open
    recorded.windows.begin_afresh(7)
    found = recollect(
        recorded.log, upto=7, after=recorded.windows.after, tell=recorded._tell, operator="sums"
    )
    assert (found.batch, found.page) == (7, None)
    assert recorded._windows().after == 7
