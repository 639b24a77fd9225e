"""Make a fresh session quick: run a small application in it, so that the JVM and the Python workers have been there.

<run folder>/processes/warming-<pid>/       the runs of that application; a spare that is killed leaves them
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from pyspark.sql import SparkSession

from riprap.application import Application
from riprap.graph.connectors import memory, rows
from riprap.graph.options import RunOptions
from riprap.runtime.start import run
from riprap.runtime.supervision.presence import FOLDER
from riprap.windows import sliding

_NAME = "warming"


def warm_up(session: SparkSession, run_folder: Path) -> None:
    """Run an application of two elements in the session of a run's spare; what it leaves goes."""
    app = Application(_NAME)
    numbers = app.source("rows", rows([{"key": f"k{i}", "n": i} for i in range(64)], "key string, n bigint"))
    sums = app.aggregate("sums", numbers, by="key", window=sliding(tuples=4), select="sum(n) as n")
    kept = app.functor("kept", sums, where="n >= 0")
    app.sink("out", kept, memory())
    app.place("second", kept, "out")
    folder = run_folder / FOLDER / f"{_NAME}-{os.getpid()}"
    try:
        with run(app.graph(), RunOptions(spark=session, runs=folder)) as going:
            going.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def forget_warming(run_folder: Path) -> None:
    """Remove what spares that were killed have left: then the next sweep removes their pages too."""
    for folder in (run_folder / FOLDER).glob(f"{_NAME}-*"):
        shutil.rmtree(folder, ignore_errors=True)
