"""Fetch the jars of a Kafka broker once, with the Ivy that comes in pyspark: nobody needs Maven or a download page."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

import pyspark
from tests.services.server import UnavailableError

from riprap.cache import cache_folder
from riprap.runtime.java import JavaNotFoundError, find_java
from riprap.runtime.kafka_jars import maven_repository

VERSION = "3.9.1"

# slf4j-simple: without it the broker says nothing when it fails.
_MODULE = f"""\
<ivy-module version="2.0">
  <info organisation="riprap" module="kafka-broker"/>
  <configurations defaultconfmapping="default->default"><conf name="default"/></configurations>
  <dependencies>
    <dependency org="org.apache.kafka" name="kafka_2.13" rev="{VERSION}"/>
    <dependency org="org.slf4j" name="slf4j-simple" rev="1.7.36"/>
  </dependencies>
</ivy-module>
"""
_SETTINGS = """\
<ivysettings>
  <settings defaultResolver="maven"/>
  <caches defaultCacheDir="{cache}"/>
  <resolvers><ibiblio name="maven" m2compatible="true" root="{repository}/"/></resolvers>
</ivysettings>
"""
_FETCHING_SECONDS = 600


def broker_jars() -> Path:
    """Return the folder of the broker's jars, fetching them where they are missing."""
    folder = cache_folder() / f"kafka-broker-{VERSION}"
    if folder.is_dir():
        return folder
    try:
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".kafka-broker-") as workshop:
            _reach_repository()
            fetched = _retrieve(Path(workshop))
            try:
                # Seen whole or not at all; another process may have been faster.
                fetched.rename(folder)
            except OSError:
                if not folder.is_dir():
                    raise
    except (OSError, subprocess.SubprocessError, JavaNotFoundError) as error:
        raise UnavailableError(f"the Kafka broker's jars cannot be fetched: {error}") from error
    return folder


def _reach_repository() -> None:
    """Ask for the first file: where there is no network, Ivy would try for minutes."""
    pom = f"{maven_repository()}/org/apache/kafka/kafka_2.13/{VERSION}/kafka_2.13-{VERSION}.pom"
    try:
        urllib.request.urlopen(pom, timeout=10).close()
    except urllib.error.HTTPError as error:
        error.close()
        raise OSError(f"{pom}: {error}") from None


def _retrieve(workshop: Path) -> Path:
    """Let Ivy find the jars the broker needs; return their folder, inside ``workshop``."""
    jars = workshop / "jars"
    module, settings = workshop / "ivy.xml", workshop / "ivysettings.xml"
    module.write_text(_MODULE)
    settings.write_text(_SETTINGS.format(cache=workshop / "cache", repository=maven_repository()))
    (ivy,) = (Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar")
    done = subprocess.run(
        [
            *(str(find_java() / "bin" / "java"), "-jar", str(ivy)),
            *("-settings", str(settings), "-ivy", str(module), "-types", "jar", "bundle"),
            *("-retrieve", f"{jars}/[artifact]-[revision].[ext]"),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=_FETCHING_SECONDS,
        check=False,
    )
    if done.returncode:
        shutil.rmtree(jars, ignore_errors=True)
        raise OSError(f"Ivy says\n{done.stdout.decode(errors='replace')[-2000:].strip()}")
    return jars
