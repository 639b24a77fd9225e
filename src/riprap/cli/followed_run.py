"""Run an application under supervision, show how it goes, and stop it when asked to."""

from __future__ import annotations

import contextlib
import math
import os
import shlex
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pyarrow.parquet as pq
from rich.progress import Progress, TaskID, TextColumn, TimeElapsedColumn

from riprap.cli.applications import UsageError
from riprap.cli.ctrl_c import CtrlC
from riprap.cli.screen import Screen, shown
from riprap.cli.summary import Summary, Tally, summarise
from riprap.errors import RiprapError, RunError
from riprap.graph.connectors import Files, Rows
from riprap.graph.graph import Graph
from riprap.graph.options import RunOptions
from riprap.operators.source import Source

if TYPE_CHECKING:
    from riprap.runtime import Progress as RunProgress
    from riprap.runtime import Supervised
    from riprap.runtime.folder import RunFolder
    from riprap.runtime.rolled_lines import Following

_REFRESH_SECONDS = 0.1
_LINE_SECONDS = 2.0
# Reading footers is cheap; reading thousands of them before anything happens is not.
_MOST_FOOTERS = 500
# To start takes longer than a batch: what is to run for a while does so from the first one on, if that comes by then.
_FIRST_BATCH_SECONDS = 60.0


def follow(
    graph: Graph,
    screen: Screen,
    options: RunOptions,
    *,
    at_most: float | None = None,
    **supervision: Any,
) -> Summary:
    """Run an application to its end, until Ctrl-C or for ``at_most`` so many seconds of batches, and sum it up.

    ``supervision`` goes to ``riprap.runtime.supervise``.
    """
    from riprap.runtime import supervise
    from riprap.runtime.folder import RunFolder

    earlier = _earlier_run(Path(options.folder), graph) if options.folder is not None else None
    # What is there of an earlier process is old news.
    metrics = earlier.follow_metrics() if earlier is not None else None
    events = earlier.follow_events() if earlier is not None else None
    with (
        Printing(screen) as printing,
        supervise(graph, options, stdout=printing.descriptor, **supervision) as run,
    ):
        with screen.waiting("Starting Spark"):
            run.await_ready()
        with screen.waiting("Starting the query"), _pointing_to(run.folder, screen):
            run.await_up()
        total = rows_in(graph) if options.trigger is None else None
        home = RunFolder(run.folder, time.time)
        notices = Notices(events or home.follow_events(all_of_them=True), screen)
        tally = Tally(metrics or home.follow_metrics(all_of_them=True))
        seconds, interrupted = _watch(run, screen, total, notices, tally, at_most)
    tally.take()
    return summarise(
        graph,
        run.folder,
        tally,
        seconds=seconds,
        interrupted=interrupted,
        take_up=None if home.ended else take_up(screen.command, run.folder),
        halted=run.halted,
    )


def take_up(command: Sequence[str], folder: Path) -> str:
    """Write the command that takes up a run which a command has started.

    >>> take_up(["run", "app.py:app", "--folder", "runs/app/latest", "--trigger", "1s"], Path("runs/app/5"))
    'riprap run app.py:app --trigger 1s --folder runs/app/5'
    """
    words = iter(command if tuple(command[:1]) == ("run",) else ("run", "..."))
    kept = []
    for word in words:
        if word == "--folder":
            next(words, None)
        elif not word.startswith("--folder="):
            kept.append(word)
    return f"riprap {shlex.join(kept)} --folder {shlex.quote(shown(folder))}".replace("'...'", "...")


def rows_in(graph: Graph) -> int | None:
    """Return how many tuples the sources hold, or None where only reading them would tell."""
    counts = [_rows_of(source) for source in graph.of_kind(Source)]
    counted = [count for count in counts if count is not None]
    return sum(counted) if len(counted) == len(counts) else None


def _rows_of(source: Source) -> int | None:
    match source.connector:
        case Rows(table=table):
            return int(table.num_rows)
        case Files(format="parquet") as files:
            names = files.listing()
            if len(names) <= _MOST_FOOTERS:
                # What cannot be read is the run's to report: here it only means there is no total.
                with contextlib.suppress(OSError, ValueError):
                    return sum(int(pq.read_metadata(name).num_rows) for name in names)
    return None


