"""The supervisor: starts driver processes, listens to them, and carries out what is decided about failures.

It has no Spark of its own. One thread does everything; others leave wishes (:meth:`Supervisor.stop`) and look.
"""

from __future__ import annotations

import dataclasses
import select
import threading
import time
from typing import Any

from riprap.compiler import compile_graph
from riprap.errors import FormatError
from riprap.graph.graph import Graph
from riprap.runtime.changes import Changes
from riprap.runtime.failures import named_error
from riprap.runtime.folder import RunFolder
from riprap.runtime.link import Message
from riprap.runtime.run import Close
from riprap.runtime.site import Housing
from riprap.runtime.start import keep_state_layout, options_of, settle_buckets
from riprap.runtime.supervision.decisions import (
    Decision,
    Failure,
    GiveUp,
    HostLost,
    NotStarted,
    ProcessDied,
    QueryFailed,
    RestartElsewhere,
    RestartProcess,
    RetryQuery,
    Silent,
    Stuck,
    decide,
)
from riprap.runtime.supervision.drivers import TICK_SECONDS, Drivers
from riprap.runtime.supervision.journal import note_decision, note_recovered
from riprap.runtime.supervision.process import DriverProcess
from riprap.runtime.supervision.requests import Stop, asked_to_stop, forget_stop
from riprap.runtime.supervision.roster import Conditions, ElementState, ProcessState, ReturningElement


