"""Recorded input as numbered rows: the numbers stay, whatever happens to the process or the folder."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import riprap as rr
from riprap.adapters.bad_records import read_quarantine
from riprap.errors import FormatError, GraphError, RunError
from riprap.expressions import normalise, parse_schema
from riprap.feeds import listed_feed
from riprap.feeds.listed_feed import ListedFeed, spool_rows
from riprap.feeds.reading import read_rows
from riprap.feeds.segments import FeedSegment, SegmentLog
from riprap.graph.connectors import SourceConnector
from riprap.operators.source import Source
from riprap.runtime.positions import Positions
from riprap.runtime.start import check_files

SCHEMA = parse_schema("n bigint, s string")
FORMATS = ["parquet", "csv", "csv.gz", "json", "json.gz"]


def source_of(connector: SourceConnector, position: str | None = None) -> Source:
    app = rr.Application("segments")
    app.sink("out", app.source("in", connector, position=position), rr.memory())
    source = app.graph()["in"]
    assert isinstance(source, Source)
    return source


def numbers(start: int, end: int) -> list[dict[str, Any]]:
    return [{"n": n, "s": None if n % 7 == 0 else f"s{n % 3}"} for n in range(start, end)]


def write(path: Path, rows: list[dict[str, Any]], *, group: int = 1000) -> None:
    """Write rows as the file's name says; it appears whole."""
    hidden = path.with_name("_" + path.name)
    if ".parquet" in path.name:
        pq.write_table(pa.Table.from_pylist(rows, SCHEMA), hidden, row_group_size=group)
    else:
        if ".csv" in path.name:
            lines = ["n,s", *(f"{r['n']},{r['s'] or ''}" for r in rows)]
        else:
            lines = [json.dumps(row) for row in rows]
        text = "".join(line + "\n" for line in lines)
        hidden.write_bytes(gzip.compress(text.encode()) if path.name.endswith(".gz") else text.encode())
    hidden.rename(path)


def log_of(folder: Path) -> Path:
    """Return where the list goes: beside the folder of files, or it would be one of them."""
    return folder.with_name(f"{folder.name}-log")


def feed_of(source: Source, folder: Path, *, finite: bool = True) -> ListedFeed:
    return ListedFeed(source, log_of(folder), log_of(folder) / "quarantine", finite=finite)


def read(feed: ListedFeed, source: Source, start: int, end: int) -> list[dict[str, Any]]:
    rows = read_rows(feed.log.between(start, end), start, end, source, ["n", "s"])
    assert rows.position.tolist() == list(range(start, end))
    return pa.table({name: normalise(column) for name, column in rows.columns.items()}).to_pylist()


@pytest.mark.parametrize("ending", FORMATS)
def test_files_are_read_in_order_of_name_as_one_sequence(tmp_path: Path, ending: str) -> None:
    write(tmp_path / f"b.{ending}", numbers(5, 9))
    write(tmp_path / f"a.{ending}", numbers(0, 5))
    source = source_of(rr.files(tmp_path, format=ending.split(".")[0], schema=SCHEMA))
    feed = feed_of(source, tmp_path)

    assert feed.upto(0, 3) == 3
    assert feed.upto(0, 1000) == 9
    assert (feed.log.end, feed.log.rows) == (9, 9)
    assert read(feed, source, 0, 9) == numbers(0, 9)


def test_only_as_many_files_are_listed_as_the_rows_asked_for_need(tmp_path: Path) -> None:
    for number in range(3):
        write(tmp_path / f"{number}.parquet", numbers(10 * number, 10 * number + 10))
    feed = feed_of(source_of(rr.files(tmp_path)), tmp_path)

    assert [feed.upto(0, wanted) for wanted in (0, 1, 10, 11)] == [0, 1, 10, 11]
    assert len(feed.log.segments) == 2
    assert feed.log.end is None


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> tuple[ListedFeed, Source, list[dict[str, Any]]]:
    """Three Parquet files of small row groups, an empty one among them."""
    folder = tmp_path_factory.mktemp("many")
    write(folder / "a.parquet", numbers(0, 25), group=4)
    write(folder / "b.parquet", [])
    write(folder / "c.parquet", numbers(25, 26), group=4)
    write(folder / "d.parquet", numbers(26, 60), group=10)
    source = source_of(rr.files(folder))
    feed = feed_of(source, folder)
    feed.upto(0, 60)
    return feed, source, numbers(0, 60)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(start=st.integers(0, 60), length=st.integers(0, 60))
