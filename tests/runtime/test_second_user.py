"""Another user of the host, who knows where page folders go: they have nothing removed, and none of their code runs.

The second user is real. All of it happens in a mount namespace with a /dev/shm of its own, in which anybody may rename
anything: not every system has a sticky one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PRIVATE = ("unshare", "-m", "--propagation", "private", "sh", "-ec")
MOUNT = "mount -t tmpfs -o size=2g,mode=0777 tmpfs /dev/shm"


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Any]:
    """Be attacked in every way, and return what became of it; skip where no second user can be had."""
    if os.getuid() != 0:
        pytest.skip("only root can be a second user too")
    allowed = subprocess.run([*PRIVATE, MOUNT], capture_output=True, text=True, check=False)
    if allowed.returncode:
        pytest.skip(f"no private mounts here: {allowed.stderr.strip()}")
    program = [sys.executable, "-m", "tests.runtime.programs.second_user", "link", "folder", "late"]
    done = subprocess.run(
        [*PRIVATE, f'{MOUNT}; exec "$@"', "sh", *program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_files_behind_a_planted_link_stay(outcomes: dict[str, Any]) -> None:
    found = outcomes["link"]

    assert found["left"] == ["papers", "thesis"]
    assert (
        "OwnershipError: /dev/shm/riprap-0 is a link, and must be a folder that user 0 alone"
        in found["refused"]
    )
    assert "app.run(pages=...)" in found["refused"]


@pytest.mark.parametrize("attack", ["folder", "late"])
def test_no_code_of_another_user_runs_out_of_a_page(attack: str, outcomes: dict[str, Any]) -> None:
    found = outcomes[attack]

    assert found["ran_as"] is None
    assert "OwnershipError: /dev/shm/riprap-0 belongs to user 4242, and must be" in found["refused"]
