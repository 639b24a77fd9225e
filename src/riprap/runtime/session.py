"""Spark sessions: one of our own, set up for short batches, or the user's."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from riprap.errors import GraphError, RunError
from riprap.runtime.java import find_java
from riprap.runtime.jvm_options import jvm_options
from riprap.runtime.jvm_output import JvmLog, tail
from riprap.runtime.resident.slots import roomy

_MASTER = re.compile(
    r"local(\[(\*|[1-9]\d*)(\s*,\s*[1-9]\d*)?\])?|local-cluster\[.*\]|yarn|(?!local)[a-z0-9]+://\S+"
)
# Each measured to matter (docs/decisions/0005-spark-settings.md). The two file-system classes save a fork of `chmod`
# for every log Spark writes, some 70 ms a batch; they are only safe with the default state store, so they are set in
# sessions that Riprap makes and never in a user's.
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    # Workers keep the memory of a batch for the next one: to give it back and fault it in again costs more.
    "spark.executorEnv.MALLOC_MMAP_THRESHOLD_": "4294967296",
    "spark.executorEnv.MALLOC_TRIM_THRESHOLD_": "4294967296",
    "spark.executorEnv.MIMALLOC_PURGE_DELAY": "-1",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.metricsEnabled": "false",
    # What Spark reads for us has one stage: there is nothing to adapt, and looking for it takes time.
    "spark.sql.adaptive.enabled": "false",
    "spark.log.level": "ERROR",
}

_JVM_OPTIONS = "spark.driver.extraJavaOptions"


def make_session(
    master: str | None, config: Mapping[str, str] | None = None, log: Path | None = None, *, elements: int = 0
) -> SparkSession:
    """Start a Spark session of our own: embedded on this machine unless ``master`` says where.

    On this machine it gets slots for ``elements`` whose tasks stay, each with as many tasks as there are cores. What
    its JVM prints goes to ``log``, and is shown only if it does not start.
    """
    check_master(master)
    if SparkContext._active_spark_context is not None:
        raise RunError(
            "a Spark session is running in this process already: hand it over with app.run(spark=session), "
            "or stop it first"
        )
    java_home = find_java()
    os.environ["JAVA_HOME"] = str(java_home)
    # Workers take `python3` from the PATH unless told: they must be the interpreter that has Riprap installed.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    where = master or "local[*,2]"
    if where.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    where, cores = roomy(where, elements) if elements else (where, 0)
    settings = {"spark.master": where, "spark.app.name": "riprap", **_SETTINGS}
    settings |= {"spark.default.parallelism": str(cores)} if cores else {}
    if where.startswith("local"):
        # Elsewhere Riprap may be among the files that Spark brings to a worker once it runs.
        settings["spark.python.daemon.module"] = "riprap.runtime.worker_daemon"
    settings |= {**socket_setting(), **(config or {})}
    options = [shlex.join(jvm_options(java_home)), settings.get(_JVM_OPTIONS, "")]
    settings[_JVM_OPTIONS] = " ".join(filter(None, options))
    try:
        if log is not None:
            JvmLog.start_jvm(settings, log)
        builder: Any = SparkSession.builder
        session: SparkSession = builder.config(map=settings).getOrCreate()
    except (PySparkException, Py4JError) as error:
        if log is None:
            raise
        raise RunError(f"Spark did not start: {error}\n{tail(log)}\nAll it printed is in {log}") from error
    if where.startswith("local"):
        # Nobody waits for it: by the time there is work, the process that workers are forked from has loaded.
        session.sparkContext.parallelize([0], 1).map(abs)._jrdd.collectAsync()
    return session


def check_master(master: str | None) -> None:
    """Refuse what is no address of Spark: Spark itself says so in a page of Java, after seconds."""
    if master is None or (isinstance(master, str) and _MASTER.fullmatch(master)):
        return
    raise GraphError(
        f"master={master!r} is no address of Spark. Write 'local[2]' (2 is how many cores), 'local[*]' (all of them), "
        "'spark://host:7077', 'yarn' or 'k8s://...'"
    )


def socket_setting() -> dict[str, str]:
    """Let the JVM and its Python workers talk over Unix sockets, if nobody else can.

    Over TCP a task's short answer waits 40 ms for the other side's acknowledgement. But who may write to the file of a
    Unix socket may connect, and is asked for no secret: it takes an umask that leaves that to its user.
    """
    mask = os.umask(0o077)
    os.umask(mask)
    return {"spark.python.unix.domain.socket.enabled": "true" if mask & 0o022 == 0o022 else "false"}


def check_session(session: Any) -> SparkSession:
    """Check that a session given by the user is one we can run on."""
    if type(session).__module__.startswith("pyspark.sql.connect"):
        raise RunError(
            "this is a Spark Connect session; Riprap needs a classic one (SparkSession.builder.master(...))"
        )
    if not isinstance(session, SparkSession):
        raise RunError(f"spark= takes a SparkSession, got {session!r}")
    return session


def host_of(session: SparkSession) -> str:
    """Return the address at which executors reach this process: none but this host's own can, if they are all here."""
    if is_one_host(session):
        return "127.0.0.1"
    return session.sparkContext.getConf().get("spark.driver.host") or "127.0.0.1"


def is_one_host(session: SparkSession) -> bool:
    """Say whether all executors share this host's memory and files."""
    return (session.sparkContext.master or "").startswith("local")
