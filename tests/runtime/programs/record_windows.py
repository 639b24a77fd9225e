"""Run the application of tests/eventual/building.py: {"out": "...", "rows": 9, "policy": {...}, "options": {...}}."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.eventual.building import tumbling


def record(out: str, rows: int, policy: dict[str, Any], options: dict[str, Any]) -> None:
    app = tumbling(Path(out), rows, **policy)
    # A task whose worker dies is started again.
    with app.run(master="local[2,4]", config={"spark.log.level": "OFF"}, **options) as run:
        run.wait()


if __name__ == "__main__":
    record(**json.loads(Path(sys.argv[1]).read_text()))
