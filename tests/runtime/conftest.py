"""Feeds made once, and run folders that leave nothing behind in shared memory."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from tests.runtime.harness import Feed, Programs, make_feed

from riprap.state.pages import page_root, sweep


@pytest.fixture(scope="session")
def feed_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Feed]:
    """Return a function that gives the feed of a seed."""
    root = tmp_path_factory.mktemp("feeds")
    return cache(lambda seed: make_feed(root / f"seed-{seed}", seed=seed))


@pytest.fixture(scope="session")
def feed(feed_of: Callable[[int], Feed]) -> Feed:
    return feed_of(7)


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Path]:
    """Give a folder for runs; whatever pages its runs leave are swept after the test."""
    folder = tmp_path / "runs"
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
    sweep(page_root())


@pytest.fixture(scope="module")
def programs() -> Iterator[Programs]:
    started = Programs()
    yield started
    started.end()
