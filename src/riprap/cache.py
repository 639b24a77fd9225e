"""The user's cache folder: what is made or fetched once, and can be had again.

$RIPRAP_CACHE, else $XDG_CACHE_HOME/riprap, else ~/.cache/riprap
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from riprap.ownership import make_folder


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder: ``RIPRAP_CACHE``, or the user's own."""
    given = environ.get("RIPRAP_CACHE")
    return Path(given).absolute() if given else users_cache(environ)


def users_cache(environ: Mapping[str, str]) -> Path:
    """Return the folder below the cache of all the user's programs."""
    given = environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(given):  # the XDG specification says to ignore a relative one
        return Path(given) / "riprap"
    home = environ.get("HOME")
    return (Path(home) if home else Path.home()) / ".cache" / "riprap"


def private_folder(kind: str, environ: Mapping[str, str] = os.environ) -> Path:
    """Make a folder of the cache that is this user's alone, for what will be run; raise what stands in the way.

    The cache itself may be shared: then each user has a folder of this kind there.
    """
    folder = cache_folder(environ) / f"{kind}-{os.getuid()}"
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    make_folder(folder)
    if not os.access(folder, os.W_OK):
        raise PermissionError(f"{folder} cannot be written")
    return folder
