"""The folder of pages: private, limited, leased, and swept only when its run is really over."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from riprap.errors import FormatError, MissingPageError, PageSpaceError, RunError
from riprap.state.leases import Lease, is_alive, lock, sweep
from riprap.state.pages import LEASE, PageStore, limit_for, page_root

PAGE = pa.record_batch({"n": list(range(1000)), "s": ["x"] * 1000})


@pytest.fixture
def store(tmp_path: Path) -> PageStore:
    store = PageStore(str(tmp_path / "pages"))
    store.make()
    return store


def test_a_page_comes_back_as_it_was_written(store: PageStore) -> None:
    name = store.write("one", PAGE)

    assert name == "one"
    assert store.read("one").equals(PAGE)
    assert store.size("one") == store.used() > PAGE.nbytes


def test_a_slice_is_written_without_the_rest(store: PageStore) -> None:
    store.write("whole", PAGE)
    store.write("slice", PAGE.slice(500, 10))

    assert store.read("slice").equals(PAGE.slice(500, 10))
    assert store.size("slice") < store.size("whole") / 5


def test_a_page_outlives_its_file_while_it_is_mapped(store: PageStore) -> None:
    store.write("one", PAGE)
    page = store.read("one")

    assert store.collect(lambda: []) == 1
    assert page.equals(PAGE)
    assert store.size("one") == 0


def test_a_missing_page_is_an_error_and_never_empty(store: PageStore) -> None:
    with pytest.raises(MissingPageError) as caught:
        store.read("gone")

    assert str(caught.value) == (
        f"state page 'gone' is not in {store.folder}, though the ledger names it. It may be on another host, or the "
        "host's memory was cleared. On several hosts, give app.run(pages=...) a folder they share"
    )


@pytest.mark.parametrize(
    "damage", [b"", b"ARROW1 and then nothing", None], ids=["empty", "garbage", "cut off"]
)
def test_a_damaged_page_is_an_error(store: PageStore, damage: bytes | None) -> None:
    store.write("one", PAGE)
    path = Path(store.folder) / "one.page"
    path.write_bytes(path.read_bytes()[:-20] if damage is None else damage)

    with pytest.raises(MissingPageError, match=r"state page 'one' in .* cannot be read"):
        store.read("one")


def test_a_page_of_another_format_is_an_error(store: PageStore) -> None:
    with (
        pa.OSFile(str(Path(store.folder) / "one.page"), "wb") as sink,
        pa.ipc.new_file(sink, PAGE.schema) as writer,
    ):
        writer.write_batch(PAGE)

    with pytest.raises(FormatError, match="this version reads b'riprap-page/1'"):
        store.read("one")


def test_the_limit_is_kept(store: PageStore) -> None:
    store.write("one", PAGE)
    full = PageStore(store.folder, limit=store.used() + 100)

    with pytest.raises(PageSpaceError) as caught:
        full.write("two", PAGE)

    assert f"state pages take {store.used():,} bytes in {store.folder} and page 'two'" in str(caught.value)
    assert "app.run(page_limit=...)" in str(caught.value)
    assert os.listdir(store.folder) == ["one.page"]


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 kB, where the machine lets us mount one."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    if shutil.which("mount") is None:
        pytest.skip("there is no mount here")
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k,mode=0700", "tmpfs", str(folder)],
        capture_output=True,
        check=False,
    )
    if made.returncode:
        pytest.skip(f"no tmpfs may be mounted here: {made.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_is_an_error_and_leaves_nothing_behind(tiny: Path) -> None:
    store = PageStore(str(tiny))
    store.write("one", PAGE)

    big = pa.record_batch({"n": list(range(50_000))})

    with pytest.raises(PageSpaceError) as caught:
        store.write("big", big)

    assert f"no space in {tiny} for page 'big' of " in str(caught.value)
    assert store.read("one").equals(PAGE)
    assert os.listdir(tiny) == ["one.page"]


def test_collecting_keeps_what_is_named_and_the_lease(tmp_path: Path) -> None:
    lease = Lease.take(tmp_path / "home", tmp_path)
    store = PageStore(str(tmp_path / "home"))
    for name in ("old", "kept"):
        store.write(name, PAGE)
    (tmp_path / "home" / ".half.4711").write_bytes(b"half")

    assert store.collect(lambda: {"kept", "elsewhere"}) == 2
    assert sorted(os.listdir(store.folder)) == ["kept.page", LEASE]
    lease.release()


def test_folders_are_private(tmp_path: Path) -> None:
    home = tmp_path / "root" / "run"
    mask = os.umask(0o022)
    try:
        Lease.take(home, tmp_path).release()
        limit_for(tmp_path / "other", None)
        PageStore(str(home)).write("one", PAGE)
    finally:
        os.umask(mask)

    assert [stat.S_IMODE(p.stat().st_mode) for p in (home.parent, home, tmp_path / "other")] == [0o700] * 3
    assert stat.S_IMODE((home / "one.page").stat().st_mode) == 0o600


def test_the_root_belongs_to_the_user() -> None:
    assert page_root().name == f"riprap-{os.getuid()}"


def test_the_limit_is_checked_against_the_free_space(tmp_path: Path) -> None:
    assert limit_for(tmp_path, 1000) == 1000
    assert 0 < limit_for(tmp_path, None) <= 4 << 30
    with pytest.raises(
        PageSpaceError, match=r"page_limit=1,152,921,504,606,846,976 bytes, but .* Ask for less"
    ):
        limit_for(tmp_path, 1 << 60)


HOLDER = """
import sys, time
from pathlib import Path
from riprap.state.leases import Lease
held = Lease.take(Path(sys.argv[1]), Path(sys.argv[2]))
print("held", flush=True)
time.sleep(600)
"""


def hold(home: Path, run: Path) -> subprocess.Popen[str]:
    """Start a process that holds a lease, and wait until it does."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(home), str(run)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def end(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()


