"""A task that stays: what Spark runs on an executor, for as long as the element does.

It connects to the coordinator, computes one piece of work after the other, and ends when it is told to. It ends by
itself when the process that forked it is gone: without its executor nobody could stop it.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import select
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import version
from typing import Any

from pyspark import TaskContext

from riprap.errors import RunError
from riprap.feeds.tables import tables_of
from riprap.runtime.crash import reach
from riprap.runtime.inflow import read_piece
from riprap.runtime.offsets import Piece
from riprap.runtime.resident import wire
from riprap.runtime.resident.wire import Inbox, WireMessage
from riprap.runtime.settings import load_setting
from riprap.runtime.shares import SharedPage, leave_share, take_up
from riprap.runtime.task import load_plan, run_task
from riprap.stage.arrival import ReadRows
from riprap.stage.recording import RecordOrder

# So often a task without work looks whether it still has a parent.
_LOOK_SECONDS = 1.0
_CONNECT_SECONDS = 30.0
# By the number of malloc's option: what is freed at the end of the heap and stays; what is mapped by itself.
_KEPT_BYTES = {-1: 256 << 20, -3: 32 << 20}


class Resident:
    """The function of the tasks, with what they need to find their coordinator."""

    def __init__(self, setting: str, address: tuple[str, int], token: str) -> None:
        self._setting = setting
        self._address = address
        self._token = token
        self._ahead: tuple[int, Piece, dict[str, ReadRows]] | None = None

    def __call__(self, task: int, nothing: Iterable[Any]) -> Iterator[Any]:
        context = TaskContext.get()
        assert context is not None
        self.attend(task, context.taskAttemptId())
        return iter(())

    def attend(self, task: int, attempt: int) -> None:
        """Do what the coordinator says, until it says that there is no more to do."""
        _keep_memory()
        with socket.create_connection(self._address, timeout=_CONNECT_SECONDS) as link:
            link.settimeout(None)
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            hello = {"token": self._token, "task": task, "attempt": attempt, "riprap": version("riprap")}
            wire.send(link, wire.HELLO, json.dumps(hello).encode())
            for message in _messages(link):
                if message.kind == wire.END:
                    return
                if message.kind == wire.REPLACED:
                    raise RunError(f"task {task}: {message.body.decode()}")
                answer = self._work(json.loads(message.body), attempt)
                wire.send(link, wire.DONE, answer, number=message.round)
        raise RunError(f"task {task} lost its coordinator at {self._address}")

    def _work(self, work: Mapping[str, Any], attempt: int) -> bytes:
        setting = load_setting(self._setting)
        piece, batch = Piece.from_json(work["piece"]), work["batch"]
        plan, site = load_plan(setting.plan, alone=piece.alone), setting.site
        named = f"{setting.start}.{piece.task}.{attempt}"
        began = time.perf_counter()
        if work["step"] == "share":
            parts = leave_share(plan, site, piece, batch=batch, attempt=named)
            reach("shared", batch, plan.name)
            return json.dumps({"parts": parts, "seconds": time.perf_counter() - began}).encode()
        if work["step"] == "read":
            self._ahead = batch, piece, read_piece(plan, setting, piece)
            reach("read", batch, plan.name)
            return json.dumps({"seconds": time.perf_counter() - began}).encode()
        ahead, self._ahead = self._ahead, None
        if work["parts"] is not None:
            rows = take_up(plan, site, piece, [SharedPage(*part) for part in work["parts"]])
        elif ahead is not None and ahead[:2] == (batch, piece):
            rows = ahead[2]
        else:
            # Nobody has, or another attempt, which is gone.
            rows = read_piece(plan, setting, piece)
        answer = run_task(
            plan,
            site,
            batch=batch,
            task=piece.task,
            attempt=named,
            rows=rows,
            tables=tables_of(plan.graph, setting.tables, batch),
            read_seconds=work["seconds"] + time.perf_counter() - began,
            end=piece.end(batch),
            order=RecordOrder(**work.get("record", {})),
        )
        return answer.to_json()


def _keep_memory() -> None:
    """Keep what a batch frees for the next one: memory that is given back costs a fault a page to have again."""
    # Of the GNU C library; others have none, or other numbers.
    if platform.libc_ver()[0] == "glibc":
        for option, size in _KEPT_BYTES.items():
            ctypes.CDLL(None).mallopt(option, size)


def _messages(link: socket.socket) -> Iterator[WireMessage]:
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
