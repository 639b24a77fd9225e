"""Make a fresh session quick: run a small application in it, so that the JVM and the Python workers have been there."""

from __future__ import annotations

import shutil
from pathlib import Path

from pyspark.sql import SparkSession

from riprap.graph.application import Application
from riprap.graph.connectors import memory, rows
from riprap.graph.windows import sliding
from riprap.runtime.start import run


def warm_up(session: SparkSession, folder: Path) -> None:
    """Run an application of two elements in a session; what it leaves in ``folder`` goes."""
    app = Application("warming")
    made = app.source("rows", rows([{"key": f"k{i}", "n": i} for i in range(64)], "key string, n bigint"))
    sums = app.aggregate("sums", made, by="key", window=sliding(tuples=4), select="sum(n) as n")
    kept = app.functor("kept", sums, where="n >= 0")
    app.sink("out", kept, memory())
    app.place("second", kept, "out")
    try:
        with run(app.graph(), spark=session, runs=folder) as going:
            going.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