def _earlier_run(folder: Path, graph: Graph) -> RunFolder:
    from riprap.runtime.folder import RunFolder

    try:
        earlier = RunFolder.reopen(folder, graph.name, time.time)
    except RunError as error:
        raise UsageError(str(error)) from error
    if (earlier.path / "ended").exists():
        raise UsageError(f"the run in {folder} has ended: there is nothing to take up. Leave out --folder")
    return earlier


def _watch(
    run: Supervised, screen: Screen, total: int | None, notices: Notices, tally: Tally, at_most: float | None
) -> tuple[float, bool]:
    """Follow a run until it ends; return the seconds it took, and whether Ctrl-C ended it."""
    end = math.inf if at_most is None else at_most + _FIRST_BATCH_SECONDS
    with (
        CtrlC(screen) as asked,
        LiveLine(screen, run.graph.name, total, shown(run.folder)) as line,
        _pointing_to(run.folder, screen),
    ):
        notices.show()
        progress = run.progress()
        before = progress.batches
        while not (asked.stop or progress.seconds >= end or _is_over(run, _REFRESH_SECONDS)):
            first, progress = progress.batches == before, run.progress()
            if first and progress.batches > before and at_most is not None:
                end = progress.seconds + at_most
            if asked.asking:
                line.hide()
                asked.look()
            else:
                line.show(progress, run.halted)
            notices.show()
            tally.take()
        seconds = run.progress().seconds
        if asked.stop or progress.seconds >= end:
            _stop(run, resume=asked.stop == "resume")
        notices.show()
        return seconds, asked.stop is not None


def _is_over(run: Supervised, timeout: float) -> bool:
    """Wait for the end of a run; that regions of it are halted is for the summary to say."""
    from riprap.runtime.supervision import RegionHaltedError

    try:
        return run.wait(timeout=timeout)
    except RegionHaltedError:
        return True


def _stop(run: Supervised, *, resume: bool) -> None:
    from riprap.runtime.supervision import RegionHaltedError

    with contextlib.suppress(RegionHaltedError):
        run.stop(resume=resume)


@contextlib.contextmanager
def _pointing_to(folder: Path, screen: Screen) -> Iterator[None]:
    """Add to an error where to look further, and how to go on."""
    from riprap.runtime.folder import RunFolder
    from riprap.runtime.jvm_output import LOG

    try:
        yield
    except RiprapError as error:
        look = f"Look at events.jsonl and {LOG} in the run's folder, {shown(folder)}"
        if not RunFolder(folder, time.time).ended:
            look += f"\nThe run can be taken up: {take_up(screen.command, folder)}"
        raise type(error)(f"{error}\n{look}") from error


class Printing:
    """Where driver processes print: to our stdout, past a bar that moves, or with ``--json`` to stderr."""

    def __init__(self, screen: Screen) -> None:
        self.descriptor: int | None = sys.__stderr__.fileno() if screen.json and sys.__stderr__ else None
        self._piped = screen.live and sys.stdout.isatty()
        self._thread = threading.Thread(target=self._copy, name="printing", daemon=True)

    def __enter__(self) -> Self:
        if self._piped:
            self._reading, self.descriptor = os.pipe()
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._piped and self.descriptor is not None:
            os.close(self.descriptor)
            self._thread.join(_REFRESH_SECONDS * 10)

    def _copy(self) -> None:
        with open(self._reading, encoding=sys.stdout.encoding, errors="replace") as lines:
            for line in lines:
                sys.stdout.write(line)


class Notices:
    """Show what people should know of a run: lost connections, warnings, failures."""

    def __init__(self, events: Following, screen: Screen) -> None:
        self._events = events
        self._screen = screen

    def show(self) -> None:
        """Show what happened since the last time."""
        for event in self._events.new():
            words = _notice(event)
            if words is not None:
                self._screen.note(words)


