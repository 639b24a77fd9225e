"""Running applications on Spark."""

from riprap.runtime.meter import Progress
from riprap.runtime.run import Run
from riprap.runtime.start import run

__all__ = ["Progress", "Run", "run"]
