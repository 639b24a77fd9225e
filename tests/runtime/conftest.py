"""Feeds made once."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
from tests.runtime.harness import Feed, make_feed


@pytest.fixture(scope="session")
def feed_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Feed]:
    """Return a function that gives the feed of a seed."""
    root = tmp_path_factory.mktemp("feeds")
    return cache(lambda seed: make_feed(root / f"seed-{seed}", seed=seed))


@pytest.fixture(scope="session")
def feed(feed_of: Callable[[int], Feed]) -> Feed:
    return feed_of(7)
