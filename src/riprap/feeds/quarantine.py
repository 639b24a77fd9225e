"""What becomes of records that cannot be read: they go to the quarantine, or end the run, as the source says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from riprap.adapters.bad_records import write_quarantine
from riprap.errors import RunError
from riprap.graph.connectors import BadRecord
from riprap.operators.source import Source


def set_aside(source: Source, folder: Path, number: int, bad: Sequence[BadRecord]) -> None:
    """Put bad records into the quarantine, or stop, as the source says."""
    if bad and getattr(source.connector, "on_bad_record", "quarantine") == "fail":
        raise RunError(
            f"source '{source.name}' ({source.location}): at {_place(bad[0])}, {bad[0].reason}. "
            "Correct it, or let such records go to the quarantine: on_bad_record='quarantine'"
        )
    write_quarantine(folder, number, bad)


def _place(bad: BadRecord) -> str:
    return ", ".join(f"{name} {value}" for name, value in bad.position.items())
