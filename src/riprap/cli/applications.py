"""The APP of a command line: a built-in name, or ``file.py:name``."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

import riprap as rr
from riprap.apps.catalogue import CATALOGUE, BuiltIn
from riprap.errors import RiprapError, RunError
from riprap.graph.connectors import FileFormat, FileSink, SinkConnector

FORMATS: tuple[FileFormat, ...] = get_args(FileFormat)
_SINKS = {"parquet": rr.parquet, "csv": rr.csv, "json": rr.json}
_FOR_BUILT_IN = {
    "feed": "feed", "set": "settings", "out": "out", "format": "format", "overwrite": "overwrite", "rate": "rate",
}  # fmt: skip


class UsageError(RiprapError, ValueError):
    """The command line asks for something that cannot be done."""


def add_application(parser: argparse.ArgumentParser) -> None:
    """Add APP and the options that say how to feed a built-in application."""
    names = "; ".join(f"{name}: {built_in.summary}" for name, built_in in CATALOGUE.items())
    parser.add_argument("app", metavar="APP", help=f"file.py:name, or a built-in application ({names})")
    feeds = "; ".join(f"{name}: {built_in.feed}" for name, built_in in CATALOGUE.items())
    group = parser.add_argument_group("built-in applications")
    group.add_argument("--feed", metavar="PATH", help=f"a file, folder or pattern ({feeds})")
    group.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        dest="settings",
        help=f"a setting; may be given several times. {_settings_there()}",
    )
    group.add_argument(
        "--rate", type=positive_number, metavar="N", help="replay the feed as N tuples a second"
    )


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add the options that say where a built-in application writes."""
    outs = ", ".join(built_in.default_out for built_in in CATALOGUE.values())
    group = parser.add_argument_group("output of built-in applications")
    group.add_argument("--out", metavar="PATH", help=f"the folder to write to (default: {outs})")
    group.add_argument("--format", choices=FORMATS, help="default: as the name of --out ends, or parquet")
    group.add_argument("--overwrite", action="store_true", help="replace what an earlier run wrote to --out")


def application_of(
    arguments: argparse.Namespace, *, needs_feed: bool, out: SinkConnector | None = None
) -> rr.Application:
    """Make the application that the command line names; a built-in one writes to ``out``, or where that says."""
    built_in = CATALOGUE.get(arguments.app)
    if built_in is not None:
        if needs_feed and arguments.feed is None:
            raise UsageError(
                f"'{arguments.app}' needs --feed PATH. No feed at hand? "
                f"'riprap demo --app {arguments.app}' makes one, in demo/feed"
            )
        settings = _settings(arguments.app, built_in, arguments.settings)
        return built_in.make(
            arguments.feed, out or _sink(arguments, built_in), rate=arguments.rate, settings=settings
        )
    if ":" not in arguments.app and not arguments.app.endswith(".py"):
        raise UsageError(
            f"there is no application '{arguments.app}'. Built in: {', '.join(CATALOGUE)}. "
            "One of your own is written file.py:name"
        )
    given = [f"--{option}" for option, name in _FOR_BUILT_IN.items() if getattr(arguments, name, None)]
    if given:
        raise UsageError(
            f"{' and '.join(given)}: {arguments.app} has its own sources and sinks. "
            "Change them there; these options are for built-in applications"
        )
    return load_from(arguments.app)


def refuse_occupied(graph: rr.Graph) -> None:
    """Refuse output that cannot be written, before the seconds it takes to start Spark."""
    from riprap.runtime.output_lease import refuse_held

    for operator in graph:
        connector = getattr(operator, "connector", None)
        if isinstance(connector, FileSink):
            folder = Path(connector.path)
            if folder.exists() and not folder.is_dir():
                raise UsageError(f"the output {folder} is a file: name a folder")
            try:
                refuse_held(folder)
            except RunError as error:
                raise UsageError(str(error)) from error
            if not connector.overwrite and folder.is_dir() and any(folder.glob("part-*")):
                raise UsageError(
                    f"the output folder {folder} holds files of an earlier run. Name another, or replace "
                    "them with --overwrite (in an application of your own: overwrite=True)"
                )


def positive(text: str) -> int:
    """Read a whole number of at least 1, as 500000 or 500_000."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"takes a whole number of at least 1, got {text}")
    return value


def positive_number(text: str) -> float:
    """Read a number above 0."""
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"takes a number above 0, got {text}")
    return value


def _settings_there() -> str:
    return "; ".join(
        f"{app}: " + ", ".join(f"{name} ({setting.default})" for name, setting in built_in.settings.items())
        for app, built_in in CATALOGUE.items()
        if built_in.settings
    )


def _settings(app: str, built_in: BuiltIn, given: Sequence[str]) -> dict[str, Any]:
    settings = {}
    for each in given:
        name, equals, value = each.partition("=")
        setting = built_in.settings.get(name)
        if not equals or setting is None:
            choices = ", ".join(f"{choice}=VALUE" for choice in built_in.settings) or "none"
            raise UsageError(f"--set {each}: the settings of '{app}' are: {choices}")
        try:
            settings[name] = setting.read(value)
        except ValueError as error:
            raise UsageError(f"--set {each}: {error}") from error
    return settings


def _sink(arguments: argparse.Namespace, built_in: BuiltIn) -> FileSink:
    out = Path(getattr(arguments, "out", None) or built_in.default_out)
    ending = out.suffix.removeprefix(".")
    chosen = getattr(arguments, "format", None) or (ending if ending in FORMATS else "parquet")
    return _SINKS[chosen](out, overwrite=getattr(arguments, "overwrite", False))


def load_from(app: str) -> rr.Application:
    """Load an application that is written ``file.py:name``."""
    file = app.rpartition(":")[0]
    with explained(file):
        return rr.load(app)


@contextlib.contextmanager
def explained(file: str) -> Iterator[None]:
    """Run code of a user's file, which may import those beside it; a failure of it names the line."""
    make_importable(Path(file).absolute().parent)
    try:
        yield
    except RiprapError:
        raise
    except Exception as error:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename) == Path(file)]
        line = f", line {frames[-1].lineno}" if frames else ""
        raise UsageError(f"{file}{line}: {type(error).__name__}: {error}") from error


def make_importable(folder: Path) -> None:
    """Let what is in a folder be imported, here and in Spark's Python workers."""
    sys.path.insert(0, str(folder))
    os.environ["PYTHONPATH"] = os.pathsep.join(p for p in (str(folder), os.environ.get("PYTHONPATH")) if p)
