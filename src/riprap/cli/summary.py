"""What a run did, summed over the batches in its folder's ``metrics.jsonl``."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.table import Table

from riprap.cli.screen import Screen, new_table, shown
from riprap.graph.connectors import FileSink
from riprap.graph.graph import Graph
from riprap.graph.guarantees import Guarantee, guarantees
from riprap.operators.sink import Sink
from riprap.protection import LOSSES, Losable
from riprap.runtime.folder import RunFolder
from riprap.runtime.rolled_lines import Following


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """What an operator did, and the state it has in the end."""

    tuples_in: int = 0
    tuples_out: int = 0
    seconds: float = 0.0
    state_bytes: int = 0
    late: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSummary:
    """Where a sink's tuples went, and in a word what holds of them after each loss.

    ``path`` is None where they did not go to files.
    """

    path: str | None
    format: str | None
    tuples: int
    holds: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A run as a whole. ``steady`` is the rate from the second batch on, None for a single batch; ``take_up`` is the
    command that takes it up again, None once it has ended; ``halted`` are the regions that were, with the cause."""

    application: str
    run_folder: Path
    outputs: Mapping[str, SinkSummary]
    batches: int
    tuples_in: int
    seconds: float
    steady: float | None
    operators: Mapping[str, Totals]
    interrupted: bool
    take_up: str | None = None
    quarantined: Mapping[str, int] = field(default_factory=dict)
    checkpoints: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    halted: Mapping[str, str] = field(default_factory=dict)

    @property
    def tuples_out(self) -> int:
        return sum(output.tuples for output in self.outputs.values())

    @property
    def events_per_s(self) -> float:
        return self.tuples_in / self.seconds if self.seconds > 0 else 0.0

    def to_json(self) -> dict[str, Any]:
        """Return the object that ``--json`` prints; its keys are stable."""
        paths = [output.path for output in self.outputs.values() if output.path is not None]
        return {
            "application": self.application,
            "run_folder": str(self.run_folder),
            "output": paths[0] if paths else None,
            "outputs": {name: asdict(output) for name, output in self.outputs.items()},
            "batches": self.batches,
            "tuples_in": self.tuples_in,
            "tuples_out": self.tuples_out,
            "seconds": self.seconds,
            "events_per_s": self.events_per_s,
            "steady_events_per_s": self.steady,
            "interrupted": self.interrupted,
            "take_up": self.take_up,
            "halted": dict(self.halted),
            "quarantined": dict(self.quarantined),
            "checkpoints": {name: dict(status) for name, status in self.checkpoints.items()},
            "operators": {
                name: {
                    "in": totals.tuples_in,
                    "out": totals.tuples_out,
                    "seconds": totals.seconds,
                    "state_bytes": totals.state_bytes,
                    "late": totals.late,
                }
                for name, totals in self.operators.items()
            },
        }


class Tally:
    """Adds up the batches of a run while it goes on: of a long one not all lines stay."""

    def __init__(self, lines: Following) -> None:
        self._lines = lines
        self.batches = 0
        self.tuples_in = 0
        self.operators: dict[str, Totals] = {}
        self.checkpoints: dict[str, Mapping[str, Any]] = {}
        self._first: tuple[float, int] | None = None
        self._last = 0.0

    def take(self) -> None:
        """Add what has come."""
        for line in self._lines.new():
            if not line["repeated"]:
                self._add(line)

    def _add(self, line: Mapping[str, Any]) -> None:
        self.batches += 1
        self.tuples_in += line["rows"]
        self._first = self._first or (line["time"], line["rows"])
        self._last = line["time"]
        self.checkpoints.update(line.get("checkpoints", {}))
        for name, counts in line["operators"].items():
            before = self.operators.get(name, Totals())
            self.operators[name] = Totals(
                tuples_in=before.tuples_in + int(counts["in"]),
                tuples_out=before.tuples_out + int(counts["out"]),
                seconds=before.seconds + float(counts["seconds"]),
                state_bytes=int(counts.get("state_bytes", 0)),
                late=before.late + int(counts.get("late", 0)),
            )

    @property
    def steady(self) -> float | None:
        """The rate from the second batch on, None for a single batch."""
        if self._first is None or self._last <= self._first[0]:
            return None
        return (self.tuples_in - self._first[1]) / (self._last - self._first[0])


