"""Every record is a row or is bad for a reason: as plain Python reads it, whatever its neighbours are."""

import datetime
import io
import json
import math
import time

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.adapters import plain

import riprap as rr
from riprap.adapters.decoding import Decoded, decode, decode_messages
from riprap.adapters.framing import frame
from riprap.errors import RunError
from riprap.expressions import parse_schema
from riprap.expressions.cells import unreadable
from riprap.graph.connectors.notation import PLAIN, Notation

SCHEMA = parse_schema("id bigint, price double, name string")
BIG = 1 << 20
NUMBERS = [
    "1",
    "-7",
    "9223372036854775807",
    "9223372036854775808",
    "1.5",
    "2e3",
    "-0",
    "01",
    "x",
    "",
    " 4",
    "+5",
    "+-5",
    "0x1F",
]
PRICES = ["0.5", "1", "1e3", "abc", ".5", "5.", "", "-", "1e", "nan"]
NAMES = ["", "n", "é", '"a,b"', '"a\nb"', '"q""q"', '"x"y', "s,t", 'a"b', '"open', "\r", '"']


def csv_records(*cells: list[str]) -> st.SearchStrategy[bytes]:
    return st.tuples(*map(st.sampled_from, cells)).map(lambda record: ",".join(record).encode())


CSV = csv_records(NUMBERS, PRICES, NAMES)
FLAGGED = csv_records(NUMBERS, PRICES, ["", "true", "0", "FALSE", "yes", " 1"], NAMES)
JSON_VALUES = [
    "1",
    "-7",
    "9223372036854775808",
    "1.5",
    "1e3",
    '"x"',
    '"\\u00e9"',
    '"NaN"',
    '"-Infinity"',
    "null",
    "true",
    "[1]",
    "{}",
    "01",
]
FIELDS = st.tuples(
    st.sampled_from(["id", "price", "name", "other"]),
    st.sampled_from([*JSON_VALUES, '"\\ud800"', "}", "nul", '"']),
)
JSON = st.lists(FIELDS, max_size=4).map(
    lambda fields: ("{" + ",".join(f'"{name}":{value}' for name, value in fields) + "}").encode()
)
MORE = st.sampled_from(
    [b"null", b"[]", b"{}{}", b"{}null{}", b"{", b"{}}", b"\x00", b"{}\x00{}", b"\xff", b'{"id":1']
)


def mutated(records: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    def change(record: bytes, place: int, piece: bytes) -> bytes:
        place %= len(record) + 1
        return record[:place] + piece + record[place + 1 :]

    return st.builds(
        change,
        records,
        st.integers(0, 60),
        st.sampled_from([b"", b'"', b"\xff", b"{", b"}", b",", b" ", b"0", b"\0"]),
    )


def whole(
    data: bytes, format: str, *, size: int = BIG, schema: pa.Schema = SCHEMA, notation: Notation = PLAIN
) -> list[object]:
    """Return a row or the reason for each record, in order."""
    found: list[object] = []
    blocks = frame(
        io.BytesIO(data),
        csv=notation if format == "csv" else None,
        blank=format == "text",
        limit=BIG,
        block_bytes=size,
    )
    for block in blocks:
        decoded = decode(block, format, schema, notation=notation, file="f", threads=False)
        found.extend(verdicts(decoded, len(block)))
    return found


def verdicts(decoded: Decoded, count: int) -> list[object]:
    """Return a row or the reason for each record, each of which must have one."""
    assert decoded.table.num_rows == len(decoded.good)
    decoded.table.validate(full=True)
    found: list[object] = [None] * count
    columns = [column.to_pylist() for column in decoded.table.columns]
    for index, row in zip(decoded.good.tolist(), zip(*columns, strict=True), strict=True):
        assert found[index] is None
        found[index] = row
    for index, reason in decoded.bad:
        assert found[index] is None
        found[index] = reason
    assert None not in found
    assert decoded.good.tolist() == sorted(decoded.good.tolist())
    return found


def same(one: object, other: object) -> bool:
    """Compare rows; reasons are not compared."""
    if not isinstance(one, tuple) or not isinstance(other, tuple):
        return not isinstance(one, tuple) and not isinstance(other, tuple)
    return all(
        a == b or (isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b))
        for a, b in zip(one, other, strict=True)
    )


