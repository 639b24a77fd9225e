"""Every small file of a run that is damaged is an error that names it, says what is wrong, and what can be done."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import riprap as rr
from riprap.adapters.bad_records import read_quarantine, write_quarantine
from riprap.channels import Channel
from riprap.channels.notes import Notes
from riprap.errors import DamagedFileError, FormatError
from riprap.feeds.fetch_stop import FetchStop
from riprap.feeds.pacing import pace_start
from riprap.feeds.segments import SegmentLog
from riprap.feeds.tables import Tables, load_tables
from riprap.graph.connectors import BadRecord
from riprap.runtime.checkpointing.durable import settle_store
from riprap.runtime.checkpointing.inspection import Inspection
from riprap.runtime.checkpointing.recovery import read_wishes, wish
from riprap.runtime.folder import RunFolder
from riprap.runtime.settings import Setting, load_setting, save_setting
from riprap.runtime.site import Site
from riprap.runtime.supervision import presence
from riprap.state.ledger import BatchRecord, Ledger, Manifest, Output
from riprap.state.pages import PageStore

Made = tuple[Path, Callable[[], Any]]


def about(folder: Path) -> Path:
    RunFolder(folder, time.time).describe("shop", {}, {}, master="local", java="17")
    return folder / "run.json"


def run_json(folder: Path) -> Made:
    return about(folder), lambda: RunFolder.reopen(folder, "shop", time.time)


def run_json_inspected(folder: Path) -> Made:
    return about(folder), lambda: Inspection.of(folder)


def run_json_for_its_store(folder: Path) -> Made:
    return about(folder), lambda: settle_store(folder, None)


def state_json(folder: Path) -> Made:
    run = RunFolder(folder, time.time)
    run.keep_state_layout({"elements": {"shop": []}, "buckets": 8, "operators": {}})
    return folder / "state.json", run.state_layout


def ledger_record(folder: Path) -> Made:
    ledger = Ledger(str(folder))
    manifests, outputs = (Manifest((0, 8), {"sums/0": ("page",)}),), {"out": (Output("page", 3),)}
    ledger.write(BatchRecord(epoch=0, batch=7, sources={"in": (0, 5)}, manifests=manifests, outputs=outputs))
    return folder / "0000-0000000007.json", lambda: ledger.find(7)


def setting(folder: Path) -> Made:
    path = folder / "setting-0.json"
    store = PageStore(str(folder))
    save_setting(
        path,
        Setting(
            plan="p",
            sources="s",
            folder="f",
            tables="t",
            site=Site(ledger=Ledger(str(folder)), pages=store, results=store, key=""),
            start=0,
        ),
    )
    return path, lambda: load_setting.__wrapped__(str(path))


def pace(folder: Path) -> Made:
    pace_start(folder, 5.0)
    return folder / "pace.json", lambda: pace_start(folder, 5.0)


def left(folder: Path) -> Made:
    leaving = FetchStop(folder)
    leaving.answer(3)
    return folder / "left.json", lambda: leaving.rows


def tables(folder: Path) -> Made:
    app = rr.Application("shop")
    rows = app.source("in", rr.rows([{"k": 1}], "k bigint"))
    table = rr.rows([{"k": 1, "p": 2}], "k bigint, p bigint")
    app.sink("out", app.lookup("prices", rows, table=table, by="k", select="p"), rr.memory())
    Tables(folder, app.graph()).settle(4)
    return folder / "4.json", lambda: load_tables(folder, 4)


def wishes(folder: Path) -> Made:
    wish(folder, "sums", 3)
    return folder / "restore.json", lambda: read_wishes(folder)


def process(folder: Path) -> Made:
    (folder / "processes").mkdir()
    presence.announce(folder, "main", {"shop": ["/pages"]}).close()
    return folder / "processes" / "main.json", lambda: presence.find_presences(folder)


def channel(folder: Path) -> Made:
    Channel(stream="s", key=None, buckets=1, tags=1, schema=pa.schema([("n", pa.int64())])).make(folder)
    return folder / "channel.json", lambda: Channel.find(folder)


def reader_notes(folder: Path) -> Made:
    Notes(acknowledged=4).save(folder, "a")
    return folder / "readers" / "a.json", lambda: Notes.find(folder, "a")


FILES = [
    *(
        run_json,
        run_json_inspected,
        run_json_for_its_store,
        state_json,
        ledger_record,
        setting,
        pace,
        left,
        tables,
    ),
    *(wishes, process, channel, reader_notes),
]


def kinds_of_damage(whole: str) -> dict[str, str]:
    """Return ways to damage a file, by what the error must say of it."""
    data = json.loads(whole)
    kinds = {
        "it is empty": "",
        "it is not JSON": whole[: len(whole) // 2],
        "not JSON": "\0" * len(whole),
        "it holds a list": "[]",
    }
    if "format" in data:
        kinds["is not of format"] = json.dumps({**data, "format": "riprap-other/9"})
    return kinds


@pytest.mark.parametrize("make", FILES)
def test_damage_is_said_with_a_remedy(make: Callable[[Path], Made], tmp_path: Path) -> None:
    path, read = make(tmp_path)
    read()
    whole = path.read_text()
    for says, text in kinds_of_damage(whole).items():
        path.write_text(text)
        if make is reader_notes and not text:
            # It is not synced, and may be without contents after a power cut.
            assert read() == Notes()
            continue
        with pytest.raises(FormatError) as caught:
            read()
        told = str(caught.value)
        assert says in told
        assert str(path) in told
        assert any(remedy in told for remedy in ("from a copy", "Remove it", "Take the run up again")), told


OPTIONAL = {"format", "command", "notes", "master", "python", "java", "versions", "cores", "started", "about"}


@pytest.mark.parametrize("make", [f for f in FILES if f is not wishes])
def test_an_entry_that_is_missing_or_of_another_type_is_said(
    make: Callable[[Path], Made], tmp_path: Path
) -> None:
    path, read = make(tmp_path)
    data = json.loads(path.read_text())
    for name in data.keys() - OPTIONAL:
        path.write_text(json.dumps({n: v for n, v in data.items() if n != name}))
        with pytest.raises(DamagedFileError, match=f"it lacks '{name}'") as caught:
            read()
        assert str(path) in str(caught.value)
        wrong = [] if isinstance(data[name], dict) else {}
        path.write_text(json.dumps({**data, name: wrong}))
        with pytest.raises(DamagedFileError, match=f"its '{name}' is "):
            read()


@pytest.mark.parametrize(
    "wrong",
    [
        {"sources": {"in": 5}},
        {"manifests": [{"buckets": [0]}]},
        {"manifests": [3]},
        {"outputs": {"out": [{"pages": "p"}]}},
    ],
)
def test_a_record_with_wrong_parts_is_damaged(wrong: dict[str, Any], tmp_path: Path) -> None:
    path, read = ledger_record(tmp_path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **wrong}))

    with pytest.raises(DamagedFileError, match=r"0000-0000000007\.json is damaged"):
        read()


@pytest.mark.parametrize("text", ["[1]\n", '{"format": "riprap-segments/2"}\n[1]\n', "\0\0\n{}\n"])
def test_a_damaged_list_of_segments_is_said(text: str, tmp_path: Path) -> None:
    (tmp_path / "segments.jsonl").write_text(text)

    with pytest.raises(FormatError, match=r"segments\.jsonl .*from a copy"):
        SegmentLog(tmp_path)


def test_a_damaged_quarantine_is_said(tmp_path: Path) -> None:
    write_quarantine(tmp_path, 0, [BadRecord(position={"line": 1}, reason="no number", record=b"x", size=1)])
    (path,) = tmp_path.iterdir()
    (read,) = read_quarantine(tmp_path)
    assert read["reason"] == "no number"
    for text in ("", "[]\n", path.read_text()[:-9] + "\n"):
        path.write_text(text)
        with pytest.raises(FormatError, match=r"jsonl .* Remove it"):
            list(read_quarantine(tmp_path))


def test_damaged_records_are_set_aside_and_those_of_another_version_are_not(tmp_path: Path) -> None:
    ledger = Ledger(str(tmp_path))
    for batch in range(3):
        ledger.write(BatchRecord(epoch=0, batch=batch))
    (tmp_path / "0000-0000000002.json").write_text("")

    assert ledger.damaged() == [2]
    ledger.set_aside([2])
    assert ledger.batches() == [0, 1]
    (tmp_path / "0000-0000000001.json").write_text('{"format": "riprap-ledger/9"}')
    with pytest.raises(FormatError, match="riprap-ledger/9"):
        ledger.damaged()
