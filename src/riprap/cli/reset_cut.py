"""``riprap reset --cut``: let a region start from one of its older cuts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from riprap.cli.applications import UsageError
from riprap.cli.screen import Screen, shown
from riprap.runtime.checkpointing.chosen_cut import choose_cut, forget_choice
from riprap.runtime.checkpointing.inspection import Inspection, cuts_of, list_versions
from riprap.runtime.checkpointing.region_view import view_regions


def choose_at_rest(run: Path, region: str, cut: int | str, screen: Screen) -> None:
    """Let a region of a run that is not going start from a cut when the run is taken up."""
    with Inspection.of(run).at_rest():
        batches = choose(run, region, cut)
    _tell(run, region, cut, batches, screen)


def choose(run: Path, region: str, cut: int | str) -> dict[str, int]:
    """Let the elements of a region start from a cut; return the batch of each."""
    inspection = Inspection.of(run)
    listed = []
    for about in inspection.operators.values():
        with inspection.reading(about.name) as versions:
            listed.append((about, list_versions(versions)))
    views = {view.region: view for view in view_regions(inspection, cuts_of(inspection, listed))}
    if region not in views:
        there = ", ".join(views) or "none"
        raise UsageError(f"the run in {shown(run)} has no region '{region}' with state. There are: {there}")
    view = views[region]
    if cut == "newest":
        for element in view.elements:
            forget_choice(run / "elements" / element)
        return {}
    if cut not in view.startable:
        there = ", ".join(map(str, view.startable)) or "none"
        raise UsageError(
            f"region '{region}' cannot start from cut {cut}: input and state are kept for {there}. 'riprap state list' "
            "shows them"
        )
    (chosen,) = (each for each in view.cuts if each.sequence == cut)
    for element, part in chosen.elements.items():
        choose_cut(run / "elements" / element, part.batch)
    return {element: part.batch for element, part in chosen.elements.items()}


def _tell(run: Path, region: str, cut: int | str, batches: Mapping[str, int], screen: Screen) -> None:
    if screen.json:
        screen.print_json({"run_folder": str(run), "region": region, "cut": cut, "batches": batches})
        return
    where = ", ".join(f"'{element}' after batch {batch}" for element, batch in batches.items())
    start = (
        f"starts from cut {cut} ({where}) and computes again what came after,"
        if batches
        else "goes on as it was"
    )
    screen.say(f"region '{region}' {start} when the run is taken up ('riprap run ... --folder {shown(run)}')")
