"""When a paced source began: a restart goes on as if it had never stopped."""

from __future__ import annotations

import json
import time
from pathlib import Path

from riprap.state.saving import save_json

PACE = "pace.json"
_PACE_FORMAT = "riprap-pace/1"


def pace_start(folder: Path, rate: float) -> float:
    """Return when a paced source began: now, if it begins now. A restart goes on as if it had never stopped."""
    path = folder / PACE
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        save_json(path, {"format": _PACE_FORMAT, "start": time.time(), "rate": rate})
    began: float = json.loads(path.read_text())["start"]
    return began
