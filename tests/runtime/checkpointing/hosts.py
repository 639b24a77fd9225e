"""An application on a host that can be lost, without Spark: the tasks, checkpoints and recovery as they are, the rest
in the test's hands: batches, time, when a checkpoint is due, whether the store answers, and who dies when."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.stages import Element, Stage

import riprap as rr
from riprap.compiler import Plan, compile_graph, describe_state
from riprap.errors import StoreError
from riprap.operators.sink import Sink
from riprap.operators.source import Source
from riprap.runtime.agent.handle import what_came
from riprap.runtime.checkpointing import durable as durables
from riprap.runtime.checkpointing import recovery
from riprap.runtime.checkpointing.checkpointer import Checkpointer
from riprap.runtime.checkpointing.durable import Durable
from riprap.runtime.checkpointing.protection import ElementProtection
from riprap.runtime.checkpointing.recovery import Recovery
from riprap.runtime.checkpointing.schedule import FreshPage
from riprap.runtime.retention import Retention
from riprap.runtime.task import Answer
from riprap.state.checkpoints.versions import Versions
from riprap.state.ledger import BatchRecord
from riprap.state.stores import Store, open_store
from riprap.testing import forget_instances


class Killed(BaseException):
    """A process dies here: nothing catches it."""


@dataclass
class World:
    """What is outside of the application: the time, how many more requests the store answers (None: all), and the step
    at which the process dies (and how often it passes there before)."""

    now: float = 1000.0
    answers: int | None = None
    dies_at: str | None = None
    passes: int = 0

    def clock(self) -> float:
        return self.now

    def reach(self, step: str, number: int, name: str) -> None:
        if step == self.dies_at:
            self.passes -= 1
            if self.passes < 0:
                self.dies_at = None
                raise Killed(f"{step} of {name}")

    def request(self) -> None:
        if self.answers is not None:
            if not self.answers:
                raise StoreError("the store is away")
            self.answers -= 1


class FaultyStore:
    """A store that answers as long as the world lets it."""

    def __init__(self, store: Store, world: World) -> None:
        self.url = store.url
        self._store = store
        self._world = world

    def put(self, entry: str, values: Mapping[str, Any]) -> None:
        self._world.request()
        self._store.put(entry, values)

    def get(self, entry: str, key: str) -> pa.Buffer:
        self._world.request()
        return self._store.get(entry, key)

    def keys(self, entry: str) -> list[str]:
        self._world.request()
        return self._store.keys(entry)

    def damage(self, entry: str) -> list[str]:
        return self._store.damage(entry)

    def delete(self, entry: str, keys: Iterable[str]) -> None:
        self._world.request()
        self._store.delete(entry, keys)

    def entries(self) -> list[str]:
        return self._store.entries()

    def drop(self, entry: str) -> None:
        self._store.drop(entry)

    def close(self) -> None:
        self._store.close()


@dataclass(frozen=True)
class FaultyDurable(Durable):
    """Checkpoints in a faulty store."""

    world: World = field(default_factory=World)

    def open(self, element: str, *, readonly: bool = False) -> Store:
        return FaultyStore(open_store(self.url), self.world)


class Host(Element):
    """A processing element that was just started: what was gone is restored."""

    def __init__(
        self,
        plan: Plan,
        folder: Path,
        graph: rr.Graph,
        durable: FaultyDurable,
        tell: Callable[..., None],
        start: int,
    ) -> None:
        super().__init__(plan, folder, graph)
        self._durable = durable
        layouts = describe_state(graph)
        Recovery(
            plan=plan,
            site=self._site,
            durable=durable,
            layouts=layouts,
            run_folder=folder,
            home=folder,
            start=start,
            clock=durable.world.clock,
            tell=tell,
        ).run()
        self.record = self._site.ledger.get(self._site.ledger.batches()[-1])
        self.protection = ElementProtection.of(plan, self._site, durable, layouts, home=folder)
        self.checkpointer = Checkpointer(
            self.protection, self.record, clock=durable.world.clock, tell=tell, turn=threading.Lock()
        )

    def now(self) -> float:
        return self._durable.world.now

    def note(self, answers: Sequence[Answer]) -> None:
        """Do what the agent does after a batch."""
        came = what_came(self.protection, answers)
        waiting = self.record.batch + 1
        fresh = [FreshPage(*page) for page in came["fresh"]]
        self.checkpointer.note(self.record, fresh, came["entered"], waiting)
        Retention(self._site).collect(
            self.record, waiting, again=self.checkpointer.oldest_batch, holding=self.checkpointer.holding
        )

    def save(self, operator: str) -> None:
        """Let an operator's checkpoint be due."""
        self.checkpointer._save([self.checkpointer._operators[operator]])


