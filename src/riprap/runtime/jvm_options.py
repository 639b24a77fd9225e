"""Make the JVM start with a third of the work: Spark's classes are mapped from an archive, and less is compiled twice.

<cache>/classes-<user>/<key>.jsa                    the archive, for one Java runtime and one set of jars
                       <key>-<unique>.part          one that a JVM writes, or will write, as it ends

A JVM reads, checks and lays out some ten thousand classes before there is a session. One that finds no archive leaves
its own classes when it ends, in its own time. It writes the head of the file last, so a later start can tell a whole
one from one that was cut off. The JVM itself compares the archive with the jars, and does without if they differ.

docs/decisions/0016-quick-to-start.md has what was measured.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

import pyspark

from riprap.cache import private_folder
from riprap.errors import OwnershipError

_KIND = "classes"
# Of so many runtimes and sets of jars there is an archive; each has some 120 MB.
_KEPT = 2
_STALE_SECONDS = 3600.0
# These lead to settings that ours would hide, and put folders on the class path, of which there is no archive.
_OTHER_SPARK = ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH", "SPARK_HOME")
# Code is compiled a second time, by the slow compiler, once it is ten times as hot as usual: most of what starts a
# session never is, and a loop over rows is within its first batch.
_TIERS = (
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)


def jvm_options(
    java_home: Path, environ: Mapping[str, str] = os.environ, clock: Callable[[], float] = time.time
) -> list[str]:
    """Return options with which the driver's JVM starts quickly; none where Spark has settings of its own."""
    spark = Path(pyspark.__file__).parent
    if any(name in environ for name in _OTHER_SPARK) or (spark / "conf").exists():
        return []
    return [*_TIERS, *_archive_options(java_home / "lib" / "server" / "classes.jsa", spark, environ, clock)]


def _archive_options(
    base: Path, spark: Path, environ: Mapping[str, str], clock: Callable[[], float]
) -> list[str]:
    """Say to use the archive, or to leave one behind; say nothing if it has no base, or nowhere to be kept."""
    if not base.exists():
        return []
    try:
        folder = private_folder(_KIND, environ)
        key = _key(base, spark / "jars")
        archive = _finished(folder, key, clock() - _STALE_SECONDS)
    except (OSError, RuntimeError, OwnershipError):
        return []
    if archive is not None:
        return [f"-XX:SharedArchiveFile={archive}"]
    return [f"-XX:ArchiveClassesAtExit={folder / f'{key}-{uuid.uuid4().hex[:8]}.part'}"]


def _key(base: Path, jars: Path) -> str:
    digest = hashlib.sha256()
    for file in (base, *sorted(jars.iterdir())):
        status = file.stat()
        digest.update(f"{file} {status.st_size} {status.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:32]


def _finished(folder: Path, key: str, stale: float) -> Path | None:
    """Return the archive of a key, if there is one. One that has become whole since is taken; remains go."""
    archive = folder / f"{key}.jsa"
    for part in folder.glob("*.part"):
        # Others may be looking, too.
        with contextlib.suppress(FileNotFoundError):
            whole = _is_whole(part)
            if whole and part.name.startswith(key) and not archive.exists():
                part.rename(archive)
            elif whole or part.stat().st_mtime < stale:
                part.unlink()
    if not archive.exists():
        return None
    os.utime(archive)
    by_use = sorted(folder.glob("*.jsa"), key=lambda file: file.stat().st_mtime, reverse=True)
    for unused in by_use[_KEPT:]:
        unused.unlink(missing_ok=True)
    return archive


def _is_whole(part: Path) -> bool:
    with part.open("rb") as file:
        return any(file.read(4))
