"""Schedules of batches, checkpoints, crashes and faults at random, against the policy as a plain model has it."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest
from hypothesis import Phase, given, note, settings
from hypothesis import strategies as st
from tests.runtime.checkpointing.calls import BUCKETS, KEYS, PROTECTED, Call, Plainly, books, in_memory
from tests.runtime.checkpointing.hosts import Fleet, Killed, World, mortal
from tests.runtime.checkpointing.policy import Expected

from riprap.compiler import Plan
from riprap.errors import StoreError
from riprap.state.checkpoints.groups import Table
from riprap.state.checkpoints.manifest import manifest_key
from riprap.state.pages import page_root

KEEP = 2
OPERATORS = sorted(PROTECTED)
BEFORE_VERSION = ["values", "between", "manifest"]
AFTER_VERSION = ["versioned", "collecting"]
RESTORING = ["restore-read", "restore-paged", "restore-recorded"]


class Batch(NamedTuple):
    """Tuples come, and are on record some seconds later."""

    calls: list[Call]
    seconds: float


class Save(NamedTuple):
    """An operator's checkpoint is due; the store answers so many requests more (None: all)."""

    operator: str
    answers: int | None


class DieSaving(NamedTuple):
    """The process dies at a step of an operator's checkpoint."""

    operator: str
    step: str
    wiped: bool


class Harm(NamedTuple):
    """A manifest, or a value, of an operator is damaged: which one, and how."""

    operator: str
    how: str
    pick: int


class Restart(NamedTuple):
    """The process dies, perhaps with the host, and again while it restores; the store may be away."""

    wiped: bool
    tasks: int
    harms: list[Harm]
    dies_at: str | None
    passes: int
    wiped_again: bool
    away: bool


def schedule_of(seed: int) -> list[object]:
    """Draw the steps of a schedule."""
    luck = random.Random(seed)
    steps: list[object] = []

    def call() -> Call:
        return Call(luck.choice(KEYS[: luck.randint(1, len(KEYS))]), luck.randrange(10), luck.random() < 0.5)

    def harm() -> Harm:
        return Harm(luck.choice(OPERATORS), luck.choice(["broken", "gone", "damaged"]), luck.randrange(6))

    for _ in range(luck.randint(10, 35)):
        kind = luck.choices(["batch", "save", "save all", "die saving", "restart"], [8, 3, 4, 2, 3])[0]
        if kind == "batch":
            calls = [call() for _ in range(luck.choice([0, 1, 3, 8, 20]))]
            steps.append(Batch(calls, luck.choice([0.5, 1.0, 2.0, 3.5])))
        elif kind == "save":
            steps.append(Save(luck.choice(OPERATORS), luck.choice([None, luck.randrange(5)])))
        elif kind == "save all":
            steps += [Save(operator, None) for operator in OPERATORS]
        elif kind == "die saving":
            step = luck.choice([*BEFORE_VERSION, *AFTER_VERSION])
            # Only a join has two slots to be between.
            operator = "pairs" if step == "between" else luck.choice(OPERATORS)
            steps.append(DieSaving(operator, f"checkpoint-{step}", luck.random() < 0.5))
        else:
            steps.append(
                Restart(
                    wiped=luck.random() < 0.7,
                    tasks=luck.randint(1, 3),
                    harms=[harm() for _ in range(luck.choice([0, 0, 1, 2, 4]))],
                    dies_at=luck.choice([None, None, *RESTORING]),
                    passes=luck.randrange(3),
                    wiped_again=luck.random() < 0.5,
                    away=luck.random() < 0.2,
                )
            )
    return steps


SEEN: Counter[str] = Counter()
EVENTS = [
    "saved",
    "save failed",
    *(f"died at checkpoint-{step}" for step in [*BEFORE_VERSION, *AFTER_VERSION]),
    "restored",
    "with stale tuples",
    "with stale tuples of a first version",
    "with damage",
    "from an older version",
    "died restoring",
    "store away at restart",
]


