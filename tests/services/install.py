"""Get the servers of the tests onto this machine: ``make services``.

PostgreSQL, Redis and a browser come from Debian's packages where we may install them, the jars for Kafka from a Maven
repository. What cannot be had is said, and is no failure: the tests that need it are skipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping

from tests.services.broker_jars import broker_jars
from tests.services.postgres import postgres_programs
from tests.services.redis import redis_program
from tests.services.server import UnavailableError

from riprap.errors import RunError
from riprap.runtime.kafka_jars import connector_jars


def missing_packages() -> list[str]:
    """Return the Debian packages whose programs are not here."""
    found: Mapping[str, object] = {
        "postgresql": postgres_programs(),
        "redis-server": redis_program(),
        "chromium": shutil.which("chromium"),
        "chromium-driver": shutil.which("chromedriver"),
    }
    return [package for package, programs in found.items() if programs is None]


def how_to_install() -> list[str] | None:
    """Return the words before apt-get's own arguments, or None where we may not install."""
    if shutil.which("apt-get") is None:
        return None
    if os.geteuid() == 0:
        return ["apt-get"]
    if shutil.which("sudo") and _run(["sudo", "-n", "true"]).returncode == 0:
        return ["sudo", "-n", "apt-get"]
    return None


def install(packages: list[str]) -> str | None:
    """Install packages quietly; return why not where that fails."""
    apt_get = how_to_install()
    if apt_get is None:
        return "that takes apt-get and root"
    quietly = ["-qq", "-o", "DPkg::Lock::Timeout=120"]
    # An old list of packages may do, so a failed update is not the end.
    _run([*apt_get, *quietly, "update"])
    done = _run([*apt_get, *quietly, "install", "-y", "--no-install-recommends", *packages])
    return None if done.returncode == 0 else done.stdout.decode(errors="replace").strip()[-1000:]


def _run(command: list[str]) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        command,
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )


def main() -> None:
    """Install what is missing, and say what could not be."""
    if packages := missing_packages():
        print(f"installing {', '.join(packages)}", flush=True)
        if trouble := install(packages):
            print(f"not installed: {trouble}\nTo run their tests: apt-get install {' '.join(packages)}")
    try:
        broker_jars()
    except UnavailableError as reason:
        print(reason)
    try:
        connector_jars()
    except RunError as reason:
        print(reason)


if __name__ == "__main__":
    main()
