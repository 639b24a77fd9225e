"""What other processes ask of a supervised run, by files of its folder, which the supervisor looks for.

processes/stop.request            {"format": "riprap-stop/1", "stop": "resume"}   or "end": not to be taken up again
processes/reset-words.request     {"format": "riprap-reset/1", "region": "words"}    a region that is halted
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from riprap.errors import FormatError
from riprap.runtime.folder import RunFolder
from riprap.runtime.supervision.presence import FOLDER
from riprap.state.durable_files import load_json, save_json

FORMAT = "riprap-stop/1"
_RESET_FORMAT = "riprap-reset/1"
_STOP = "stop.request"
_RESETS = "reset-*.request"
_REMEDY = "Remove it, and ask again"
Stop = Literal["resume", "end"]


def ask_to_stop(run: Path, how: Stop) -> None:
    """Ask the supervisor of a run to stop it."""
    save_json(run / FOLDER / _STOP, {"format": FORMAT, "stop": how})


def ask_to_reset(run: Path, region: str) -> None:
    """Ask the supervisor of a run to reset a region that is halted."""
    save_json(run / FOLDER / _RESETS.replace("*", region), {"format": _RESET_FORMAT, "region": region})


def forget_requests(run: Path) -> None:
    """Take no notice of what was asked of an earlier process."""
    for path in [run / FOLDER / _STOP, *(run / FOLDER).glob(_RESETS)]:
        path.unlink(missing_ok=True)


class Requests:
    """What is asked of the supervisor of a run. Nobody's garbage ends a run: it is told of, and removed."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder

    def stop(self) -> Stop | None:
        """Say whether the run is to stop, and how."""
        stop = self._read(self._folder.path / FOLDER / _STOP, FORMAT, "stop")
        return None if stop is None else "end" if stop == "end" else "resume"

    def resets(self) -> list[str]:
        """Take the regions that are to be reset, each once."""
        regions = []
        for path in sorted((self._folder.path / FOLDER).glob(_RESETS)):
            region = self._read(path, _RESET_FORMAT, "region")
            path.unlink(missing_ok=True)
            if region is not None:
                regions.append(region)
        return regions

    def _read(self, path: Path, form: str, entry: str) -> str | None:
        try:
            data = load_json(path, form, {entry: str}, remedy=_REMEDY)
        except FormatError as error:
            path.unlink(missing_ok=True)
            self._folder.event("warning", message=str(error))
            return None
        return None if data is None else str(data[entry])
