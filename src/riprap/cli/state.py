"""Look at a run's checkpoints: which versions there are, what is in them, are they sound; choose or drop one."""

from __future__ import annotations

import argparse
from importlib import import_module

from riprap.cli.applications import positive
from riprap.cli.run_folders import add_run
from riprap.cli.screen import Screen

SUMMARY = "look at the checkpoints of a run, choose an older one, drop one"
EXAMPLES = """\
examples:
  riprap state list latest                              the versions of every operator of the newest run
  riprap state show latest sums --key IBM               what 'sums' held of one key when it was saved last
  riprap state show latest sums --out sums.parquet      all of it, in a file (.parquet, .csv or .json)
  riprap state diff latest sums 11 12                   what came and what went between two versions
  riprap state verify latest                            read everything; exit code 1 if anything is damaged
  riprap state restore latest sums --version 11         start from an older version when the run is taken up
  riprap state drop latest sums --version 12            remove a version; --all: every one
"""

# Each is a module of its own: state_list.py and so on.
_ACTIONS = {
    "list": "list the versions there are",
    "show": "show what is in a version",
    "verify": "read every value of every version, and check it",
    "diff": "compare two versions",
    "restore": "choose what an operator starts from when the run is taken up",
    "drop": "remove a version",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions and their options."""
    # Given before the action these options count too, so here they must not set them back.
    common = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    common.add_argument(
        "--json", action="store_true", help="print one JSON object and nothing else on stdout"
    )
    common.add_argument("--quiet", action="store_true", help="show no progress")
    common.add_argument("--debug", action="store_true", help="show the Python traceback of a failure")
    actions = parser.add_subparsers(title="actions", metavar="ACTION", dest="action", required=True)
    parsers = {
        name: actions.add_parser(name, parents=[common], help=text, description=f"{text.capitalize()}.")
        for name, text in _ACTIONS.items()
    }
    for name, each in parsers.items():
        add_run(each)
        every = name in ("list", "verify")
        each.add_argument(
            "operator",
            metavar="OPERATOR",
            nargs="?" if every else None,
            help="an operator with state" + (" (default: all)" if every else ""),
        )
    for name in ("show", "verify"):
        parsers[name].add_argument("--version", type=positive, metavar="N", help=_default_of(name))
    _show_arguments(parsers["show"])
    for name in ("before", "after"):
        parsers["diff"].add_argument(name, type=positive, metavar=name.upper(), help="a version")
    for name, tuples in (("show", 40), ("diff", 40)):
        parsers[name].add_argument(
            "--limit", type=positive, default=tuples, metavar="N", help=f"tuples to print ({tuples})"
        )
    what = parsers["restore"].add_mutually_exclusive_group(required=True)
    what.add_argument("--version", type=positive, metavar="N", help="start from this version")
    what.add_argument("--fresh", action="store_true", help="start without state")
    what.add_argument("--cancel", action="store_true", help="take back an earlier wish")
    which = parsers["drop"].add_mutually_exclusive_group(required=True)
    which.add_argument("--version", type=positive, metavar="N", help="which one")
    which.add_argument("--all", action="store_true", help="every one, such as those of a run that has ended")
    parsers["restore"].add_argument(
        "--force", action="store_true", help="even if tuples of it are damaged: those are left out"
    )
    parsers["drop"].add_argument("--force", action="store_true", help="even the only one that can be used")


def _show_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--slot", metavar="S", help="a part of the state: a join has 0 and 1, a port each")
    parser.add_argument("--key", metavar="TEXT", help="one key; one of several columns is written a,b")
    parser.add_argument("--load", action="store_true", help="load pickled objects: THIS RUNS CODE in them")
    parser.add_argument("--out", metavar="FILE", help="write all of it to a .parquet, .csv or .json file")


def _default_of(action: str) -> str:
    return "which one (default: the newest)" if action == "show" else "which one (default: all)"


def execute(arguments: argparse.Namespace, screen: Screen) -> int:
    """Do what was asked for."""
    code: int = import_module(f"riprap.cli.state_{arguments.action}").execute(arguments, screen)
    return code
