"""What commands that measure an application feed it: what the user names, or a small feed that is made for it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import riprap as rr
from riprap.apps.catalogue import CATALOGUE
from riprap.cli.applications import add_application, application_of, positive
from riprap.cli.demo import prepare_feed
from riprap.cli.demonstrations import DEMONSTRATIONS
from riprap.cli.screen import Screen
from riprap.graph.connectors import SinkConnector

# Enough for a window of every key of the market, little enough for a minute.
_MOST = 300_000


def add_measured(parser: argparse.ArgumentParser) -> None:
    """Add APP, and what it is to be fed."""
    add_application(parser)
    amounts = "; ".join(f"{name}: {_usual(name):,} {d.unit}" for name, d in DEMONSTRATIONS.items())
    group = parser.add_argument_group("without --feed")
    group.add_argument(
        "--events", type=positive, metavar="N", help=f"how much input to make, under feeds/ ({amounts})"
    )


def measured_application(
    arguments: argparse.Namespace, screen: Screen, *, out: SinkConnector, feed: bool = True
) -> rr.Application:
    """Make the application to be measured; a feed is made for a built-in one that is given none."""
    name, path = arguments.app, arguments.feed
    settings: Sequence[str] = arguments.settings
    if feed and path is None and name in CATALOGUE:
        amount = arguments.events or _usual(name)
        path = Path("feeds") / f"{name}-{amount}"
        path.parent.mkdir(exist_ok=True)
        prepare_feed(path, name, amount, 0, screen)
        settings = [*(f"{k}={v}" for k, v in DEMONSTRATIONS[name].settings.items()), *settings]
    asked = argparse.Namespace(app=name, feed=path, settings=settings, rate=None)
    return application_of(asked, needs_feed=feed, out=out)


def _usual(name: str) -> int:
    return min(_MOST, DEMONSTRATIONS[name].amount)
