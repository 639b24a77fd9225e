"""Fetch the jars of Spark's Kafka connector, which the pyspark package leaves out.

``connector_jars`` returns four files for ``spark.jars``. What is missing comes from Maven Central, or from the
repository that ``RIPRAP_MAVEN`` names (``file:///home/me/.m2/repository`` is one too), into the folder ``jars`` of
the cache. A file counts only with the SHA-256 below, whoever put it there. See
docs/decisions/0009-kafka-connector.md for why these versions.
"""

from __future__ import annotations

import hashlib
import http.client
import logging
import os
import shutil
import tempfile
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from riprap.cache import cache_folder
from riprap.errors import RunError

MAVEN_CENTRAL = "https://repo1.maven.org/maven2"

# Between two pieces of an answer, not for the whole of it.
_PATIENCE_SECONDS = 30

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Jar:
    """One file of a Maven repository, and what it must contain."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def file(self) -> str:
        """The file's name."""
        return f"{self.artifact}-{self.version}.jar"

    @property
    def path(self) -> str:
        """The file's place in a repository."""
        return f"{self.group.replace('.', '/')}/{self.artifact}/{self.version}/{self.file}"


CONNECTOR = (
    Jar(
        group="org.apache.spark",
        artifact="spark-sql-kafka-0-10_2.13",
        version="4.2.0",
        sha256="64539c45e5d39f7ddb747312c239f38f5208d08c1a0ddf7d70beb2fbd9373705",
    ),
    Jar(
        group="org.apache.spark",
        artifact="spark-token-provider-kafka-0-10_2.13",
        version="4.0.0",
        sha256="f2be3b76f9e6cbe63379d4e4e0dc14f59dbf056ae2ad16ff15ac108004c86767",
    ),
    Jar(
        group="org.apache.kafka",
        artifact="kafka-clients",
        version="3.9.2",
        sha256="014b4ef36884478a932641818b080c36a8f8e2e92dc771e800c9d2694f4f83d8",
    ),
    Jar(
        group="org.apache.commons",
        artifact="commons-pool2",
        version="2.13.1",
        sha256="f77a5060d6936a9144023584232f9de3f2248f1abfe156e9d31795f18770674f",
    ),
)


class _NotFetchedError(Exception):
    """Why one jar cannot be had; the text goes into the final message."""


def maven_repository(environ: Mapping[str, str] = os.environ) -> str:
    """Return the address of the Maven repository, without a slash at its end."""
    return (environ.get("RIPRAP_MAVEN") or MAVEN_CENTRAL).rstrip("/")


def connector_jars(
    environ: Mapping[str, str] = os.environ, *, jars: tuple[Jar, ...] = CONNECTOR
) -> list[Path]:
    """Return the jars of the Kafka connector, fetching those that are missing.

    Several processes may call it at once: each writes under a name of its own and renames.
    """
    folder = cache_folder(environ) / "jars"
    repository = maven_repository(environ)
    for jar in jars:
        target = folder / jar.file
        try:
            if _sha256(target) != jar.sha256:
                _fetch(f"{repository}/{jar.path}", target, jar.sha256)
        except _NotFetchedError as reason:
            names = "".join(f"  {MAVEN_CENTRAL}/{each.path}\n" for each in jars)
            raise RunError(
                f"Kafka needs the jars of Spark's connector, and {jar.file} cannot be had: {reason}.\n"
                f"Put these files into {folder}:\n{names}"
                "or set RIPRAP_MAVEN to a Maven repository that can be reached, or RIPRAP_CACHE to a folder that "
                "can be written, or hand over a session that has the connector (made with spark.jars or "
                "spark.jars.packages): app.run(spark=session)."
            ) from reason
    return [folder / jar.file for jar in jars]


def _sha256(file: Path) -> str | None:
    """Return the digest of a file, or None where there is none to read."""
    try:
        with file.open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest()
    except OSError:
        return None


def _fetch(url: str, target: Path, sha256: str) -> None:
    """Fetch ``url`` into ``target``, which is there with the right content or not at all."""
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}-")
    except OSError as error:
        raise _NotFetchedError(f"{target.parent} cannot be written: {error}") from error
    partial = Path(name)
    try:
        with (
            os.fdopen(handle, "wb") as file,
            urllib.request.urlopen(url, timeout=_PATIENCE_SECONDS) as answer,
        ):
            shutil.copyfileobj(answer, file)
        if (digest := _sha256(partial)) != sha256:
            raise _NotFetchedError(f"{url} has the SHA-256 {digest}, not {sha256}")
        partial.replace(target)
    except (OSError, http.client.HTTPException, ValueError) as error:
        # ValueError: an address urllib cannot make sense of. An HTTPError is also the answer, still open.
        if isinstance(error, urllib.error.HTTPError):
            error.close()
        raise _NotFetchedError(f"{url}: {error}") from error
    finally:
        partial.unlink(missing_ok=True)
    _log.info("fetched %s", url)
