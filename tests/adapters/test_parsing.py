"""Files are parsed into the same rows and bad records whatever the sizes of pieces and blocks, and damage is named."""

import gzip
import json
import random
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.adapters import plain

from riprap.adapters.bad_records import (
    KEPT_BYTES,
    count_quarantined,
    read_quarantine,
    write_quarantine,
)
from riprap.adapters.parsing import Parsed, parse_file
from riprap.errors import FormatError, RunError
from riprap.expressions import parse_schema
from riprap.graph.connectors import BadRecord

SCHEMA = parse_schema("id bigint, price double, name string")
FORMATS = ["csv", "json", "text"]
LINES = {
    "csv": [
        b"1,2,x",
        b"2,,",
        b'3,1.5,"a\nb"',
        b"4,abc,y",
        b"5,6",
        b"6,1,\xff",
        b'7,1,"',
        b"",
        b"8,8," + b"z" * 90,
    ],
    "json": [
        b'{"id":1}',
        b"{}",
        b'{"price":"x"}',
        b"[]",
        b'{"name":"\xff"}',
        b" ",
        b'{"id":2,"x":"' + b"z" * 90 + b'"}',
    ],
    "text": [b"a", b"", b"\xff", b"z" * 90],
}


def schema_of(format: str) -> pa.Schema:
    return parse_schema("number bigint, line string") if format == "text" else SCHEMA


def rows_and_bad(pieces: list[Parsed]) -> tuple[list[dict[str, object]], list[BadRecord]]:
    return [row for p in pieces for row in p.table.to_pylist()], [bad for p in pieces for bad in p.bad]


@settings(max_examples=120, deadline=None)
@given(data=st.data(), format=st.sampled_from(FORMATS), size=st.integers(1, 200), rows=st.integers(1, 5))
def test_pieces(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, format: str, size: int, rows: int
) -> None:
    lines = data.draw(st.lists(st.sampled_from(LINES[format]), max_size=15))
    content = data.draw(st.sampled_from([b"\n", b"\r\n"])).join(lines)
    header = b"other,name,price,id\n" if format == "csv" else b""
    if format == "csv":
        content = header + b"\n".join(b",".join([b"o", *reversed(line.split(b",", 2))]) for line in lines)
    path = tmp_path_factory.mktemp("files") / ("f.gz" if data.draw(st.booleans()) else "f")
    path.write_bytes(gzip.compress(content) if path.suffix else content)

    def parse(**sizes: int) -> list[Parsed]:
        return list(parse_file(path, format, schema_of(format), max_record_bytes=80, **sizes))

    pieces = parse(rows=rows, block_bytes=size)
    found, bad = rows_and_bad(pieces)
    assert (found, bad) == rows_and_bad(parse())
    assert pieces == parse(rows=rows, block_bytes=size)
    assert all(piece.table.schema == schema_of(format) for piece in pieces)
    assert all(piece.table.num_rows < 2 * rows for piece in pieces)
    if format == "csv":
        expected = plain.csv_records(content, 80)[1:]
    else:
        expected = plain.lines(content, 80, blank=format == "text")
    assert len(found) + len(bad) == len(expected)
    for each in bad:
        number, byte = int(each.position["record"]), int(each.position["byte"])
        assert expected[number - 1][:2] == (byte, each.record)
        assert (each.position["file"], each.size) == (str(path), len(each.record))
    if format == "text":
        assert [row["number"] for row in found] == sorted(
            set(range(1, len(expected) + 1)) - {int(each.position["record"]) for each in bad}
        )


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf"])
def test_no_bytes_are_no_rows(tmp_path: Path, format: str, content: bytes) -> None:
    (tmp_path / "f").write_bytes(content)
    (tmp_path / "f.gz").write_bytes(gzip.compress(content))
    for name in ("f", "f.gz"):
        assert list(parse_file(tmp_path / name, format, schema_of(format), max_record_bytes=9)) == []


@pytest.mark.parametrize(
    ("header", "problem"),
    [
        (b"id,price", "has no column 'name': its header is id, price"),
        (b"id,price,name,id", "has more than one column 'id'"),
        (b"\xff,id", "has no header that can be read"),
        (b'"id,price,name', "has no header: a quote is opened"),
    ],
)
def test_a_header_that_will_not_do(tmp_path: Path, header: bytes, problem: str) -> None:
    path = tmp_path / "f.csv"
    path.write_bytes(header + b"\n1,2,3\n")
    with pytest.raises(RunError, match=problem) as raised:
        list(parse_file(path, "csv", SCHEMA, max_record_bytes=1 << 20))
    assert str(path) in str(raised.value)


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("value", [[{"id": 1}, {"id": 2}], {"id": 1}])
def test_a_json_document_is_no_list_of_lines(tmp_path: Path, value: object, indent: int | None) -> None:
    path = tmp_path / "f.json"
    path.write_text(json.dumps(value, indent=indent).replace('{"', '{ "'))
    if value == {"id": 1} and indent is None:
        assert len(list(parse_file(path, "json", SCHEMA, max_record_bytes=100))) == 1
        return
    with pytest.raises(RunError, match=r"f.json begins with .* format='json' reads an object a line"):
        list(parse_file(path, "json", SCHEMA, max_record_bytes=100))