class Schedule:
    """Carries steps out on an application and on the model."""

    def __init__(self, folder: Path) -> None:
        self.world = World()
        self.fleet = Fleet(in_memory(KEEP), folder, self.world, buckets=BUCKETS)
        self.plainly = Plainly()
        self.books = books()
        self.harm: dict[str, dict[str, str]] = {operator: {} for operator in OPERATORS}
        # What each operator's process has saved so far.
        self.saved: dict[str, set[str]] = {operator: set() for operator in OPERATORS}

    def take(self, step: object) -> None:
        if isinstance(step, Batch):
            self.batch(step)
        elif isinstance(step, Save):
            self.save(step)
        elif isinstance(step, DieSaving):
            self.die_saving(step)
        elif isinstance(step, Restart):
            self.restart(step)

    def batch(self, step: Batch) -> None:
        self.world.now += step.seconds
        table = self.plainly.table(step.calls)
        expected = self.plainly.feed(step.calls, self.world.now)
        for operator, book in self.books.items():
            book.batch(self.world.now, self.plainly.slots[operator])
        assert self.fleet.run({"source": table}) == expected

    def save(self, step: Save) -> None:
        before = self.fleet.versions(step.operator).numbers()
        self.world.answers = step.answers
        self._host(step.operator).save(step.operator)
        self.world.answers = None
        failed = self.fleet.told("checkpoint failed")
        if failed:
            # It may have failed after the manifest was stored, and before anybody knew: never here, where a request
            # that is not answered changes nothing.
            assert self.fleet.versions(step.operator).numbers() == before
            assert step.answers is not None or failed[0]["error"] == "CorruptValueError"
            SEEN["save failed"] += 1
            return
        if self._note(step.operator, before) and step.answers is None:
            assert len(self.fleet.versions(step.operator).numbers()) <= KEEP

    def die_saving(self, step: DieSaving) -> None:
        before = self.fleet.versions(step.operator).numbers()
        self.world.dies_at = step.step
        try:
            self._host(step.operator).save(step.operator)
        except Killed:
            made = self.fleet.versions(step.operator).numbers()[:1] > before[:1]
            assert made == (step.step.removeprefix("checkpoint-") in AFTER_VERSION)
            SEEN[f"died at {step.step}"] += 1
        self.world.dies_at = None
        self._note(step.operator, before)
        self.restart(Restart(step.wiped, self.fleet.tasks, [], None, 0, False, False))

    def restart(self, step: Restart) -> None:
        for harm in step.harms:
            self._damage(harm)
        self.fleet.tasks = step.tasks
        for plan in self.fleet.plans():
            if step.wiped:
                self.fleet.wipe(plan.name)
            if step.away and self.fleet.lacks(plan.name) and plan.protected:
                record, self.world.answers = self.fleet.record_of(plan.name), 0
                with pytest.raises(StoreError):
                    self.fleet.start(plan)
                assert self.fleet.record_of(plan.name) == record, (
                    "nothing is taken for lost that may be there"
                )
                self.world.answers, self.fleet.events = None, []
                SEEN["store away at restart"] += 1
            self.world.dies_at, self.world.passes = step.dies_at, step.passes
            self._start(plan, step)
            self.world.dies_at = None

    def _start(self, plan: Plan, step: Restart) -> None:
        gone, before = self.fleet.lacks(plan.name), self.fleet.record_of(plan.name)
        expected = self._expect(plan, before.time) if gone else {}
        for operator in plan.protected:
            self.saved[operator] = set()
        try:
            self.fleet.start(plan)
        except Killed:
            SEEN["died restoring"] += 1
            if self.fleet.record_of(plan.name) != before:
                self._check(expected)
            self.fleet.events = []
            if step.wiped_again:
                self.fleet.wipe(plan.name)
            self._start(plan, step)
            return
        self._check(expected)

    def _expect(self, plan: Plan, lost_until: float) -> dict[str, Expected | None]:
        there = {o: self.fleet.versions(o).numbers() for o in plan.protected}
        found = {o: self.books[o].expect(there[o], self.harm[o], lost_until) for o in plan.protected}
        return {o.name: found.get(o.name) for o in plan.graph if o.stateful}

    def _check(self, expected: dict[str, Expected | None]) -> None:
        """Compare what was told of a restore with what was expected, and let the model go on from there."""
        told = {e["operator"]: e for e in self.fleet.told("restored")}
        lost = {e["operator"] for e in self.fleet.told("state lost")}
        assert lost == {operator for operator, found in expected.items() if found is None}
        assert told.keys() == expected.keys() - lost
        for operator, found in expected.items():
            if found is None:
                self.plainly.forget(operator)
                continue
            self.plainly.slots[operator] = found.slots
            names = ("version", "batch", "tuples", "damaged", "stale")
            assert {n: told[operator][n] for n in names} == {n: getattr(found, n) for n in names}
            SEEN["restored"] += 1
            SEEN["with stale tuples"] += found.stale > 0
            values = self.books[operator].versions[found.version].manifest.values.values()
            SEEN["with stale tuples of a first version"] += found.stale > 0 and any(v.over for v in values)
            SEEN["with damage"] += found.damaged > 0
            SEEN["from an older version"] += found.version < max(self.books[operator].versions)

    def _host(self, operator: str):  # type: ignore[no-untyped-def]
        return next(h for h in self.fleet.hosts.values() if operator in h.plan.protected)

    def _note(self, operator: str, before: list[int]) -> bool:
        """Take note of a version, if one was made; these were there before."""
        versions, book = self.fleet.versions(operator), self.books[operator]
        newest = next(iter(versions.numbers()), 0)
        if not newest or newest in book.versions:
            return False
        manifest = versions.manifest(newest)
        book.add(manifest, self.plainly.slots[operator], before, self.harm[operator])
        assert manifest.batch == self._host(operator).record.batch
        for name in manifest.values.keys() - self.saved[operator]:
            # It was written just now, whatever was there under that name.
            self.harm[operator].pop(name, None)
        self.saved[operator] = set(manifest.values)
        SEEN["saved"] += 1
        return True

    def _damage(self, harm: Harm) -> None:
        """Damage what there is, the newest first, and note it."""
        versions, known = self.fleet.versions(harm.operator), self.harm[harm.operator]
        numbers = [n for n in versions.numbers() if manifest_key(n) not in known]
        if not numbers:
            return
        newest = versions.manifest(numbers[harm.pick % len(numbers)])
        if harm.how == "broken":
            key = newest.key
            self.fleet.put(
                harm.operator, key, self._flip(self.fleet.read(harm.operator, key), harm.pick * 37)
            )
        else:
            values = [s for s in newest.values.values() if s.name not in known]
            if not values:
                return
            saved = values[harm.pick % len(values)]
            key = saved.name
            if harm.how == "gone":
                self.fleet.remove(harm.operator, key)
            else:
                data = self.fleet.read(harm.operator, key)
                table = Table.read(pa.py_buffer(data), saved.name, saved.groups)
                assert table is not None
                (block,) = table.groups
                place = block.offset + harm.pick * 11 % block.length
                self.fleet.put(harm.operator, key, self._flip(data, place))
        known[key] = harm.how

    @staticmethod
    def _flip(data: bytes, place: int) -> bytes:
        place %= len(data)
        return data[:place] + bytes([data[place] ^ 64]) + data[place + 1 :]


@settings(
    max_examples=100, deadline=None, derandomize=True, database=None, phases=[Phase.explicit, Phase.generate]
)
@given(seed=st.integers(0, 2**32 - 1))
def test_any_schedule_is_as_the_policy_says(seed: int) -> None:
    everything = Batch([Call(key, 1, calls) for key in KEYS for calls in (True, False)], 1.0)
    with tempfile.TemporaryDirectory(dir=page_root().parent) as folder, pytest.MonkeyPatch.context() as patch:
        schedule = Schedule(Path(folder))
        mortal(patch, schedule.world)
        for step in [everything, *schedule_of(seed), everything]:
            note(str(step))
            schedule.take(step)


def test_the_schedules_had_it_all() -> None:
    """What never happened was not tested."""
    if not SEEN:
        pytest.skip("the schedules were not run")
    assert min(SEEN[what] for what in EVENTS) >= 5, SEEN
