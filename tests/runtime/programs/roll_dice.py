"""Run the application of tests/runtime/checkpointing/dice.py: {"out": "...", "stateless": false, "options": {...}}."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.runtime.checkpointing.dice import dice


def roll(out: str, stateless: bool, options: dict[str, Any]) -> None:
    app = dice(Path(out), stateless=stateless)
    with app.run(master="local[2]", config={"spark.log.level": "OFF"}, **options) as run:
        run.wait()


if __name__ == "__main__":
    roll(**json.loads(Path(sys.argv[1]).read_text()))