@settings(max_examples=250, deadline=None)
@given(
    records=st.lists(FLAGGED | mutated(FLAGGED), max_size=12),
    size=st.sampled_from([1, 5, 64, BIG]),
    notation=st.sampled_from([PLAIN, Notation(multiline=True), Notation(comment="1")]),
)
def test_csv(records: list[bytes], size: int, notation: Notation) -> None:
    data = b"\n".join(records)
    expected = plain.csv_records(data, BIG, notation)
    schema = parse_schema("id bigint, price double, sure boolean, name string")
    found = whole(data, "csv", size=size, schema=schema, notation=notation)
    assert len(found) == len(expected)
    for one, (_, record, good) in zip(found, expected, strict=True):
        other = plain.csv_row(record) if good else None
        if b'""' not in record:  # which may be a quoted empty cell
            assert same(one, other), (record, one, other)


@settings(max_examples=250, deadline=None)
@given(records=st.lists(JSON | mutated(JSON) | MORE, max_size=12), size=st.sampled_from([1, 5, 64, BIG]))
def test_json(records: list[bytes], size: int) -> None:
    expected = [plain.json_row(record) for _, record, _ in plain.lines(b"\n".join(records), BIG, blank=False)]
    found = whole(b"\n".join(records), "json", size=size)
    assert len(found) == len(expected)
    for one, other, record in zip(found, expected, [r for r in records if r], strict=True):
        assert same(one, other), (record, one, other)


@settings(max_examples=200, deadline=None)
@given(
    records=st.lists(JSON | mutated(JSON) | CSV | mutated(CSV) | MORE | st.binary(max_size=30), max_size=8),
    format=st.sampled_from(["csv", "json", "text"]),
)
def test_a_message_is_judged_alone(records: list[bytes], format: str) -> None:
    schema = parse_schema("line string") if format == "text" else SCHEMA
    together = verdicts(decode_messages(pa.array(records), format, schema, limit=BIG), len(records))
    alone = [verdicts(decode_messages(pa.array([r]), format, schema, limit=BIG), 1)[0] for r in records]
    for one, other in zip(together, alone, strict=True):
        assert same(one, other) if isinstance(one, tuple) else one == other


@settings(max_examples=200, deadline=None)
@given(data=st.binary(max_size=80), format=st.sampled_from(["csv", "json", "text"]), size=st.integers(1, 30))
def test_any_bytes(data: bytes, format: str, size: int) -> None:
    schema = parse_schema("line string") if format == "text" else SCHEMA
    found, other = whole(data, format, size=size, schema=schema), whole(data, format, schema=schema)
    assert len(found) == len(other)
    assert all(map(same, found, other))


