"""A batch as rounds of a coordinator: one, or two where the tasks share what there is to decode."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from riprap.compiler import Plan
from riprap.runtime.offsets import Piece
from riprap.runtime.resident.coordinator import Coordinator
from riprap.runtime.shares import is_worth_sharing
from riprap.runtime.task import Answer


def compute(
    coordinator: Coordinator, plan: Plan, batch: int, pieces: Sequence[Piece], *, stay: bool = True
) -> list[Answer]:
    """Have a batch computed, a piece by each task.

    Tasks that do not ``stay`` may have to wait for one another's slots, and those on several hosts have no memory in
    common: they share nothing.
    """
    what = [{"batch": batch, "piece": asdict(piece)} for piece in pieces]
    parts, seconds = None, [0.0] * len(pieces)
    if stay and coordinator.on_one_host and is_worth_sharing(plan, pieces[0]):
        left = [
            json.loads(a) for a in coordinator.ask([json.dumps({**w, "step": "read"}).encode() for w in what])
        ]
        parts, seconds = [p for share in left for p in share["parts"]], [share["seconds"] for share in left]
    work = [
        json.dumps({**w, "step": "compute", "parts": parts, "seconds": s}).encode()
        for w, s in zip(what, seconds, strict=True)
    ]
    return [Answer.from_json(answer) for answer in coordinator.ask(work, stay=stay)]
