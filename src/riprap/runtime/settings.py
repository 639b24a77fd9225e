"""What the processes of a run must agree on, in one file of its folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

from riprap.errors import FormatError
from riprap.runtime.site import Site
from riprap.state.ledger import Ledger
from riprap.state.pages import PageStore

FORMAT = "riprap-setting/2"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Paths, batch size and pace of a processing element, and how often it was started; readable in every task."""

    plan: str
    sources: str
    folder: str
    tables: str
    site: Site
    start: int
    batch_rows: int
    finite: bool
    rates: Mapping[str, float]


def save_setting(path: Path, setting: Setting) -> None:
    """Write a run's setting."""
    path.write_text(json.dumps({"format": FORMAT, **asdict(setting)}))


@lru_cache(maxsize=64)
def load_setting(path: str) -> Setting:
    """Read a run's setting; a process does so once."""
    data = json.loads(Path(path).read_text())
    if data.pop("format", None) != FORMAT:
        raise FormatError(f"{path} is not of format {FORMAT}")
    site = data.pop("site")
    return Setting(
        site=Site(
            ledger=Ledger(**site["ledger"]),
            pages=PageStore(**site["pages"]),
            results=PageStore(**site["results"]),
        ),
        **data,
    )
