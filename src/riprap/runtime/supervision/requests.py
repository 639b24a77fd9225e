"""What other processes ask of a supervised run, by a file of its folder, which the supervisor looks for.

processes/stop.request     {"format": "riprap-stop/1", "stop": "resume"}     or "end": not to be taken up again
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from riprap.runtime.supervision.presence import FOLDER
from riprap.state.durable_files import load_json, save_json

FORMAT = "riprap-stop/1"
_STOP = "stop.request"
Stop = Literal["resume", "end"]


def ask_to_stop(run: Path, how: Stop) -> None:
    """Ask the supervisor of a run to stop it."""
    save_json(run / FOLDER / _STOP, {"format": FORMAT, "stop": how})


def asked_to_stop(run: Path) -> Stop | None:
    """Say whether a run was asked to stop, and how."""
    path = run / FOLDER / _STOP
    data = load_json(path, FORMAT, {"stop": str}, remedy="Remove it, and ask again")
    if data is None:
        return None
    return "end" if data["stop"] == "end" else "resume"


def forget_stop(run: Path) -> None:
    """Take no notice of what was asked of an earlier process."""
    (run / FOLDER / _STOP).unlink(missing_ok=True)
