"""Stop a run of another process in good order: between two batches, to be taken up again, or for good with --end."""

from __future__ import annotations

import argparse
import time

from riprap.cli.applications import UsageError
from riprap.cli.run_folders import add_run, find_run
from riprap.cli.screen import Screen, shown
from riprap.errors import RunError

SUMMARY = "stop a running application, to be taken up again"
EXAMPLES = """\
examples:
  riprap stop latest                  the newest run under runs/; 'riprap run ... --folder RUN' takes it up
  riprap stop runs/app/latest --end   as Ctrl-C does: let what is under way arrive, and let go of the state
"""
_LOOK_SECONDS = 0.1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add_run(parser)
    parser.add_argument("--end", action="store_true", help="for good: the run cannot be taken up again")


def execute(arguments: argparse.Namespace, screen: Screen) -> int:
    """Ask the run's supervisor, and wait until it has stopped."""
    from riprap.runtime.folder import RunFolder
    from riprap.runtime.supervision.requests import ask_to_stop
    from riprap.state.leases import is_alive

    run = find_run(arguments.run, arguments.runs, kind="a supervised run", sign="processes")
    if not is_alive(run):
        raise UsageError(f"the run in {shown(run)} is not going on: there is nothing to stop")
    folder = RunFolder(run, time.time)
    events = folder.follow_events()
    ask_to_stop(run, "end" if arguments.end else "resume")
    with screen.waiting("Waiting for the run to stop"):
        while is_alive(run):
            time.sleep(_LOOK_SECONDS)
    failed = [e["message"] for e in events.new() if e["event"] == "failed"]
    if failed:
        raise RunError(f"the run in {shown(run)} failed while it was to stop: {failed[-1]}")
    can = not folder.ended
    if screen.json:
        screen.print_json({"run_folder": str(run), "can_be_taken_up": can})
        return 0
    how = f"take it up with 'riprap run ... --folder {shown(run)}'" if can else "it has ended"
    screen.say(f"stopped the run in {shown(run)}: {how}")
    return 0
