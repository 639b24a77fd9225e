"""List the operators there are: what each does, what it keeps, and what protection has to know of it."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from rich.text import Text

from riprap.cli.screen import Screen, new_table
from riprap.graph.operators.toolkit import HEADINGS, TOOLKIT, cells

SUMMARY = "list the operators and what protection has to know of each"
EXAMPLES = """\
examples:
  riprap operators           the table; docs/operators.md has the same, with examples
  riprap operators --json    for a script
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command: there are none."""


def execute(arguments: argparse.Namespace, screen: Screen) -> int:
    """Print the table."""
    if screen.json:
        listed = [{"operator": name, **asdict(t), "consistent": t.consistent} for name, t in TOOLKIT.items()]
        screen.print_json({"operators": listed})
        return 0
    table = new_table()
    for heading in HEADINGS:
        table.add_column(heading, ratio=None if heading == "operator" else 1, no_wrap=heading == "operator")
    for name, traits in TOOLKIT.items():
        table.add_row(*map(Text, (name, *cells(traits))))
    screen.out.print(table)
    return 0