def test_any_range_of_rows_is_that_slice_of_the_whole(
    many: tuple[ListedFeed, Source, list[dict[str, Any]]], start: int, length: int
) -> None:
    feed, source, whole = many
    end = min(start + length, 60)

    assert read(feed, source, start, end) == whole[start:end]


@pytest.mark.parametrize("ending", FORMATS)
def test_a_restart_numbers_the_rows_alike(
    tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listed_feed, "SPOOL_ROWS", 3)
    write(tmp_path / f"m.{ending}", numbers(0, 10))
    source = source_of(rr.files(tmp_path, format=ending.split(".")[0], schema=SCHEMA))
    first = feed_of(source, tmp_path, finite=False)
    first.upto(0, 4)
    # A file that sorts before the others comes late: rows that have their numbers keep them.
    write(tmp_path / f"a.{ending}", numbers(10, 14))

    second = feed_of(source, tmp_path, finite=False)

    assert second.log.segments == first.log.segments
    assert second.upto(0, 100) == 14
    assert read(second, source, 0, 14) == numbers(0, 14)
    third = feed_of(source, tmp_path)
    assert third.upto(0, 100) == 14
    assert read(third, source, 2, 13) == numbers(2, 13)


def test_a_restart_within_a_spooled_file_goes_on_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listed_feed, "SPOOL_ROWS", 20_000)
    whole = numbers(0, 160_010)
    write(tmp_path / "a.json", whole[:160_000])
    write(tmp_path / "b.json", whole[160_000:])
    source = source_of(rr.files(tmp_path, format="json", schema=SCHEMA))
    first = feed_of(source, tmp_path)
    assert first.upto(0, 60_000) == 60_000
    assert len(first.log.segments) == 3

    second = feed_of(source, tmp_path)

    assert second.upto(0, 10**6) == 160_010
    assert len({s.path for s in second.log.segments}) == len(second.log.segments) == 9
    assert read(second, source, 0, 160_010) == whole


