"""Look at the replicas of a run: which of each group is active, how far each has come, and when it was switched."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING

from riprap.cli.run_folders import add_folder, find_run
from riprap.cli.screen import Screen, new_table, shown
from riprap.cli.state_arguments import age

if TYPE_CHECKING:
    from riprap.runtime.replica_view import EpochView, GroupView, ReplicaView

SUMMARY = "look at the replicas of a run: who is active, who is behind, who was switched to"
EXAMPLES = """\
examples:
  riprap replicas                         the replicas of the newest run under runs/
  riprap replicas runs/app/latest --json  those of a run, alive or ended, for other programs
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "run",
        metavar="RUN",
        nargs="?",
        default="latest",
        help="a run's folder; or an application, or 'latest' (default), for its newest run",
    )
    add_folder(parser, "--runs", "where run folders are")


def execute(arguments: argparse.Namespace, screen: Screen) -> int:
    """Show a line a replica, and the epochs of each group."""
    from riprap.runtime.folder import RunFolder
    from riprap.runtime.replica_view import view_groups

    folder = RunFolder(find_run(arguments.run, arguments.runs), time.time)
    application = folder.about()["application"]
    groups = view_groups(folder)
    if screen.json:
        screen.print_json(
            {"run_folder": str(folder.path), "ended": folder.ended, "groups": [asdict(g) for g in groups]}
        )
        return 0
    if not groups:
        screen.say(f"{application}: {shown(folder.path)} has no replicas (app.replicate(...) makes some)")
        return 0
    screen.say(f"{application}: {shown(folder.path)}{', ended' if folder.ended else ''}")
    screen.say()
    _print_replicas(groups, screen)
    for group in groups:
        _print_group(group, screen)
    return 0


def _print_replicas(groups: Sequence[GroupView], screen: Screen) -> None:
    table = new_table("group", "replica", "", "process")
    for heading in ("position", "behind", "CPU", "memory"):
        table.add_column(heading, justify="right")
    for group in groups:
        for place, replica in enumerate(group.replicas):
            table.add_row("" if place else group.group, replica.replica, replica.state, *_cells(replica))
    screen.out.print(table)


def _cells(replica: ReplicaView) -> list[str]:
    return [
        f"{replica.process}, {replica.pid}" if replica.alive else f"{replica.process}, gone",
        "" if replica.position is None else f"{replica.position:,}",
        _behind(replica),
        "" if replica.cpu is None else f"{replica.cpu:,.1f} s",
        "" if replica.memory is None else f"{replica.memory / 2**20:,.0f} MB",
    ]


def _behind(replica: ReplicaView) -> str:
    if replica.behind is None:
        return ""
    seconds = "" if replica.seconds is None or not replica.behind else f", {replica.seconds:.2f} s"
    return f"{replica.behind:,}{seconds}"


def _print_group(group: GroupView, screen: Screen) -> None:
    screen.say()
    counts = (
        _times(max(0, len(group.epochs) - 1), "switch", "switches"),
        _times(group.false_alarms, "false alarm", "false alarms"),
        f"results differed {_times(group.divergences, 'time', 'times')}",
    )
    screen.say(f"{group.group} ({group.failover}; {', '.join(group.elements)}): {', '.join(counts)}")
    for epoch in group.epochs:
        screen.say(f"  {_line(epoch)}")


def _line(epoch: EpochView) -> str:
    when = datetime.fromtimestamp(epoch.time).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    took = "" if epoch.detect is None else f", found after {epoch.detect:.3f} s"
    took += "" if epoch.seconds is None else f", switched in {epoch.seconds:.3f} s"
    return f"epoch {epoch.number}: {epoch.active} from {when} ({age(epoch.time)}){took}: {epoch.cause}"


def _times(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"
