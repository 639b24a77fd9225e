"""The benchmark of recorded windows: its element comes back as it was, and all that is measured is shown."""

from pathlib import Path

import pytest

from riprap.protection import WindowTerms
from riprap_bench import eventual
from riprap_bench.eventual_element import RecordingElement


@pytest.mark.parametrize("window", [1, 10])
def test_an_element_comes_back_as_it_was(tmp_path: Path, window: int) -> None:
    element = RecordingElement(
        tmp_path / "element", items=50, window=window, terms=WindowTerms(replay=300, share=1.0), cut_every=200
    )
    for _ in range(12):
        element.run(element.draw(100))
    came = element.come_back()
    assert came["open"] == (0 if window == 1 else came["open"])
    assert came["replay_tuples"] <= 500
    assert element.cut_bytes > 0 or window == 1


def test_all_is_shown() -> None:
    cost = {
        "window": 1, "how": "native", "tuples_per_s": 1e6, "of_native": 0.5, "spread": [0.4, 0.6], "met": False,
        "record_bytes_per_tuple": 0.0,
    }  # fmt: skip
    bound = {
        "bound": 10, "open": 5, "checks": 1, "extent": 12, "load_seconds": 0.1, "replay_bytes": 100, "kept": False,
        "replay_seconds": 0.2, "record_bytes": 1.5, "cut_bytes": 2.5,
    }  # fmt: skip
    share = {
        "share": 0.05, "batch_seconds": 0.01, "batch_seconds_99": 0.02, "of_least": 1.1, "extent": 9, "checks": 3
    }  # fmt: skip
    described = {"quick": True, "date": "today", "machine": "one", "load_before": 0.1}
    shown = eventual.table(
        {"cost": [cost], "extent": [bound], "replay": [bound], "share": [share], "about": described}
    )
    for words in ("0.500 (missed)", "not kept", "5.00%", "A quick run", "2.5"):
        assert words in shown
