"""What commands show: results on stdout, progress and errors on stderr, bars only on a terminal."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, TextColumn
from rich.table import Table
from rich.text import Text

# Without a terminal there is no width to keep to; this one fits every table.
_PLAIN_WIDTH = 120
_WIDE = 110


class Screen:
    """The two consoles of a command, and the one JSON object it may print instead."""

    def __init__(self, *, json: bool = False, quiet: bool = False, command: Sequence[str] = ()) -> None:
        self.json = json
        self.quiet = quiet
        self.command = tuple(command)
        self._printed = False
        self._stdout = sys.stdout
        self.out = _console(stderr=False)
        self.err = _console(stderr=True)

    @property
    def live(self) -> bool:
        """Whether bars that move can be shown."""
        return self.err.is_terminal and not self.quiet

    @contextlib.contextmanager
    def guard_stdout(self) -> Iterator[None]:
        """With ``--json``, send whatever else is printed, such as by a user's callback, to stderr."""
        if not self.json:
            yield
            return
        with contextlib.redirect_stdout(sys.stderr):
            yield

    def print_json(self, data: Mapping[str, Any]) -> None:
        """Print the command's one object."""
        self._printed = True
        print(json.dumps(data, indent=2), file=self._stdout, flush=True)

    def fail(self, error: str, message: str, code: int) -> None:
        """With ``--json``, print what went wrong as the command's one object, unless it has printed one."""
        if self.json and not self._printed:
            self.print_json({"error": error, "message": message, "exit_code": code})

    def say(self, text: str | Text = "", *, style: str = "") -> None:
        """Print a line of a result."""
        self.out.print(text, style=style, markup=False, soft_wrap=True)

    def heading(self, text: str) -> None:
        """Print the heading of a part of a result."""
        self.say()
        self.say(text, style="bold")

    def note(self, text: str) -> None:
        """Print a line about the progress."""
        if not self.quiet:
            self.err.print(text, markup=False, soft_wrap=True)

    def error(self, text: str) -> None:
        """Print what went wrong."""
        self.err.print(Text.assemble(("riprap: ", "bold red"), (text, "red")), soft_wrap=True)

    @contextlib.contextmanager
    def waiting(self, text: str) -> Iterator[None]:
        """Show that something goes on whose length is unknown."""
        if not self.live:
            self.note(f"{text} ...")
            yield
            return
        with self.bars(TextColumn("[dim]{task.description}")) as bars:
            bars.add_task(text, total=None)
            yield

    def bars(self, *columns: str | ProgressColumn) -> Progress:
        """Return progress bars on stderr that vanish when they are done."""
        return Progress(
            SpinnerColumn(),
            *columns,
            console=self.err,
            transient=True,
            disable=not self.live,
            # What a user's function prints must stay on stdout where that is a file.
            redirect_stdout=sys.stdout.isatty(),
        )

    @property
    def narrow(self) -> bool:
        """Whether a line must be brief to fit."""
        return self.err.width < _WIDE

    def bar(self) -> BarColumn:
        """Return the bar all commands use."""
        return BarColumn(bar_width=12 if self.narrow else 28)


def new_table(*headings: str) -> Table:
    """Return an empty table in the one look all commands have."""
    return Table(*headings, box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)


def shown(path: str | Path) -> str:
    """Return a path as people like to read it: from here, if it is below here.

    >>> shown(Path.cwd() / "out")
    'out'
    """
    absolute, here = Path(path).absolute(), Path.cwd()
    return str(absolute.relative_to(here)) if absolute.is_relative_to(here) else str(absolute)


class _Console(Console):
    """A console that falls silent when whoever reads it has seen enough: what is done meanwhile goes on."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())


def _console(*, stderr: bool) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else _PLAIN_WIDTH
    return _Console(stderr=stderr, highlight=False, width=width)
