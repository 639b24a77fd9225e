"""Real crashes, on purpose, to try out what happens then: a driver process, a worker of it, or all a host has."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

from riprap.errors import RunError
from riprap.runtime.supervision.presence import Presence, find_presences
from riprap.runtime.supervision.process import session_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Killed:
    """What was killed: the processes, and how many pages were wiped."""

    element: str
    process: str
    pids: tuple[int, ...]
    pages: int = 0


def kill_process(run: Path, element: str) -> Killed:
    """Kill the driver process of an element."""
    presence = _find(run, element)
    _driver(presence).kill()
    return Killed(element=element, process=presence.process, pids=(presence.pid,))


def kill_executor(run: Path, element: str) -> Killed:
    """Kill an executor of an element's driver process; where Spark runs inside of it, one of its Python workers."""
    presence = _find(run, element)
    started = _driver(presence).children(recursive=True)
    executors = [p for p in started if "CoarseGrainedExecutorBackend" in _command(p)]
    daemons, workers = _daemons_and_workers(started)
    # The newest worker is most likely to be in use. Those that are idle end by themselves, and leave who starts them.
    for victim in [*executors[:1], *workers[-1:], *daemons[:1]]:
        victim.kill()
        return Killed(element=element, process=presence.process, pids=(victim.pid,))
    raise RunError(
        f"the driver process of '{element}', pid {presence.pid}, has no executor or worker on this host yet"
    )


def workers_of(run: Path, element: str) -> list[psutil.Process]:
    """List the Python workers on this host that an element's driver process has, in use or not."""
    return _daemons_and_workers(_driver(_find(run, element)).children(recursive=True))[1]


def kill_host(run: Path, element: str) -> Killed:
    """Kill an element's driver process with all it started, and wipe its pages, as if a host were lost.

    Other elements of the process lose theirs, too: they were in the memory of the same host.
    """
    presence = _find(run, element)
    driver = _driver(presence)
    # Its agent is in a session of its own.
    victims = list(dict.fromkeys([driver, *session_of(presence.pid), *driver.children(recursive=True)]))
    # Held first: the supervisor must not be quicker than the wiping.
    for victim in victims:
        with contextlib.suppress(psutil.NoSuchProcess):
            victim.suspend()
    pages = wipe_pages(folder for folders in presence.pages.values() for folder in folders)
    for victim in reversed(victims):
        with contextlib.suppress(psutil.NoSuchProcess):
            victim.kill()
    return Killed(element=element, process=presence.process, pids=tuple(v.pid for v in victims), pages=pages)


def wipe_pages(folders: Iterable[str]) -> int:
    """Remove the pages of page folders, as if the memory of their host were lost; return how many there were."""
    pages = [page for folder in folders for page in _pages(folder)]
    for page in pages:
        page.unlink(missing_ok=True)
    return len(pages)


def _find(run: Path, element: str) -> Presence:
    presences = find_presences(run)
    for presence in presences:
        # A replica is named by its process.
        if element in presence.pages or element == presence.process:
            return presence
    names = ", ".join(name for p in presences for name in p.pages)
    raise RunError(f"no element '{element}' is running in {run}. There are: {names or 'none'}")


def _daemons_and_workers(
    started: Iterable[psutil.Process],
) -> tuple[list[psutil.Process], list[psutil.Process]]:
    """Return the processes from which Python workers are forked, with the workers, and these alone."""
    daemons = [p for p in started if " pyspark.worker" in _command(p)]
    return daemons, [p for p in daemons if p.parent() in daemons]


def _driver(presence: Presence) -> psutil.Process:
    process = presence.alive()
    if process is None:
        raise RunError(f"driver process '{presence.process}', pid {presence.pid}, is not there any more")
    return process


def _pages(folder: str) -> list[Path]:
    # An executor's own folder has its name in the middle.
    place = Path(folder.replace("{executor}", "*"))
    roots = list(Path(place.anchor).glob(str(place.relative_to(place.anchor))))
    return [page for root in roots for page in root.glob("**/*.page")]


def _command(process: psutil.Process | None) -> str:
    with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
        return " ".join(process.cmdline()) if process is not None else ""
    return ""
