"""How the regions of a run stand, seen from outside: their cuts, and how often they have come back from one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from riprap.runtime.checkpointing.cut_log import CutLog, ElementCut, NumberedCut
from riprap.runtime.checkpointing.inspection import Inspection, RegionCut
from riprap.runtime.folder import RunFolder

_BACK = ("computed again", "gone back")


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionComeback:
    """That an element has come back from the loss of memory: why, and how many batches it took."""

    time: float
    element: str
    cause: str
    batches: int
    tuples: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionView:
    """A region: its numbered cuts, oldest first, which of them it can still start from, and its comebacks."""

    region: str
    elements: tuple[str, ...]
    cuts: tuple[NumberedCut, ...]
    startable: tuple[int, ...]
    comebacks: tuple[RegionComeback, ...]

    def numbered(self, element: str, batch: int) -> tuple[list[int], ElementCut | None]:
        """Return the numbers of the region's cuts that a cut of an element is a part of, and what it took."""
        found = [cut for cut in self.cuts if element in cut.elements and cut.elements[element].batch == batch]
        return [cut.sequence for cut in found], found[-1].elements[element] if found else None


def view_regions(run: Inspection, kept: Sequence[RegionCut]) -> list[RegionView]:
    """Look at the regions of a run that have state; ``kept`` are the cuts that are in the store."""
    homes: dict[str, dict[str, None]] = {}
    for about in run.operators.values():
        if about.region is not None:
            homes.setdefault(about.region, {})[about.element] = None
    there = {(cut.element, cut.batch) for cut in kept}
    views = []
    for region, elements in homes.items():
        cuts = CutLog(run.folder.path, region).read()
        views.append(
            RegionView(
                region=region,
                elements=tuple(elements),
                cuts=cuts,
                startable=tuple(
                    cut.sequence
                    for cut in cuts
                    if all((name, part.batch) in there for name, part in cut.elements.items())
                ),
                comebacks=tuple(_comebacks(run.folder, tuple(elements))),
            )
        )
    return views


def _comebacks(folder: RunFolder, elements: Sequence[str]) -> list[RegionComeback]:
    causes: dict[str, str] = {}
    back: list[RegionComeback] = []
    for event in folder.read_events():
        kind = event["event"]
        if kind == "resumed":
            causes = dict.fromkeys(elements, "the run was taken up")
        elif kind == "region reset began":
            causes |= dict.fromkeys(event["elements"], event["cause"])
        elif kind in _BACK and event["element"] in elements:
            back.append(_comeback(event, causes))
    return back


def _comeback(event: Mapping[str, Any], causes: Mapping[str, str]) -> RegionComeback:
    return RegionComeback(
        time=event["time"],
        element=event["element"],
        cause=causes.get(event["element"], ""),
        batches=event["batches"],
        # What goes back to a cut reads its input anew, as new batches.
        tuples=event.get("tuples", 0),
        seconds=event.get("seconds", 0.0),
    )
