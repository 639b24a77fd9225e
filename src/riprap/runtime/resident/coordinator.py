"""The driver's end of a stage that stays: gives each task its piece of a round, and gathers the answers.

Tasks connect when Spark has started them, and again, as another attempt, when Spark had to start one anew. Of a task
only the newest attempt counts: an older one, which may have outlived its executor, is told to end, and whatever it
still says goes unheard, for its connection is closed. A task that is lost in the middle of a round gets the same piece
again when it is back.

Nothing here waits in a thread of its own: connections are looked at while a round is under way. Between rounds nobody
has anything to say.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import selectors
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version

from riprap.errors import FormatError, RunError
from riprap.runtime.resident import wire
from riprap.runtime.resident.wire import Inbox, WireMessage

_LOOK_SECONDS = 0.02
_REPLACED = "a newer attempt of this task has taken its place"
_LOOPBACK = "127.0.0.1"


@dataclass(slots=True)
class _Connection:
    """One who has connected; it is nobody's until it has said who it is."""

    link: socket.socket
    inbox: Inbox
    task: int | None = None
    attempt: int = -1


@dataclass(slots=True)
class _Round:
    """Work that was given out, and what has come back of it."""

    number: int
    work: Sequence[bytes]
    stay: bool
    answers: dict[int, bytes] = field(default_factory=dict)


