"""The tables of lookups: when they are read, which version counts, and what is kept."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import riprap as rr
from riprap.feeds.tables import Tables, load_tables


def graph(table: Any, by: str = "id") -> rr.Graph:
    app = rr.Application("tables")
    source = app.source("source", rr.rows([], "id bigint, other bigint"))
    app.sink("out", app.lookup("names", source, table=table, by=by, select="name"), rr.memory())
    return app.graph()


def write(path: Path, ids: list[int], name: str) -> None:
    hidden = path.with_name(f".{path.name}")
    pq.write_table(pa.table({"id": ids, "name": [name] * len(ids)}), hidden)
    hidden.rename(path)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "names.parquet"
    write(path, [1, 2], "first")
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "tables"


def names(folder: Path, batch: int) -> list[str]:
    return sorted(set(load_tables(folder, batch)["names"].column("name").to_pylist()))


def snapshots(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.arrow"))


def test_a_table_is_read_once_while_its_files_stay(folder: Path, file: Path) -> None:
    tables = Tables(folder, graph(file))

    tables.settle(0)
    tables.settle(1)

    assert names(folder, 0) == names(folder, 1) == ["first"]
    assert snapshots(folder) == ["names-1.arrow"]
    assert load_tables(folder, 0)["names"] is load_tables(folder, 1)["names"]


def test_a_repeated_batch_sees_the_version_it_saw(folder: Path, file: Path) -> None:
    tables = Tables(folder, graph(file))
    tables.settle(0)
    write(file, [1], "second")

    tables.settle(0)
    tables.settle(1)
    Tables(folder, graph(file)).settle(1)

    assert names(folder, 0) == ["first"]
    assert names(folder, 1) == ["second"]


def test_a_run_taken_up_again_goes_on_with_what_it_knows(folder: Path, file: Path) -> None:
    Tables(folder, graph(file)).settle(0)

    again = Tables(folder, graph(file))
    again.settle(1)

    assert snapshots(folder) == ["names-1.arrow"]
    write(file, [1], "second")
    again.settle(2)
    assert names(folder, 1) == ["first"]
    assert names(folder, 2) == ["second"]


def test_a_file_of_the_same_size_and_time_is_told_apart(folder: Path, file: Path) -> None:
    tables = Tables(folder, graph(file))
    tables.settle(0)
    then = file.stat()
    write(file, [1, 2], "other")
    os.utime(file, ns=(then.st_atime_ns, then.st_mtime_ns))
    assert file.stat().st_size == then.st_size

    tables.settle(1)

    assert names(folder, 1) == ["other"]


def test_all_files_of_a_folder_are_the_table(folder: Path, tmp_path: Path) -> None:
    parts = tmp_path / "parts"
    parts.mkdir()
    write(parts / "a.parquet", [1], "a")
    tables = Tables(folder, graph(parts))
    tables.settle(0)
    write(parts / "b.parquet", [2], "b")
    tables.settle(1)
    (parts / "a.parquet").unlink()
    tables.settle(2)

    assert [names(folder, batch) for batch in range(3)] == [["a"], ["a", "b"], ["b"]]


def test_csv_and_json_are_read_by_their_schema(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "names.csv").write_text('id,more,name\n1,x,one\n2,y,""\n3,z,\n')
    (tmp_path / "names.json").write_text('{"id": 1, "name": "one"}\n{"id": 2}\n')
    schema = "id bigint, name string"
    Tables(folder / "csv", graph(rr.files(tmp_path / "names.csv", schema=schema))).settle(0)
    Tables(folder / "json", graph(rr.files(tmp_path / "names.json", schema=schema))).settle(0)

    def known(kind: str) -> dict[int, str | None]:
        table = load_tables(folder / kind, 0)["names"]
        return dict(zip(table.column("id").to_pylist(), table.column("name").to_pylist(), strict=True))

    assert known("csv") == {1: "one", 2: "", 3: None}
    assert known("json") == {1: "one", 2: None}


def test_a_half_written_file_keeps_the_last_version_and_is_reported_once(folder: Path, file: Path) -> None:
    warnings: list[str] = []
    tables = Tables(folder, graph(file), warnings.append)
    tables.settle(0)
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    tables.settle(1)
    tables.settle(2)

    assert names(folder, 2) == ["first"]
    assert len(warnings) == 1
    assert "operator 'names'" in warnings[0]
    assert "names.parquet" in warnings[0]
    assert "The last version that could be read goes on counting" in warnings[0]

    write(file, [1], "second")
    tables.settle(3)
    assert names(folder, 3) == ["second"]


@pytest.mark.parametrize("harm", ["gone", "twice", "lacking"])
def test_a_table_that_went_wrong_keeps_the_last_version(folder: Path, file: Path, harm: str) -> None:
    warnings: list[str] = []
    tables = Tables(folder, graph(file), warnings.append)
    tables.settle(0)
    if harm == "gone":
        file.unlink()
    elif harm == "twice":
        write(file, [5, 5], "second")
    else:
        pq.write_table(pa.table({"id": [1]}), file)

    tables.settle(1)

    assert names(folder, 1) == ["first"]
    said = {"gone": "no file matches", "twice": "has 2 rows of key id 5", "lacking": "has no column 'name'"}
    assert said[harm] in warnings[0]


def test_at_the_start_there_must_be_a_table(folder: Path, file: Path) -> None:
    described = graph(file)
    file.unlink()

    with pytest.raises(rr.RunError, match=r"operator 'names' .* no file matches .*Put it there whole before"):
        Tables(folder, described).settle(0)


def test_at_the_start_a_key_must_be_unique(folder: Path, file: Path) -> None:
    described = graph(file)
    write(file, [7, 7], "twice")

    with pytest.raises(rr.RunError, match=r"operator 'names' .* has 2 rows of key id 7"):
        Tables(folder, described).settle(0)


def test_a_file_that_changes_while_it_is_read_is_read_again_later(
    folder: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warnings: list[str] = []
    tables = Tables(folder, graph(file), warnings.append)
    tables.settle(0)
    write(file, [1], "second")
    from riprap.feeds import tables as module

    read = module._read

    def read_slowly(lookup: Any) -> pa.Table:
        table = read(lookup)
        write(file, [1], "third")
        return table

    monkeypatch.setattr(module, "_read", read_slowly)
    tables.settle(1)
    monkeypatch.undo()
    tables.settle(2)

    assert names(folder, 1) == ["first"]
    assert "changed while it was read" in warnings[0]
    assert names(folder, 2) == ["third"]


def test_a_table_in_memory_is_known_by_its_contents(folder: Path) -> None:
    Tables(folder, graph(pa.table({"id": [1], "name": ["old"]}))).settle(0)
    Tables(folder, graph(pa.table({"id": [1], "name": ["old"]}))).settle(1)
    Tables(folder, graph(pa.table({"id": [1], "name": ["new"]}))).settle(2)

    assert [names(folder, batch) for batch in range(3)] == [["old"], ["old"], ["new"]]
    assert snapshots(folder) == ["names-1.arrow", "names-2.arrow"]


def test_what_nobody_needs_is_forgotten(folder: Path, file: Path) -> None:
    tables = Tables(folder, graph(file))
    for batch, name in enumerate(["a", "b", "c"]):
        write(file, [1], name)
        tables.settle(batch)

    tables.forget(before=1)
    assert snapshots(folder) == ["names-2.arrow", "names-3.arrow"]
    tables.forget(before=7)
    assert snapshots(folder) == ["names-3.arrow"]
    tables.settle(7)

    assert names(folder, 7) == ["c"]
    with pytest.raises(rr.RunError, match="nobody said which tables count for batch 1"):
        load_tables(folder, 1)


def test_what_a_dead_process_left_half_written_is_swept(folder: Path, file: Path) -> None:
    Tables(folder, graph(file)).settle(0)
    (folder / ".1.json").write_text('{"for')

    tables = Tables(folder, graph(file))
    tables.settle(1)

    assert sorted(path.name for path in folder.iterdir()) == ["0.json", "1.json", "names-1.arrow"]


def test_an_application_without_lookups_has_no_tables(folder: Path) -> None:
    app = rr.Application("none")
    app.sink("out", app.source("source", rr.rows([], "id bigint")), rr.memory())
    tables = Tables(folder, app.graph())

    tables.settle(0)
    tables.forget(5)

    assert not folder.exists()
    assert load_tables(folder, 0) == {}


def test_an_unknown_format_is_refused(folder: Path, file: Path) -> None:
    Tables(folder, graph(file)).settle(0)
    data = json.loads((folder / "0.json").read_text())
    (folder / "0.json").write_text(json.dumps({**data, "format": "riprap-tables/9"}))

    with pytest.raises(rr.FormatError, match="not of format riprap-tables/1"):
        load_tables(folder, 0)
