"""Which cut an element of a region is to go on from when it starts next, where somebody has chosen one.

<run folder>/elements/<name>/cut.json      {"format": "riprap-cut/1", "batch": 40}

It stays until the element is where it was: who dies on the way begins at that cut again.
"""

from __future__ import annotations

from pathlib import Path

from riprap.state.durable_files import load_json, save_json

_FORMAT = "riprap-cut/1"
_NAME = "cut.json"


def choose_cut(home: Path, batch: int) -> None:
    """Ask that an element go on from its cut after a batch."""
    save_json(home / _NAME, {"format": _FORMAT, "batch": batch})


def chosen_cut(home: Path) -> int | None:
    """Return the batch of the cut that was chosen for an element, None if none was."""
    data = load_json(
        home / _NAME, _FORMAT, {"batch": int}, remedy="Remove it, or choose again with 'riprap reset'"
    )
    return None if data is None else int(data["batch"])


def forget_choice(home: Path) -> None:
    """Let an element go on from where it is."""
    (home / _NAME).unlink(missing_ok=True)