class Coordinator:
    """Gives out work to the tasks of one element.

    One thread uses it; :meth:`fail` and :meth:`cancel` may be called by others.
    """

    def __init__(self, tasks: int, token: str, *, host: str = _LOOPBACK) -> None:
        self._tasks = tasks
        self._token = token
        try:
            self._listener = socket.create_server((host, 0), backlog=128)
        except OSError as error:
            raise RunError(
                f"no port can be opened on {host} for the tasks to connect to: {error}. Is it an address of this "
                "machine, and are there ports left?"
            ) from error
        self._listener.setblocking(False)
        self._woken, self._waking = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._workers: dict[int, _Connection] = {}
        self._newest: dict[int, int] = {}
        self._round: _Round | None = None
        self._rounds = 0
        self._lock = threading.Lock()
        self._failure: BaseException | None = None
        self._cancelled = False
        self._closing: str | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Where tasks connect to."""
        host, port = self._listener.getsockname()[:2]
        return host, port

    @property
    def on_one_host(self) -> bool:
        """Whether no other host could connect, so that all tasks share this host's memory."""
        return self.address[0] == _LOOPBACK

    def give(self, work: Sequence[bytes], *, stay: bool = True) -> None:
        """Give each task its piece of a round, or the first ones, in place of any other that is under way.

        Unless they are to ``stay``, a task that has answered is told to end: others may wait for its slot.
        """
        assert 0 < len(work) <= self._tasks
        self._rounds += 1
        self._round = _Round(self._rounds, work, stay)
        for task in list(self._workers):
            self._give(task)

    def gather(self) -> list[bytes]:
        """Return the answers of the round that was given out, in the order of the tasks."""
        current = self._round
        assert current is not None
        while len(current.answers) < len(current.work):
            for key, _ in self._selector.select():
                self._heed(key)
            with self._lock:
                if self._cancelled:
                    raise CancelledError
                if self._failure is not None:
                    raise self._failure
        self._round = None
        return [current.answers[task] for task in range(len(current.work))]

    def open(self) -> None:
        """Take tasks on: a job has been submitted, and what became of an earlier one does not count."""
        self._closing = None
        with self._lock:
            self._failure = None

    def dismiss(self, why: str, gone: Callable[[], bool], seconds: float) -> bool:
        """Tell all tasks, those that are still to come included, that there is no more to do.

        Return whether they were ``gone`` within so many seconds.
        """
        self._closing, deadline = why, time.monotonic() + seconds
        for worker in list(self._workers.values()):
            self._dismiss(worker, why)
        while not gone():
            if time.monotonic() > deadline:
                return False
            for key, _ in self._selector.select(_LOOK_SECONDS):
                self._heed(key)
        return True

    def fail(self, error: BaseException) -> None:
        """End the round under way, and any other, with an error: the job is gone."""
        with self._lock:
            self._failure = error
        self._waking.send(b"!")

    def cancel(self) -> None:
        """End the round under way without an answer."""
        with self._lock:
            self._cancelled = True
        self._waking.send(b"!")

    def close(self) -> None:
        """Let go of the port."""
        for key in list(self._selector.get_map().values()):
            if key.data is not None:
                self._drop(key.data)
        self._selector.close()
        for each in (self._listener, self._woken, self._waking):
            each.close()

    def _heed(self, key: selectors.SelectorKey) -> None:
        if key.fileobj is self._listener:
            self._accept()
        elif key.fileobj is self._woken:
            self._woken.recv(64)
        else:
            self._hear(key.data)

    def _accept(self) -> None:
        try:
            link, _ = self._listener.accept()
        except BlockingIOError:
            return
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = _Connection(link, Inbox(link, most=wire.MOST_OF_A_STRANGER))
        self._selector.register(link, selectors.EVENT_READ, connection)

    def _hear(self, connection: _Connection) -> None:
        try:
            messages = connection.inbox.read()
        except FormatError:
            self._drop(connection)
            if connection.task is not None:
                raise
            # A stranger: whatever it is, it is none of our tasks.
            return
        if messages is None:
            self._drop(connection)
            return
        for message in messages:
            if connection.task is None:
                if not self._greet(connection, message):
                    return
            elif (
                message.kind == wire.DONE and self._round is not None and message.round == self._round.number
            ):
                self._round.answers[connection.task] = message.body
                if not self._round.stay:
                    self._dismiss(connection, "the batch is computed")
                    return

    def _greet(self, connection: _Connection, message: WireMessage) -> bool:
        """Take a connection on as a task's newest attempt, or send it away; say which."""
        try:
            greeting = json.loads(message.body)
            token, spoken = str(greeting["token"]).encode(), str(greeting["riprap"])
            task, attempt = int(greeting["task"]), int(greeting["attempt"])
        except (ValueError, KeyError, TypeError, RecursionError):
            self._drop(connection)
            return False
        if message.kind != wire.HELLO or not hmac.compare_digest(token, self._token.encode()):
            self._drop(connection)
            return False
        if spoken != version("riprap"):
            self._dismiss(connection, "another version of Riprap")
            raise RunError(
                f"a task runs Riprap {spoken}, and the driver {version('riprap')}: install the same version wherever "
                "Spark runs Python (spark.pyspark.python says which)"
            )
        if self._closing is not None:
            self._dismiss(connection, self._closing)
            return False
        if not 0 <= task < self._tasks or attempt <= self._newest.get(task, -1):
            self._dismiss(connection, _REPLACED, kind=wire.REPLACED)
            return False
        older = self._workers.get(task)
        if older is not None:
            self._dismiss(older, _REPLACED, kind=wire.REPLACED)
        connection.task, connection.attempt, connection.inbox.most = task, attempt, None
        self._newest[task] = attempt
        self._workers[task] = connection
        self._give(task)
        return True

    def _give(self, task: int) -> None:
        current = self._round
        if current is None or task in current.answers or task >= len(current.work):
            return
        worker = self._workers[task]
        try:
            wire.send(worker.link, wire.WORK, current.work[task], number=current.number)
        except OSError:
            self._drop(worker)

    def _dismiss(self, connection: _Connection, why: str, kind: int = wire.END) -> None:
        # If it is gone already, that is what it was to be told.
        with contextlib.suppress(OSError):
            wire.send(connection.link, kind, why.encode())
        self._drop(connection)

    def _drop(self, connection: _Connection) -> None:
        if connection.task is not None and self._workers.get(connection.task) is connection:
            del self._workers[connection.task]
        self._selector.unregister(connection.link)
        connection.link.close()


class CancelledError(Exception):
    """A round was ended before it was complete, because nobody wants its answers any more."""
