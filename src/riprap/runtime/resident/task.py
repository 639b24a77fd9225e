"""A task that stays: what Spark runs on an executor, for as long as the element does.

It connects to the coordinator, computes one piece of work after the other, and ends when it is told to. It ends by
itself when the process that forked it is gone: without its executor nobody could stop it.
"""

from __future__ import annotations

import json
import os
import select
import socket
import time
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from typing import Any

from pyspark import TaskContext

from riprap.errors import RunError
from riprap.feeds.tables import tables_of
from riprap.runtime.inflow import Piece, read_piece
from riprap.runtime.resident import wire
from riprap.runtime.resident.wire import Inbox, Message
from riprap.runtime.settings import load_setting
from riprap.runtime.task import load_plan, run_task

# So often a task without work looks whether it still has a parent.
_LOOK_SECONDS = 1.0
_CONNECT_SECONDS = 30.0


class Resident:
    """The function of the tasks, with what they need to find their coordinator."""

    def __init__(self, setting: str, address: tuple[str, int], token: str) -> None:
        self._setting = setting
        self._address = address
        self._token = token

    def __call__(self, task: int, nothing: Iterable[Any]) -> Iterator[Any]:
        context = TaskContext.get()
        assert context is not None
        attempt = context.taskAttemptId()
        with socket.create_connection(self._address, timeout=_CONNECT_SECONDS) as link:
            link.settimeout(None)
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            hello = {"token": self._token, "task": task, "attempt": attempt, "riprap": version("riprap")}
            wire.send(link, wire.HELLO, json.dumps(hello).encode())
            for message in _messages(link):
                if message.kind == wire.END:
                    return iter(())
                answer = self._compute(json.loads(message.body), attempt)
                wire.send(link, wire.DONE, answer, number=message.round)
        raise RunError(f"task {task} lost its coordinator at {self._address}")

    def _compute(self, work: dict[str, Any], attempt: int) -> bytes:
        setting = load_setting(self._setting)
        plan = load_plan(setting.plan)
        piece, batch = Piece.from_json(work["piece"]), work["batch"]
        began = time.perf_counter()
        rows = read_piece(plan, setting, piece)
        seconds = time.perf_counter() - began
        answer = run_task(
            plan,
            setting.site,
            batch=batch,
            task=piece.task,
            attempt=f"{setting.start}.{piece.task}.{attempt}",
            rows=rows,
            tables=tables_of(plan.graph, setting.tables, batch),
            read_seconds=seconds,
            end=piece.end(batch),
        )
        return answer.to_json()


def _messages(link: socket.socket) -> Iterator[Message]:
    """Yield what the coordinator says, until it is gone."""
    parent, inbox = os.getppid(), Inbox(link)
    while True:
        while not select.select([link], [], [], _LOOK_SECONDS)[0]:
            if os.getppid() != parent:
                # The executor is gone, and with it whoever would read an error of ours.
                os._exit(1)
        messages = inbox.read()
        if messages is None:
            return
        yield from messages
