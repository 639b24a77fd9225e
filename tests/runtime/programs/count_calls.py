"""Run the application of tests/runtime/elements.py as a job says, in a session of its own.

{"calls": "...", "out": "...", "options": {"master": "local[1]"}}
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.runtime.elements import busy

import riprap as rr


def count_calls(calls: str, out: str, options: dict[str, Any]) -> None:
    sinks = (rr.parquet(Path(out) / name, roll=0) for name in ("by_caller", "by_callee", "met"))
    app = busy(Path(calls), *sinks)
    with app.run(config={"spark.log.level": "OFF"}, **options) as run:
        run.wait()


if __name__ == "__main__":
    count_calls(**json.loads(Path(sys.argv[1]).read_text()))
