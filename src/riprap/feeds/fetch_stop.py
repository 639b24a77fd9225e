"""How a source that cannot be replayed is told to leave off, so that an orderly stop loses nothing it has read.

Rows are fetched ahead, by a thread of the stage's. It and whoever ends the run know the source's folder, and talk by
files in it:

    leave        fetch no more
    left.json    {"format": "riprap-left/1", "rows": 1000}     the answer: so many rows were fetched in all

The list of segments says nothing of it: its end is the end of the input, also for a run that is taken up again.
"""

from __future__ import annotations

from pathlib import Path

from riprap.state.durable_files import load_json, save_json

FORMAT = "riprap-left/1"


class FetchStop:
    """The files of one source."""

    def __init__(self, folder: Path) -> None:
        self._asked = folder / "leave"
        self._answer = folder / "left.json"

    def forget(self) -> None:
        """Remove what an earlier process asked and answered: this one goes on fetching."""
        self._asked.unlink(missing_ok=True)
        self._answer.unlink(missing_ok=True)

    def ask(self) -> None:
        """Ask whoever fetches to leave off."""
        self._answer.unlink(missing_ok=True)
        self._asked.parent.mkdir(parents=True, exist_ok=True)
        self._asked.touch()

    @property
    def asked(self) -> bool:
        """Whether nothing more is to be fetched."""
        return self._asked.exists()

    def answer(self, rows: int) -> None:
        """Say how many rows were fetched in all; there will be no more."""
        save_json(self._answer, {"format": FORMAT, "rows": rows}, synced=False)

    @property
    def rows(self) -> int | None:
        """How many rows were fetched in all; None until there is an answer."""
        data = load_json(self._answer, FORMAT, {"rows": int}, remedy="Remove it, and stop the run again")
        return None if data is None else int(data["rows"])
