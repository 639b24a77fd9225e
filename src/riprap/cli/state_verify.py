"""``riprap state verify``: read everything, and say what is damaged."""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict

from rich.progress import DownloadColumn, TextColumn, TransferSpeedColumn
from rich.text import Text

from riprap.cli.applications import UsageError
from riprap.cli.screen import Screen, new_table
from riprap.cli.state_arguments import asked_for, check_version, inspect, reading, why_none
from riprap.runtime.checkpointing.inspection import Inspection
from riprap.runtime.checkpointing.verification import Damage, Verification, Verifier

_DAMAGED = 1


def execute(arguments: argparse.Namespace, screen: Screen) -> int:
    """Verify the versions of an operator, or of all."""
    run = inspect(arguments)
    began = time.monotonic()
    verdicts: list[Verification] = []
    checked = 0
    if arguments.version is not None and arguments.operator is None:
        raise UsageError("--version: operators have versions of their own. Name the operator too")
    for about in asked_for(arguments, run):
        if arguments.operator is None and not _has_any(run, about.name):
            screen.note(f"{about.name}: no checkpoints, {why_none(about)}")
            continue
        verified, size = verify(run, about.name, arguments.version, screen)
        verdicts += verified
        checked += size
    seconds = time.monotonic() - began
    if screen.json:
        screen.print_json(
            {
                "run_folder": str(run.folder.path),
                "bytes": checked,
                "seconds": seconds,
                "sound": not any(v.damages for v in verdicts),
                "versions": [asdict(v) for v in verdicts],
            }
        )
    else:
        print_verdicts(verdicts, screen)
        rate = checked / 1e6 / seconds if seconds > 0 else 0.0
        screen.say(f"{checked:,} bytes checked in {seconds:.2f} s, {rate:,.0f} MB/s")
    return _DAMAGED if any(v.damages for v in verdicts) else 0


def _has_any(run: Inspection, operator: str) -> bool:
    with run.reading(operator) as versions:
        return versions is not None and bool(versions.numbers())


def verify(
    run: Inspection, operator: str, version: int | None, screen: Screen
) -> tuple[list[Verification], int]:
    """Verify a version of an operator, or all, and show how it goes; return also how many bytes were read."""
    with (
        reading(run, operator) as versions,
        screen.bars(
            TextColumn("[dim]{task.description}"), screen.bar(), DownloadColumn(), TransferSpeedColumn()
        ) as bars,
    ):
        if version is not None:
            check_version(versions, operator, version)
        numbers = versions.numbers() if version is None else [version]
        verifier = Verifier(versions, run.operators[operator])
        task = bars.add_task(operator, total=verifier.to_read(numbers))
        verifier.tell = lambda size: bars.advance(task, size)
        return [verifier.verify(number) for number in numbers], verifier.checked


def print_verdicts(verdicts: list[Verification], screen: Screen) -> None:
    """Show what came of it, a line a version, and every damage."""
    table = new_table("operator")
    for heading in ("version", "values", "groups", "tuples", "bytes"):
        table.add_column(heading, justify="right")
    table.add_column("")
    for verdict in verdicts:
        numbers = (verdict.values, verdict.groups, verdict.tuples, verdict.size)
        table.add_row(verdict.operator, str(verdict.version), *(f"{n:,}" for n in numbers), _outcome(verdict))
    if verdicts:
        screen.out.print(table)
        screen.say()
    for verdict in verdicts:
        for damage in verdict.damages:
            screen.say(f"{verdict.operator}, version {verdict.version}: {tell(damage)}", style="red")


def tell(damage: Damage) -> str:
    """Say what is damaged, and what it costs."""
    if not damage.value:
        return damage.why
    group = f", group {damage.group}" if damage.group is not None else ""
    return f"slot {damage.slot}, value {damage.value}{group}: {damage.why} ({damage.tuples:,} tuples)"


def _outcome(verdict: Verification) -> Text:
    if not verdict.damages:
        return Text("sound", style="green")
    if not verdict.usable:
        return Text("cannot be used", style="red")
    return Text(f"damaged: {verdict.lost:,} tuples would be missing", style="red")
