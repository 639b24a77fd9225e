"""The user's cache folder: where it is, and that nobody else had a hand in what is run from it."""

from pathlib import Path

import pytest

from riprap.cache import cache_folder, private_folder
from riprap.errors import OwnershipError


def test_where_it_is() -> None:
    assert cache_folder({"HOME": "/home/me"}) == Path("/home/me/.cache/riprap")
    assert cache_folder({"HOME": "/home/me", "XDG_CACHE_HOME": "/var/mine"}) == Path("/var/mine/riprap")
    assert cache_folder({"XDG_CACHE_HOME": "/var/mine", "RIPRAP_CACHE": "/srv/it"}) == Path("/srv/it")


def test_no_folder_of_others_is_used(tmp_path: Path) -> None:
    folder = private_folder("code", {"RIPRAP_CACHE": str(tmp_path)})
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o755)
    with pytest.raises(OwnershipError, match="is open to others"):
        private_folder("code", {"RIPRAP_CACHE": str(tmp_path)})
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        private_folder("code", {"RIPRAP_CACHE": str(tmp_path / "file")})
