"""Where a run keeps things: what must be ours, what may be anybody's, and what is said if it is not so."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pyarrow as pa
import pytest

from riprap.errors import OwnershipError, RunError, SealError
from riprap.runtime.folder import RunFolder
from riprap.runtime.session import socket_setting
from riprap.runtime.site import take_hold
from riprap.state.leases import sweep
from riprap.state.pages import page_root
from riprap.state.seals import KEY, read_key

PAGE = pa.record_batch({"n": [1, 2, 3]})


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "runs", "app", lambda: 0.0)


def test_a_folder_that_the_user_names_may_be_shared_but_not_what_is_in_it(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    # Naming a folder is the way out where the usual one is not ours to use.
    monkeypatch.setattr("riprap.runtime.site.page_root", lambda: pytest.fail("looked at"))

    housing, lease = take_hold(run, shared, None, one_host=False)
    site = housing.site("sums", run.path)
    site.pages.write("one", PAGE)
    site.results.write("two", PAGE)

    assert site.pages.read("one").equals(PAGE)
    assert sorted(str(p.relative_to(tmp_path)) for p in tmp_path.glob("**/*.page")) == [
        f"runs/app/{run.path.name}/results/sums/two.page",
        f"shared/{run.identity}/sums/one.page",
    ]
    (shared / run.identity).chmod(0o770)
    with pytest.raises(
        OwnershipError, match=r"is open to others \(mode 0770\), and must be a folder that user"
    ):
        site.pages.read("one")
    (shared / run.identity).chmod(0o700)
    housing.remove()
    assert (list(shared.iterdir()), (run.path / "results").exists()) == ([], False)
    lease.release()


def test_a_run_has_a_key_that_nobody_else_can_read(run: RunFolder, tmp_path: Path) -> None:
    _, lease = take_hold(run, tmp_path, None, one_host=True)
    key = read_key(run.path / KEY)
    lease.release()
    _, lease = take_hold(run, tmp_path, None, one_host=True)
    lease.release()

    assert (len(key), read_key(run.path / KEY)) == (32, key), "it stays when the run is taken up"
    assert stat.S_IMODE((run.path / KEY).stat().st_mode) == 0o600
    (run.path / KEY).chmod(0o640)
    with pytest.raises(OwnershipError, match="could have read or written it"):
        read_key(run.path / KEY)
    (run.path / KEY).chmod(0o600)
    (run.path / KEY).write_bytes(b"short")
    with pytest.raises(SealError, match=r"has 5 bytes, and a run's key 32: .* start a new run"):
        read_key(run.path / KEY)


def test_a_run_folder_that_others_can_change_is_refused(run: RunFolder, tmp_path: Path) -> None:
    run.path.chmod(0o777)

    with pytest.raises(OwnershipError, match=r"has mode 0777: others than user .*: chmod go-w /.*/runs/app/"):
        take_hold(run, tmp_path, None, one_host=True)


def test_a_second_start_is_refused_though_the_page_folder_is_gone(run: RunFolder) -> None:
    _, lease = take_hold(run, None, None, one_host=True)
    home = page_root() / run.identity
    os.unlink(home / "lease")
    home.rmdir()

    with pytest.raises(
        RunError, match=rf"the run in .* is alive: process {os.getpid()} on .* End it there first"
    ):
        take_hold(run, None, None, one_host=True)
    lease.release()
    take_hold(run, None, None, one_host=True)[1].release()
    run.end()
    sweep(page_root())
    assert not home.exists()


def test_sockets_that_others_could_write_to_are_not_used() -> None:
    before = os.umask(0o022)
    try:
        private = socket_setting()
        os.umask(0o002)
        shared = socket_setting()
        assert os.umask(before) == 0o002, "the umask stays"
    finally:
        os.umask(before)

    assert [*private.values(), *shared.values()] == ["true", "false"]


def test_every_executor_has_a_folder_of_its_own(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    housing, lease = take_hold(run, tmp_path / "pages" / "{executor}", None, one_host=True)
    monkeypatch.setenv("SPARK_EXECUTOR_DIRS", "one")
    site = housing.site("sums", run.path).here()
    site.pages.write("one", PAGE)

    (folder,) = (tmp_path / "pages").glob(f"*/{run.identity}/sums")
    assert [stat.S_IMODE(p.stat().st_mode) for p in (folder, folder.parent)] == [0o700] * 2
    assert housing.site("sums", run.path).find_page("one").equals(PAGE)
    housing.remove()
    assert not list(tmp_path.glob("**/*.page"))
    lease.release()
