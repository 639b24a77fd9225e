"""The agent as its driver has it: started early, told of every batch, and started again when it dies.

A process has one, which it starts for its first run with anything to save, and keeps for those that come after.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from riprap import errors
from riprap.adapters.retrying import Tell
from riprap.errors import RunError
from riprap.runtime.agent import FORMAT
from riprap.runtime.checkpointing.protection import ElementProtection
from riprap.runtime.link import Link, Message, environment_with, search_path
from riprap.runtime.retention import Retention
from riprap.runtime.task import Answer
from riprap.state.ledger import BatchRecord

# One that does not read what it is told for so long hangs, and another is started in its place.
_PATIENCE_SECONDS = 10.0
# How long an agent may take to start, and to end once nothing is to be saved.
_START_SECONDS = 60.0
_END_SECONDS = 10.0
# One that dies again and again is started after longer and longer times; who waits for it gives up after so many.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 30.0
_TRIES = 4

_HIRING = threading.Lock()
_HIRED: list[HiredAgent] = []


def hire() -> HiredAgent:
    """Return the agent of this process, which may just have been started."""
    with _HIRING:
        if not _HIRED:
            _HIRED.append(HiredAgent())
            atexit.register(_HIRED[0].stop)
        return _HIRED[0]


class HiredAgent:
    """An agent that this process has started, for the elements of all its runs."""

    def __init__(self) -> None:
        # Of all below, and of what is told of an element: a new agent must be told of the newest batch.
        self._changing = threading.Condition()
        self._savers: dict[str, Saver] = {}
        self._deaths = 0
        self._over = False
        self.alive = False
        self._begin()
        self._attendant = threading.Thread(target=self._attend, name="agent", daemon=True)
        self._attendant.start()

    @property
    def pid(self) -> int:
        """The number of its process."""
        return self._process.pid

    def open(
        self,
        protection: ElementProtection,
        folder: Path,
        record: BatchRecord | None,
        tell: Tell,
        *,
        waiting: int = 0,
    ) -> Saver:
        """Have an element saved from now on; that its store cannot be opened is an error."""
        saver = Saver(self, protection, folder, record, tell, waiting)
        with self._changing:
            self._savers[saver.place] = saver
            self._changing.notify_all()
            if self.alive:
                saver._send_open()
            answered = self._changing.wait_for(
                lambda: saver._answered or self._deaths >= _TRIES, timeout=_START_SECONDS
            )
            if saver._refused is not None or not saver._answered:
                del self._savers[saver.place]
        if saver._refused is not None:
            kind = getattr(errors, saver._refused["error"], RunError)
            raise kind(saver._refused["message"])
        if not answered or not saver._answered:
            late = "" if answered else f" within {_START_SECONDS:g} s"
            raise RunError(
                f"the agent that saves '{protection.element}' did not start{late}: {self._last_words()}"
            )
        return saver

    def stop(self) -> None:
        """Let the agent end: what it is saving it finishes first."""
        with self._changing:
            self._over = True
            self._changing.notify_all()
            if self.alive:
                self._link.close_outgoing()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._attendant.join()

    def _begin(self) -> None:
        self._began = time.monotonic()
        to_read, to_write = os.pipe()
        from_read, from_write = os.pipe()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (read when the process has died)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "riprap.runtime.agent", str(to_read), str(from_write)],
                env=environment_with(search_path()),
                pass_fds=(to_read, from_write),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                # It outlives its driver, and whoever ends that with all it started.
                start_new_session=True,
            )
        except OSError:
            os.close(to_write)
            os.close(from_read)
            raise
        finally:
            os.close(to_read)
            os.close(from_write)
        self._link = Link(from_read, to_write, _PATIENCE_SECONDS)
        self.alive = True

    def _attend(self) -> None:
        """Hear what the agent says; when it dies, start another."""
        while not self._over:
            for message in self._link.messages():
                self._hear(message)
            code = self._process.wait()
            with self._changing:
                self.alive = False
                self._link.close()
                if not self._over:
                    self._tell("agent lost", pid=self.pid, code=code, message=self._last_words())
                self._errors.close()
                self._start_again()

    def _start_again(self) -> None:
        """Start another agent in place of one that died, and tell it how things stand."""
        while not self._over and not self.alive:
            if not self._savers:
                # Somebody will need it, or nobody.
                self._changing.wait_for(lambda: self._over or self._savers)
            self._deaths = 1 if time.monotonic() - self._began > _LONGEST_PAUSE else self._deaths + 1
            self._changing.notify_all()
            pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** (self._deaths - 1))
            if self._changing.wait_for(lambda: self._over, timeout=pause):
                return
            try:
                self._begin()
            except OSError as error:
                self._tell("agent lost", pid=None, code=None, message=f"none can be started: {error}")
                continue
            for saver in self._savers.values():
                saver._send_open()
            self._tell("agent started", pid=self.pid)

    def _hear(self, message: Message) -> None:
        with self._changing:
            saver = self._savers.get(message["place"])
            if saver is not None:
                saver._hear(message)
            self._changing.notify_all()

    def send(self, what: str, **details: Any) -> None:
        """Tell the agent; one that does not listen is killed, and so replaced."""
        try:
            self._link.send(what, **details)
        except TimeoutError:
            self._process.kill()

    def _tell(self, kind: str, **details: Any) -> None:
        for saver in list(self._savers.values())[:1]:
            with contextlib.suppress(OSError):
                saver.tell(kind, **details)

    def _last_words(self) -> str:
        """Return the last line the process has printed: of a Python error, what it was."""
        with contextlib.suppress(OSError, ValueError):
            self._errors.seek(0)
            lines = self._errors.read().decode(errors="replace").strip().splitlines()
            return lines[-1] if lines else "it said nothing"
        return "it said nothing"


class Saver:
    """What saves one element, as the element has it: told of every batch that is on record and handed over."""

    def __init__(
        self,
        agent: HiredAgent,
        protection: ElementProtection,
        folder: Path,
        record: BatchRecord | None,
        tell: Tell,
        waiting: int,
    ) -> None:
        self.tell = tell
        self._agent = agent
        self._protection = protection
        self._folder = folder
        self._record = record
        self._statuses: Mapping[str, Mapping[str, Any]] = {}
        self._oldest: int | None = None
        self._waiting = waiting
        # The newest batch as of which all is saved.
        self.cut = -1
        # While there is no agent.
        self._retention: Retention | None = None
        self._answered = False
        self._refused: Message | None = None
        self._closing: bool | None = None
        self._closed = False

    @property
    def place(self) -> str:
        """Where the element is: names are a run's own."""
        return self._protection.home

    @property
    def oldest(self) -> int:
        """The oldest batch after which input may have to be computed again, as far as the agent has said."""
        return -1 if self._oldest is None else self._oldest

    def take(self, record: BatchRecord, answers: Sequence[Answer], waiting: int) -> None:
        """Tell of a batch, and have what nobody needs after it removed; ``waiting`` is the first that a sink may still
        ask for."""
        with self._agent._changing:
            if self._record is None or record.batch > self._record.batch:
                self._record = record
            self._waiting = waiting
            if not self._agent.alive:
                # The next agent begins with the whole state of this record.
                again = self.oldest if self._protection.replays else None
                if self._retention is None:
                    self._retention = Retention(self._protection.site)
                self._retention.collect(record, waiting, again=again)
                return
            self._agent.send(
                "batch",
                place=self.place,
                record=record.to_json(),
                waiting=waiting,
                **what_came(self._protection, answers),
            )

    def wait_from(self, waiting: int) -> None:
        """Tell of the first batch that a sink may still ask for, though there is no new one."""
        with self._agent._changing:
            self._waiting = waiting
            if self._agent.alive:
                self._agent.send("waiting", place=self.place, waiting=waiting)

    def statuses(self, now: float, batch: int | None = None) -> dict[str, dict[str, Any]]:
        """Say for each operator how its checkpoints stand, and for how long what came in has not been saved.

        ``batch`` is the newest on record, where that is one it has not been told of yet.
        """
        with self._agent._changing:
            if batch is None:
                batch = self._record.batch if self._record is not None else -1
            return {name: _with_age(status, batch, now) for name, status in self._statuses.items()}

    def close(self, *, save: bool = False) -> None:
        """End; a checkpoint under way is finished first. With ``save``, everything is saved as it is now."""
        agent = self._agent
        with agent._changing:
            self._closing = save
            if agent.alive:
                agent.send("close", place=self.place, save=save)
            done = agent._changing.wait_for(
                lambda: self._closed or (not save and not agent.alive) or agent._deaths >= _TRIES
            )
            del agent._savers[self.place]
            assert done
        if save and not self._closed:
            message = f"'{self._protection.element}' is not saved as it was stopped: its agent does not start"
            self.tell("warning", what=f"checkpoints of '{self._protection.element}'", message=message)

    def _send_open(self) -> None:
        self._retention = None
        self._agent.send(
            "open",
            format=FORMAT,
            protection=self._protection.to_json(),
            folder=str(self._folder),
            record=self._record.to_json() if self._record is not None else None,
            waiting=self._waiting,
            statuses=self._statuses,
        )
        if self._closing is not None:
            self._agent.send("close", place=self.place, save=self._closing)

    def _hear(self, message: Message) -> None:
        match message:
            case {"say": "opened"}:
                self._answered = True
                self._agent._deaths = 0
            case {"say": "refused"} if not self._answered:
                self._answered, self._refused = True, message
            case {"say": "refused"}:
                # It was opened before, by an agent that died: another try, later.
                for operator in self._protection.operators:
                    problem = {"error": message["error"], "message": message["message"]}
                    self.tell("checkpoint failed", operator=operator.name, **problem)
                self._agent._process.kill()
            case {"say": "standing", "statuses": statuses, "oldest": oldest, "cut": cut}:
                self._statuses, self._oldest, self.cut = statuses, oldest, max(cut, self.cut)
            case {"say": "closed"}:
                self._closed = True


def what_came(protection: ElementProtection, answers: Sequence[Answer]) -> dict[str, Any]:
    """Return which pages came in with a batch, and how many tuples each protected operator had."""
    names = [operator.name for operator in protection.operators]
    return {
        "fresh": [(slot, a.manifest.buckets, page) for a in answers for slot, page in a.fresh.items()],
        "entered": {n: sum(a.activity[n].tuples_in for a in answers if n in a.activity) for n in names},
    }


def _with_age(status: Mapping[str, Any], batch: int, now: float) -> dict[str, Any]:
    time_saved = status["time"]
    age = None if time_saved is None else 0.0 if status["batch"] == batch else now - time_saved
    return {**{name: value for name, value in status.items() if name != "time"}, "age": age}
