"""Supervise an application with replicas until a number of tuples has come in, and whoever is to die has been killed.

{"calls": "...", "out": "...", "options": {"runs": "..."}, "tuples": 5000, "kill": "hot~a" or null}
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from tests.runtime.supervision.replicated import Scene, replicated

import riprap as rr
from riprap.runtime import Patience, supervise


def main() -> None:
    """Run as the specification says."""
    spec = json.loads(Path(sys.argv[1]).read_text())
    app = replicated(Path(spec["calls"]), Path(spec["out"]))
    app.replicate("hot", "sums", "counts", detect="2s")
    options = rr.RunOptions(
        buckets=4, parallelism=1, master="local[1,3]", config={"spark.log.level": "OFF"}, trigger="50ms",
        **spec["options"],
    )  # fmt: skip
    with supervise(app.graph(), options, patience=Patience(silent=60.0), spare=False) as run:
        while run.progress().tuples_in < spec["tuples"]:
            assert run.running
            time.sleep(0.02)
        if spec["kill"] is not None:
            Scene(run).driver(spec["kill"]).kill()
            # Its supervisor is to die of that.
            while True:
                time.sleep(0.1)


if __name__ == "__main__":
    main()