class Supervisor:
    """Runs an application in driver processes until it ends, is stopped, or cannot go on."""

    def __init__(
        self,
        graph: Graph,
        conditions: Conditions,
        folder: RunFolder,
        housing: Housing,
        changes: Changes,
        *,
        resume: bool,
        history: list[Decision],
    ) -> None:
        self.thread = threading.Thread(target=self._run, name="supervisor", daemon=True)
        self._graph = graph
        self._conditions = conditions
        self._folder = folder
        self._housing = housing
        self._changes = changes
        self._resume = resume
        self._patience = conditions.patience
        self._options = conditions.options
        self._history = history
        self._clock = conditions.options.clock
        self._buckets = 0
        self.drivers = Drivers(conditions, folder)
        self._wants_stop: Stop | None = None
        self._wants_halt = False
        self.ready = threading.Event()
        self.up = threading.Event()
        self.was_up = False
        self.close: Close = "interrupted"
        self.error: BaseException | None = None
        self._processes: dict[str, ProcessState] = {}
        layout = compile_graph(graph, buckets=1, tasks=1)
        for plan in layout.plans:
            name = graph.processes.get(plan.name, "main")
            process = self._processes.setdefault(name, ProcessState(conditions.options.master))
            process.elements[plan.name] = ElementState(name)

    @property
    def elements(self) -> list[str]:
        """The processing elements by name."""
        return [name for process in self._processes.values() for name in process.elements]

    def stop(self, *, resume: bool = False) -> None:
        """Let all elements come to an orderly end, or be taken up again later."""
        self._wants_stop = self._wants_stop or ("resume" if resume else "end")

    def halt(self) -> None:
        """End all elements between two batches; the run can be taken up again."""
        self._wants_halt = True

    def _run(self) -> None:
        """Supervise, until there is nothing left to supervise."""
        try:
            for process in self._processes.values():
                process.driver = self.drivers.spawn(process.master)
            while not self._over():
                self._listen()
                self._look()
                self._act()
            whole = self.error is None and not self._wants_halt
            self.close = (
                "interrupted" if not whole else "stopped" if self._wants_stop == "resume" else "ended"
            )
        except BaseException as error:
            self.error = self.error or error
        finally:
            self.drivers.end(p.driver for p in self._processes.values() if p.driver is not None)
            self.ready.set()
            self.up.set()

    # What the drivers say

    def _listen(self) -> None:
        drivers = self._drivers()
        readable, _, _ = select.select([d.link.incoming for d in drivers], [], [], TICK_SECONDS)
        for driver in drivers:
            if driver.link.incoming in readable and driver in self._drivers():
                messages = driver.receive()
                if messages is None:
                    self._gone(driver)
                for message in messages or ():
                    # One message may be its last: what a process says after its end has been decided is void.
                    if driver in self._drivers():
                        self._hear(driver, message)

    def _drivers(self) -> list[DriverProcess]:
        drivers = [p.driver for p in self._processes.values() if p.driver is not None]
        return [*drivers, self.drivers.spare] if self.drivers.spare is not None else drivers

    def _owner(self, driver: DriverProcess) -> tuple[str, ProcessState] | None:
        return next(((n, p) for n, p in self._processes.items() if p.driver is driver), None)

    def _gone(self, driver: DriverProcess) -> None:
        owner = self._owner(driver)
        code = driver.end(1.0)
        if owner is None:
            self.drivers.lose_spare()
            return
        name, process = owner
        process.driver = None
        if process.open and not self._wants_halt:
            self._decide(ProcessDied(time=self._clock(), process=name, code=code), driver.unheard)

    def _hear(self, driver: DriverProcess, message: Message) -> None:
        owner = self._owner(driver)
        match message:
            case {"say": "ready"}:
                driver.ready = message
            case {"say": "not started", "error": error, "message": text} if owner is not None:
                name, process = owner
                driver.end(1.0)
                process.driver = None
                first = not process.was_ready
                self._decide(
                    NotStarted(time=self._clock(), process=name, error=error, message=text, first=first), 0.0
                )
            case {"say": "beat", "elements": elements}:
                for name, (batch, busy) in elements.items():
                    self._element(name).beat(batch, busy)
            case {"say": "started", "element": name} if owner is not None:
                owner[1].started(name, message["batch"], message["restore"], message["lost"])
            case {"say": "caught up", "element": name}:
                self._caught_up(name, self._element(name))
            case {"say": "ended", "element": name}:
                self._element(name).phase = "ended"
            case {"say": "failed", "element": name} if owner is not None:
                self._failed(owner[0], name, message, driver.unheard)

    def _element(self, name: str) -> ElementState:
        return next(p.elements[name] for p in self._processes.values() if name in p.elements)

    def _caught_up(self, name: str, element: ElementState) -> None:
        if element.recovery is not None:
            note_recovered(self._folder, element.recovery.recovered(name, element.process))
            element.recovery = None

    def _failed(self, process: str, name: str, message: Message, detect: float) -> None:
        about = {"time": self._clock(), "process": process, "element": name, "batch": message["batch"]}
        failure: Failure
        if message["error"] == "MissingPageError":
            failure = HostLost(**about, message=message["message"])
        else:
            final = message["final"]
            failure = QueryFailed(**about, error=message["error"], message=message["message"], final=final)
        self._decide(failure, detect)

    # What they do not say

    def _look(self) -> None:
        now = time.monotonic()
        for name, process in self._processes.items():
            driver = process.driver
            if driver is None or driver.halted:
                continue
            limit = self._patience.silent if driver.ready else self._patience.starting
            since = driver.heard if driver.ready else driver.began
            if now - since > limit:
                self._decide(Silent(time=self._clock(), process=name, seconds=now - since), now - since)
                continue
            for element, state in process.elements.items():
                quiet = now - state.moved
                if quiet > state.patience(self._patience):
                    at, batch = self._clock(), state.batch
                    self._decide(
                        Stuck(time=at, process=name, element=element, batch=batch, seconds=quiet), quiet
                    )
                    break

    # What is done about it

    def _decide(self, failure: Failure, detect: float) -> None:
        action = decide(failure, self._patience, self._history)
        decision = Decision(failure, action)
        self._history.append(decision)
        note_decision(self._folder, decision)
        now, kind = time.monotonic(), type(failure).__name__
        match action:
            case RetryQuery(element=name, after=after):
                element = self._element(name)
                element.phase, element.retry_at = "down", now + after
                element.recovery = element.recovery or ReturningElement(kind, now, detect)
            case RestartProcess(process=name, after=after) | RestartElsewhere(process=name, after=after):
                process = self._processes[name]
                if isinstance(action, RestartElsewhere):
                    process.master = action.master
                if process.driver is not None:
                    process.driver.end()
                    process.driver = None
                process.restart_at, process.told = now + after, False
                for element in process.open.values():
                    element.phase, element.retry_at = "down", None
                    if element.ran:
                        element.recovery = element.recovery or ReturningElement(kind, now, detect)
            case GiveUp(error=error, reason=reason):
                self.error = named_error(error, reason)
                self._folder.event("failed", error=error, message=reason)

    def _act(self) -> None:
        now = time.monotonic()
        for process in self._processes.values():
            if process.restart_at is not None and now >= process.restart_at:
                process.restart_at = None
                self._replace(process)
        self._start_those_ready()
        for process in self._processes.values():
            for name, element in process.elements.items():
                if element.retry_at is not None and now >= element.retry_at and process.driver is not None:
                    element.retry_at = None
                    element.start()
                    process.driver.link.send("retry", element=name)
            if process.told and not process.open and process.driver is not None:
                process.driver.halt()
        self._hear_others()
        if self._wants_stop is not None:
            self._pass_on_stop()
        if not self.up.is_set() and all(e.ran for p in self._processes.values() for e in p.elements.values()):
            if not self._resume:
                self._folder.be_latest()
            self.was_up = True
            self.up.set()
        elements = [e for p in self._processes.values() for e in p.elements.values()]
        calm = all(e.phase in ("running", "ended") and e.recovery is None for e in elements)
        if calm and self.up.is_set() and self._wants_stop is None:
            self.drivers.keep_spare()

    def _replace(self, process: ProcessState) -> None:
        process.driver, spare = self.drivers.replacement(process.master)
        for element in process.open.values():
            if element.recovery is not None:
                element.recovery.spare = spare

    def _start_those_ready(self) -> None:
        """Start elements in processes that have Spark; the first time, when all of them have."""
        ready = [p for p in self._processes.values() if p.driver is not None and p.driver.ready]
        if not self.ready.is_set():
            if len(ready) < len(self._processes):
                return
            self._settle([p.driver.ready for p in ready if p.driver is not None and p.driver.ready])
            self.ready.set()
        for name, process in self._processes.items():
            if process in ready and not process.told and process.driver is not None and process.driver.ready:
                process.told = process.was_ready = True
                process.told_to_stop = self._wants_stop is not None
                for element in process.open.values():
                    element.start()
                process.driver.link.send(
                    "start", **self._orders(name, process, process.driver.ready["cores"])
                )

    def _settle(self, sessions: list[Message]) -> None:
        """Settle what depends on the sessions, and write down what is run."""
        options = self._options
        tasks = options.parallelism or max(int(s["cores"]) for s in sessions)
        self._changes.make()
        self._buckets = settle_buckets(self._folder, options.buckets, tasks)
        layout = compile_graph(self._graph, buckets=self._buckets, tasks=tasks)
        keep_state_layout(self._folder, layout)
        self._folder.describe(
            self._graph.name,
            options_of(layout, self._housing, options),
            options.notes or {},
            master=sessions[0]["master"],
            java=sessions[0]["java"],
        )
        self._folder.event("resumed" if self._resume else "started")

    def _orders(self, name: str, process: ProcessState, cores: int) -> dict[str, Any]:
        going = process.open
        return {
            "process": name,
            "elements": list(going),
            "resume": [name for name, element in going.items() if self._resume or element.ran],
            "housing": dataclasses.asdict(self._housing),
            "buckets": self._buckets,
            "tasks": self._options.parallelism or cores,
            "store": self._options.store,
            "stopping": self._wants_stop,
        }

    def _hear_others(self) -> None:
        """Stop if another process has asked for it."""
        try:
            asked = asked_to_stop(self._folder.path)
        except FormatError as error:
            # Nobody's garbage ends a run.
            forget_stop(self._folder.path)
            self._folder.event("warning", message=str(error))
            return
        if asked is not None:
            self.stop(resume=asked == "resume")

    def _pass_on_stop(self) -> None:
        for process in self._processes.values():
            if process.told and not process.told_to_stop and process.driver is not None:
                process.told_to_stop = True
                process.driver.link.send("stop", resume=self._wants_stop == "resume")

    def _over(self) -> bool:
        done = not any(process.open for process in self._processes.values())
        return done or self._wants_halt or self.error is not None
