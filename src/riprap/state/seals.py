"""Seals: what only those who have the key could have written.

State of a user's class is pickled, and to load a pickle is to run it. So every run has a key of its own, in its folder
and readable by its user alone, and what is pickled carries a seal made with it. A seal is an HMAC-SHA256 of what is
sealed, under a key derived for the purpose: a seal made for one purpose is none for another.

    <run folder>/key      32 random bytes, mode 0600, made when the run is started first
"""

from __future__ import annotations

import contextlib
import hmac
import os
from pathlib import Path

from riprap.errors import SealError
from riprap.ownership import read_file
from riprap.state.durable_files import save_private

KEY = "key"
# A key of the user's own, for checkpoints, is in the file that this variable of the environment names.
KEY_FILE = "RIPRAP_KEY_FILE"
SIZE = 32


def make_key(run_folder: Path) -> None:
    """Give a run its key, unless it has one. Only for those who hold the run: nobody else may make one at once."""
    path = run_folder / KEY
    if not path.exists():
        save_private(path, os.urandom(SIZE))


def read_key(path: str | Path) -> bytes:
    """Read a run's key; without it nothing that is pickled can be loaded."""
    key = b""
    with contextlib.suppress(FileNotFoundError):
        key = read_file(path, secret=True)
    if len(key) != SIZE:
        raise SealError(
            f"{path} has {len(key)} bytes, and a run's key {SIZE}: without it, state of users' classes cannot be told "
            "from what others may have put in its place. Bring it back from a copy, or start a new run"
        )
    return key


def seal(key: bytes, purpose: str, *parts: bytes | memoryview) -> bytes:
    """Return the seal of some parts, in this order.

    >>> seal(b"k" * 32, "page", b"ab", b"c") == seal(b"k" * 32, "page", b"a", b"bc")
    False
    """
    digest = hmac.new(hmac.digest(key, purpose.encode(), "sha256"), digestmod="sha256")
    for part in parts:
        view = memoryview(part)
        digest.update(view.nbytes.to_bytes(8, "little"))
        digest.update(view)
    return digest.digest()


def fits(given: bytes, expected: bytes) -> bool:
    """Compare seals, in the same time wherever they differ."""
    return hmac.compare_digest(given, expected)
