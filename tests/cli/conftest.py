"""What the tests of the command line share: a way to call it, and a small feed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from riprap.apps.market import generate
from riprap.cli import main

EVENTS = 20_000


@dataclass(frozen=True)
class Outcome:
    """What a command returned and printed."""

    code: int
    out: str
    err: str


Command = Callable[..., Outcome]


@pytest.fixture
def riprap(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Call the command line in this process, in an empty folder. For what starts no Spark."""
    monkeypatch.chdir(tmp_path)
    # Loading a file makes its folder importable for the rest of the process: not beyond this test.
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.delenv("COLUMNS", raising=False)

    def call(*arguments: str | Path) -> Outcome:
        code = main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return Outcome(code, printed.out, printed.err)

    return call


def in_process(program: Sequence[str | Path], folder: Path) -> Outcome:
    """Run Python in a process of its own, as Spark needs it."""
    done = subprocess.run(
        [sys.executable, *program], cwd=folder, capture_output=True, text=True, check=False, timeout=300
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="session")
def feed() -> pa.Table:
    return pa.Table.from_batches(generate(EVENTS, seed=3))


@pytest.fixture
def feed_file(feed: pa.Table, tmp_path: Path) -> Path:
    path = tmp_path / "feed.parquet"
    pq.write_table(feed, path)
    return path
