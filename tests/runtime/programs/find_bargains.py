"""Run Bargain Discovery as a list of jobs says, and write down how each run went.

    [{"master": "local[2]", "runs": [{"feed": "...", "out": "...", "roll_rows": 500, "options": {...}}]}]

Each run has two sinks: ``<out>/rolled`` gathers small batches into a file, ``<out>/each`` has a file a batch.
``<out>/outcome.json`` is ``{"error": null}``, or the type and text of the error that stopped the run.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import riprap as rr
from riprap.runtime.session import make_session
from tests.runtime.harness import bargain_twice


def main(spec: Path) -> None:
    for job in json.loads(spec.read_text()):
        session = make_session(job["master"], {"spark.log.level": "OFF"})
        for each in job["runs"]:
            find_bargains(session, **each)
        session.stop()


def find_bargains(session: Any, feed: str, out: str, roll_rows: int, options: dict[str, Any]) -> None:
    folder = Path(out)
    rolled = rr.parquet(folder / "rolled", roll_rows=roll_rows, roll="1h")
    app = bargain_twice(Path(feed), rolled, rr.parquet(folder / "each", roll=0))
    outcome = {"error": None, "message": ""}
    try:
        with app.run(spark=session, **options) as run:
            run.wait()
    except rr.RunError as error:
        outcome = {"error": type(error).__name__, "message": str(error)}
    (folder / "outcome.json").write_text(json.dumps(outcome))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
