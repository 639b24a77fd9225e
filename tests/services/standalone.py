"""A standalone cluster of Spark for tests: a master and one worker, on loopback, from the jars that pyspark brings."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyspark
from tests.services.server import Server

from riprap.runtime.java import find_java

_SPARK = Path(pyspark.__file__).parent
_DEPLOY = "org.apache.spark.deploy"
_DIES_WITH_PARENT = 1
CORES = 6


class Standalone(Server):
    """A cluster that keeps its address when it is killed."""

    name = "spark"

    @property
    def url(self) -> str:
        """The address as Spark takes it."""
        return f"spark://{self.address}"

    @property
    def applications(self) -> int:
        """How many applications have come to it since it was started."""
        return self.log.read_text(errors="replace").count("Registered app ")

    def _command(self) -> list[str]:
        return [
            sys.executable,
            "-m",
            "tests.services.standalone",
            self.host,
            str(self.port),
            str(self.folder),
        ]

    def _identity(self) -> dict[str, Any]:
        return {"env": {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}}

    def _answers(self) -> bool:
        return "Registering worker" in self.log.read_text(errors="replace")

    def _forget(self) -> None:
        super()._forget()
        # What it said before it was started again says nothing of now.
        self.log.unlink(missing_ok=True)


def main() -> None:
    """Run a master and a worker until told to end, or until either does."""
    host, port, folder = sys.argv[1:]
    environment = {
        **os.environ,
        "JAVA_HOME": str(find_java()),
        "SPARK_HOME": str(_SPARK),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_LOCAL_IP": host,
        "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
    }
    worker = [
        "--cores",
        str(CORES),
        "--memory",
        "2g",
        "--work-dir",
        f"{folder}/work",
        f"spark://{host}:{port}",
    ]
    parts = [
        subprocess.Popen(
            [
                str(_SPARK / "bin" / "spark-class"),
                f"{_DEPLOY}.{what}",
                "--host",
                host,
                "--webui-port",
                "0",
                *more,
            ],
            env=environment,
            preexec_fn=_die_with_parent,
        )
        for what, more in (("master.Master", ["--port", port]), ("worker.Worker", worker))
    ]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    try:
        os.wait()
    finally:
        for part in parts:
            part.kill()


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_DIES_WITH_PARENT, signal.SIGKILL)


if __name__ == "__main__":
    main()
