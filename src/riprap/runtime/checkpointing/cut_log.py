"""The complete cuts of consistent regions, numbered: where each region could come back to, and what that took.

<run folder>/cuts/<region>.json, replaced whenever an element of the region has another complete cut:

    {"format": "riprap-cuts/1", "cuts": [                                     the newest KEEP, oldest first
        {"sequence": 17, "time": 1731690000.0, "elements": {
            "sums": {"batch": 40, "time": 1731689999.2, "size": 81920, "written": 4096,
                     "freeze": 0.0002, "persist": 0.11, "settle": 0.4}}}]}

An element comes back by itself, so a cut of the region is the newest complete one of each of its elements with state.
Numbers rise by one, whoever writes: the agents of several processes take turns.
"""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from riprap.adapters.retrying import Tell
from riprap.errors import RiprapError
from riprap.state.durable_files import checking, load_json, save_json

FORMAT = "riprap-cuts/1"
KEEP = 20
_FOLDER = "cuts"
_REMEDY = "Remove it, and cuts are numbered from 1 again"


@dataclass(frozen=True, slots=True, kw_only=True)
class ElementCut:
    """A complete cut of an element: the state after a batch, as of a time.

    ``size`` is what is kept of it in bytes, ``written`` what had to be. It took so many seconds to take hold of the
    pages (``freeze``), to have them in the store (``persist``), and until sinks and channels had all (``settle``).
    """

    batch: int
    time: float
    size: int
    written: int
    freeze: float
    persist: float
    settle: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberedCut:
    """A complete cut of a region: one of each element, the newest of which became complete at ``time``."""

    sequence: int
    time: float
    elements: Mapping[str, ElementCut]


class CutLog:
    """The cuts of one region of a run."""

    def __init__(self, run: Path, region: str) -> None:
        self._path = run / _FOLDER / f"{region}.json"

    def read(self) -> tuple[NumberedCut, ...]:
        """Return the newest cuts, oldest first."""
        data = load_json(self._path, FORMAT, {"cuts": list}, remedy=_REMEDY)
        if data is None:
            return ()
        with checking(self._path, _REMEDY):
            return tuple(
                NumberedCut(
                    sequence=int(cut["sequence"]),
                    time=cut["time"],
                    elements={name: ElementCut(**each) for name, each in cut["elements"].items()},
                )
                for cut in data["cuts"]
            )

    def add(self, element: str, cut: ElementCut, time: float) -> int:
        """Number the region's cut that an element's has become a part of."""
        self._path.parent.mkdir(mode=0o700, exist_ok=True)
        with self._path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            before = self.read()
            newest = before[-1] if before else NumberedCut(sequence=0, time=time, elements={})
            number = newest.sequence + 1
            added = NumberedCut(sequence=number, time=time, elements={**newest.elements, element: cut})
            save_json(self._path, {"format": FORMAT, "cuts": [*before, added][-KEEP:]})
        return number


class CutWatch:
    """Numbers the newest cut of an element once it is complete; without a log it only waits for that."""

    def __init__(self, element: str, log: CutLog | None, clock: Callable[[], float], tell: Tell) -> None:
        self._element = element
        self._log = log
        self._clock = clock
        self._tell = tell
        self._made: tuple[float, dict[str, Any]] | None = None

    def made(self, **cut: Any) -> None:
        """Take note of a cut that is stored, all of it but how long it takes to be complete."""
        self._made = self._clock(), cut

    def look(self, asked_from: int) -> None:
        """See whether sinks and channels have all up to the newest cut: from which batch on they may ask for more."""
        if self._made is None or self._log is None or self._made[1]["batch"] >= asked_from:
            return
        (since, cut), self._made, now = self._made, None, self._clock()
        try:
            self._log.add(self._element, ElementCut(**cut, settle=max(0.0, now - since)), now)
        except (RiprapError, OSError) as error:
            # The cut is there, and what it is for goes on.
            self._tell("warning", what=f"cuts of '{self._element}'", message=str(error))