DAYS = ["2024-01-02", "2024-13-01", "2024-02-30", "0000-02-29", "9999-12-31", "2024-1-2", "20240102"]
TIMES = [
    "",
    " 03:04",
    "T03",
    " 03:04:05",
    " 03:04:05.123456",
    " 03:04:05.123456789",
    " 24:00",
    "Z",
    " 03:04:05Z",
]
TIMES += [" 03:04:05+01", " 03:04:05-01:00", " 03:04:05+0100", " ", "T", "  ", " 030405", "T03:04:60"]
CELLS = [
    "1",
    "-1",
    "+1",
    "1.5",
    ".5",
    "5.",
    "1e3",
    "1E-5",
    "0x1F",
    "-0x1",
    "+0x1",
    "++1",
    "00012",
    "128",
    "1e39",
    "1e400",
    "-",
]
CELLS += [
    "9223372036854775808",
    "1.234",
    "1.230",
    "12345678901.2",
    "1_0",
    "nan",
    "NaN",
    "-nan",
    "nan(1)",
    "inf",
]
CELLS += [
    "Infinity",
    "-inf",
    "infinit",
    "true",
    "TRUE",
    "True",
    "tRUE",
    "false",
    "t",
    "yes",
    "0",
    "é",
    "\u0661",
    "12345678901234567890123456789012345678",
    "-99999999999999999999999999999999999999",
]
MOMENTS = [day + time for day in DAYS for time in TIMES]
PADS = ["x", " x", "x ", "\tx", "x\t", "\u00a0x", "x\x0b"]
PADDED = [pad.replace("x", cell) for cell in CELLS for pad in PADS]
PADDED += [pad.replace("x", moment) for moment in MOMENTS for pad in PADS[:3]]
TYPES = [
    "bigint",
    "tinyint",
    "double",
    "float",
    "boolean",
    "date",
    "timestamp",
    "timestamp_ntz",
    "decimal(10,2)",
    "decimal(38,0)",
]


def rows_of(data: bytes, format: str, schema: pa.Schema) -> int:
    (block,) = list(
        frame(io.BytesIO(data), csv=PLAIN if format == "csv" else None, limit=BIG, block_bytes=BIG)
    )[:1]
    return int(decode(block, format, schema, threads=False).table.num_rows)


def test_an_empty_boolean_beside_a_plus() -> None:
    assert whole(b"+4,\n", "csv", schema=parse_schema("k int, a boolean")) == [(4, None)]


@pytest.mark.parametrize("format", ["csv", "json"])
@pytest.mark.parametrize("type", ["timestamp", "timestamp_ntz"])
def test_times_are_read_as_casts_read_them(format: str, type: str) -> None:
    zone = "Z" if type == "timestamp" else ""
    good = ["2020-01-03T01:02:03.1234567", "2020-01-03 01:02:03.123456789", " 2020-1-3 1:2:3.123456\t"]
    texts = [*(f"{each.rstrip()}{zone}" for each in good), "2020-01-03 25:00:00", "2020", "2020-02-30"]
    texts += ["2020-01-03 01:02:03.123456 UTC"] * (type == "timestamp")
    lines = texts if format == "csv" else [json.dumps({"t": text}) for text in texts]
    schema = parse_schema(f"t {type}")
    moment = datetime.datetime(2020, 1, 3, 1, 2, 3, 123456, datetime.UTC if zone else None)
    bad = [f"column 't': '{text}' is not a {type}" for text in texts[3:6]]
    found = whole("\n".join(lines).encode() + b"\n", format, schema=schema)
    assert found == [(moment,)] * 3 + bad + [(moment,)] * (type == "timestamp")
    assert [whole(f"{line}\n".encode(), format, schema=schema)[0] for line in lines] == found


def test_a_list_of_times_in_json() -> None:
    record = b'{"t": ["2020-01-03 01:02:03.1234567", null]}\n{"t": null}\n{"t": []}\n'
    moment = datetime.datetime(2020, 1, 3, 1, 2, 3, 123456, datetime.UTC)
    found = whole(record, "json", schema=parse_schema("t array<timestamp>"))
    assert found == [([moment, None],), (None,), ([],)]


@pytest.mark.parametrize("type", TYPES)
def test_csv_cells_are_found_bad_only_if_arrow_says_so(type: str) -> None:
    schema = parse_schema(f"a {type}, b string")
    fast = [rows_of(cell.encode() + b",q\n", "csv", schema) == 1 for cell in PADDED]
    slow = np.ones(len(PADDED), bool)
    slow[unreadable(pa.array([cell.encode() for cell in PADDED]), schema.field("a").type)] = False
    assert [c for c, a, b in zip(PADDED, fast, slow, strict=True) if a != b] == []
    assert any(fast)
    assert not all(fast)


