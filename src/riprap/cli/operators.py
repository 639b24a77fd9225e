"""List the operators and adapters there are: what each does, what it keeps, and what holds after a failure."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import asdict

from rich.text import Text

from riprap.cli.screen import Screen
from riprap.graph.connectors import Promise
from riprap.graph.operators.toolkit import HEADINGS, SINKS, SOURCES, TOOLKIT, cells

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
        screen.print_json({"operators": listed, "sources": _listed(SOURCES), "sinks": _listed(SINKS)})
        return 0
    for name, traits in TOOLKIT.items():
        screen.say(Text.assemble((name, "bold"), f": {traits.does}"))
        # An operator without state has nothing to say in most columns.
        for heading, cell in zip(HEADINGS[2:], cells(traits)[1:], strict=True):
            if cell not in ("none", "-", "any", "no"):
                screen.say(f"    {heading}: {cell}")
    _show("Sources", SOURCES, screen)
    _show("Sinks", SINKS, screen)
    return 0


def _listed(adapters: Mapping[str, Promise]) -> list[dict[str, object]]:
    return [
        {
            "adapter": name,
            "call": p.call,
            "does": p.does,
            "after_failure": p.after_failure,
            "promise": p.word,
            "why_not": p.why_not,
        }
        for name, p in adapters.items()
    ]


def _show(kind: str, adapters: Mapping[str, Promise], screen: Screen) -> None:
    screen.heading(kind)
    for name, promise in adapters.items():
        screen.say(Text.assemble((name, "bold"), f": {promise.does}, {promise.call}"))
        screen.say(f"    after a failure: {promise.after_failure}")
        screen.say(f"    promise: {promise}")
