"""Runs under supervision: processes that die are replaced, by rules, and everything is written down.

with supervise(app.graph(), rr.RunOptions(trigger="1s")) as run:
    run.wait(timeout=60)
"""

from riprap.runtime.supervision.decisions import Patience
from riprap.runtime.supervision.regions import RegionHaltedError
from riprap.runtime.supervision.supervised import Supervised, supervise

__all__ = ["Patience", "RegionHaltedError", "Supervised", "supervise"]