def test_one_process_holds_a_folder_until_it_dies(tmp_path: Path) -> None:
    home, run = tmp_path / "root" / "home", tmp_path / "run"
    run.mkdir()
    owner = hold(home, run)
    try:
        with pytest.raises(RunError, match=f"is alive: process {owner.pid} on "):
            Lease.take(home, run)
        assert sweep(tmp_path / "root", clock=lambda: 1e12) == []
        assert json.loads((home / LEASE).read_text()) == {
            "run": str(run),
            "pid": owner.pid,
            "host": socket.gethostname(),
        }
    finally:
        end(owner)

    lease = Lease.take(home, run)
    assert json.loads((home / LEASE).read_text())["pid"] == os.getpid()
    lease.release()


class DeadRun:
    """A page folder that nobody holds, and the clock of its last change."""

    def __init__(self, tmp_path: Path) -> None:
        self.root = tmp_path / "root"
        self.home = self.root / "home"
        self.run = tmp_path / "run"
        self.run.mkdir()
        Lease.take(self.home, self.run).release()
        state = PageStore(str(self.home / "state"))
        state.make()
        state.write("one", PAGE)
        self.died = max(p.stat().st_mtime for p in (self.home, self.home / "state"))

    def sweep(self, *, seconds_later: float) -> list[Path]:
        return sweep(self.root, clock=lambda: self.died + seconds_later)


@pytest.fixture
def dead(tmp_path: Path) -> DeadRun:
    return DeadRun(tmp_path)


def test_a_run_that_crashed_just_now_may_be_taken_up_again(dead: DeadRun) -> None:
    assert dead.sweep(seconds_later=3000) == []
    assert PageStore(str(dead.home / "state")).read("one").equals(PAGE)


@pytest.mark.parametrize("removed", [False, True])
def test_a_sweep_or_a_look_is_in_nobodys_way(dead: DeadRun, removed: bool) -> None:
    """Take a run up while others have its leases: one who looks, and a sweep that removes the page folder, or not."""
    leases = [os.open(folder / LEASE, os.O_RDONLY) for folder in (dead.run, dead.home)]
    assert lock(leases[0], shared=True)
    assert lock(leases[1])

    def let_go() -> None:
        os.close(leases[0])
        if removed:
            # As a sweep does: whoever takes the run up may put a lease there meanwhile.
            shutil.rmtree(dead.home, ignore_errors=True)
        os.close(leases[1])

    others = threading.Timer(0.1, let_go)
    others.start()
    lease = Lease.take(dead.home, dead.run)
    others.join()

    assert is_alive(dead.run)
    assert json.loads((dead.home / LEASE).read_text())["pid"] == os.getpid()
    lease.release()


def test_a_run_that_crashed_long_ago_is_removed(dead: DeadRun) -> None:
    assert dead.sweep(seconds_later=4000) == [dead.home]
    assert not dead.home.exists()


def test_a_long_run_that_crashed_just_now_is_kept(dead: DeadRun) -> None:
    for old in (dead.home / LEASE, dead.home):
        os.utime(old, (dead.died - 10_000, dead.died - 10_000))

    assert dead.sweep(seconds_later=60) == []


def test_a_run_that_ended_is_removed(dead: DeadRun) -> None:
    (dead.run / "ended").touch()

    assert dead.sweep(seconds_later=1) == [dead.home]


def test_a_run_whose_folder_is_gone_is_removed(dead: DeadRun) -> None:
    shutil.rmtree(dead.run)

    assert dead.sweep(seconds_later=1) == [dead.home]


def test_a_folder_without_a_readable_lease_waits_as_a_crash_does(dead: DeadRun) -> None:
    (dead.home / LEASE).write_text("{")

    assert dead.sweep(seconds_later=1000) == []
    assert dead.sweep(seconds_later=9000) == [dead.home]


def test_what_has_no_lease_of_ours_is_not_swept(dead: DeadRun) -> None:
    bare = dead.root / "just made"
    bare.mkdir()
    (bare / "kept").touch()
    (dead.root / "link").symlink_to(dead.home)
    (bare / LEASE).symlink_to(dead.home / LEASE)

    assert dead.sweep(seconds_later=9000) == [dead.home]
    assert (bare / "kept").exists()


def test_sweeping_passes_over_files_and_no_root(dead: DeadRun, tmp_path: Path) -> None:
    (dead.root / "note.txt").write_text("not a run")

    assert dead.sweep(seconds_later=9000) == [dead.home]
    assert (dead.root / "note.txt").exists()
    assert sweep(tmp_path / "nowhere") == []
