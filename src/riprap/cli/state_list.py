"""``riprap state list``: a line a version."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.text import Text

from riprap.cli.screen import Screen, new_table, shown
from riprap.cli.state_arguments import age, asked_for, inspect, why_none
from riprap.runtime.checkpointing.inspection import (
    About,
    Inspection,
    Listed,
    RegionCut,
    cuts_of,
    list_versions,
)
from riprap.runtime.checkpointing.region_view import RegionView, view_regions
from riprap.state.stores.opening import describe_store

_NUMBERS = ("batch", "tuples", "bytes", "values", "groups", "tuples/s")


def execute(arguments: argparse.Namespace, screen: Screen) -> int:
    """List the versions of an operator, or of all."""
    run = inspect(arguments)
    listed = []
    for about in asked_for(arguments, run):
        with run.reading(about.name) as versions:
            listed.append((about, list_versions(versions)))
    cuts = cuts_of(run, listed)
    views = view_regions(run, cuts) if arguments.operator is None else []
    wishes = {about.name: run.wish_of(about.name) for about, _ in listed}
    if screen.json:
        screen.print_json(
            {
                "run_folder": str(run.folder.path),
                "store": describe_store(run.durable.url),
                "operators": [
                    {
                        "operator": about.name,
                        "element": about.element,
                        "protected": about.protected,
                        "next_start": wishes[about.name],
                        "windows": run.windows_of(about.name),
                        "versions": [_json(version) for version in its_versions],
                    }
                    for about, its_versions in listed
                ],
                "cuts": [asdict(cut) for cut in cuts],
                "regions": [asdict(view) for view in views],
            }
        )
        return 0
    _print(run, listed, wishes, screen)
    if views:
        _print_cuts(cuts, {view.region: view for view in views}, screen)
    return 0


def _json(version: Listed) -> dict[str, Any]:
    manifest = version.manifest
    details = (
        {}
        if manifest is None
        else {
            "time": manifest.time,
            "batch": manifest.batch,
            "tuples": manifest.tuples,
            "bytes": manifest.size,
            "values": len(manifest.values),
            "groups": _groups(version),
            "rate": manifest.rate,
        }
    )
    return {"version": version.number, **details, "damaged": version.damaged or None}


def _print(
    run: Inspection, listed: list[tuple[About, list[Listed]]], wishes: dict[str, Any], screen: Screen
) -> None:
    screen.say(f"{run.application}: {shown(run.folder.path)}, checkpoints in {_store(run)}")
    screen.say()
    table = new_table("operator")
    table.add_column("version", justify="right")
    table.add_column("saved")
    for heading in _NUMBERS:
        table.add_column(heading, justify="right")
    table.add_column("")
    for about, versions in listed:
        for place, version in enumerate(versions):
            name = about.name if place == 0 else ""
            table.add_row(name, str(version.number), *_cells(version), _mark(version))
    if table.row_count:
        screen.out.print(table)
        screen.say()
    for about, versions in listed:
        for version in versions:
            if version.damaged:
                screen.say(f"{about.name}, version {version.number}: {version.damaged}", style="red")
        if not versions:
            screen.say(f"{about.name}: no checkpoints, {why_none(about)}{_windows(run, about)}")
        wish = wishes[about.name]
        if wish is not None:
            start = "without state" if wish == "fresh" else f"from version {wish}"
            screen.say(f"{about.name}: starts {start} when the run is taken up")


def _windows(run: Inspection, about: About) -> str:
    """Say how the windows stand that are recorded, where they are."""
    windows = run.windows_of(about.name)
    if windows is None:
        return ""
    return (
        f": {windows['open']:,} open, the oldest record is of batch {windows['oldest']:,}; to read back "
        f"{windows['extent']:,} entries, to compute again {windows['replay']:,} tuples"
    )


def _print_cuts(cuts: Sequence[RegionCut], views: Mapping[str, RegionView], screen: Screen) -> None:
    table = new_table("region")
    table.add_column("element")
    table.add_column("cut", justify="right")
    for heading in (
        "after batch",
        "saved",
        "bytes",
        "to freeze, persist, complete",
        "batches to compute again",
    ):
        table.add_column(heading, justify="right")
    before: tuple[str, str] | None = None
    for cut in cuts:
        place = (cut.region, cut.element)
        names = place if place != before else ("", "")
        numbers, took = views[cut.region].numbered(cut.element, cut.batch)
        times = (
            "" if took is None else f"{took.freeze * 1e3:.1f} ms, {took.persist:.2f} s, {took.settle:.2f} s"
        )
        shown_numbers = (
            "" if not numbers else f"{numbers[0]}" if len(numbers) == 1 else f"{numbers[0]}-{numbers[-1]}"
        )
        table.add_row(
            *names, shown_numbers, f"{cut.batch:,}", age(cut.time), f"{cut.size:,}", times, f"{cut.behind:,}"
        )
        before = place
    screen.say()
    screen.out.print(table)
    for view in views.values():
        screen.say(_summary(view))


def _summary(view: RegionView) -> str:
    """Say in a line how a region stands."""
    if not view.cuts:
        return f"region '{view.region}': no cut is complete yet"
    newest = view.cuts[-1]
    size = sum(part.size for part in newest.elements.values())
    text = f"region '{view.region}': cut {newest.sequence} was complete {age(newest.time)}, {size:,} bytes"
    if view.startable:
        text += f"; it can start from {', '.join(map(str, view.startable))} (riprap reset RUN {view.region} --cut N)"
    if view.comebacks:
        batches, tuples = (sum(getattr(c, what) for c in view.comebacks) for what in ("batches", "tuples"))
        last = view.comebacks[-1]
        text += f"; came back {len(view.comebacks)} times, {batches:,} batches and {tuples:,} tuples computed again, "
        text += f"last {age(last.time)}: {last.cause}"
    return text


def _store(run: Inspection) -> str:
    where = describe_store(run.durable.url)
    return where if "://" in where else shown(where)


def _cells(version: Listed) -> list[str]:
    manifest = version.manifest
    if manifest is None:
        return [""] * (len(_NUMBERS) + 1)
    numbers = (manifest.batch, manifest.tuples, manifest.size, len(manifest.values), _groups(version))
    return [age(manifest.time), *(f"{n:,}" for n in numbers), f"{manifest.rate:,.0f}"]


def _groups(version: Listed) -> int:
    assert version.manifest is not None
    return sum(saved.groups for saved in version.manifest.values.values())


def _mark(version: Listed) -> Text:
    return Text("damaged" if version.damaged else "", style="red")
