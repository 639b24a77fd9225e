"""The controllers of a run's consistent regions: each transition is on disk, and told, before it is carried out."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from riprap.runtime.crash import Step, reach
from riprap.runtime.folder import RunFolder
from riprap.runtime.supervision.decisions import StruckRegion
from riprap.runtime.supervision.failures import ElementFailure, Failure, HaltRegion, NotReset, describe
from riprap.runtime.supervision.regions import RegionPhase, RegionState, load_regions, save_regions
from riprap.runtime.supervision.roster import ElementState
from riprap.stage.plan import Layout

# Whoever has had nothing to do for so long after a start is where it was, even if no input comes.
_CALM_SECONDS = 5.0
# What is reached when it is on disk how a region stands, and when it is told.
_STEPS: Mapping[RegionPhase, tuple[Step, Step]] = {
    "running": ("region-running", "region-running-told"),
    "resetting": ("region-resetting", "region-resetting-told"),
    "halted": ("region-halted", "region-halted-told"),
}


class RegionControllers:
    """Counts attempts to bring back what belongs to regions, times them, and knows what is halted.

    What an earlier supervisor (there was one: ``resume``) has written down holds, unless the run begins afresh.
    """

    def __init__(
        self,
        layout: Layout,
        folder: RunFolder,
        *,
        resume: bool = False,
        fresh: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = folder
        self._clock = clock
        self._resume = resume
        self._began: dict[str, float] = {}
        self._homes = {plan.name: plan.region for plan in layout.plans if plan.region is not None}
        before = {} if fresh else load_regions(folder.path)
        self._states = {
            region.name: _as_before(
                RegionState(
                    name=region.name,
                    elements=tuple(name for name, home in self._homes.items() if home == region.name),
                    limit=region.terms.max_consecutive_reset_attempts,
                    timeout=region.terms.reset_timeout,
                ),
                before.get(region.name),
            )
            for region in layout.regions
        }

    def begin(self) -> None:
        """Write down how the regions stand as the run begins."""
        if self._states:
            save_regions(self._folder.path, self._states.values())

    @property
    def halted(self) -> dict[str, str]:
        """The regions that are halted, each with the cause."""
        return {name: state.cause for name, state in self._states.items() if state.phase == "halted"}

    def elements(self, region: str) -> tuple[str, ...]:
        """Return the elements of a region."""
        return self._states[region].elements

    def struck(self, failure: Failure, going: Mapping[str, ElementState]) -> tuple[StruckRegion, ...]:
        """Return the regions that a failure strikes; ``going`` is what is at work in the process, or should be."""
        struck = []
        for name, batches in self._batches(failure, going).items():
            tries = self._states[name].tries
            struck.append(
                StruckRegion(
                    region=name,
                    attempts=max(tries[e].number if e in tries else 0 for e in batches),
                    limit=self._states[name].limit,
                    alone=all(self._homes.get(element) == name for element in going),
                )
            )
        return tuple(struck)

    def _batches(self, failure: Failure, going: Mapping[str, ElementState]) -> dict[str, dict[str, int]]:
        """Return, by region, the newest batches of the elements that have failed."""
        if isinstance(failure, ElementFailure):
            failed = {failure.element: failure.batch}
        else:
            # A process that dies before anything has run in it is for the run to give up.
            failed = {name: e.batch for name, e in going.items() if e.ran or self._resume}
        by_region: dict[str, dict[str, int]] = {}
        for name, batch in failed.items():
            home = self._homes.get(name)
            if home in self._states and self._states[home].phase != "halted":
                by_region.setdefault(home, {})[name] = batch
        return by_region

    def begin_attempts(self, failure: Failure, going: Mapping[str, ElementState]) -> None:
        """Count an attempt to bring back what a failure has struck."""
        for name, batches in self._batches(failure, going).items():
            self._begin_attempt(self._states[name].begin_attempt(batches, describe(failure)), batches)

    def _begin_attempt(self, state: RegionState, batches: Mapping[str, int]) -> None:
        if self._states[state.name].phase != "resetting" or state.name not in self._began:
            self._began[state.name] = self._clock()
        self._write(state)
        attempt, elements = state.attempt, list(batches)
        self._tell("region reset began", state, attempt=attempt, elements=elements, cause=state.cause)

    def halt(self, action: HaltRegion) -> None:
        """Make no more attempts to bring a region back."""
        state = self._states[action.region].halt(action.reason)
        self._write(state)
        self._tell(
            "region halted",
            state,
            attempts=state.attempt,
            error=action.error,
            cause=state.cause,
            remedy=f"riprap reset {shlex.quote(str(self._folder.path))} {shlex.quote(state.name)}",
        )

    def ask(self, region: str, elements: Mapping[str, ElementState]) -> bool:
        """Begin a region anew that is halted; say whether it was."""
        state = self._states.get(region)
        if state is None or state.phase != "halted":
            return False
        self._folder.event("region reset asked", region=region)
        batches = {e: elements[e].batch for e in state.elements if elements[e].phase != "ended"}
        self._begin_attempt(state.ask(batches), batches)
        return True

    def start(self, element: str, batch: int) -> None:
        """Note what an element has on record that was started again."""
        home = self._homes.get(element)
        if home in self._states:
            self._states[home] = self._states[home].start(element, batch)

    def look(self, elements: Mapping[str, ElementState], time: float) -> list[NotReset]:
        """See which elements are back; return the failures of those that are late, noticed at a time."""
        now, late = self._clock(), []
        for state in list(self._states.values()):
            for name in state.tries:
                state = _looked_at(state, name, elements[name], now)
            self._change(state)
            for name in state.away if state.phase == "resetting" else ():
                element = elements[name]
                seconds = now - element.began
                if element.phase in ("starting", "running") and seconds > state.timeout:
                    process, batch = element.process, element.batch
                    late.append(
                        NotReset(time=time, process=process, element=name, batch=batch, seconds=seconds)
                    )
        return late

    def _change(self, state: RegionState) -> None:
        before = self._states[state.name]
        if state == before:
            return
        self._write(state)
        if (before.phase, state.phase) == ("resetting", "running"):
            seconds = self._clock() - self._began.pop(state.name, self._clock())
            self._tell("region reset", state, seconds=round(seconds, 3))

    def forget(self) -> None:
        """Count anew: the run is given up, and taking it up again is a person's decision."""
        for state in self._states.values():
            if state.tries and state.phase != "halted":
                self._write(replace(state, phase="running", tries={}))

    def _tell(self, event: str, state: RegionState, **details: Any) -> None:
        self._folder.event(event, region=state.name, **details)
        reach(_STEPS[state.phase][1], state.attempt, state.name)

    def _write(self, state: RegionState) -> None:
        states = {**self._states, state.name: state}
        save_regions(self._folder.path, states.values())
        reach(_STEPS[state.phase][0], state.attempt, state.name)
        self._states = states


def _as_before(state: RegionState, before: RegionState | None) -> RegionState:
    if before is None:
        return state
    tries = {name: replace(t, back=False) for name, t in before.tries.items() if name in state.elements}
    phase = before.phase if before.phase == "halted" else "resetting" if tries else "running"
    return replace(state, phase=phase, cause=before.cause, tries=tries)


def _looked_at(state: RegionState, name: str, element: ElementState, now: float) -> RegionState:
    if element.phase == "ended":
        return state.forget(name)
    if element.phase != "running":
        return state
    if element.batch > state.tries[name].batch:
        return state.get_further(name, element.batch)
    calm = element.calm_since is not None and now - element.calm_since >= _CALM_SECONDS
    # One that went back to a cut may have less on record, and all there is to read.
    if element.caught_up or (element.batch == state.tries[name].batch and calm):
        return state.come_back(name)
    return state