@pytest.mark.parametrize("type", [*TYPES, "string", "binary", "array<date>", "array<double>"])
def test_json_cells_are_found_bad_only_if_arrow_says_so(type: str) -> None:
    """A record alone, and the same record beside one that makes Python look at both."""
    schema = parse_schema(f"a {type}")
    texts = [
        *CELLS,
        *MOMENTS,
        *(f'"{cell}"' for cell in PADDED),
        "null",
        "Inf",
        "-Inf",
    ]
    texts += [
        "[]",
        "[null]",
        "[1]",
        "{}",
        "[[1]]",
        '["2024-01-02", "2024-01-32"]',
        '["2024-01-02"]',
        "9" * 5000,
    ]
    wrong = []
    for text in texts:
        record = f'{{"a":{text}}}\n'.encode()
        if rows_of(record, "json", schema) != rows_of(record + b'{"a":{"b":1}}\n', "json", schema):
            wrong.append(text)
    assert wrong == []


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (b"1,abc,x", "column 'price': 'abc' is not a double"),
        (b"1,2", "2 fields, not 3"),
        (b"1.5,2,x", "column 'id': '1.5' is not a bigint"),
        (b"1,2,\xff", "column 'name': b'\\xff' is not a string"),
        (b'1,2,"x', "a quote is opened and not closed: line breaks inside quotes need multiLine=True"),
        (b'1,2,"x"y', "text after a closing quote"),
        (b"0x1F,2,x", "column 'id': '0x1F' is not a bigint"),
        (b"1," + b"y" * 200 + b",x", "column 'price': '" + "y" * 76 + "... is not a double"),
    ],
)
def test_reasons_csv(record: bytes, reason: str) -> None:
    assert whole(record, "csv") == [reason]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (b'{"price": "abc"}', "column 'price': 'abc' is not a double"),
        (b'{"id": 1.0}', "column 'id': 1.0 is not a bigint"),
        (b'{"id": 1, "id": 2}', "column 'id' is there twice"),
        (b"[1, 2]", "not a JSON object: '[1, 2]'"),
        (b'{"id": }', "not JSON: Expecting value at character 8"),
        (b'{"name": "\xff"}', "not UTF-8: byte 0xff at place 11"),
    ],
)
def test_reasons_json(record: bytes, reason: str) -> None:
    assert whole(record, "json") == [reason]


def test_types_of_json() -> None:
    schema = parse_schema(
        "d date, t timestamp, m decimal(5,2), l array<bigint>, ld array<date>, b boolean not null"
    )
    good = (
        b'{"d":"2024-02-29","t":"2024-01-02T03:04:05Z","m":1.25,"l":[1,null],"ld":["2024-01-01"],"b":true}\n'
        b'{"m":"999.99","b":false}\n'
    )
    found = whole(good, "json", schema=schema)
    assert all(isinstance(row, tuple) for row in found)
    assert [str(v) for v in found[0][2:3]] == ["1.25"]  # type: ignore[index]
    bad = [
        b'{"b":true,"d":"2023-02-29"}',
        b'{"b":true,"d":5}',
        b'{"b":true,"t":"2024-13-01"}',
        b'{"b":true,"t":"2024-01-01T99"}',
        b'{"b":true,"m":1.255}',
        b'{"b":true,"m":1000}',
        b'{"b":true,"l":["1"]}',
        b'{"b":true,"ld":["x"]}',
        b'{"b":null}',
        b"{}",
        b'{"b":true,"other":1e400}',
    ]
    mixed = whole(good + b"\n".join(bad) + b"\n" + good, "json", schema=schema)
    assert [isinstance(each, tuple) for each in mixed] == [True] * 2 + [False] * len(bad) + [True] * 2


