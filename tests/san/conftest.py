"""What is compiled in tests is kept for the session only; some tests do not compile at all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.san.interpreting import interpret

from riprap.san import simulation


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RIPRAP_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the simulator interpreted instead of compiled."""
    monkeypatch.setattr(simulation, "load", interpret)
