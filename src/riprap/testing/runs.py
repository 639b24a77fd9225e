"""Have a program that runs an application die at a step of a batch, by a real SIGKILL."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from riprap.errors import GraphError


def crash_at(step: str, batch: int, element: str = "", *, marker: str | Path) -> dict[str, str]:
    """Return the environment in which a program, or a worker of it, kills itself when it comes to a step of a batch.

    It does so once: it leaves its process id in the file ``marker`` first, and where that exists nobody dies. So a
    supervised run, or the same program started again, goes on. Steps of a batch are, in order, *computed*, *paged* and
    *answered* in a worker, and *gathered*, *recorded*, *published*, *counted* and *collected* in the driver;
    docs/testing.md has them all. ``element`` names a processing element, any without it.

    >>> rr.testing.crash_at("recorded", 3, marker="died")
    {'RIPRAP_CRASH_AT': 'recorded:3', 'RIPRAP_CRASH_ONCE': 'died'}

    subprocess.run(["riprap", "run", "app.py:app"], env={**os.environ, **crash_at("recorded", 3, marker="died")})
    """
    from riprap.runtime.crash import Step

    steps = get_args(Step)
    if step not in steps:
        raise GraphError(f"crash_at(step=...) is one of {', '.join(steps)}, got {step!r}")
    at = f"{step}:{batch}:{element}" if element else f"{step}:{batch}"
    return {"RIPRAP_CRASH_AT": at, "RIPRAP_CRASH_ONCE": str(marker)}
