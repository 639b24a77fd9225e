"""Run Bargain Discovery as a list of jobs says, each in a session of its own, and write down how it went.

    [{"feed": "...", "out": "...", "roll_rows": 500, "options": {"master": "local[2]"}}]

Each run has two sinks: ``<out>/rolled`` gathers small batches into a file, ``<out>/each`` has a file a batch.
``<out>/outcome.json`` is ``{"error": null}``, or the type and text of the error that stopped the run.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.runtime.harness import bargain_twice

import riprap as rr


def find_bargains(feed: str, out: str, roll_rows: int, options: dict[str, Any]) -> None:
    folder = Path(out)
    rolled = rr.parquet(folder / "rolled", roll_rows=roll_rows, roll="1h")
    app = bargain_twice(Path(feed), rolled, rr.parquet(folder / "each", roll=0))
    outcome = {"error": None, "message": ""}
    try:
        config = {"spark.log.level": "OFF", **options.pop("config", {})}
        with app.run(config=config, **options) as run:
            run.wait()
    except rr.RunError as error:
        outcome = {"error": type(error).__name__, "message": str(error)}
    (folder / "outcome.json").write_text(json.dumps(outcome))


if __name__ == "__main__":
    for job in json.loads(Path(sys.argv[1]).read_text()):
        find_bargains(**job)
