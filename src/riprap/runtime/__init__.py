"""Running applications on Spark."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from riprap.runtime.meter import Progress
    from riprap.runtime.run import Run
    from riprap.runtime.supervision import Patience, RegionHaltedError, Supervised, supervise

__all__ = ["Patience", "Progress", "RegionHaltedError", "Run", "Supervised", "supervise"]

# The agent of a host is a part of the runtime, and needs no Spark.
_HOMES = {
    "riprap.runtime.meter": ("Progress",),
    "riprap.runtime.run": ("Run",),
    "riprap.runtime.supervision": ("Patience", "RegionHaltedError", "Supervised", "supervise"),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module 'riprap.runtime' has no attribute '{name}'")
