"""What driver processes are told to start with, settled when the first of them have Spark."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from riprap.compiler import compile_graph
from riprap.graph.graph import Graph
from riprap.graph.options import RunOptions
from riprap.runtime.changes import Changes
from riprap.runtime.folder import RunFolder
from riprap.runtime.link import Message
from riprap.runtime.site import Housing
from riprap.runtime.start import keep_state_layout, options_of, settle_buckets
from riprap.runtime.supervision.requests import Stop
from riprap.runtime.supervision.roster import ProcessState


class Orders:
    """How the elements of a run are to be started, the same for every process that ever starts one."""

    def __init__(
        self,
        graph: Graph,
        options: RunOptions,
        folder: RunFolder,
        housing: Housing,
        changes: Changes,
        *,
        resume: bool,
    ) -> None:
        self._graph = graph
        self._options = options
        self._folder = folder
        self._housing = housing
        self._changes = changes
        self._resume = resume
        self._buckets = 0

    def settle(self, sessions: Sequence[Message]) -> None:
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

    def to_start(self, name: str, process: ProcessState, session: Message, stop: Stop | None) -> Message:
        """Say which elements a process has, which of them are halted, and how they run."""
        going = process.open
        order: dict[str, Any] = {
            "process": name,
            "elements": [*going, *process.halted],
            "aside": process.halted,
            "resume": [name for name, e in going.items() if self._resume or e.ran or process.late],
            "housing": dataclasses.asdict(self._housing),
            "buckets": self._buckets,
            "tasks": self._options.parallelism or session["cores"],
            "store": self._options.store,
            "stopping": stop,
        }
        return order
