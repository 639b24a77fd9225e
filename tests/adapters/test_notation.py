"""CSV as people have it, written by Python's own module or by hand, and read in the notation that is said."""

import csv
import datetime
import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import riprap as rr
from riprap.adapters.parsing import parse_file
from riprap.adapters.table_files import read_table, write_table
from riprap.errors import GraphError, RunError
from riprap.graph.connectors import BadRecord, Files

CELLS = st.text(st.sampled_from("ab;|\t,'\"\\#\n \u00e9"), min_size=1, max_size=6).filter(
    lambda cell: not cell.startswith("#")
)
SCHEMA = "one string, two string, three string"


def parsed(source: Files, **sizes: int) -> tuple[list[tuple[object, ...]], list[BadRecord]]:
    """Return the rows and the bad records of a source's files."""
    options = {"max_record_bytes": source.max_record_bytes, "notation": source.notation, **sizes}
    pieces = [
        piece
        for file in source.listing()
        for piece in parse_file(file, source.format, source.schema, **options)  # type: ignore[arg-type]
    ]
    rows = [tuple(row.values()) for piece in pieces for row in piece.table.to_pylist()]
    return rows, [bad for piece in pieces for bad in piece.bad]


def written(rows: list[tuple[str, ...]], sep: str, quote: str, escape: str) -> str:
    """Write every cell in quotes, with escapes as Spark reads them."""
    if escape == quote:
        text = io.StringIO()
        csv.writer(
            text, delimiter=sep, quotechar=quote, quoting=csv.QUOTE_ALL, lineterminator="\n"
        ).writerows(rows)
        return text.getvalue()
    cells = [[c.replace(escape, escape * 2).replace(quote, escape + quote) for c in row] for row in rows]
    return "".join(sep.join(f"{quote}{c}{quote}" for c in row) + "\n" for row in cells)


@settings(max_examples=150, deadline=None)
@given(
    rows=st.lists(st.tuples(CELLS, CELLS, CELLS), max_size=8),
    sep=st.sampled_from(",;|\t"),
    quote=st.sampled_from("\"'"),
    backslash=st.booleans(),
    encoding=st.sampled_from(["UTF-8", "ISO-8859-1", "UTF-16"]),
    size=st.integers(1, 100),
)
def test_what_was_written_is_read(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[str, ...]],
    sep: str,
    quote: str,
    backslash: bool,
    encoding: str,
    size: int,
) -> None:
    escape = "\\" if backslash else quote
    path = tmp_path_factory.mktemp("files") / "f.csv"
    path.write_bytes(f"#comment{quote}\n{written(rows, sep, quote, escape)}#end".encode(encoding))
    source = rr.files(
        path, schema=SCHEMA, header=False, sep=sep, quote=quote, escape=escape, comment="#", multiLine=True,
        encoding=encoding,
    )  # fmt: skip
    assert parsed(source, block_bytes=size) == (rows, [])