def test_not_null_in_csv() -> None:
    schema = parse_schema("a bigint not null, b string not null")
    assert whole(b'1,""\n,x\n2,\n', "csv", schema=schema) == [
        (1, ""),
        "column 'a' is empty, and declared not null",
        "column 'b' is empty, and declared not null",
    ]


def test_text() -> None:
    schema = parse_schema("number bigint, line string, file string")
    assert whole(b"a\r\n\n\xffz\nb\r", "text", schema=schema) == [
        (1, "a", "f"),
        (2, "", "f"),
        "not UTF-8: byte 0xff at place 1",
        (4, "b\r", "f"),
    ]
    with pytest.raises(RunError, match="no column 'word'"):
        whole(b"a", "text", schema=parse_schema("word string"))


def test_messages() -> None:
    values = pa.array(
        [b'{"id":\r\n 1}', None, b"", b'{"name":"a\nb"}', b' \n{"id": 2}\n ', b'{"id":3}' + b" " * 90]
    )
    assert verdicts(decode_messages(values, "json", SCHEMA, limit=50), 6) == [
        (1, None, None),
        "a message without a value",
        "empty",
        "not JSON: Invalid control character at character 11",
        (2, None, None),
        "98 bytes, more than the 50 allowed: raise max_record_bytes=",
    ]
    values = pa.array(
        ["x", '1,2,"a\nb"', "1,2,x\n3,4,y", "1,2,x\r\n", '1,2,"', "\xef\xbb\xbf1,2,x", None]
    ).slice(1)
    assert verdicts(decode_messages(values, "csv", SCHEMA, limit=50), 6) == [
        (1, 2.0, "a\nb"),
        "more than one record",
        (1, 2.0, "x"),
        "a quote is opened and not closed",
        "column 'id': '\xef\xbb\xbf1' is not a bigint",
        "a message without a value",
    ]
    values = pa.array(["1;N;'a;b'", "2;3;'\\\\x\\''", "3;4;'a'b"])
    notation = rr.from_tcp(
        "localhost", 1, format="csv", schema=SCHEMA, sep=";", quote="'", escape="\\", nullValue="N"
    ).notation
    assert verdicts(decode_messages(values, "csv", SCHEMA, limit=50, notation=notation), 3) == [
        (1, None, "a;b"),
        (2, 3.0, "\\x'"),
        "text after a closing quote",
    ]
    assert verdicts(decode_messages(pa.array([], pa.binary()), "json", SCHEMA, limit=50), 0) == []


def test_a_mark_inside_a_file_is_text_at_every_place() -> None:
    data = b"1,2,x\n" + plain.BOM + b",2,y\n3,4,z\n"
    assert (
        whole(data, "csv", size=6)
        == whole(data, "csv")
        == [
            (1, 2.0, "x"),
            "column 'id': '\\ufeff' is not a bigint",
            (3, 4.0, "z"),
        ]
    )


@pytest.mark.parametrize("format", ["csv", "json"])
def test_bad_records_cost_little(format: str) -> None:
    """A bad one among many, and nothing but bad ones."""
    line = b"1,2.5,x\n" if format == "csv" else b'{"id":1,"price":2.5,"name":"x"}\n'
    bad = b"1,abc,x\n" if format == "csv" else b'{"id":1,"price":"abc","name":"x"}\n'
    whole(line * 10 + bad, format)
    start = time.process_time()
    data = line * 60_000 + bad + line * 40_000
    block = next(
        frame(io.BytesIO(data), csv=PLAIN if format == "csv" else None, limit=BIG, block_bytes=8 * BIG)
    )
    decoded = decode(block, format, SCHEMA, threads=False)
    assert [i for i, _ in decoded.bad] == [60_000]
    assert decoded.table.num_rows == len(block) - 1
    assert time.process_time() - start < 3
    start = time.process_time()
    assert not any(isinstance(each, tuple) for each in whole(bad * 20_000, format))
    assert time.process_time() - start < 3
