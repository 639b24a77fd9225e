"""Faults that tuples bring: who works on a chosen tuple for the first time has something happen to it.

A trap is a function over the column ``seq``, in the first operator after a source. It leaves a marker first, so it
happens once, whatever is taken up or computed again.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
from tests.regions.tables import write_table

from riprap.runtime.checkpointing.cut_log import CutLog

# How long a trap waits for what it is to wait for, at most.
_PATIENCE_SECONDS = 120.0
# How long a batch is held up: files that gather rows are written between batches.
_BATCH_HELD_UP_SECONDS = 0.25
# These happen with each batch from their tuple on.
_LASTING = ("error", "cut", "still")


@dataclass(frozen=True)
class Trap:
    """What happens at a tuple: ``path`` is the store's folder, or what is waited for, of ``element`` if it has any."""

    seq: int
    what: str
    path: str = ""
    element: str = ""


class SprungError(Exception):
    """The error of an operator."""


def trap_function(traps: Sequence[Trap], markers: str) -> Callable[[pa.Array], pa.Array]:
    """Return the function that has traps happen, and changes nothing."""

    def trapped(seq: pa.Array) -> pa.Array:
        newest = seq[-1].as_py() if len(seq) else -1
        for trap in traps:
            if newest >= trap.seq:
                marker = _marker(Path(markers), trap)
                if _mark(marker) or (trap.what in _LASTING and not is_over(marker)):
                    SPRINGS[trap.what](trap)
        return seq

    return trapped


def sprung(markers: Path, trap: Trap) -> bool:
    """Say whether a trap has happened."""
    return _marker(markers, trap).exists()


def end(markers: Path, trap: Trap) -> None:
    """Let no trap happen any more: an error comes back until then, for Spark tries once more."""
    _over(_marker(markers, trap)).touch()


def is_over(marker: Path) -> bool:
    """Say whether a trap is not to happen any more."""
    return _over(marker).exists()


def _over(marker: Path) -> Path:
    return marker.with_name(f"{marker.name}-over")


def _marker(markers: Path, trap: Trap) -> Path:
    return markers / f"{trap.what}-{trap.seq}"


def take_away(store: Path) -> None:
    """Let a store be out of reach."""
    store.rename(f"{store}-away")


def put_back(store: Path) -> None:
    """Let a store that is down be there again."""
    if store.is_dir():
        shutil.rmtree(store)
    else:
        store.unlink()
    Path(f"{store}-away").rename(store)


def _mark(marker: Path) -> bool:
    if marker.exists():
        return False
    with contextlib.suppress(FileExistsError):
        descriptor = os.open(marker, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        os.write(descriptor, str(os.getpid()).encode())
        os.close(descriptor)
        return True
    return False


def _error(trap: Trap) -> None:
    raise SprungError(f"the trap at {trap.seq}")


def _kill_worker(trap: Trap) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _jvm() -> psutil.Process:
    """Return the JVM that this Python worker works for: the driver's, or that of an executor."""
    return next(p for p in psutil.Process().parents() if "java" in p.name())


def _driver() -> psutil.Process:
    jvm = _jvm()
    return next(p for p in jvm.parents() if "python" in p.name())


def _kill_jvm(trap: Trap) -> None:
    _jvm().kill()


def _kill_driver(trap: Trap) -> None:
    if trap.path:
        _wait(trap)
    _driver().kill()


def _kill_driver_and_jvm(trap: Trap) -> None:
    jvm, driver = _jvm(), _driver()
    driver.kill()
    jvm.kill()


def _kill_supervisor(trap: Trap) -> None:
    supervisor = _driver().parent()
    assert supervisor is not None
    supervisor.kill()


def _agents() -> list[psutil.Process]:
    return [p for p in _driver().children() if _is_agent(p)]


def _is_agent(process: psutil.Process) -> bool:
    return "riprap.runtime.agent" in " ".join(process.cmdline())


def _kill_agent(trap: Trap) -> None:
    for process in _agents():
        process.kill()


def _stop_agent(trap: Trap) -> None:
    """Let the agent stand still, and write down its number."""
    for process in _agents():
        with Path(trap.path).open("a") as stopped:
            stopped.write(f"{process.pid}\n")
        process.suspend()


def kill_stopped(path: Path) -> None:
    """Kill the agents that stand still, which would keep what they save from whoever comes after."""
    for pid in set(path.read_text().split()) if path.exists() else ():
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(int(pid))
            if process.status() == psutil.STATUS_STOPPED and _is_agent(process):
                process.kill()


def _store_down(trap: Trap) -> None:
    store = Path(trap.path)
    store.mkdir(parents=True, exist_ok=True)
    take_away(store)
    # Whoever wants to make it anew finds that this is no folder.
    store.write_text("not mounted")


def _store_up(trap: Trap) -> None:
    put_back(Path(trap.path))


def _change_table(trap: Trap) -> None:
    write_table(Path(trap.path), trap.seq)


def _wait(trap: Trap) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not Path(trap.path).exists():
        assert time.monotonic() < deadline, f"{trap.path} did not come"
        time.sleep(0.01)


def _hold_up(trap: Trap) -> None:
    """Let a batch take a while longer, unless a cut is complete."""
    deadline = time.monotonic() + _BATCH_HELD_UP_SECONDS
    while not _is_cut(trap) and time.monotonic() < deadline:
        time.sleep(0.01)


def _is_cut(trap: Trap) -> bool:
    logs = (CutLog(path.parent.parent, path.stem) for path in Path(trap.path).glob("*/*/cuts/*.json"))
    return any(trap.element in ("", *cut.elements) for log in logs for cut in log.read())


SPRINGS: dict[str, Callable[[Trap], Any]] = {
    "error": _error,
    "worker": _kill_worker,
    "jvm": _kill_jvm,
    "driver": _kill_driver,
    "driver+jvm": _kill_driver_and_jvm,
    "supervisor": _kill_supervisor,
    "agent": _kill_agent,
    "still": _stop_agent,
    "store-down": _store_down,
    "store-up": _store_up,
    "executor": _kill_jvm,
    "server-down": _wait,
    "server-up": _wait,
    "host": _wait,
    "table": _change_table,
    "cut": _hold_up,
}
