"""``riprap state restore``: choose what an operator starts from when its run is taken up."""

from __future__ import annotations

import argparse
from typing import Any

from riprap.cli.applications import UsageError
from riprap.cli.screen import Screen, shown
from riprap.cli.state_arguments import age, check_version, inspect, reading
from riprap.cli.state_verify import tell, verify
from riprap.errors import CorruptValueError, RunError
from riprap.runtime.checkpointing.contents import read_state
from riprap.runtime.checkpointing.inspection import About, Inspection
from riprap.runtime.checkpointing.recovery import FRESH


def execute(arguments: argparse.Namespace, screen: Screen) -> int:
    """Write down the wish, if it can be fulfilled."""
    run = inspect(arguments)
    about = run.operators[arguments.operator]
    if run.folder.ended:
        raise RunError(f"the run in {shown(run.folder.path)} has ended: it cannot be taken up again")
    with run.at_rest():
        if arguments.cancel:
            cancelled = run.cancel_wish(about.name)
            texts = [
                f"'{about.name}' goes on as it would have" if cancelled else "there was no wish to take back"
            ]
            chosen: Any = None
        elif arguments.fresh:
            _check_pairs(about, arguments)
            run.wish(about.name, FRESH)
            texts = [
                f"'{about.name}' starts without state. Its checkpoints stay until newer ones push them out"
            ]
            chosen = FRESH
        else:
            texts, chosen = _check(run, about, arguments, screen), arguments.version
            run.wish(about.name, chosen)
    if screen.json:
        screen.print_json(
            {"run_folder": str(run.folder.path), "operator": about.name, "next_start": chosen, "notes": texts}
        )
        return 0
    if chosen is not None:
        screen.say(f"When the run is taken up ('riprap run ... --folder {shown(run.folder.path)}'):")
    for text in texts:
        screen.say(text)
    return 0


def _check_pairs(about: About, arguments: argparse.Namespace) -> None:
    if about.replays and not arguments.force:
        raise UsageError(
            f"'{about.name}' brings tuples together one by one: with an older state those would meet that do not "
            "belong together. It is restored by itself when it has to be; --force does it all the same"
        )


def _check(run: Inspection, about: About, arguments: argparse.Namespace, screen: Screen) -> list[str]:
    """Refuse a version that would not come back whole; say what will happen."""
    if about.protected is False:
        raise UsageError(
            f"'{about.name}' has no protect= policy: it starts with the state it has, or --fresh"
        )
    _check_pairs(about, arguments)
    number = arguments.version
    with reading(run, about.name) as versions:
        check_version(versions, about.name, number)
    (verdict,), _ = verify(run, about.name, number, screen)
    if verdict.damages and not (arguments.force and verdict.usable):
        what = "; ".join(tell(damage) for damage in verdict.damages)
        help = (
            f"With --force it is restored without {verdict.lost:,} tuples, or choose another"
            if verdict.usable
            else "Choose another"
        )
        raise CorruptValueError(f"version {number} of '{about.name}' is damaged: {what}. {help}")
    with reading(run, about.name) as versions:
        state = read_state(versions, about, number, screen.note)
    manifest = state.restored.manifest
    if manifest.layout != about.layout:
        raise UsageError(
            f"version {number} of '{about.name}' is of another state: {manifest.layout!r}, and now it is "
            f"{about.layout!r}"
        )
    texts = [
        f"'{about.name}' starts from version {number}: {state.restored.tuples:,} tuples as they were after batch "
        f"{manifest.batch}, saved {age(manifest.time)}",
        "Input is not rolled back: what came in after that batch is not in this state. All other operators go on "
        "with the state they have",
    ]
    if about.replica is not None:
        texts.append(
            "So do its other replicas: until their windows hold the same again, what they put out differs"
        )
    if about.slides:
        texts.append(
            "Of its sliding windows go as many of the oldest tuples as the input since then would have pushed out"
        )
    return texts
