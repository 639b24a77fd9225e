"""Where a run keeps things: ledgers, state pages, and pages of results for the driver."""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from riprap.errors import MissingPageError, RunError
from riprap.ownership import make_folder, remove_folder
from riprap.runtime.agent.lock import await_saver
from riprap.runtime.folder import RunFolder
from riprap.state.leases import Lease, is_alive
from riprap.state.ledger import Ledger
from riprap.state.pages import PageStore, limit_for, page_root
from riprap.state.seals import KEY, make_key, read_key

# In a page folder's name: every executor has a folder of its own, as executors on several hosts would.
EXECUTOR = "{executor}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The places of one processing element, and the file with the run's key; a small value that travels to every
    task."""

    ledger: Ledger
    pages: PageStore
    results: PageStore
    key: str

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Site:
        """Take a site from what :func:`dataclasses.asdict` made of it."""
        return cls(
            ledger=Ledger(**data["ledger"]),
            pages=PageStore(**data["pages"]),
            results=PageStore(**data["results"]),
            key=data["key"],
        )

    def here(self) -> Site:
        """Fill in this executor's own page folder, where the folder's name asks for one."""
        if EXECUTOR not in self.pages.folder:
            return self
        identity = hashlib.sha1(os.environ.get("SPARK_EXECUTOR_DIRS", "driver").encode()).hexdigest()[:8]
        folder = self.pages.folder.replace(EXECUTOR, identity)
        named = Path(folder).parents[self.pages.levels - 1]
        named.mkdir(mode=0o700, parents=True, exist_ok=True)
        here = replace(self, pages=replace(self.pages, folder=folder))
        here.pages.make()
        return here

    def read_key(self) -> bytes:
        """Read the key that seals objects of users' classes in pages."""
        return read_key(self.key)

    def find_page(self, name: str) -> pa.RecordBatch:
        """Map a state page, whichever executor of this host wrote it."""
        return self._holder(name).read(name)

    def has_page(self, name: str) -> bool:
        """Say whether a state page is there, and whole."""
        return _is_whole(self._holder(name), name)

    def take_page(self, name: str, other: Site, page: str) -> None:
        """Take in a state page of another element under a name: linked, or where that cannot be, copied."""
        try:
            self.pages.link(name, other.pages, page)
        except OSError:
            self.pages.write(name, other.find_page(page))

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

    def collect(self, keep: Callable[[], set[str]], *, before: str) -> None:
        """Remove the pages not named whose names sort before one, where the driver can see them."""
        self.results.collect(keep, before=before)
        if EXECUTOR not in self.pages.folder:
            self.pages.collect(keep, before=before)


def _is_whole(store: PageStore, name: str) -> bool:
    # A page is read from its end: one that was cut short, by whatever filled the memory or cleared it, has none.
    try:
        store.read(name)
    except MissingPageError:
        return False
    return True


def left_behind(application: Path) -> str:
    """Say of the newest run in an application's folder how to take it up; nothing if it has ended, or goes on."""
    newest = application / "latest"
    if not (newest / "run.json").exists() or (newest / "ended").exists() or is_alive(newest.resolve()):
        return ""
    where = os.path.relpath(newest)
    return (
        f"\nThere is a run of '{application.name}' that was left in the middle: take it up with folder={where!r} "
        f"(on the command line: --folder {where})"
    )


def take_hold(
    folder: RunFolder, pages: str | Path | None, page_limit: int | None, *, one_host: bool
) -> tuple[Housing, Lease]:
    """Take hold of a run, give it its key, and decide where it keeps its state pages and results.

    Where the user names no folder, they are in shared memory, in a folder that is swept. A folder that the user names
    may be anybody's, and shared by several hosts: what is in it must be ours, and nothing of the run is elsewhere but
    in its own folder.
    """
    if pages is None and not one_host:
        raise RunError(
            "on several hosts state pages need a folder that all of them share: give app.run(pages=...), and runs= "
            "or folder= on shared storage too"
        )
    home = page_root() / folder.identity if pages is None else None
    lease = Lease.take(home, folder.path)
    try:
        # What an agent of an earlier driver is saving it saves to the end.
        for element in (folder.path / "elements").glob("*"):
            await_saver(element, folder.event)
        make_key(folder.path)
        if home is not None:
            state, results, levels = home / "state", home / "results", (4, 4)
            limit = limit_for(page_root(), page_limit)
        else:
            # Absolute: executors do not start in the driver's folder.
            root = Path(str(pages)).absolute()
            state, results, levels = root / folder.identity, folder.path / "results", (2, 2)
            limit = limit_for(Path(str(root).split(EXECUTOR)[0]), page_limit)
    except BaseException:
        lease.release()
        raise
    return Housing(str(state), str(results), limit, str(folder.path / KEY), *levels), lease


@dataclass(frozen=True, slots=True)
class Housing:
    """Where a run's pages are, and its key; each processing element has folders of its own there.

    Of these folders, with an element's, so many last levels are ours alone (``riprap.ownership``).
    """

    state: str
    results: str
    limit: int
    key: str
    state_levels: int
    results_levels: int

    def remove(self) -> None:
        """Remove all pages, those of every executor of this host included."""
        for folder in glob.glob(glob.escape(self.state).replace(EXECUTOR, "*")):
            remove_folder(folder, levels=self.state_levels - 1)
        remove_folder(self.results, levels=self.results_levels - 1)

    def site(self, element: str, home: Path) -> Site:
        """Lay out the places of a processing element, whose folder in the run's is ``home``."""
        state, results = Path(self.state) / element, Path(self.results) / element
        try:
            if EXECUTOR not in self.state:
                make_folder(state, levels=self.state_levels)
            make_folder(results, levels=self.results_levels)
        except OSError as error:
            raise RunError(f"cannot make the page folder {error.filename}: {error.strerror}") from error
        return Site(
            ledger=Ledger(str(home / "ledger")),
            pages=PageStore(str(state), self.limit, self.state_levels),
            results=PageStore(str(results), limit_for(results, None), self.results_levels),
            key=self.key,
        )
