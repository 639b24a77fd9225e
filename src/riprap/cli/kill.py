"""Make a part of a running application crash, really, to see what happens: the supervisor should put it right."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from riprap.cli.run_folders import add_run, find_run
from riprap.cli.screen import Screen, new_table, shown

if TYPE_CHECKING:
    from riprap.runtime.supervision.presence import Presence

SUMMARY = "crash a part of a running application, to try out its recovery"
EXAMPLES = """\
examples:
  riprap kill latest                      the processing elements (PEs) of the newest run under runs/
  riprap kill latest sums                 kill the driver process of the PE 'sums'
  riprap kill latest sums --executor      kill an executor, or on one machine a Python worker, of it
  riprap kill runs/app/latest sums --host kill all of it and wipe its state, as if the host were lost
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add_run(parser)
    parser.add_argument(
        "element", metavar="PE", nargs="?", help="a processing element; without it, list them"
    )
    what = parser.add_mutually_exclusive_group()
    for name, text in (
        ("process", "its driver process, and every PE in it (default)"),
        ("executor", "an executor of that process, or a Python worker where Spark runs inside of it"),
        ("host", "that process and all it started; its pages in shared memory are wiped, of every PE in it"),
    ):
        what.add_argument(f"--{name}", dest="what", action="store_const", const=name, help=text)


def execute(arguments: argparse.Namespace, screen: Screen) -> int:
    """Kill, or list what could be killed."""
    from riprap.runtime.supervision import real_crashes
    from riprap.runtime.supervision.presence import find_presences

    run = find_run(arguments.run, arguments.runs, kind="a supervised run", sign="processes")
    if arguments.element is None:
        _list(find_presences(run), run, screen)
        return 0
    what = arguments.what or "process"
    kill = {
        "process": real_crashes.kill_process,
        "executor": real_crashes.kill_executor,
        "host": real_crashes.kill_host,
    }[what]
    crash = kill(run, arguments.element)
    if screen.json:
        screen.print_json({"run_folder": str(run), "killed": what, **asdict(crash)})
        return 0
    pids = ", ".join(map(str, crash.pids))
    wiped = f", wiped {crash.pages} pages" if what == "host" else ""
    screen.say(f"killed {what} of '{crash.element}' (driver process '{crash.process}'): pid {pids}{wiped}")
    return 0


def _list(presences: Sequence[Presence], run: Path, screen: Screen) -> None:
    rows = [(name, p.process, p.pid, p.alive() is not None) for p in presences for name in p.pages]
    if screen.json:
        keys = ("element", "process", "pid", "alive")
        screen.print_json(
            {"run_folder": str(run), "elements": [dict(zip(keys, r, strict=True)) for r in rows]}
        )
        return
    if not rows:
        screen.say(f"no driver process has run in {shown(run)}")
        return
    table = new_table("PE", "process", "pid", "")
    for name, process, pid, alive in rows:
        table.add_row(name, process, str(pid), "alive" if alive else "gone")
    screen.out.print(table)
