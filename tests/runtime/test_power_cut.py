"""The power of a disk is cut, really: an ext4 file system is shut down without writing what it has not written yet."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.runtime.harness import PROGRAMS

from riprap.channels import ChannelReader
from riprap.runtime.segments import SegmentLog
from riprap.state.ledger import Ledger


def cut_power(tmp_path: Path, program: str) -> Path:
    """Run a program that writes to a disk of its own, cut its power, and return the folder with what survived."""
    if os.getuid() != 0 or shutil.which("mkfs.ext4") is None or shutil.which("unshare") is None:
        pytest.skip("only root can mount a disk to cut the power of, and it takes mkfs.ext4 and unshare")
    image, disk, ready = tmp_path / "image", tmp_path / "disk", tmp_path / "ready"
    disk.mkdir()
    with image.open("wb") as file:
        file.truncate(64 << 20)
    subprocess.run(["mkfs.ext4", "-q", image], check=True)
    probe = ["unshare", "--mount", "mount", "-o", "loop", image, disk]
    if (tried := subprocess.run(probe, capture_output=True, text=True, check=False)).returncode:
        pytest.skip(f"no disk can be mounted here: {tried.stderr.strip()}")
    spec = {
        "image": str(image),
        "disk": str(disk),
        "program": [sys.executable, str(PROGRAMS / program), str(disk), str(ready)],
        "ready": str(ready),
        # Where it was mounted, so that what names its own path is found again.
        "survived": str(tmp_path / "survived"),
    }
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    command = [
        "unshare",
        "--mount",
        sys.executable,
        str(PROGRAMS / "cut_power.py"),
        str(tmp_path / "spec.json"),
    ]
    subprocess.run(command, check=True, timeout=300)
    shutil.copytree(tmp_path / "survived", disk, dirs_exist_ok=True, symlinks=True)
    return disk


def test_what_is_promised_is_there(tmp_path: Path) -> None:
    disk = cut_power(tmp_path, "write_promises.py")

    control = disk / "unsynced"
    assert not control.exists() or not control.stat().st_size, "the power was not really cut"
    assert Ledger(str(disk / "ledger")).get(0).sources == {"numbers": (None, 100)}
    (part,) = (disk / "out").glob("part-*")
    assert pq.read_table(part)["n"].to_pylist() == list(range(100))
    tuples, _ = ChannelReader(disk / "channel", "r").read(None, 99, ["n"])
    assert tuples["n"].to_pylist() == list(range(100))
    log = SegmentLog(disk / "source")
    assert log.end == 2
    assert all(Path(segment.path).stat().st_size for segment in log.segments)
