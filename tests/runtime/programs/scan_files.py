"""Run the application of tests/runtime/checkpointing/scanned.py: {"files": "...", "out": "...", "options": {...}}."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.runtime.checkpointing.scanned import scanned

import riprap as rr


def scan(files: str, out: str, options: dict[str, Any]) -> None:
    app = scanned(Path(files), Path(out), rr.consistent(trigger="operator"))
    with app.run(master="local[2]", config={"spark.log.level": "OFF"}, **options) as run:
        run.wait()


if __name__ == "__main__":
    scan(**json.loads(Path(sys.argv[1]).read_text()))
