"""Where a run keeps things: ledgers, state pages, and pages of results for the driver."""

from __future__ import annotations

import glob
import hashlib
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from riprap.errors import MissingPageError, RunError
from riprap.runtime.folder import RunFolder
from riprap.state.ledger import Ledger
from riprap.state.pages import Lease, PageStore, limit_for, page_root

# In a page folder's name: every executor has a folder of its own, as executors on several hosts would.
EXECUTOR = "{executor}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The places of one processing element; a small value that travels to every task."""

    ledger: Ledger
    pages: PageStore
    results: PageStore

    def here(self) -> Site:
        """Fill in this executor's own page folder, where the folder's name asks for one."""
        if EXECUTOR not in self.pages.folder:
            return self
        identity = hashlib.sha1(os.environ.get("SPARK_EXECUTOR_DIRS", "driver").encode()).hexdigest()[:8]
        folder = self.pages.folder.replace(EXECUTOR, identity)
        Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
        return replace(self, pages=replace(self.pages, folder=folder))

    def find_page(self, name: str) -> pa.RecordBatch:
        """Map a state page, whichever executor of this host wrote it."""
        return self._holder(name).read(name)

    def has_page(self, name: str) -> bool:
        """Say whether a state page is there, and whole."""
        return _is_whole(self._holder(name), name)

    def has_result(self, name: str) -> bool:
        """Say whether a page of results is there, and whole."""
        return _is_whole(self.results, name)

    def page_size(self, name: str) -> int:
        """Return the bytes of a state page, 0 when it is gone."""
        return self._holder(name).size(name)

    def _holder(self, name: str) -> PageStore:
        if EXECUTOR not in self.pages.folder:
            return self.pages
        folders = glob.glob(glob.escape(self.pages.folder).replace(EXECUTOR, "*"))
        stores = [replace(self.pages, folder=folder) for folder in folders]
        return next((store for store in stores if store.size(name)), self.pages)

    def collect(self, keep: Callable[[], set[str]]) -> None:
        """Remove the pages not named, where the driver can see them."""
        self.results.collect(keep)
        if EXECUTOR not in self.pages.folder:
            self.pages.collect(keep)


def _is_whole(store: PageStore, name: str) -> bool:
    # A page is read from its end: one that was cut short, by whatever filled the memory or cleared it, has none.
    try:
        store.read(name)
    except MissingPageError:
        return False
    return True


def take_hold(
    folder: RunFolder, pages: str | Path | None, page_limit: int | None, *, one_host: bool
) -> tuple[Housing, Lease]:
    """Decide where a run keeps its state pages and results, and take hold of its page folder."""
    if pages is None and not one_host:
        raise RunError(
            "on several hosts state pages need a folder that all of them share: give app.run(pages=...), and runs= "
            "or folder= on shared storage too"
        )
    home = page_root() / folder.identity
    # Absolute: executors do not start in the driver's folder.
    root = Path(pages).absolute() if pages is not None else page_root()
    housing = Housing(
        state=str(root / folder.identity if pages is not None else home / "state"),
        results=str(home / "results" if one_host else folder.path / "results"),
        limit=limit_for(Path(str(root).split(EXECUTOR)[0]), page_limit),
    )
    return housing, Lease.take(home, folder.path)


@dataclass(frozen=True, slots=True)
class Housing:
    """Where a run's pages are; each processing element has folders of its own there."""

    state: str
    results: str
    limit: int

    def remove(self) -> None:
        """Remove all pages, those of every executor of this host included."""
        states = glob.glob(glob.escape(self.state).replace(EXECUTOR, "*"))
        for folder in (*states, self.results):
            shutil.rmtree(folder, ignore_errors=True)

    def site(self, element: str, home: Path) -> Site:
        """Lay out the places of a processing element, whose folder in the run's is ``home``."""
        state, results = Path(self.state) / element, Path(self.results) / element
        try:
            for path in (state, results):
                if EXECUTOR not in str(path):
                    path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"cannot make the page folder {error.filename}: {error.strerror}") from error
        return Site(
            ledger=Ledger(str(home / "ledger")),
            pages=PageStore(str(state), self.limit),
            results=PageStore(str(results), limit_for(results, None)),
        )
