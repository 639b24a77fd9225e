"""What the processes of a run must agree on, in one file of its folder."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

from riprap.errors import RunError
from riprap.runtime.site import Site
from riprap.state.durable_files import checking, load_json, save_json

FORMAT = "riprap-setting/4"
_ENTRIES = {
    "plan": str,
    "sources": str,
    "folder": str,
    "tables": str,
    "site": dict,
    "start": int,
}
_REMEDY = "Take the run up again: every start writes a new one"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Where a processing element has its things, and how often it was started; readable in every task."""

    plan: str
    sources: str
    folder: str
    tables: str
    site: Site
    start: int


def save_setting(path: Path, setting: Setting) -> None:
    """Write a run's setting."""
    save_json(path, {"format": FORMAT, **asdict(setting)})


@lru_cache(maxsize=64)
def load_setting(path: str) -> Setting:
    """Read a run's setting; a process does so once."""
    data = load_json(Path(path), FORMAT, _ENTRIES, remedy=_REMEDY)
    if data is None:
        raise RunError(f"{path} is gone, though its run is alive: is its folder still there, and shared?")
    del data["format"]
    site = data.pop("site")
    with checking(Path(path), _REMEDY):
        return Setting(site=Site.from_json(site), **data)