def test_files_that_arrive_later_are_picked_up_unless_the_listing_is_fixed(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", numbers(0, 2))
    source = source_of(rr.files(tmp_path))
    feed = feed_of(source, tmp_path, finite=False)
    assert feed.upto(0, 9) == 2

    write(tmp_path / "b.parquet", numbers(2, 4))
    assert feed.upto(0, 9) == 4
    assert feed.log.end is None

    feed.fix()
    write(tmp_path / "c.parquet", numbers(4, 6))
    assert feed.upto(0, 9) == 4
    assert feed.log.end == 4


def test_a_finite_feed_ends_for_good(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", numbers(0, 2))
    source = source_of(rr.files(tmp_path))
    assert feed_of(source, tmp_path).upto(0, 9) == 2

    write(tmp_path / "b.parquet", numbers(2, 4))

    assert feed_of(source, tmp_path).upto(0, 9) == 2


def test_a_half_written_file_is_not_seen(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", numbers(0, 2))
    (tmp_path / "_b.parquet").write_bytes(b"PAR1")
    (tmp_path / ".c.parquet").write_bytes(b"PAR1")

    assert feed_of(source_of(rr.files(tmp_path)), tmp_path).upto(0, 9) == 2


# A Parquet file without bytes is none: it has a footer.
EMPTY = [("no rows", ending) for ending in FORMATS] + [("no bytes", ending) for ending in FORMATS[1:]]


@pytest.mark.parametrize(("how", "ending"), EMPTY)
def test_empty_files_have_no_rows(tmp_path: Path, ending: str, how: str) -> None:
    if how == "no rows":
        write(tmp_path / f"a.{ending}", [])
    else:
        (tmp_path / f"a.{ending}").write_bytes(gzip.compress(b"") if ending.endswith(".gz") else b"")
    write(tmp_path / f"b.{ending}", numbers(0, 2))
    source = source_of(rr.files(tmp_path, format=ending.split(".")[0], schema=SCHEMA))
    feed = feed_of(source, tmp_path)

    assert feed.upto(0, 9) == 2
    assert read(feed, source, 0, 2) == numbers(0, 2)


@pytest.mark.parametrize("format", ["parquet", "csv"])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 99])
def test_a_position_that_falls_is_an_error_whatever_the_size_of_batches(
    tmp_path: Path, format: str, size: int
) -> None:
    """It falls from one file to the next, and the rows before are let go as soon as they are computed."""
    write(tmp_path / f"a.{format}", [{"n": n, "s": None} for n in (3, 3, 9)])
    write(tmp_path / f"b.{format}", [{"n": n, "s": None} for n in (8, 10)])
    source = source_of(rr.files(tmp_path, format=format, schema=SCHEMA), position="n")

    def batches(*, restarting: bool) -> None:
        feed, start = feed_of(source, tmp_path), 0
        positions = Positions(source, feed.log)
        while start < 5:
            end = feed.upto(start, size)
            positions.check(start, end)
            feed.release(end)
            start = end
            if restarting:
                feed = feed_of(source, tmp_path)
                positions = Positions(source, feed.log)

    for restarting in (True, False):
        with pytest.raises(RunError, match=r"'n' falls from 9 to 8 at row 3, in .*b\..*Sort its input"):
            batches(restarting=restarting)
        shutil.rmtree(log_of(tmp_path))


def test_files_that_are_not_there(tmp_path: Path) -> None:
    """A run that ends is refused before it starts, and one that waits says so, once."""
    pattern = str(tmp_path / "*.csv")
    told: list[tuple[str, dict[str, Any]]] = []
    source = source_of(rr.files([pattern, tmp_path / "a.csv"], schema=SCHEMA))
    app = rr.Application("waiting")
    app.sink("out", app.source("in", source.connector), rr.memory())
    with pytest.raises(
        GraphError, match=rf"source 'in' .*: no csv file matches {re.escape(pattern)}. Check the path"
    ):
        check_files(app.graph())
    feed = ListedFeed(
        source, log_of(tmp_path), tmp_path, finite=False, tell=lambda kind, **more: told.append((kind, more))
    )
    assert [feed.upto(0, 9), feed.upto(0, 9)] == [0, 0]
    assert [(kind, more["message"].split(" matches ")[0]) for kind, more in told] == [("waiting", "no file")]
    write(tmp_path / "a.csv", numbers(0, 2))
    assert feed.upto(0, 9) == 2
    check_files(app.graph())


def test_rows_in_memory_are_rows_like_others(tmp_path: Path) -> None:
    source = source_of(rr.rows(numbers(0, 10), SCHEMA))
    spool_rows(source, log_of(tmp_path))
    feed = feed_of(source, tmp_path)

    assert [feed.upto(0, 4), feed.upto(0, 99)] == [4, 10]
    assert read(feed, source, 3, 8) == numbers(3, 8)
    feed.release(10)
    assert read(feed_of(source, tmp_path), source, 0, 10) == numbers(0, 10)


def test_no_rows_in_memory_are_no_rows(tmp_path: Path) -> None:
    source = source_of(rr.rows([], SCHEMA))
    spool_rows(source, log_of(tmp_path))

    assert feed_of(source, tmp_path).upto(0, 5) == 0


def test_spooled_rows_go_once_they_are_not_needed(tmp_path: Path) -> None:
    for name, start in (("a", 0), ("b", 5)):
        write(tmp_path / f"{name}.csv", numbers(start, start + 5))
    source = source_of(rr.files(tmp_path, schema=SCHEMA))
    feed = feed_of(source, tmp_path)
    feed.upto(0, 99)

    feed.release(7)

    assert sorted(p.name for p in log_of(tmp_path).glob("*.arrow")) == ["spool-00000001.arrow"]
    assert read(feed, source, 7, 10) == numbers(7, 10)
    assert (tmp_path / "a.csv").exists()


def test_a_line_cut_off_by_a_crash_does_not_count(tmp_path: Path) -> None:
    for number in range(2):
        write(tmp_path / f"{number}.parquet", numbers(3 * number, 3 * number + 3))
    source = source_of(rr.files(tmp_path))
    feed_of(source, tmp_path).upto(0, 99)
    log = log_of(tmp_path) / "segments.jsonl"
    whole = log.read_text()

    # Whatever byte the crash came at, the numbers come out the same.
    for kept in range(0, len(whole), 7):
        log.write_text(whole[:kept])
        feed = feed_of(source, tmp_path)
        assert feed.upto(0, 99) == 6
        assert read(feed, source, 0, 6) == numbers(0, 6)
        assert log.read_text() == whole


@pytest.mark.parametrize("text", ['{"format": "riprap-segments/9"}\n', "hello", '{"n": 1}\n'])
def test_a_list_of_another_format_is_an_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "segments.jsonl").write_text(text)

    with pytest.raises(FormatError, match=r"segments\.jsonl is not of format riprap-segments/2"):
        SegmentLog(tmp_path)


