"""Runs in folders of their own, and programs that can be killed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.runtime.harness import Programs

from riprap.state.pages import page_root, sweep


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "runs"
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
    sweep(page_root())


@pytest.fixture(scope="module")
def programs() -> Iterator[Programs]:
    started = Programs()
    yield started
    started.end()
