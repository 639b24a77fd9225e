"""Run the application of tests/runtime/test_flush.py as a job says, in a session of its own.

{"out": "...", "options": {"master": "local[1]"}}
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.runtime.test_flush import sums


def flush_sums(out: str, options: dict[str, Any]) -> None:
    with sums(Path(out)).run(config={"spark.log.level": "OFF"}, **options) as run:
        run.wait()


if __name__ == "__main__":
    flush_sums(**json.loads(Path(sys.argv[1]).read_text()))