def _notice(event: Mapping[str, Any]) -> str | None:
    from riprap.runtime.supervision.journal import tell

    match event:
        case {"event": "connection lost", "what": what, "message": message, "tries": tries, "wait": wait}:
            return f"{what}: {message}; try {tries} in {wait:g} s"
        case {"event": "connection back", "what": what, "after": after}:
            return f"{what}: connected again after {after:.1f} s"
        case {"event": "waiting" | "warning" | "compiling", "message": message}:
            what = event.get("what", event.get("element"))
            return f"{what}: {message}" if what else str(message)
        case {
            "event": "state lost"
            | "records lost"
            | "results differ"
            | "cut late"
            | "seal refused"
            | "slots short",
            "message": message,
        }:
            return str(message)
        case {"event": "computed again", "element": element, "batches": n, "tuples": rows, "seconds": s} if n:
            return f"'{element}' has computed {n:,} batches again, {rows:,} tuples in {s:.1f} s"
        case {"event": "restored", "operator": operator, "version": version, "age": age, "tuples": tuples}:
            less = [f"{event[k]:,} {k}" for k in ("stale", "damaged") if event.get(k)]
            left_out = f" ({' and '.join(less)} left out)" if less else ""
            return (
                f"'{operator}' is back from version {version}, {age:.1f} s old: {tuples:,} tuples{left_out}"
            )
        case {"event": "checkpoint failed", "operator": operator, "message": message}:
            return f"checkpoint of '{operator}' failed: {message}"
        case {"event": "checkpoint late", "operator": operator, "missed": missed}:
            return f"checkpoint of '{operator}' took too long: {missed} left out"
        case {"event": "agent lost", "message": message}:
            return f"the agent that saves state died, and another takes its place: {message}"
        case {"event": "agent killed", "pid": pid, "message": message}:
            return f"the agent of an earlier driver, process {pid}, was killed: {message}"
        case {"event": "results lost", "element": element, "batch": batch}:
            return f"'{element}': results of batch {batch} were lost with the host's memory"
    return tell(event)


class LiveLine:
    """How a run goes, in one line: a moving one on a terminal, elsewhere a new one now and then."""

    def __init__(self, screen: Screen, name: str, total: int | None, reset: str = "RUN") -> None:
        self._screen = screen
        self._name = name
        self._reset = reset
        self._total = total
        self._next_line = _LINE_SECONDS
        self._last = ""
        self._bars: Progress = screen.bars(
            TextColumn("[bold]{task.description}"),
            screen.bar(),
            TextColumn("{task.fields[told]}"),
            *(() if screen.narrow else (TimeElapsedColumn(),)),
        )
        self._task = TaskID(0)

    def __enter__(self) -> Self:
        self._bars.start()
        self._task = self._bars.add_task(self._name, total=self._total, told="first batch")
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def hide(self) -> None:
        """Leave the terminal to what is typed, until there is something to show again."""
        self._bars.stop()

    def show(self, progress: RunProgress, halted: Iterable[str] = ()) -> None:
        """Show how far the run has come, and which of its regions are halted."""
        words = "  ".join((*self._facts(progress), *map(self._halted, halted)))
        if self._screen.live:
            self._bars.start()
            if progress.batches:
                self._bars.update(self._task, completed=progress.tuples_in, told=words)
        elif progress.batches and progress.seconds >= self._next_line:
            self._next_line = progress.seconds + _LINE_SECONDS
            # A run that waits for input has nothing to add.
            if words != self._last:
                self._last = words
                self._screen.note(f"{self._name}: {words}")

    def _halted(self, region: str) -> str:
        return f"region '{region}' is halted: riprap reset {self._reset} {region}"

    def _facts(self, progress: RunProgress) -> Iterator[str]:
        of = f"/{self._total:,}" if self._total is not None else ""
        yield f"{progress.tuples_in:,}{of} events"
        yield f"{progress.tuples_per_second:,.0f} events/s"
        yield f"batch {progress.batches}"
        if not self._screen.narrow:
            yield f"latency {progress.latency:.2f} s"
        if progress.quarantined:
            yield f"{progress.quarantined:,} quarantined"
