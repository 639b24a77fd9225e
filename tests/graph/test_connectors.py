"""Which files a source reads, in which order, and what connectors refuse."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import riprap as rr
from riprap.durations import UNITS
from riprap.expressions import parse_schema
from riprap.operators.sink import Sink


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


def message(make: Callable[[], object]) -> str:
    with pytest.raises(rr.GraphError) as caught:
        make()
    return str(caught.value)


def test_files_say_what_they_lack(tmp_path: Path) -> None:
    missing = tmp_path / "*.parquet"
    (tmp_path / "broken.parquet").write_bytes(b"PAR1")

    assert (
        message(lambda: rr.files("a.csv"))
        == "files(...) of csv needs schema=, such as 'ticker string, price double'"
    )
    assert (
        message(lambda: rr.files("a.jsonl.gz"))
        == "files(...) of json needs schema=, such as 'ticker string, price double'"
    )
    assert message(lambda: rr.files(tmp_path / "x" / "*.parquet")) == (
        f"no Parquet file matches {tmp_path}/x/*.parquet: check the path, or give schema="
    )
    assert message(lambda: rr.files(missing)).startswith(
        f"cannot read the schema of {tmp_path}/broken.parquet: "
    )
    assert message(lambda: rr.files("feed")) == (
        "cannot tell the format of feed: say format='parquet', 'csv', 'json' or 'text'"
    )
    assert message(lambda: rr.files("feed", format="xml")) == (  # type: ignore[arg-type]
        "files(format=...) is 'parquet', 'csv', 'json' or 'text', got 'xml'"
    )
    assert message(lambda: rr.files([])) == "files(...) needs at least one path"


@pytest.mark.parametrize("rate", [0, -1, "fast", True])
def test_a_rate_is_a_positive_number(rate: Any) -> None:
    said = f"rate= takes a positive number of tuples a second, got {rate!r}"

    assert message(lambda: rr.files("a.csv", schema="a int", rate=rate)) == said
    assert message(lambda: rr.rows([], "a int", rate=rate)) == said


def test_rows_say_what_they_lack() -> None:
    assert message(lambda: rr.rows([{"a": 1}])) == (
        "rows(...) of dictionaries needs schema=, such as 'word string, n bigint'"
    )
    assert message(lambda: rr.rows([{"a": "x"}], "a int")).startswith(
        "rows(...) do not fit the schema a int: "
    )


@pytest.mark.parametrize("make", [rr.parquet, rr.csv, rr.json])
def test_file_sinks_say_what_they_take(make: Any) -> None:
    name = make.__name__

    assert (
        message(lambda: make("out", roll_rows=0))
        == f"{name}(roll_rows=...) takes a whole number of at least 1, got 0"
    )
    assert message(lambda: make("out", roll="soon")) == (
        f"{name}(roll=...) takes a time such as '10s', '250ms' or '2m', got 'soon'. {UNITS}"
    )
    for zero in (0, "0s", "0 seconds", "0ms", timedelta(0)):
        assert make("out", roll=zero).roll_seconds == 0


def test_functions_are_functions() -> None:
    assert message(lambda: rr.callback(3)) == "callback(...) takes a function of (batch, table), got 3"  # type: ignore[arg-type]
    assert message(lambda: rr.to_spark(3)) == "to_spark(...) takes a function of (dataframe, batch), got 3"  # type: ignore[arg-type]
    assert message(lambda: rr.from_spark(3, schema="a int")) == (  # type: ignore[arg-type]
        "from_spark(...) takes a function of the Spark session, got 3"
    )


SCHEMAS: list[Callable[[str], object]] = [
    lambda text: rr.rows([], text),
    lambda text: rr.files("a.csv", schema=text),
    lambda text: rr.from_spark(str, schema=text),
]


@pytest.mark.parametrize("make", SCHEMAS)
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a", "not a schema"),
        ("a nonsense", "no type 'nonsense'"),
        ("a int, a int", "column 'a' is there twice"),
        ("a map<string,int>", "type map<string, int> is not supported"),
        ("a array<array<int>>", "type array<array<int>> is not supported"),
        ("(", "not a schema"),
    ],
)
def test_a_schema_that_is_none_is_a_graph_error(
    make: Callable[[str], object], text: str, problem: str
) -> None:
    with pytest.raises(rr.GraphError, match=f"schema=: ({problem})"):
        make(text)


def test_rows_that_do_not_fit_their_schema_are_a_graph_error() -> None:
    table = pa.table({"a": ["x"]})

    for make in (
        lambda: rr.rows(table, "a int"),
        lambda: rr.rows(table, "a array<int>"),
        lambda: rr.rows([{"a": 2**40}], "a int"),
    ):
        assert message(make).startswith("rows(...) do not fit the schema ")


def test_text_in_a_table_is_read_as_cells_are() -> None:
    table = pa.table({"n": ["+4", None], "t": ["2020-01-01 00:00:00", "2020-01-01T02:00:00+02:00"]})
    begun = datetime(2020, 1, 1, tzinfo=UTC)

    found = rr.rows(table, "n bigint, t timestamp").table
    assert found.to_pylist() == [{"n": 4, "t": begun}, {"n": None, "t": begun}]
    assert message(lambda: rr.rows(pa.table({"n": ["1", "0x1F"]}), "n bigint")) == (
        "rows(...) do not fit the schema n bigint: row 1, column 'n': '0x1F' is not a bigint"
    )


def test_rows_that_are_none_are_named_once() -> None:
    give = "give dictionaries, or a pandas, Polars or Arrow table"
    twice = pa.table([[1], [2]], names=["a", "a"])
    for data, said in (
        ([(1, "x")], f"rows(...): row 0 is a tuple: {give}"),
        ({"a": [1]}, f"rows(...) got a dict: {give}"),
        ("text", f"rows(...) got a str: {give}"),
        ([{"b": 1}], "rows(...): row 0 has 'b', which is not in the schema: a"),
        (pa.table({"b": [1]}), "rows(...) have no column 'a', which schema= names. They have: b"),
        (twice, "rows(...) have more than one column 'a': rename one, or leave it out of schema="),
    ):
        assert message(lambda data=data: rr.rows(data, "a int")) == said  # type: ignore[misc]
    assert "rr.rows(...)" in message(lambda: rr.Application("app").source("s", twice))


def test_an_arrow_schema_is_as_good_as_text() -> None:
    assert rr.rows([], parse_schema("a int")).schema == rr.rows([], "a int").schema


SAID = {
    "schema of text": (
        lambda: rr.files("a.log", schema="text string"),
        "files: the schema of text is made of line string, file string, number bigint, got '['text']'",
    ),
    "no schema of messages": (
        lambda: rr.from_kafka("h:1", "t"),
        "from_kafka(...) of json needs schema=, such as 'ticker string, price double'",
    ),
    "what to do with bad records": (
        lambda: rr.from_tcp("h", 1, on_bad_record="ignore"),  # type: ignore[arg-type]
        "from_tcp(on_bad_record=...) is 'quarantine' or 'fail', got 'ignore'",
    ),
    "no port": (
        lambda: rr.from_tcp("h", 0),
        "from_tcp(host, port) takes a port between 1 and 65535, got 0",
    ),
    "no URL": (
        lambda: rr.to_postgres("localhost", "t"),
        "to_postgres(url, ...) takes a URL such as 'postgresql://user:password@host/...', got 'localhost'",
    ),
    "another kind of URL": (
        lambda: rr.to_postgres("postgresql+psycopg://me:secret@h/d", "t"),
        "to_postgres(url, ...) takes a URL such as 'postgresql://user:password@host/...', got one that begins with "
        "'postgresql+psycopg:'",
    ),
    "no broker": (
        lambda: rr.to_kafka("localhost", "t"),
        "to_kafka(servers, ...) takes brokers such as 'localhost:9092' or 'a:9092,b:9092', got 'localhost'",
    ),
    "table": (
        lambda: rr.to_postgres("postgresql://h/d", "d.s.t"),
        "to_postgres(..., table) takes 'table' or 'schema.table', got 'd.s.t'",
    ),
    "by": (
        lambda: rr.from_postgres("postgresql://h/d", "t", by="id", schema="n bigint"),
        "from_postgres(by=...) names 'id', which is not in schema=: n",
    ),
    "start": (
        lambda: rr.from_kafka("h:1", "t", schema="n int", start="now"),  # type: ignore[arg-type]
        "from_kafka(start=...) is 'earliest' or 'latest', got 'now'",
    ),
    "rate": (lambda: rr.rate(0), "rate= takes a positive number of tuples a second, got 0"),
    "limit": (
        lambda: rr.ticks(every="1s", limit=0),
        "ticks(limit=...) takes a whole number of at least 1, got 0",
    ),
    "retry": (
        lambda: rr.to_redis("redis://h", "s", retry_for="soon"),
        f"to_redis(retry_for=...) takes a time such as '10s', '250ms' or '2m', got 'soon'. {UNITS}",
    ),
}


@pytest.mark.parametrize("wrong", SAID)
def test_adapters_say_what_is_wrong(wrong: str) -> None:
    build, wanted = SAID[wrong]

    assert message(build) == wanted


def test_passwords_are_not_shown() -> None:
    shown = [
        rr.from_postgres("postgresql://me:secret@h/d", "t", by="n", schema="n int"),
        rr.to_postgres("postgresql://me:secret@h/d", "t"),
        rr.from_redis("redis://:secret@h", "s", schema="n int"),
        rr.to_redis("redis://:secret@h", "s"),
        rr.to_postgres("postgresql://h/d?user=me&password=secret&sslmode=off", "t"),
    ]

    assert all("secret" not in str(connector) and "***" in str(connector) for connector in shown)
    assert all("secret" not in repr(connector) for connector in shown)


def test_a_name_with_brackets_is_a_name(tmp_path: Path) -> None:
    (tmp_path / "log[1].txt").write_text("a")
    (tmp_path / "log1.txt").write_text("b")

    assert rr.files(tmp_path / "log[1].txt").listing() == [str(tmp_path / "log[1].txt")]
    assert rr.files(tmp_path / "log[2-9].txt").listing() == []


@pytest.mark.parametrize("spelled", ["out", "./out/", "ABSOLUTE", "LINK"])
def test_two_sinks_do_not_share_a_folder(
    spelled: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to("out")
    other = {"ABSOLUTE": tmp_path / "out", "LINK": "link"}.get(spelled, spelled)
    app = rr.Application("twice")
    source = app.source("in", rr.rows([], "n int"))
    app.sink("one", source, rr.parquet("out"))

    with pytest.raises(rr.GraphError, match=r"sink 'one' .* writes to the folder"):
        app.composite("inner", lambda inner: inner.sink("two", source, rr.json(other)))

    app.sink("two", source, rr.json("out/two"))


def test_a_path_is_a_connector(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": [1]}), tmp_path / "x.parquet")
    app = rr.Application("paths")
    source = app.source("in", tmp_path / "x.parquet")
    for name, path in {"a": "a/", "b": "b.csv", "c": "c.jsonl"}.items():
        app.sink(name, source, path)

    graph = app.graph()
    assert source.schema.names == ["n"]
    assert {str(o.connector) for o in graph.of_kind(Sink)} == {
        "parquet files in a/",
        "csv files in b.csv",
        "json files in c.jsonl",
    }


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("a integr", "schema=: no type 'integr'\n  a integr\n    ^^^^^^\ndid you mean 'int'"),
        (
            "a int, b strng",
            "schema=: no type 'strng'\n  a int, b strng\n           ^^^^^\ndid you mean 'string'",
        ),
        (
            "a int b",
            "schema=: not a schema: 'b' has no place there\n  a int b\n        ^\nWrite: name type, ",
        ),
        ("a decimal(10", "schema=: not a schema\n  a decimal(10\nWrite: name type, "),
        ({"a": "int"}, "schema=: SQL is given as a text, this is a dict: {'a': 'int'}\nWrite it out, as "),
    ],
)
def test_a_schema_that_cannot_be_read_is_told_in_its_own_words(schema: Any, said: str) -> None:
    with pytest.raises(rr.GraphError) as caught:
        rr.files("x.csv", schema=schema)

    assert str(caught.value).startswith(said)
    assert "\x1b" not in str(caught.value)
    assert "interval" not in str(caught.value)
