"""Running applications on Spark."""

from riprap.runtime.meter import Progress
from riprap.runtime.run import Run
from riprap.runtime.start import run
from riprap.runtime.supervision import Patience, Supervised, supervise

__all__ = ["Patience", "Progress", "Run", "Supervised", "run", "supervise"]
