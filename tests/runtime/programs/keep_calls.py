"""Run the protected application of tests/runtime/checkpointing/calls.py as a job says, in a session of its own.

    {"calls": "...", "out": "...", "every": "100ms", "rate": null, "options": {"master": "local[1]"}}

``<out>/times.jsonl`` has a line for each record of the ledger: batch, and time.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.runtime.checkpointing.calls import on_disk

from riprap.errors import RunError
from riprap.state.ledger import BatchRecord, Ledger


def keep_calls(calls: str, out: str, every: str, options: dict[str, Any], rate: float | None = None) -> None:
    app = on_disk(Path(calls), Path(out), every, rate)
    for attempt in range(3):
        try:
            with app.run(config={"spark.log.level": "OFF"}, **options) as run:
                run.wait()
            return
        except RunError as error:
            # Spark waits ten seconds for its first Python process, which is short on a busy machine.
            if attempt == 2 or "failed to connect back" not in str(error):
                raise
            options = {**options, "folder": str(run.folder)}


def note_times(path: Path) -> None:
    """Write down when batches were put on record: the ledger forgets."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write = Ledger.write

    def write_and_note(ledger: Ledger, record: BatchRecord, *, synced: bool = True) -> None:
        # Before, for it may die at any moment: the last line of a batch counts.
        with path.open("a") as file:
            file.write(json.dumps([record.batch, record.time]) + "\n")
        write(ledger, record, synced=synced)

    Ledger.write = write_and_note  # type: ignore[method-assign]


if __name__ == "__main__":
    job = json.loads(Path(sys.argv[1]).read_text())
    note_times(Path(job["out"]) / "times.jsonl")
    keep_calls(**job)
