"""Keep what the JVM prints off the terminal: it goes to a file, ``spark.log`` of the run's folder.

The JVM greets, warns about its modules, and reports its log level before any log setting can reach it. So it is
started with the file as its output. It lives as long as the process that started it, and so do its descriptors: later
runs of the process have the same file, under one more name.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway

LOG = "spark.log"
_TAIL_LINES = 12


class JvmLog:
    """Where the JVM of this process prints, None until one is started with a log."""

    path: ClassVar[Path | None] = None

    @classmethod
    def start_jvm(cls, settings: Mapping[str, str], path: Path) -> None:
        """Start the JVM with Spark's settings and its output in a file, unless it is there already."""
        if SparkContext._gateway is not None:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            conf = SparkConf().setAll([*settings.items()])
            gateway = launch_gateway(conf, {"stdout": file, "stderr": file})  # type: ignore[no-untyped-call]
        finally:
            os.close(file)
        SparkContext._ensure_initialized(gateway=gateway)
        cls.path = path

    @classmethod
    def move(cls, folder: Path) -> None:
        """Give the log its place in a run's folder: under a hidden name it waits until there is one."""
        if cls.path is None or cls.path.parent == folder:
            return
        # A log that is deleted, or on another disk, is still written to, and not worth a failure.
        with contextlib.suppress(OSError):
            if cls.path.name.startswith("."):
                cls.path.rename(folder / LOG)
                cls.path = folder / LOG
            else:
                os.link(cls.path, folder / LOG)


def tail(path: Path) -> str:
    """Return a log's last lines."""
    text = path.read_text(errors="replace") if path.exists() else ""
    return "\n".join(text.splitlines()[-_TAIL_LINES:])
