"""Where a run's checkpoints are: the store, the operators' entries in it, and the key that seals objects."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from riprap.errors import OwnershipError, RunError
from riprap.ownership import read_file
from riprap.runtime.crash import Step, reach
from riprap.runtime.folder import read_about
from riprap.state.checkpoints.versions import SaveStep, Versions
from riprap.state.seals import KEY_FILE
from riprap.state.stores import Store, open_store

FOLDER = "checkpoints"
_STEPS: dict[SaveStep, Step] = {
    "values": "checkpoint-values",
    "between": "checkpoint-between",
    "manifest": "checkpoint-manifest",
    "versioned": "checkpoint-versioned",
    "collecting": "checkpoint-collecting",
}


@dataclass(frozen=True, slots=True)
class Durable:
    """The address of a run's checkpoints; nothing is opened before it is needed.

    A ``replica`` has checkpoints of its own.
    """

    url: str
    identity: str
    key: bytes | None = None
    own: bool = False
    replica: str | None = None

    @classmethod
    def of(cls, run_folder: Path, identity: str, url: str | None) -> Durable:
        """Take the store at ``url``, or a folder in the run's; the key from the file that the environment names."""
        return cls(url or str(run_folder / FOLDER), identity, _key(), own=url is None)

    def address(self) -> dict[str, Any]:
        """Return what :meth:`at` takes, in another process too: the key is not in it."""
        return {"url": self.url, "identity": self.identity, "own": self.own, "replica": self.replica}

    @classmethod
    def at(cls, url: str, identity: str, *, own: bool, replica: str | None) -> Durable:
        """Take the store at an address; the key from the file that the environment names."""
        return cls(url, identity, _key(), own, replica)

    @property
    def never_made(self) -> bool:
        """Whether it is the run's own folder, and no operator was protected so far."""
        return self.own and not Path(self.url).exists()

    def open(self, element: str, *, readonly: bool = False) -> Store:
        """Open the store for a processing element. One process alone may write to a database of RocksDB's, so each
        element has its own."""
        path, mark, settings = self.url.partition("?")
        own = f"{path.rstrip('/')}/{element}" if self.url.startswith("rocksdb:") else path
        return open_store(f"{own}{mark}{settings}", readonly=readonly)

    def entry(self, operator: str) -> str:
        """Name an operator's entry: a store may hold those of many runs."""
        # What stores take for a name has no "~", and operators' names have no dot.
        return f"{self.identity}/{operator if self.replica is None else f'{operator}.{self.replica}'}"

    def versions(self, store: Store, operator: str) -> Versions:
        """Return the checkpoints of an operator."""
        number = 0

        def at(step: SaveStep) -> None:
            nonlocal number
            number += step == "values"
            reach(_STEPS[step], number, operator)

        return Versions(store, self.entry(operator), key=self.key, at=at)


def settle_store(run_folder: Path, asked: str | Path | None) -> str | None:
    """Return where a run's checkpoints go: as asked, as it began, or None, which is its folder."""
    if asked is not None:
        return str(asked) if "://" in str(asked) else str(Path(asked).absolute())
    about = read_about(run_folder)
    return about["options"].get("store") if about is not None else None


def _key() -> bytes | None:
    name = os.environ.get(KEY_FILE)
    if not name:
        return None
    try:
        # Resolved: secrets that are mounted are links.
        key = read_file(Path(name).resolve(), secret=True).strip()
    except OwnershipError as error:
        raise OwnershipError(
            f"{KEY_FILE}={name}: {error}. Name a file of your own, with mode 0400"
        ) from error
    except OSError as error:
        raise RunError(f"{KEY_FILE}={name}: cannot read the key: {error.strerror}") from error
    if len(key) < 16:
        raise RunError(f"{KEY_FILE}={name}: a key has at least 16 bytes, this one {len(key)}")
    return key
