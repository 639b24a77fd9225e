"""The supervisor: starts driver processes, listens to them, and carries out what is decided about failures.

It has no Spark of its own. One thread does everything; others leave wishes (:meth:`Supervisor.stop`) and look.
"""

from __future__ import annotations

import select
import threading
import time

from riprap.compiler import compile_graph
from riprap.graph.graph import Graph
from riprap.runtime.changes import Changes
from riprap.runtime.divergence import Divergence
from riprap.runtime.failures import named_error
from riprap.runtime.folder import RunFolder
from riprap.runtime.link import Message
from riprap.runtime.run import Close
from riprap.runtime.site import Housing
from riprap.runtime.stage import Pulse
from riprap.runtime.supervision.controllers import RegionControllers
from riprap.runtime.supervision.decisions import decide
from riprap.runtime.supervision.drivers import TICK_SECONDS, Drivers
from riprap.runtime.supervision.failures import (
    Action,
    Decision,
    Failure,
    GiveUp,
    HaltRegion,
    HostLost,
    LeaveOut,
    NotStarted,
    ProcessDied,
    QueryFailed,
    RestartElsewhere,
    RestartProcess,
    RetryQuery,
    describe,
    failure_of,
)
from riprap.runtime.supervision.journal import note_decision, note_recovered
from riprap.runtime.supervision.orders import Orders
from riprap.runtime.supervision.process import DriverProcess
from riprap.runtime.supervision.replicas import ReplicaGroups
from riprap.runtime.supervision.requests import Requests, Stop
from riprap.runtime.supervision.roster import Conditions, ElementState, ProcessState, ReturningElement, Roster
from riprap.runtime.supervision.silence import silences


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
        self._folder = folder
        self._resume = resume
        self._patience = conditions.patience
        self._history = history
        self._clock = conditions.options.clock
        self.drivers = Drivers(conditions, folder)
        self._wants_stop: Stop | None = None
        self._wants_halt = False
        self.ready = threading.Event()
        self.up = threading.Event()
        self.was_up = False
        self.close: Close = "interrupted"
        self.error: BaseException | None = None
        layout = compile_graph(graph, buckets=1, tasks=1)
        fresh = conditions.options.fresh
        self._regions = RegionControllers(layout, folder, resume=resume, fresh=fresh)
        self._roster = Roster.of(layout, conditions.options.master, self._regions.halted)
        self._processes = self._roster.processes
        self._groups = ReplicaGroups(layout, folder, self._processes, self._clock)
        self._divergence = Divergence(folder.path, layout, folder.event)
        self._requests = Requests(folder)
        self._orders = Orders(graph, conditions.options, folder, housing, changes, resume=resume)

    @property
    def elements(self) -> list[str]:
        """The processing elements by name."""
        return [*self._roster.elements]

    @property
    def halted(self) -> dict[str, str]:
        """The regions that are halted, each with the cause."""
        return self._regions.halted

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
            self.drivers.end(self._roster.drivers)
            self._divergence.stop()
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
                    self._fail_over(driver)
                    self._gone(driver)
                for message in messages or ():
                    # One message may be its last: what a process says after its end has been decided is void.
                    if driver in self._drivers():
                        self._hear(driver, message)

    def _drivers(self) -> list[DriverProcess]:
        return [*self._roster.drivers, *([self.drivers.spare] if self.drivers.spare is not None else [])]

    def _fail_over(self, driver: DriverProcess) -> None:
        """Let another replica take over before anything else: to see to the end of a process takes a while."""
        owner = self._roster.owner(driver)
        if owner is not None and owner[1].open and not self._wants_halt:
            cause = f"process '{owner[0]}' is gone"
            self._groups.lost(owner[0], cause, driver.unheard, gone=True)

    def _gone(self, driver: DriverProcess) -> None:
        owner = self._roster.owner(driver)
        code = driver.end(1.0)
        if owner is None:
            self.drivers.lose_spare()
            return
        name, process = owner
        process.driver = None
        if process.open and not self._wants_halt:
            self._decide(ProcessDied(time=self._clock(), process=name, code=code), driver.unheard)

    def _hear(self, driver: DriverProcess, message: Message) -> None:
        owner = self._roster.owner(driver)
        if self._roster.is_let_be(message.get("element")) and message["say"] != "ended":
            return
        match message:
            case {"say": "ready"}:
                driver.ready, driver.answered = message, time.monotonic()
            case {"say": "not started", "error": error, "message": text} if owner is not None:
                name, process = owner
                driver.end(1.0)
                process.driver = None
                first = not process.was_ready
                self._decide(
                    NotStarted(time=self._clock(), process=name, error=error, message=text, first=first), 0.0
                )
            case {"say": "beat", "elements": elements, "quiet": quiet}:
                driver.answered = time.monotonic() - quiet
                for name, pulse in elements.items():
                    self._roster.element(name).beat(Pulse(*pulse))
            case {"say": "started", "element": name} if owner is not None:
                owner[1].started(name, message["batch"], message["restore"], message["lost"])
                self._regions.start(name, message["batch"])
            case {"say": "caught up", "element": name}:
                self._caught_up(name, self._roster.element(name))
            case {"say": "ended", "element": name}:
                self._roster.element(name).phase = "ended"
            case {"say": "failed"} if owner is not None:
                self._decide(failure_of(owner[0], message, self._clock()), driver.unheard)

    def _caught_up(self, name: str, element: ElementState) -> None:
        element.caught_up = True
        if element.recovery is not None:
            note_recovered(self._folder, element.recovery.recovered(name, element.process))
            element.recovery = None

    # What they do not say

    def _look(self) -> None:
        if self._wants_stop is None:
            self._groups.look()
        for failure, seconds in silences(self._processes, self._patience, time.monotonic(), self._clock):
            self._decide(failure, seconds)
        for late in self._regions.look(self._roster.elements, self._clock()):
            # Another that is late may have ended its process just now. In a run that is to stop nothing is.
            if self._wants_stop is None and self._roster.element(late.element).phase in (
                "starting",
                "running",
            ):
                self._decide(late, late.seconds)

    # What is done about it

    def _decide(self, failure: Failure, detect: float) -> None:
        """Decide about a failure; where a region of it is halted, decide about what else it has struck."""
        process, further = self._processes[failure.process], False
        gone = not isinstance(failure, QueryFailed | HostLost)
        self._groups.lost(failure.process, describe(failure), detect, gone=gone)
        while True:
            # A run that is to stop waits for nobody to reset a region.
            struck = self._regions.struck(failure, process.open) if self._wants_stop is None else ()
            action = decide(failure, self._patience, self._history, struck)
            if isinstance(action, GiveUp | HaltRegion) and self._groups.can_do_without(failure.process):
                action = LeaveOut(process=failure.process, error=action.error, reason=action.reason)
            decision = Decision(failure, action)
            self._history.append(decision)
            note_decision(self._folder, decision, further=further)
            if not isinstance(action, HaltRegion):
                if struck and not isinstance(action, GiveUp | LeaveOut):
                    self._regions.begin_attempts(failure, process.open)
                self._carry_out(action, type(failure).__name__, detect)
                return
            self._halt_region(action, hung=process if gone else None)
            if not (gone and process.open):
                return
            further = True

    def _halt_region(self, action: HaltRegion, *, hung: ProcessState | None) -> None:
        self._regions.halt(action)
        self._roster.let_be(self._regions.elements(action.region), hung=hung)

    def _carry_out(self, action: Action, kind: str, detect: float) -> None:
        now = time.monotonic()
        match action:
            case RetryQuery(element=name, after=after):
                element = self._roster.element(name)
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
            case LeaveOut(process=name, reason=reason):
                self._groups.give_up(name, reason)
                self._processes[name].leave_out()
            case GiveUp(error=error, reason=reason):
                self.error = named_error(error, reason)
                self._regions.forget()
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
                    self._groups.returning(element.process)
                    element.start()
                    process.driver.link.send("retry", element=name)
            if process.told and not process.open and process.driver is not None:
                process.driver.halt()
        self._roster.leave_out_unread(self._groups.processes())
        self._hear_others()
        if self._wants_stop is not None:
            self._pass_on_stop()
        if not self.up.is_set() and self._roster.is_up:
            if not self._resume:
                self._folder.be_latest()
            self.was_up = True
            self.up.set()
        elements = self._roster.elements.values()
        calm = all(e.phase in ("running", "halted", "ended") and e.recovery is None for e in elements)
        if calm and self.up.is_set() and self._wants_stop is None:
            self.drivers.keep_spare()

    def _replace(self, process: ProcessState) -> None:
        process.driver, spare = self.drivers.replacement(process.master)
        for element in process.open.values():
            if element.recovery is not None:
                element.recovery.spare = spare

    def _start_those_ready(self) -> None:
        """Start elements in processes that have Spark; the first time, when all of them have that are waited for."""
        ready = [p for p in self._processes.values() if p.driver is not None and p.driver.ready]
        if not self.ready.is_set():
            if not self._groups.may_begin():
                return
            self._orders.settle([p.driver.ready for p in ready if p.driver is not None and p.driver.ready])
            self._regions.begin()
            self._groups.begin()
            self._divergence.start()
            self.ready.set()
        for name, process in self._processes.items():
            if process in ready and not process.told and process.driver is not None and process.driver.ready:
                process.told = process.was_ready = True
                process.told_to_stop = self._wants_stop is not None
                self._groups.returning(name)
                for element in process.open.values():
                    element.start()
                order = self._orders.to_start(name, process, process.driver.ready, self._wants_stop)
                process.driver.link.send("start", **order)

    def _hear_others(self) -> None:
        """Do what other processes have asked for."""
        stop = self._requests.stop()
        if stop is not None:
            self.stop(resume=stop == "resume")
        for region in self._requests.resets():
            if self._wants_stop is None and self._regions.ask(region, self._roster.elements):
                self._roster.revive(self._regions.elements(region))

    def _pass_on_stop(self) -> None:
        if self._regions.halted:
            # What is on its way to a halted region, and what it holds, is not to go.
            self._wants_stop = "resume"
        for process in self._processes.values():
            if process.told and not process.told_to_stop and process.driver is not None:
                process.told_to_stop = True
                process.driver.link.send("stop", resume=self._wants_stop == "resume")

    def _over(self) -> bool:
        done = not any(process.open for process in self._processes.values())
        waits = self._wants_stop is None and bool(self._regions.halted)
        return (done and not waits) or self._wants_halt or self.error is not None
