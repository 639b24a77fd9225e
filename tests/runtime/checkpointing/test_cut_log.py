"""Complete cuts of a region: numbered whoever writes them, and only once they are complete."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Any

import pytest

from riprap.errors import FormatError
from riprap.runtime.checkpointing.cut_log import KEEP, CutLog, CutWatch, ElementCut


def cut(batch: int) -> ElementCut:
    return ElementCut(batch=batch, time=1.0, size=100, written=10, freeze=0.1, persist=0.2, settle=0.3)


def add_some(run: Path, element: str, count: int) -> None:
    for batch in range(count):
        CutLog(run, "words").add(element, cut(batch), float(batch))


def test_a_cut_of_the_region_has_the_newest_of_each_element(tmp_path: Path) -> None:
    log = CutLog(tmp_path, "words")
    assert log.read() == ()
    assert [log.add("words", cut(3), 5.0), log.add("sums", cut(1), 6.0), log.add("words", cut(7), 8.0)] == [
        1,
        2,
        3,
    ]
    assert [(c.sequence, c.time, {n: e.batch for n, e in c.elements.items()}) for c in log.read()] == [
        (1, 5.0, {"words": 3}),
        (2, 6.0, {"words": 3, "sums": 1}),
        (3, 8.0, {"words": 7, "sums": 1}),
    ]
    assert CutLog(tmp_path, "other").read() == ()


def test_numbers_rise_by_one_though_several_processes_write(tmp_path: Path) -> None:
    spawning = multiprocessing.get_context("spawn")
    writers = [spawning.Process(target=add_some, args=(tmp_path, name, 25)) for name in ("words", "sums")]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    found = CutLog(tmp_path, "words").read()
    assert [c.sequence for c in found] == list(range(51 - KEEP, 51))
    assert {n: e.batch for n, e in found[-1].elements.items()} == {"words": 24, "sums": 24}


def test_a_file_that_cannot_be_read_says_what_to_do(tmp_path: Path) -> None:
    CutLog(tmp_path, "words").add("words", cut(3), 5.0)
    (tmp_path / "cuts" / "words.json").write_text('{"format": "riprap-cuts/9"}')
    with pytest.raises(FormatError, match="Remove it, and cuts are numbered from 1 again"):
        CutLog(tmp_path, "words").read()


def test_a_cut_counts_once_sinks_and_channels_have_all_up_to_it(tmp_path: Path) -> None:
    now, told = [10.0], list[Any]()
    log = CutLog(tmp_path, "words")
    watch = CutWatch("words", log, lambda: now[0], lambda kind, **details: told.append((kind, details)))
    watch.look(100)
    assert log.read() == ()
    watch.made(batch=7, time=9.0, size=100, written=10, freeze=0.1, persist=0.2)
    watch.look(7)
    assert log.read() == ()
    now[0] = 12.5
    watch.look(8)
    watch.look(9)
    (only,) = log.read()
    assert (only.sequence, only.time, only.elements["words"].settle) == (1, 12.5, 2.5)
    (tmp_path / "cuts" / "words.json").write_text("")
    watch.made(batch=9, time=9.0, size=100, written=10, freeze=0.1, persist=0.2)
    watch.look(10)
    assert [kind for kind, _ in told] == ["warning"]