def test_a_file_that_vanished_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", numbers(0, 3))
    source = source_of(rr.files(tmp_path))
    feed = feed_of(source, tmp_path)
    feed.upto(0, 3)
    (tmp_path / "a.parquet").unlink()

    with pytest.raises(RunError) as caught:
        read(feed, source, 0, 3)

    told = str(caught.value)
    assert told.startswith(
        f"source 'in' ({source.location}) cannot read {tmp_path}/a.parquet, which it saw before: "
    )
    assert told.endswith("Put the file back as it was")


@pytest.mark.parametrize("new", [numbers(0, 2), []], ids=["shorter", "empty"])
def test_a_file_that_lost_rows_is_an_error(tmp_path: Path, new: list[dict[str, Any]]) -> None:
    write(tmp_path / "a.parquet", numbers(0, 3))
    source = source_of(rr.files(tmp_path))
    feed = feed_of(source, tmp_path)
    feed.upto(0, 3)
    write(tmp_path / "a.parquet", new)

    with pytest.raises(RunError, match=r"a\.parquet, which it saw before: it has not the 3 rows it had"):
        read(feed, source, 0, 3)


def test_a_file_that_lost_a_column_is_an_error(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", numbers(0, 3))
    source = source_of(rr.files(tmp_path))
    feed = feed_of(source, tmp_path)
    feed.upto(0, 3)
    pq.write_table(pa.table({"n": [0, 1, 2]}), tmp_path / "a.parquet")

    with pytest.raises(RunError, match=r"cannot read .*a\.parquet, which it saw before: .*'?s"):
        read(feed, source, 0, 3)


def test_a_column_of_another_type_is_cast_or_an_error(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", numbers(0, 2))
    pq.write_table(pa.table({"n": pa.array([2, 3], pa.int32()), "s": ["s2", "s0"]}), tmp_path / "b.parquet")
    pq.write_table(pa.table({"n": ["four"], "s": ["s1"]}), tmp_path / "c.parquet")
    source = source_of(rr.files(tmp_path))
    feed = feed_of(source, tmp_path)
    feed.upto(0, 5)

    assert read(feed, source, 0, 4) == numbers(0, 4)
    with pytest.raises(RunError, match=r"c\.parquet has 'n' as string, which does not fit bigint"):
        read(feed, source, 0, 5)


@pytest.mark.parametrize("kind", [pa.large_string(), pa.dictionary(pa.int8(), pa.string()), pa.int32()])
def test_an_encoded_column_may_be_held_differently_from_file_to_file(
    tmp_path: Path, kind: pa.DataType
) -> None:
    # Few distinct values: the first file's column is read as a dictionary, the second's is not.
    few = ["1", None] * 500
    pq.write_table(pa.table({"n": range(1000), "s": few}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"n": [2, 3], "s": pa.array(["7", "1"]).cast(kind)}), tmp_path / "b.parquet")
    source = source_of(rr.files(tmp_path))
    feed = feed_of(source, tmp_path)
    feed.upto(0, 1002)

    first = read_rows(feed.log.between(0, 1000), 0, 1000, source, ["s"]).columns["s"]
    assert pa.types.is_dictionary(first.type)
    assert [row["s"] for row in read(feed, source, 0, 1002)] == [*few, "7", "1"]


def test_a_file_that_is_no_parquet_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1 half")
    feed = feed_of(source_of(rr.files(tmp_path, schema=SCHEMA)), tmp_path)

    with pytest.raises(RunError, match=r"a\.parquet is not a readable Parquet file: .* when they are whole"):
        feed.upto(0, 1)


BAD = {
    "not a number in CSV": ("bad.csv", "n,s\n1,x\nseven,y\n2,z\n", 2),
    "too many fields": ("bad.csv", "n,s\n1,x\n1,x,too,many\n2,z\n", 2),
    "not a number in JSON": ("bad.json", '{"n": 1}\n{"n": "seven"}\n{"n": 2}\n', 2),
    "cut off": ("bad.json", '{"n": 1}\n{"n": 2}\n{"n": 1\n', 3),
    "not UTF-8": ("bad.csv", "n,s\n1,x\n2,\udcff\n2,z\n", 2),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_record_goes_to_the_quarantine(tmp_path: Path, kind: str) -> None:
    name, text, record = BAD[kind]
    (tmp_path / name).write_text(text, errors="surrogateescape")
    source = source_of(rr.files(tmp_path / name, schema=SCHEMA))
    feed = feed_of(source, tmp_path)

    assert feed.upto(0, 9) == 2
    assert [row["n"] for row in read(feed, source, 0, 2)] == [1, 2]
    (found,) = read_quarantine(log_of(tmp_path) / "quarantine")
    assert found["position"]["file"] == str(tmp_path / name)
    assert found["position"]["record"] == record
    assert [s.bad for s in feed.log.segments] == [1]


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_record_stops_a_source_that_says_so(tmp_path: Path, kind: str) -> None:
    name, text, _ = BAD[kind]
    (tmp_path / name).write_text(text, errors="surrogateescape")
    source = source_of(rr.files(tmp_path / name, schema=SCHEMA, on_bad_record="fail"))

    with pytest.raises(RunError, match=rf"source 'in' \(.*\): at file {tmp_path / name}, .*quarantine"):
        feed_of(source, tmp_path).upto(0, 1)


def test_a_file_that_failed_has_not_ended(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"n": 1}\nnonsense\n{"n": 2}\n')
    source = source_of(rr.files(tmp_path, format="json", schema=SCHEMA, on_bad_record="fail"))
    feed = feed_of(source, tmp_path)
    for _ in range(2):
        with pytest.raises(RunError, match="record 2"):
            feed.upto(0, 9)

    (tmp_path / "a.json").write_text('{"n": 1}\n{"n": 2}\n')

    assert feed.upto(0, 9) == 2
    assert [row["n"] for row in read(feed, source, 0, 2)] == [1, 2]


def test_a_header_without_a_column_is_no_bad_record(tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text("n,t\n1,x\n")
    feed = feed_of(source_of(rr.files(tmp_path / "bad.csv", schema=SCHEMA)), tmp_path)

    with pytest.raises(RunError, match=rf"csv file {tmp_path}/bad.csv has no column 's': its header is n, t"):
        feed.upto(0, 1)


def test_csv_takes_quotes_commas_and_line_breaks_across_blocks(tmp_path: Path) -> None:
    # The text is larger than the block Arrow reads at a time, and its line breaks could be taken for ends of rows.
    text = 'said "yes",\n' * 100_000
    (tmp_path / "a.csv").write_text('n,s\n1,"' + text.replace('"', '""') + '"\n2,"a,b"\n3,\n')
    source = source_of(rr.files(tmp_path / "a.csv", schema=SCHEMA, max_record_bytes=2**21, multiLine=True))
    feed = feed_of(source, tmp_path)

    assert feed.upto(0, 9) == 3
    assert read(feed, source, 0, 3) == [{"n": 1, "s": text}, {"n": 2, "s": "a,b"}, {"n": 3, "s": None}]


def test_csv_columns_may_come_in_any_order_and_number(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("s,other,n\nx,9,1\n")
    source = source_of(rr.files(tmp_path / "a.csv", schema=SCHEMA))
    feed = feed_of(source, tmp_path)
    feed.upto(0, 1)

    assert read(feed, source, 0, 1) == [{"n": 1, "s": "x"}]


def test_every_type_can_be_written_in_csv_and_json(tmp_path: Path) -> None:
    schema = parse_schema("d double, m decimal(9,2), t timestamp, u timestamp_ntz, y date, b boolean")
    values = {"d": "1.5", "m": "2.25", "y": "2024-02-29", "b": "true"}
    values |= {"t": "2024-02-29T12:00:00.000001Z", "u": "2024-02-29T12:00:00"}
    (tmp_path / "a.csv").write_text(",".join(values) + "\n" + ",".join(values.values()) + "\n")
    (tmp_path / "a.json").write_text(
        json.dumps({**values, "d": 1.5, "m": 2.25, "b": True}) + "\n" + json.dumps({"extra": 1}) + "\n"
    )

    found = {}
    for name in ("a.csv", "a.json"):
        source = source_of(rr.files(tmp_path / name, schema=schema))
        feed = feed_of(source, tmp_path / name.replace(".", "-"))
        rows = feed.upto(0, 9)
        columns = read_rows(feed.log.segments, 0, rows, source, schema.names).columns
        found[name] = pa.table(columns, schema).to_pylist()

    assert found["a.json"] == [*found["a.csv"], dict.fromkeys(schema.names)]
    assert str(found["a.csv"][0]["m"]) == "2.25"
    assert found["a.csv"][0]["t"].isoformat() == "2024-02-29T12:00:00.000001+00:00"


def test_a_position_column_gives_the_positions(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": [5, 8, 9], "s": ["a", "b", "c"]}), tmp_path / "a.parquet")
    source = source_of(rr.files(tmp_path), position="n")
    feed = feed_of(source, tmp_path)
    feed.upto(0, 3)

    assert read_rows(feed.log.segments, 1, 3, source, ["n"]).position.tolist() == [8, 9]


def test_null_in_a_position_column_is_an_error(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": [5, None], "s": ["a", "b"]}), tmp_path / "a.parquet")
    source = source_of(rr.files(tmp_path), position="n")
    feed = feed_of(source, tmp_path)
    feed.upto(0, 2)

    with pytest.raises(RunError, match=r"source 'in' .* has null in its position column 'n'"):
        read_rows(feed.log.segments, 0, 2, source, ["n"])


def test_paths_do_not_depend_on_the_folder_a_process_starts_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "a.parquet", numbers(0, 3))
    monkeypatch.chdir(tmp_path)
    source = source_of(rr.files("*.parquet"))
    feed = feed_of(source, tmp_path)
    feed.upto(0, 3)

    monkeypatch.chdir(os.sep)

    assert read(feed, source, 0, 3) == numbers(0, 3)


TEXT = "file string, number bigint, line string"


def text_source(folder: Path, *, scan: bool = False) -> Source:
    folder.mkdir(exist_ok=True)
    open_files = rr.folder_scan if scan else rr.files
    return source_of(open_files(folder, format="text", schema=TEXT, last_line="\x04"))


def text_of(feed: ListedFeed, source: Source) -> list[tuple[str | None, int | None, str]]:
    rows = read_rows(feed.log.segments, 0, feed.log.rows, source, ["file", "number", "line"]).columns
    files = [None if f is None else Path(f).name for f in rows["file"].to_pylist()]
    return list(zip(files, rows["number"].to_pylist(), rows["line"].to_pylist(), strict=True))


END = (None, None, "\x04")


def test_the_last_line_follows_the_last_file(tmp_path: Path) -> None:
    source = text_source(tmp_path / "in")
    (tmp_path / "in" / "a").write_text("one\ntwo")
    (tmp_path / "in" / "b").write_text("three\n")
    feed = feed_of(source, tmp_path / "in")

    assert [feed.upto(0, 3), feed.upto(3, 9), feed.upto(4, 9)] == [3, 4, 4]
    assert text_of(feed, source) == [("a", 1, "one"), ("a", 2, "two"), ("b", 1, "three"), END]
    assert feed.log.end == 4


@pytest.mark.parametrize("files", [{}, {"a": ""}], ids=["no file", "an empty file"])
def test_no_lines_have_a_last_line_too(tmp_path: Path, files: dict[str, str]) -> None:
    source = text_source(tmp_path / "in")
    for name, text in files.items():
        (tmp_path / "in" / name).write_text(text)
    feed = feed_of(source, tmp_path / "in")

    assert feed.upto(0, 9) == 1
    assert text_of(feed, source) == [END]


def test_the_last_line_of_a_scan_is_a_batch(tmp_path: Path) -> None:
    source = text_source(tmp_path / "in", scan=True)
    (tmp_path / "in" / "a").write_text("one\ntwo\n")
    feed = feed_of(source, tmp_path / "in")

    assert [feed.upto(0, 9), feed.upto(2, 9), feed.upto(3, 9)] == [2, 3, 3]


@pytest.mark.parametrize("rows", [2, 9], ids=["the list goes on", "the list is fixed"])
def test_the_last_line_is_there_once_however_often_a_run_is_taken_up(tmp_path: Path, rows: int) -> None:
    source = text_source(tmp_path / "in")
    (tmp_path / "in" / "a").write_text("one\n")
    assert feed_of(source, tmp_path / "in").upto(0, rows) == 2
    (tmp_path / "in" / "b").write_text("two\n")

    for _ in range(2):
        feed = feed_of(source, tmp_path / "in")
        assert feed.upto(0, 9) == 2
        assert text_of(feed, source) == [("a", 1, "one"), END]


def test_a_crash_at_any_byte_leaves_one_last_line(tmp_path: Path) -> None:
    source = text_source(tmp_path / "in")
    (tmp_path / "in" / "a").write_text("one\n")
    feed_of(source, tmp_path / "in").upto(0, 9)
    log = log_of(tmp_path / "in") / "segments.jsonl"
    whole = log.read_text()

    for kept in range(0, len(whole), 5):
        log.write_text(whole[:kept])
        feed = feed_of(source, tmp_path / "in")
        assert feed.upto(0, 99) == 2
        assert text_of(feed, source) == [("a", 1, "one"), END]
        assert log.read_text() == whole


def test_a_feed_that_goes_on_has_no_last_line(tmp_path: Path) -> None:
    source = text_source(tmp_path / "in")
    (tmp_path / "in" / "a").write_text("one\n")
    live = feed_of(source, tmp_path / "in", finite=False)
    assert live.upto(0, 9) == 1
    (tmp_path / "in" / "b").write_text("two\n")
    assert live.upto(0, 9) == 2

    # Taken up without a trigger it has an end, which does not come again.
    finite = feed_of(source, tmp_path / "in")
    assert finite.upto(0, 9) == 3
    again = feed_of(source, tmp_path / "in", finite=False)
    (tmp_path / "in" / "c").write_text("three\n")
    assert again.upto(0, 9) == 4
    last = feed_of(source, tmp_path / "in")
    assert last.upto(0, 9) == 4
    assert text_of(last, source) == [("a", 1, "one"), ("b", 1, "two"), END, ("c", 1, "three")]


@pytest.mark.parametrize(
    "options",
    [
        {"format": "csv", "schema": "line string", "last_line": "x"},
        {"format": "text", "schema": "number bigint", "last_line": "x"},
        {"format": "text", "last_line": 4},
    ],
)
@pytest.mark.parametrize("open_files", [rr.files, rr.folder_scan])
def test_a_last_line_is_a_line_of_text(tmp_path: Path, open_files: Any, options: dict[str, Any]) -> None:
    with pytest.raises(rr.GraphError, match=r"\(last_line=\.\.\.\) takes a text, for files of text"):
        open_files(tmp_path, **options)


def test_what_a_dead_process_listed_is_synced_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = SegmentLog(tmp_path)
    path = log.spool(0, pa.table({"n": [1, 2]}))
    log.add(FeedSegment(file="fetched", path=str(path), kind="arrow", start=0, rows=2))
    synced: list[Path] = []
    monkeypatch.setattr("riprap.feeds.segments.sync_file", synced.append)

    SegmentLog(tmp_path).sync()

    assert synced == [path, tmp_path / "segments.jsonl", tmp_path]
