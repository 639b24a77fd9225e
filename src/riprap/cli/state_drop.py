"""``riprap state drop``: remove a version."""

from __future__ import annotations

import argparse

from riprap.cli.applications import UsageError
from riprap.cli.screen import Screen
from riprap.cli.state_finding import check_version, inspect, reading
from riprap.runtime.checkpointing.inspection import list_versions
from riprap.runtime.checkpointing.recovery import read_wishes
from riprap.state.checkpoints.manifest import version_of


def execute(arguments: argparse.Namespace, screen: Screen) -> int:
    """Remove a version, and the values that no other has."""
    run = inspect(arguments)
    about, number = run.operators[arguments.operator], arguments.version
    with run.at_rest():
        with reading(run, about.name) as versions:
            check_version(versions, about.name, number)
            usable = {v.number for v in list_versions(versions) if not v.damaged}
        if read_wishes(run.home(about.name)).get(about.name) == number:
            raise UsageError(
                f"'{about.name}' is to start from version {number}. Choose another first, or take the wish back "
                "with 'riprap state restore ... --cancel'"
            )
        if usable == {number} and not arguments.force:
            raise UsageError(
                f"version {number} is the only one of '{about.name}' that can be used: without it the operator would "
                "start afresh after a crash of its host. --force drops it all the same"
            )
        with run.writing(about.name) as versions:
            before = _held(versions.store.keys(versions.entry))
            versions.drop(number)
            left = versions.numbers()
            versions.collect(len(left))
            values = before - _held(versions.store.keys(versions.entry))
    if screen.json:
        screen.print_json(
            {
                "run_folder": str(run.folder.path),
                "operator": about.name,
                "dropped": number,
                "values": values,
                "left": left,
            }
        )
        return 0
    there = f"Left: {', '.join(map(str, left))}" if left else "None is left"
    screen.say(f"dropped version {number} of '{about.name}', and {values} values that no other has. {there}")
    return 0


def _held(keys: list[str]) -> int:
    return sum(version_of(key) is None for key in keys)