class Fleet(Stage):
    """An application whose process can die, and whose host can be lost."""

    def __init__(self, app: rr.Application, folder: Path, world: World, *, buckets: int) -> None:
        self.graph = app.graph()
        self._folder = folder
        self._buckets = buckets
        self._sources = {s.name: s for s in self.graph.of_kind(Source)}
        self._sinks = {s.name: s for s in self.graph.of_kind(Sink)}
        self._starts = 0
        self._store = open_store(folder / "store")
        self.world = world
        self.durable = FaultyDurable(str(folder / "store"), "app", world=world)
        self.events: list[dict[str, Any]] = []
        self.elements: dict[str, Element] = {}
        self.hosts: dict[str, Host] = {}
        self.tasks = 1
        for plan in self.plans():
            self.start(plan)

    def plans(self) -> tuple[Plan, ...]:
        """Compile the application for as many tasks as there are now."""
        return compile_graph(self.graph, buckets=self._buckets, tasks=self.tasks).plans

    def start(self, plan: Plan) -> None:
        """Start an element's process anew."""
        forget_instances()
        self._starts += 1
        home = self._folder / plan.name
        host = Host(plan, home, self.graph, self.durable, self._tell, self._starts)
        self.elements[plan.name] = self.hosts[plan.name] = host

    def run(self, tables: Mapping[str, pa.Table]) -> dict[str, list[dict[str, Any]]]:
        """Run a batch."""
        return self.feed(tables, tasks=self.tasks)

    def record_of(self, element: str) -> BatchRecord:
        """Return the newest record of an element."""
        ledger = self.hosts[element]._site.ledger
        return ledger.get(ledger.batches()[-1])

    def lacks(self, element: str) -> bool:
        """Say whether pages of an element's state are gone."""
        pages = {p for m in self.record_of(element).manifests for names in m.pages.values() for p in names}
        return any(not self.hosts[element].pages.size(page) for page in pages)

    def wipe(self, element: str) -> None:
        """Lose an element's pages."""
        for page in Path(self.hosts[element].pages.folder).iterdir():
            page.unlink()

    def versions(self, operator: str) -> Versions:
        """Return what is in the store, by a way that always answers."""
        return Versions(self._store, self.durable.entry(operator))

    def put(self, operator: str, key: str, data: bytes) -> None:
        """Put something else where a value or manifest was."""
        self._store.put(self.durable.entry(operator), {key: data})

    def remove(self, operator: str, key: str) -> None:
        """Remove a value or manifest."""
        self._store.delete(self.durable.entry(operator), [key])

    def read(self, operator: str, key: str) -> bytes:
        """Return a value or manifest as it is."""
        return self._store.get(self.durable.entry(operator), key).to_pybytes()

    def told(self, kind: str) -> list[dict[str, Any]]:
        """Return what was told of some kind, and forget it."""
        found = [e for e in self.events if e["event"] == kind]
        self.events = [e for e in self.events if e["event"] != kind]
        return found

    def remove_all(self) -> None:
        """Remove what is on disk."""
        self._store.close()
        shutil.rmtree(self._folder)

    def _tell(self, kind: str, **details: Any) -> None:
        self.events.append({"event": kind, **details})


def mortal(patch: pytest.MonkeyPatch, world: World) -> None:
    """Let processes die where the world says so."""
    patch.setattr(durables, "reach", world.reach)
    patch.setattr(recovery, "reach", world.reach)
