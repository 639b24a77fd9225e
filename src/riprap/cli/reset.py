"""Reset a consistent region that is halted, once the cause is gone: it goes on from where it was, or from a cut."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

from riprap.cli.applications import UsageError
from riprap.cli.run_folders import add_run, find_run
from riprap.cli.screen import Screen, shown
from riprap.errors import RunError

if TYPE_CHECKING:
    from riprap.runtime.rolled_lines import Following

SUMMARY = "bring back a region of a run that is halted, or let one start from an older cut"
EXAMPLES = """\
examples:
  riprap reset latest words          the region 'words' of the newest run under runs/
  riprap reset runs/app/latest words --json
  riprap reset latest words --cut 17      from an older cut ('riprap state list' shows them); also of a stopped run
  riprap reset latest words --cut newest  of a stopped run: as if no cut had been chosen
"""
_LOOK_SECONDS = 0.1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add_run(parser)
    parser.add_argument("region", metavar="REGION", help="a consistent region, by the operator it starts at")
    parser.add_argument(
        "--cut", metavar="N", type=_cut, help="start from this cut, and compute again what came after"
    )


def execute(arguments: argparse.Namespace, screen: Screen) -> int:
    """Ask the run's supervisor, and wait until the region is back or halted again."""
    from riprap.runtime.folder import RunFolder
    from riprap.runtime.supervision.requests import ask_to_reset
    from riprap.state.leases import is_alive

    region: str = arguments.region
    if arguments.cut is not None:
        from riprap.cli.reset_cut import choose, choose_at_rest

        run = find_run(arguments.run, arguments.runs)
        if not is_alive(run):
            choose_at_rest(run, region, arguments.cut, screen)
            return 0
        _check(run, region)
        choose(run, region, arguments.cut)
    else:
        run = find_run(arguments.run, arguments.runs, kind="a supervised run", sign="processes")
        _check(run, region)
    events = RunFolder(run, time.time).follow_events()
    ask_to_reset(run, region)
    began = time.monotonic()
    with screen.waiting(f"Waiting for region '{region}'"):
        _await_reset(run, region, events)
    seconds = time.monotonic() - began
    if screen.json:
        screen.print_json({"run_folder": str(run), "region": region, "seconds": seconds})
        return 0
    screen.say(f"region '{region}' of the run in {shown(run)} is back after {seconds:.1f} s")
    return 0


def _cut(text: str) -> int | str:
    if text == "newest":
        return "newest"
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a number nor 'newest'") from None


def _check(run: Path, region: str) -> None:
    from riprap.runtime.supervision.regions import load_regions
    from riprap.state.leases import is_alive

    regions = load_regions(run)
    if region not in regions:
        there = ", ".join(regions) or "none"
        raise UsageError(f"the run in {shown(run)} has no region '{region}'. There are: {there}")
    if not is_alive(run):
        raise UsageError(
            f"the run in {shown(run)} is not going on. Take it up with 'riprap run ... --folder {shown(run)}', and ask "
            "again"
        )
    if regions[region].phase != "halted":
        raise UsageError(
            f"region '{region}' is not halted, but {regions[region].phase}: nothing is to be reset"
        )


def _await_reset(run: Path, region: str, events: Following) -> None:
    from riprap.state.leases import is_alive

    while True:
        # In this order: what is written last is still read.
        alive = is_alive(run)
        for event in events.new():
            if event.get("region") == region and event["event"] == "region reset":
                return
            if event.get("region") == region and event["event"] == "region halted":
                raise RunError(f"region '{region}' is halted again: {event['cause']}")
        if not alive:
            raise RunError(f"the run in {shown(run)} has ended before region '{region}' was back")
        time.sleep(_LOOK_SECONDS)