def summarise(
    graph: Graph,
    folder: Path,
    tally: Tally,
    *,
    seconds: float,
    interrupted: bool,
    take_up: str | None = None,
    halted: Mapping[str, str] | None = None,
) -> Summary:
    """Sum up the batches of a run that took so many seconds."""
    operators = {operator.name: tally.operators.get(operator.name, Totals()) for operator in graph}
    held = guarantees(graph)
    outputs = {
        sink.name: _output(sink, operators[sink.name].tuples_in, held[sink.name])
        for sink in graph.of_kind(Sink)
    }
    return Summary(
        application=graph.name,
        run_folder=folder,
        outputs=outputs,
        batches=tally.batches,
        tuples_in=tally.tuples_in,
        seconds=seconds,
        steady=tally.steady,
        operators=operators,
        interrupted=interrupted,
        take_up=take_up,
        quarantined=RunFolder(folder, time.time).quarantined(),
        checkpoints=dict(tally.checkpoints),
        halted=halted or {},
    )


def print_summary(summary: Summary, screen: Screen) -> None:
    """Show a run to people."""
    rate = f"{summary.events_per_s:,.0f} events/s in all"
    if summary.steady is not None:
        rate += f", {summary.steady:,.0f} events/s after the first batch"
    screen.heading(f"{summary.application}: {summary.tuples_in:,} events in {summary.seconds:.1f} s")
    screen.say(rate)
    screen.say()
    screen.out.print(_operator_table(summary))
    screen.say()
    for name, output in summary.outputs.items():
        where = f" as {output.format} in {shown(output.path)}" if output.path else ""
        screen.say(f"{name}: {output.tuples:,} tuples{where}")
        screen.say(f"  {_held(output.holds)}", style="dim")
    for name, status in summary.checkpoints.items():
        screen.say(f"{name}: {_saved(status)}")
    for name, totals in summary.operators.items():
        if totals.late:
            screen.say(
                f"{name}: {totals.late:,} tuples came after newer ones of their key, and count as if as new"
            )
    for name, count in summary.quarantined.items():
        where = shown(summary.run_folder / "quarantine" / name)
        screen.say(f"{name}: {count:,} bad records in the quarantine, {where}")
    for name, cause in summary.halted.items():
        screen.say(f"region '{name}' is halted: {cause}", style="red")
    if summary.take_up is not None:
        screen.say(f"Run folder: {shown(summary.run_folder)}. The run can be taken up:")
        screen.say(f"  {summary.take_up}")
    else:
        screen.say(f"Run folder: {shown(summary.run_folder)} (the run has ended)")


def _held(holds: Mapping[str, str]) -> str:
    """Say what holds after which loss.

    >>> _held({"process": "exactly once", "host": "exactly once", "power": "at most once"})
    'exactly once after the loss of a process or a host's memory, at most once after that of the power'
    """
    parts: list[str] = []
    for word, losses in groupby(holds, key=lambda loss: holds[loss]):
        lost = " or ".join(LOSSES[loss] for loss in losses)  # type: ignore[index]
        parts.append(f"{word} after {'that' if parts else 'the loss'} of {lost}")
    return ", ".join(parts)


def _saved(status: Mapping[str, Any]) -> str:
    """Say how an operator's checkpoints went."""
    saved = f"{status['taken']:,} checkpoints, {status['total']:,} bytes written"
    trouble = [f"{status[kind]:,} {kind}" for kind in ("missed", "failed") if status[kind]]
    return ", ".join([saved, *trouble])


def _operator_table(summary: Summary) -> Table:
    table = new_table()
    table.add_column("operator")
    for heading in ("tuples in", "tuples out", "processing s", "state bytes"):
        table.add_column(heading, justify="right")
    for name, totals in summary.operators.items():
        state = f"{totals.state_bytes:,}" if totals.state_bytes else ""
        table.add_row(name, f"{totals.tuples_in:,}", f"{totals.tuples_out:,}", f"{totals.seconds:.3f}", state)
    return table


def _output(sink: Sink, tuples: int, held: Mapping[Losable, Guarantee]) -> SinkSummary:
    holds: dict[str, str] = {loss: guarantee.word for loss, guarantee in held.items()}
    if isinstance(sink.connector, FileSink):
        path = str(Path(sink.connector.path).absolute())
        return SinkSummary(path=path, format=sink.connector.format, tuples=tuples, holds=holds)
    return SinkSummary(path=None, format=None, tuples=tuples, holds=holds)
