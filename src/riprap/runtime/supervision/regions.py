"""How a consistent region stands: a table of transitions, and what a supervisor that comes after must know.

    running ----attempt----> resetting ----back: the last of those away----> running
       |                      |  ^   '-----attempt, with a number more-----> resetting
       '-halt-> halted <-halt-'  |
                  '-----asked----'

An *attempt* brings back elements that have failed; each element counts its own, and the region's number is the highest.
An element has got *further* once a batch is on record after the newest at its failure: then its attempts are forgotten,
in any state. Words that are not in the table change nothing: in a halted region elements that failed at the same time
are heard of late.

<run folder>/regions.json, rewritten ahead of every step, which people read of in events.jsonl:

    {"format": "riprap-regions/1", "regions": {
        "words": {"elements": ["words", "counts"], "phase": "resetting", "cause": "element 'counts' failed: ...",
                  "tries": {"counts": [2, 17, false]}}}}      attempts, the newest batch at the failure, whether back

    {"event": "region reset began", "region": "words", "attempt": 2, "elements": ["counts"], "cause": "..."}
    {"event": "region reset",       "region": "words", "seconds": 3.2}
    {"event": "region halted",      "region": "words", "attempts": 5, "cause": "...", "remedy": "riprap reset ..."}
    {"event": "region reset asked", "region": "words"}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

from riprap.errors import FormatError, RunError
from riprap.state.durable_files import load_json, save_json

FORMAT = "riprap-regions/1"
_NAME = "regions.json"
RegionPhase = Literal["running", "resetting", "halted"]
RegionSignal = Literal["attempt", "back", "halt", "asked"]
TRANSITIONS: Mapping[tuple[RegionPhase, RegionSignal], RegionPhase] = {
    ("running", "attempt"): "resetting",
    ("running", "halt"): "halted",
    ("resetting", "attempt"): "resetting",
    ("resetting", "back"): "running",
    ("resetting", "halt"): "halted",
    ("halted", "asked"): "resetting",
}


class RegionHaltedError(RunError):
    """A run was stopped in good order while regions of it were halted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tries:
    """Attempts to bring an element back, one after the other; ``batch`` was the newest on record when it failed."""

    number: int
    batch: int
    back: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionState:
    """How a region stands. ``limit`` is how many attempts are made, ``timeout`` how many seconds each may take."""

    name: str
    elements: tuple[str, ...]
    limit: int
    timeout: float
    phase: RegionPhase = "running"
    cause: str = ""
    tries: Mapping[str, Tries] = field(default_factory=dict)

    @property
    def attempt(self) -> int:
        """The number of attempts made without getting further."""
        return max((tries.number for tries in self.tries.values()), default=0)

    @property
    def away(self) -> tuple[str, ...]:
        """The elements that are being brought back."""
        return tuple(name for name, tries in self.tries.items() if not tries.back)

    def begin_attempt(self, batches: Mapping[str, int], cause: str) -> RegionState:
        """Count another attempt for elements whose newest batches on record are these."""
        phase = TRANSITIONS.get((self.phase, "attempt"))
        if phase is None:
            return self
        again = {name: self._again(name, batch) for name, batch in batches.items()}
        return replace(self, phase=phase, cause=cause, tries={**self.tries, **again})

    def _again(self, element: str, batch: int) -> Tries:
        before = self.tries.get(element)
        if before is None:
            return Tries(number=1, batch=batch)
        return Tries(number=before.number + 1, batch=max(before.batch, batch))

    def start(self, element: str, batch: int) -> RegionState:
        """Learn which batch an element had on record when it was started again: none has come since its failure."""
        tries = self.tries.get(element)
        if tries is None or batch <= tries.batch:
            return self
        return replace(self, tries={**self.tries, element: replace(tries, batch=batch)})

    def come_back(self, element: str) -> RegionState:
        """Note that an element is back in the state that was recorded."""
        tries = self.tries.get(element)
        if tries is None or tries.back or self.phase != "resetting":
            return self
        return replace(self, tries={**self.tries, element: replace(tries, back=True)})._settled()

    def get_further(self, element: str, batch: int) -> RegionState:
        """Forget the attempts for an element if it has more on record than when it failed."""
        tries = self.tries.get(element)
        return self if tries is None or batch <= tries.batch else self.forget(element)

    def forget(self, element: str) -> RegionState:
        """Forget the attempts for an element: it has got further, or ended."""
        return replace(self, tries={n: t for n, t in self.tries.items() if n != element})._settled()

    def _settled(self) -> RegionState:
        if self.away:
            return self
        return replace(self, phase=TRANSITIONS.get((self.phase, "back"), self.phase))

    def halt(self, cause: str) -> RegionState:
        """Make no more attempts."""
        phase = TRANSITIONS.get((self.phase, "halt"))
        return self if phase is None else replace(self, phase=phase, cause=cause)

    def ask(self, batches: Mapping[str, int]) -> RegionState:
        """Begin anew with its elements, whose newest batches on record are these, because a person has asked for it."""
        phase = TRANSITIONS.get((self.phase, "asked"))
        if phase is None:
            return self
        first = {name: Tries(number=1, batch=batch) for name, batch in batches.items()}
        return replace(self, phase=phase, cause="it was asked for", tries=first)._settled()


def save_regions(run: Path, regions: Iterable[RegionState]) -> None:
    """Write down how the regions of a run stand."""
    data = {
        region.name: {
            "elements": list(region.elements),
            "phase": region.phase,
            "cause": region.cause,
            "tries": {name: [t.number, t.batch, t.back] for name, t in region.tries.items()},
        }
        for region in regions
    }
    save_json(run / _NAME, {"format": FORMAT, "regions": data})


def load_regions(run: Path) -> dict[str, RegionState]:
    """Read back how the regions of a run stood, by name; without their terms, which the application says."""
    path = run / _NAME
    remedy = "Remove it, and no region is taken for halted"
    data = load_json(path, FORMAT, {"regions": dict}, remedy=remedy)
    try:
        return {} if data is None else {name: _state(name, entry) for name, entry in data["regions"].items()}
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(f"{path} does not say how regions stand: {error!r}. {remedy}") from error


def _state(name: str, entry: Mapping[str, Any]) -> RegionState:
    if entry["phase"] not in get_args(RegionPhase):
        raise ValueError(f"region '{name}' is {entry['phase']!r}")
    return RegionState(
        name=name,
        elements=tuple(entry["elements"]),
        limit=0,
        timeout=0.0,
        phase=entry["phase"],
        cause=str(entry["cause"]),
        tries={
            element: Tries(number=int(number), batch=int(batch), back=bool(back))
            for element, (number, batch, back) in entry["tries"].items()
        },
    )
