"""A PostgreSQL server for tests, with a fresh database for each that asks."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

from tests.services.server import Server, UnavailableError, fresh_name


def postgres_programs() -> Path | None:
    """Return the folder of initdb and postgres, or None: Debian keeps them away from the PATH."""
    versions = Path("/usr/lib/postgresql").glob("*/bin")
    newest_first = sorted(versions, key=lambda bin: (len(bin.parent.name), bin.parent.name), reverse=True)
    on_path = [Path(found).resolve().parent for found in [shutil.which("postgres")] if found]
    for folder in [*newest_first, *on_path]:
        if all(os.access(folder / program, os.X_OK) for program in ("initdb", "postgres", "pg_isready")):
            return folder
    return None


class Postgres(Server):
    """PostgreSQL that trusts everyone on loopback."""

    name = "postgres"
    # "Fast": it ends the connections of its clients and does not wait for them.
    end_signal = signal.SIGINT

    def __init__(self) -> None:
        programs = postgres_programs()
        if programs is None:
            raise UnavailableError("PostgreSQL is not installed: apt-get install postgresql")
        super().__init__()
        self._programs = programs
        self._owner = _other_than_root()
        if self._owner is not None:
            os.chown(self.folder, self._owner.pw_uid, self._owner.pw_gid)

    @property
    def url(self) -> str:
        """The address of the database that is always there."""
        return self._url_of("postgres")

    def database(self) -> str:
        """Create an empty database and return its URL."""
        self.ensure_running()
        name = fresh_name()
        self._run("createdb", f"--host={self.host}", f"--port={self.port}", "--username=postgres", name)
        return self._url_of(name)

    def _url_of(self, database: str) -> str:
        return f"postgresql://postgres@{self.address}/{database}"

    def _prepare(self) -> None:
        self._run(
            "initdb",
            f"--pgdata={self.folder / 'data'}",
            *("--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"),
        )

    def _command(self) -> list[str]:
        settings = {
            "listen_addresses": self.host,
            "port": str(self.port),
            "unix_socket_directories": "",
            # Only the fall of the whole machine could lose anything by this.
            "fsync": "off",
            # The shared memory of containers is small.
            "dynamic_shared_memory_type": "mmap",
        }
        arguments = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return [str(self._programs / "postgres"), "-D", str(self.folder / "data"), *arguments]

    def _identity(self) -> dict[str, Any]:
        if self._owner is None:
            return {}
        return {"user": self._owner.pw_uid, "group": self._owner.pw_gid, "extra_groups": []}

    def _answers(self) -> bool:
        probe = [str(self._programs / "pg_isready"), "-q", "-h", self.host, "-p", str(self.port)]
        return subprocess.run(probe, check=False).returncode == 0

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(self._programs / program), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=self.folder,
            check=False,
            **self._identity(),
        )
        if done.returncode:
            raise RuntimeError(f"{program} failed: {done.stdout.decode(errors='replace').strip()}")


def _other_than_root() -> pwd.struct_passwd | None:
    """Return the user to run as where we are root, whom PostgreSQL refuses."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        return pwd.getpwnam("nobody")
