"""List the operators and adapters there are: what each does, what it keeps, and what holds after a failure."""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict

from rich.text import Text

from riprap.application import Application
from riprap.cli.screen import Screen
from riprap.graph.connectors import (
    Callback,
    Console,
    Files,
    FileSink,
    FromKafka,
    FromPostgres,
    FromRedis,
    FromSpark,
    FromTcp,
    Generated,
    Memory,
    Promise,
    Rows,
    ToKafka,
    ToPostgres,
    ToRedis,
    ToSpark,
    ToSqlite,
    ToTcp,
)
from riprap.graph.operator import Operator, Traits

SUMMARY = "list the operators and what protection has to know of each"
EXAMPLES = """\
examples:
  riprap operators           the table; docs/operators.md has the same, with examples
  riprap operators --json    for a script
"""


def kinds() -> Iterator[type[Operator]]:
    """Yield the operators there are: those of the files that the methods of an application come from."""
    methods = (value for value in vars(Application).values() if inspect.isfunction(value))
    for module in dict.fromkeys(sys.modules[method.__module__] for method in methods):
        for value in vars(module).values():
            if inspect.isclass(value) and issubclass(value, Operator) and value.__module__ == module.__name__:
                yield value


TOOLKIT: Mapping[str, Traits] = {
    title: traits
    for kind in kinds()
    for title, traits in {kind.__name__: kind.TRAITS, **kind.VARIANTS}.items()
}

SOURCES: Mapping[str, Promise] = {
    "files": Files.PROMISE,
    "rows in memory": Rows.PROMISE,
    "rate, clock": Generated.PROMISE,
    "PostgreSQL": FromPostgres.PROMISE,
    "Redis stream": FromRedis.PROMISE,
    "Kafka": FromKafka.PROMISE,
    "TCP": FromTcp.PROMISE,
    "Spark": FromSpark.PROMISE,
}

SINKS: Mapping[str, Promise] = {
    "files": FileSink.PROMISE,
    "memory": Memory.PROMISE,
    "PostgreSQL": ToPostgres.PROMISE,
    "SQLite": ToSqlite.PROMISE,
    "Redis stream": ToRedis.PROMISE,
    "Kafka": ToKafka.PROMISE,
    "TCP": ToTcp.PROMISE,
    "screen": Console.PROMISE,
    "callback": Callback.PROMISE,
    "Spark": ToSpark.PROMISE,
}

HEADINGS = (
    "operator",
    "does",
    "state, by port",
    "pages",
    "key",
    "restored state is stale",
    "holds tuples",
    "consistent region",
    "a punctuation",
)


def cells(traits: Traits) -> tuple[str, ...]:
    """Return a row of the table, but for the operator's name."""
    return (
        traits.does,
        "; ".join(traits.state) or "none",
        traits.pages or "-",
        traits.key,
        traits.stale or "no",
        "yes: lost with it, unless protected" if traits.holds else "no",
        "yes" if traits.consistent else f"no: {traits.why_not}",
        traits.punctuation,
    )


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
