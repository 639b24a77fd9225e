"""``riprap state list``: a line a version."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
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
from riprap.runtime.checkpointing.recovery import read_wishes
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
    wishes = {about.name: read_wishes(run.home(about.name)).get(about.name) for about, _ in listed}
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
                        "versions": [_json(version) for version in its_versions],
                    }
                    for about, its_versions in listed
                ],
                "cuts": [asdict(cut) for cut in cuts],
            }
        )
        return 0
    _print(run, listed, wishes, screen)
    if cuts:
        _print_cuts(cuts, screen)
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
            screen.say(f"{about.name}: no checkpoints, {why_none(about)}")
        wish = wishes[about.name]
        if wish is not None:
            start = "without state" if wish == "fresh" else f"from version {wish}"
            screen.say(f"{about.name}: starts {start} when the run is taken up")


def _print_cuts(cuts: Sequence[RegionCut], screen: Screen) -> None:
    table = new_table("region")
    table.add_column("element")
    for heading in ("cut after batch", "saved", "bytes", "batches to compute again"):
        table.add_column(heading, justify="right")
    before: tuple[str, str] | None = None
    for cut in cuts:
        place = (cut.region, cut.element)
        names = place if place != before else ("", "")
        table.add_row(*names, f"{cut.batch:,}", age(cut.time), f"{cut.size:,}", f"{cut.behind:,}")
        before = place
    screen.say()
    screen.out.print(table)


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
