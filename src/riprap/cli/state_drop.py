"""``riprap state drop``: remove a version, or all."""

from __future__ import annotations

import argparse

from riprap.cli.applications import UsageError
from riprap.cli.screen import Screen
from riprap.cli.state_arguments import check_version, inspect, reading
from riprap.runtime.checkpointing.inspection import Inspection, list_versions
from riprap.state.checkpoints.manifest import version_of


def execute(arguments: argparse.Namespace, screen: Screen) -> int:
    """Remove a version and the values that no other has, or all there is."""
    run = inspect(arguments)
    about, number = run.operators[arguments.operator], arguments.version
    with run.at_rest():
        with reading(run, about.name) as versions:
            if number is not None:
                check_version(versions, about.name, number)
            usable = {v.number for v in list_versions(versions) if not v.damaged}
        _check_needed(run, about.name, number, usable, force=arguments.force)
        with run.writing(about.name) as versions:
            before = _held(versions.store.keys(versions.entry))
            if number is None:
                versions.store.drop(versions.entry)
            else:
                versions.drop(number)
                versions.collect(len(versions.numbers()))
            left = versions.numbers()
            values = before - _held(versions.store.keys(versions.entry))
    if screen.json:
        screen.print_json(
            {
                "run_folder": str(run.folder.path),
                "operator": about.name,
                "dropped": number if number is not None else "all",
                "values": values,
                "left": left,
            }
        )
        return 0
    rest = f"Left: {', '.join(map(str, left))}" if left else "None is left"
    what = f"version {number}" if number is not None else "all versions"
    screen.say(f"dropped {what} of '{about.name}', and {values} values that no other has. {rest}")
    return 0


def _check_needed(
    run: Inspection, operator: str, number: int | None, usable: set[int], *, force: bool
) -> None:
    """Refuse to drop what somebody asked for, or what is the last resort of a run that can be taken up."""
    if run.folder.ended:
        return
    wish = run.wish_of(operator)
    if isinstance(wish, int) and number in (None, wish):
        raise UsageError(
            f"'{operator}' is to start from version {wish}. Choose another first, or take the wish back "
            "with 'riprap state restore ... --cancel'"
        )
    if usable and (number is None or usable == {number}) and not force:
        one = f"version {number} is the only one of '{operator}' that can be used: without it"
        every = f"the run can be taken up: without a version of '{operator}'"
        raise UsageError(
            f"{one if number is not None else every} the operator would start afresh after a crash of its host. "
            "--force drops it all the same"
        )


def _held(keys: list[str]) -> int:
    return sum(version_of(key) is None for key in keys)
