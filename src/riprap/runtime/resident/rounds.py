"""A batch as rounds of a coordinator: one to read, where that takes a while, and one to compute.

    tasks    | read n     | compute n                | read n+1      | compute n+1
    driver   | record n-1                            | record n

A round to read may be given out before the batch before it is on record, so that tasks read while the driver writes. In
it the tasks share what there is to decode, or each keeps in mind what it has read.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from riprap.compiler import Plan
from riprap.runtime.offsets import Piece
from riprap.runtime.resident.coordinator import Coordinator
from riprap.runtime.shares import is_worth_sharing
from riprap.runtime.task import Answer
from riprap.stage.recording import RecordOrder
from riprap.state.durable_files import fields_of

# Of rows to decode: fewer cost no more than a round of their own does.
LEAST_AHEAD = 10_000
_NOTHING_DUE = RecordOrder()


class Rounds:
    """The rounds of one batch after the other.

    Tasks that do not ``stay`` may have to wait for one another's slots, and those on several hosts have no memory in
    common: they share nothing.
    """

    def __init__(self, coordinator: Coordinator, plan: Plan, *, stay: bool) -> None:
        self._coordinator = coordinator
        self._plan = plan
        self._stay = stay
        self._reading: tuple[int, Sequence[Piece]] | None = None

    def read_ahead(self, batch: int, pieces: Sequence[Piece]) -> None:
        """Have the tasks begin to read a batch that is to be computed next, if there is much to decode."""
        if self._stay and (self._shares(pieces) or _rows(pieces[0]) >= LEAST_AHEAD):
            self._read(batch, pieces)

    def compute(
        self, batch: int, pieces: Sequence[Piece], record: RecordOrder = _NOTHING_DUE
    ) -> list[Answer]:
        """Have a batch computed, a piece by each task, or all of it by one; and recorded what is due."""
        if self._reading != (batch, pieces) and self._shares(pieces):
            self._read(batch, pieces)
        parts, seconds = None, [0.0] * len(pieces)
        if self._reading == (batch, pieces):
            self._reading = None
            read = [json.loads(answer) for answer in self._coordinator.gather()]
            seconds = [task["seconds"] for task in read]
            if self._shares(pieces):
                parts = [part for task in read for part in task["parts"]]
        # Of most elements nothing is recorded, and nothing is said of it.
        more = {} if record == _NOTHING_DUE else {"record": record}
        work = [
            _order("compute", batch, piece, parts=parts, seconds=s, **more)
            for piece, s in zip(pieces, seconds, strict=True)
        ]
        self._coordinator.give(work, stay=self._stay)
        return [Answer.from_json(answer) for answer in self._coordinator.gather()]

    def begin_again(self) -> None:
        """Count on nothing that tasks have read: they are others now."""
        self._reading = None

    def _read(self, batch: int, pieces: Sequence[Piece]) -> None:
        step = "share" if self._shares(pieces) else "read"
        self._coordinator.give([_order(step, batch, piece) for piece in pieces])
        self._reading = (batch, pieces)

    def _shares(self, pieces: Sequence[Piece]) -> bool:
        together = self._stay and self._coordinator.on_one_host and len(pieces) > 1
        return together and is_worth_sharing(self._plan, pieces[0])


def _order(step: str, batch: int, piece: Piece, **more: Any) -> bytes:
    return json.dumps({"step": step, "batch": batch, "piece": piece, **more}, default=fields_of).encode()


def _rows(piece: Piece) -> int:
    """Return how many rows of sources a piece has; what came by channel is mapped, and needs no reading."""
    return sum(high - low for low, high, _ in piece.sources.values())
