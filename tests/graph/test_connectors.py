"""Which files a source reads, and in which order."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import riprap as rr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder such as Spark leaves: parts in subfolders, notes, and files that are being written."""
    for name in (
        "b.csv",
        "a.csv.gz",
        "sub/c.csv",
        "notes.txt",
        "x.json",
        "_b.csv",
        ".a.csv",
        "_temporary/0/d.csv",
    ):
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "in" / "folder.csv").mkdir()
    return tmp_path / "in"


def listed(folder: Path, *patterns: str) -> list[str]:
    files = rr.files([folder / p for p in patterns], format="csv", schema="a int")
    return [str(Path(f).relative_to(folder)) for f in files.listing()]


def test_a_folder_stands_for_its_files_of_the_format(folder: Path) -> None:
    assert listed(folder, "") == ["a.csv.gz", "b.csv", "sub/c.csv"]


def test_a_pattern_stands_for_what_it_matches(folder: Path) -> None:
    assert listed(folder, "*.csv") == ["b.csv"]
    assert listed(folder, "**/*.csv") == ["_temporary/0/d.csv", "b.csv", "sub/c.csv"]
    assert listed(folder, "nothing*") == []


def test_a_name_stands_for_itself(folder: Path) -> None:
    assert listed(folder, "_b.csv") == ["_b.csv"]
    assert listed(folder, "absent.csv") == []


def test_several_are_read_in_the_order_given_and_none_twice(folder: Path) -> None:
    assert listed(folder, "sub", "b.csv", "", "*.csv") == ["sub/c.csv", "b.csv", "a.csv.gz"]


def test_files_are_listed_anew_each_time(folder: Path) -> None:
    files = rr.files(folder, format="csv", schema="a int")
    before = files.listing()

    (folder / "late.csv").touch()

    assert len(files.listing()) == len(before) + 1


@pytest.mark.parametrize(
    ("name", "format"),
    [("a.csv", "csv"), ("a.csv.gz", "csv"), ("a.json", "json"), ("a.jsonl", "json"), ("a.ndjson.gz", "json"),
     ("a.pq", "parquet"), ("a.parquet", "parquet"), ("x/*.csv", "csv")],
)  # fmt: skip
def test_the_name_tells_the_format(name: str, format: str) -> None:
    assert rr.files(name, schema="a int").format == format


def test_the_files_in_a_folder_tell_its_format_and_hidden_ones_do_not(tmp_path: Path) -> None:
    for name in ("_first.json", "second.csv"):
        (tmp_path / name).touch()

    assert rr.files(tmp_path, schema="a int").format == "csv"


def test_parquet_files_bring_their_schema(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1], "s": ["x"]}), tmp_path / "a.parquet")

    assert rr.files(tmp_path).schema.equals(pa.schema({"a": pa.int64(), "s": pa.string()}))
    assert str(rr.files(tmp_path, rate=1500)) == f"parquet files {tmp_path} at 1,500 tuples/s"