def test_an_object_over_several_lines_is_told_from_a_broken_first_line(tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    path.write_text('{ "id": 1,\n  "price": 2\n}\n')
    with pytest.raises(RunError, match=r"f.json begins with .* format='json' reads an object a line"):
        list(parse_file(path, "json", SCHEMA, max_record_bytes=100))
    for broken in ("{", '[{"id": 1}]', '{"id":'):
        path.write_text(f'{broken}\n{{"id": 2}}\n{{"id": 3}}\n')
        found, bad = rows_and_bad(list(parse_file(path, "json", SCHEMA, max_record_bytes=100)))
        assert ([row["id"] for row in found], [each.position["record"] for each in bad]) == ([2, 3], [1])


def test_a_header_alone_is_no_rows(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b'\xef\xbb\xbf"id",price,"name"\r\n')
    assert list(parse_file(tmp_path / "f", "csv", SCHEMA, max_record_bytes=100)) == []


@pytest.mark.parametrize("damage", ["cut", "changed"])
def test_damaged_gzip_gives_what_is_before_it(tmp_path: Path, damage: str) -> None:
    draw = random.Random(1)
    lines = [f"{draw.random()} {number}".encode() for number in range(20_000)]
    packed = bytearray(gzip.compress(b"\n".join(lines)))
    half = len(packed) // 2
    packed[half:] = b"" if damage == "cut" else b"\xff" * 1000 + packed[half + 1000 :]
    path = tmp_path / "f.gz"
    path.write_bytes(packed)
    found: list[str] = []
    pieces = parse_file(path, "text", parse_schema("line string"), max_record_bytes=100, rows=1000)
    with pytest.raises(RunError, match="cannot be read to its end") as raised:
        found.extend(line for piece in pieces for line in piece.table.column(0).to_pylist())
    assert str(path) in str(raised.value)
    assert len(found) > 7_000
    # What was changed may still be unpacked for a while before the damage shows.
    whole = found if damage == "cut" else found[:7_000]
    assert [line.encode() for line in whole] == lines[: len(whole)]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="nowhere"):
        list(parse_file(tmp_path / "nowhere", "json", SCHEMA, max_record_bytes=100))


def test_of_a_long_record_the_beginning_is_kept(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"a\n" + b"b" * 10_000 + b"\nc\n")
    for size in (100, 1 << 20):
        (piece,) = parse_file(
            tmp_path / "f", "text", parse_schema("line string"), max_record_bytes=5000, block_bytes=size
        )
        assert piece.table.column(0).to_pylist() == ["a", "c"]
        assert [(bad.record, bad.size) for bad in piece.bad] == [(b"b" * KEPT_BYTES, 10_000)]
        assert piece.bad[0].reason == "10,000 bytes, more than the 5,000 allowed: raise max_record_bytes="


def bad_record(record: bytes) -> BadRecord:
    return BadRecord(
        position={"file": "f", "record": 3, "byte": 9}, reason="why", record=record, size=len(record)
    )


def test_quarantine(tmp_path: Path) -> None:
    folder = tmp_path / "quarantine" / "feed"
    assert count_quarantined(folder) == 0
    write_quarantine(folder, 1, [])
    assert not folder.exists()
    write_quarantine(folder, 12, [bad_record(b"x"), bad_record(b"y")])
    write_quarantine(folder, 3, [bad_record(b"\xff\n")])
    assert sorted(path.name for path in folder.iterdir()) == ["00000003-1.jsonl", "00000012-2.jsonl"]
    assert count_quarantined(folder) == 3
    place = {"file": "f", "record": 3, "byte": 9}
    assert list(read_quarantine(folder)) == [
        {"position": place, "reason": "why", "size": 2, "base64": "/wo="},
        {"position": place, "reason": "why", "size": 1, "text": "x"},
        {"position": place, "reason": "why", "size": 1, "text": "y"},
    ]
    write_quarantine(folder, 12, [bad_record("é\u2028".encode())])
    write_quarantine(folder, 3, [])
    assert [path.name for path in folder.iterdir()] == ["00000012-1.jsonl"]
    assert [line["text"] for line in read_quarantine(folder)] == ["é\u2028"]


def test_a_quarantine_of_another_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "00000001-1.jsonl").write_text('{"format": "riprap-quarantine/2"}\n{}\n')
    with pytest.raises(FormatError, match="riprap-quarantine/1"):
        list(read_quarantine(tmp_path))