def test_a_stray_quote_is_put_aside_and_costs_its_own_line(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_text('id,name,price\n1,"abc,2.5\n2,"x",3\n3,"y"z,4\n4,q"r,5\n')
    rows, bad = parsed(rr.files(path, schema="id bigint, name string, price double"))
    assert rows == [(2, "x", 3.0), (4, 'q"r', 5.0)]
    assert [(each.position["record"], each.position["byte"], each.record) for each in bad] == [
        (1, 14, b'1,"abc,2.5'),
        (3, 33, b'3,"y"z,4'),
    ]
    assert [each.reason for each in bad] == [
        "a quote is opened and not closed: line breaks inside quotes need multiLine=True",
        "text after a closing quote",
    ]


def test_a_file_as_people_have_it(tmp_path: Path) -> None:
    """Another separator, texts that mean null, times with and without a zone, a plus, a hexadecimal number."""
    path = tmp_path / "f.tsv"
    path.write_text(
        "+4\t2020-01-01 00:00:00\tNULL\n"
        "\\N\t2020-01-01T02:00:00+02:00\t\n"
        'NULL\t2020-01-01\t"NULL"\n'
        "0x1F\t2020-01-01T00:00:00Z\tx\n"
    )
    source = rr.files(
        path,
        format="csv",
        schema="n int, t timestamp, s string",
        sep="\t",
        header=False,
        nullValue=["NULL", r"\N"],
    )
    rows, bad = parsed(source)
    begun = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    assert rows == [(4, begun, None), (None, begun, None), (None, begun, "NULL")]
    assert [(each.position["record"], each.reason) for each in bad] == [
        (4, "column 'n': '0x1F' is not an int")
    ]


def test_names_in_a_header_may_differ_in_case_and_blanks(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    source = rr.files(path, schema="id bigint, price double")
    path.write_text(" ID , Price\n1,2\n")
    assert parsed(source) == ([(1, 2.0)], [])
    path.write_text("Id,id,price\n1,2,3\n")
    assert parsed(source) == ([(2, 3.0)], [])
    path.write_text("Id,ID,price\n1,2,3\n")
    with pytest.raises(RunError, match="more than one column 'id': its header is Id, ID, price"):
        parsed(source)
    path.write_text("id;price\n1;2\n")
    with pytest.raises(RunError, match=r"no column 'id'.*header=False, another separator with sep="):
        parsed(source)


def test_a_byte_that_is_no_character_costs_its_own_record(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_bytes(b"a,\xe4\nb,\x81\nc,d\n")
    source = rr.files(path, schema="a string, b string", header=False, encoding="windows-1252")
    rows, bad = parsed(source)
    assert (rows, [each.position["record"] for each in bad]) == ([("a", "\u00e4"), ("c", "d")], [2])


def test_half_a_character_of_utf_16_costs_its_own_record(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    source = rr.files(path, schema="a string", header=False, encoding="UTF-16")
    lone = "\ud800".encode("utf-16-le", "surrogatepass")
    path.write_bytes("a\nb".encode("utf-16") + lone + "\nc\ufffd\nd".encode("utf-16-le") + b"\n")
    rows, bad = parsed(source)
    assert (rows, [each.position["record"] for each in bad]) == ([("a",), ("c\ufffd",)], [2, 4])
    path.write_bytes("abc".encode("utf-16-le"))
    with pytest.raises(RunError, match=r"f.csv cannot be read as encoding='utf-16'.*UTF-16LE"):
        parsed(source)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"sep": " "}, r"csv\(sep=' '\) may be part of a number or a time.*quoteAll=True"),
        ({"sep": "T"}, "quoteAll=True"),
        ({"sep": '"'}, "cannot be the quote"),
        ({"sep": ";", "nullValue": "a;b"}, "has the separator ';' in it"),
        ({"mode": "overwrite"}, "no option 'mode': overwrite=True"),
    ],
)
def test_an_option_of_a_sink_that_will_not_do(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(GraphError, match=problem):
        rr.csv("out", **options)


@pytest.mark.parametrize("sep", [" ", ":", "-", ".", "e", "|"])
def test_what_a_sink_writes_is_read_back(tmp_path: Path, sep: str) -> None:
    moment = datetime.datetime(2020, 1, 3, 1, 2, 3, 5, datetime.UTC)
    table = pa.table({"t": pa.array([moment, None], pa.timestamp("us", "UTC")), "x": [-1.5e-30, None]})
    for null in ("", "NULL"):
        sink = rr.csv("out", sep=sep, quoteAll=sep != "|", nullValue=null)
        write_table(table, tmp_path / "f", sink)
        assert read_table(tmp_path / "f", table.schema, sink).equals(table)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (
            {"separator": ";"},
            "no option 'separator': There are comment, encoding, escape, header, multiLine, ",
        ),
        ({"mode": "FAILFAST"}, "no option 'mode': on_bad_record='quarantine' or 'fail'"),
        ({"sep": "::"}, r"files\(sep=...\) takes one ASCII character"),
        ({"header": "maybe"}, r"files\(header=...\) is True or False, got 'maybe'"),
        ({"encoding": "nonsense"}, r"files\(encoding=...\) takes a name"),
        ({"encoding": "hex"}, r"files\(encoding=...\) takes a name"),
        ({"encoding": "rot13"}, r"files\(encoding=...\) takes a name"),
        ({"sep": '"'}, "must be different characters"),
        ({"nullValue": 5}, "takes a text or a list of texts, got 5"),
        ({"format": "json", "sep": ";"}, r"files\(...\) of json has no option 'sep': There are encoding"),
    ],
)
def test_an_option_that_will_not_do(options: dict[str, object], problem: str) -> None:
    with pytest.raises(GraphError, match=problem):
        rr.files("f.csv", schema=pa.schema([("a", pa.int64())]), **options)  # type: ignore[arg-type]
