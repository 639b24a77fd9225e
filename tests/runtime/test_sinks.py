"""What sinks publish: whole files, each batch once, in tuple order."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import riprap as rr
from riprap.errors import GraphError, OperatorError, RunError
from riprap.expressions import parse_schema
from riprap.graph.connectors import FileSink, SinkConnector
from riprap.operators.sink import Sink
from riprap.runtime import file_publisher
from riprap.runtime.file_publisher import FilePublisher
from riprap.runtime.outflow import ResultReader
from riprap.runtime.sinks import Publisher, make_publisher
from riprap.state.ledger import Output
from riprap.state.pages import PageStore

SCHEMA = parse_schema("n bigint, s string")


def ignore(kind: str, **details: str | float | int) -> None:
    """Take no note of events."""


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Bench:
    """A sink on a bench: results are put into pages by hand, and published."""

    def __init__(self, folder: Path, schema: pa.Schema = SCHEMA) -> None:
        self.folder = folder / "out"
        self.clock = Clock()
        self.results = PageStore(str(folder / "results"))
        self.results.make()
        self._schema = schema
        self._pages = 0
        self._made: Publisher | None = None

    def sink(self, connector: SinkConnector) -> Sink:
        app = rr.Application("bench")
        app.sink("out", app.source("in", rr.rows(self._schema.empty_table())), connector)
        sink = app.graph()["out"]
        assert isinstance(sink, Sink)
        return sink

    def files(self, connector: FileSink, *, resume: bool = False) -> FilePublisher:
        made = self.publisher(connector, resume=resume)
        assert isinstance(made, FilePublisher)
        return made

    def publisher(self, connector: SinkConnector, *, resume: bool = False) -> Publisher:
        # A process that is gone holds nothing any more.
        self.close()
        self._made = make_publisher(
            self.sink(connector), self.results, None, run="r", resume=resume, tell=ignore, clock=self.clock
        )
        self._made.begin()
        return self._made

    def close(self) -> None:
        if self._made is not None:
            self._made.close()

    def output(
        self, rows: list[dict[str, Any]], positions: list[int] | None = None, source: int = 0
    ) -> Output:
        """Leave a page of rows as a task does."""
        self._pages += 1
        table = pa.Table.from_pylist(rows, self._schema).combine_chunks()
        where = pa.array(positions or list(range(len(rows))), pa.int64())
        hidden = [pa.array([source] * len(rows), pa.int16()), where]
        batch = pa.RecordBatch.from_arrays(
            [*(c.chunk(0) for c in table.columns), *hidden], [*self._schema.names, "$source", "$position"]
        )
        return Output(self.results.write(f"page-{self._pages}", batch), len(rows))

    def numbers(self, *values: int) -> list[Output]:
        return [self.output([{"n": v, "s": str(v)} for v in values])] if values else []

    def listing(self) -> list[str]:
        """Name what readers of the folder see."""
        return sorted(name for name in os.listdir(self.folder) if not name.startswith("."))


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()


def values(table: pa.Table) -> list[int]:
    found: list[int] = table.column("n").to_pylist()
    return found


def test_rows_of_several_tasks_come_in_tuple_order(bench: Bench) -> None:
    reader = ResultReader(bench.sink(rr.memory()), bench.results)
    odd = bench.output([{"n": 1}, {"n": 3}, {"n": 5}], positions=[10, 30, 50])
    even = bench.output([{"n": 0}, {"n": 2}, {"n": 4}], positions=[0, 20, 30])
    later = bench.output([{"n": 6}], positions=[0], source=1)

    table = reader.read([later, odd, Output("no page at all", 0), even])

    # At one position the task that is named first goes first; a later source comes after.
    assert values(table) == [0, 1, 2, 3, 4, 5, 6]
    assert table.schema.equals(SCHEMA)


def test_ordering_comes_before_source_and_position(bench: Bench) -> None:
    def page(name: str, n: int, ordering: int, position: int) -> Output:
        columns = {"n": [n], "s": [""], "$ordering": [ordering], "$source": [0], "$position": [position]}
        return Output(bench.results.write(name, pa.record_batch(columns)), 1)

    reader = ResultReader(bench.sink(rr.memory()), bench.results)

    assert values(reader.read([page("a", 1, 7, 0), page("b", 2, 5, 9)])) == [2, 1]


def test_small_batches_wait_until_there_are_enough_rows(bench: Bench) -> None:
    publisher = bench.files(rr.parquet(bench.folder, roll_rows=4, roll="1h"))

    publisher.publish(0, bench.numbers(1, 2))
    assert (bench.listing(), publisher.published) == ([], -1)
    publisher.publish(1, [])
    publisher.publish(2, bench.numbers(3, 4, 5))

    assert bench.listing() == ["part-0000000000-0000000002.parquet"]
    assert publisher.published == 2
    assert values(pq.read_table(bench.folder / bench.listing()[0])) == [1, 2, 3, 4, 5]


def test_small_batches_wait_until_time_is_up(bench: Bench) -> None:
    publisher = bench.files(rr.csv(bench.folder, roll="10s"))

    publisher.publish(0, bench.numbers(1))
    bench.clock.now += 9.9
    publisher.publish(1, bench.numbers(2))
    assert bench.listing() == []
    assert not publisher.due
    bench.clock.now += 0.2
    assert publisher.due, "whoever looks may have it written, though no batch comes"
    publisher.publish(2, bench.numbers(3))
    publisher.publish(3, bench.numbers(4))

    # The clock starts again with the first batch that waits.
    assert bench.listing() == ["part-0000000000-0000000002.csv"]
    publisher.flush()
    assert bench.listing() == ["part-0000000000-0000000002.csv", "part-0000000003-0000000003.csv"]


def test_batches_without_rows_make_no_file_and_are_published(bench: Bench) -> None:
    publisher = bench.files(rr.parquet(bench.folder, roll=0))

    publisher.publish(0, [])
    publisher.publish(1, [])

    assert (bench.listing(), publisher.published) == ([], 1)
    assert publisher.table().equals(SCHEMA.empty_table())


def test_a_repeated_batch_changes_nothing(bench: Bench) -> None:
    publisher = bench.files(rr.json(bench.folder, roll_rows=2, roll="1h"))
    for batch in (0, 0, 1, 1, 0):
        publisher.publish(batch, bench.numbers(batch))
    publisher.publish(2, bench.numbers(2))
    publisher.publish(2, bench.numbers(2))

    assert values(publisher.table()) == [0, 1, 2]
    assert bench.listing() == ["part-0000000000-0000000001.json", "part-0000000002-0000000002.json"]


def test_a_run_taken_up_again_goes_on_where_the_files_end(bench: Bench) -> None:
    connector = rr.parquet(bench.folder, roll_rows=2, roll="1h")
    outputs = [bench.numbers(batch) for batch in range(6)]
    first = bench.files(connector)
    for batch in range(3):
        first.publish(batch, outputs[batch])

    # It died with batch 2 waiting; the ledger still has batches 1 to 3.
    second = bench.files(connector, resume=True)
    assert second.published == 1
    for batch in (1, 2, 3):
        second.take_up(batch, outputs[batch])
    for batch in (3, 4, 5):
        second.publish(batch, outputs[batch])

    assert values(second.table()) == [0, 1, 2, 3, 4, 5]


def test_a_file_without_contents_is_not_published(bench: Bench) -> None:
    connector = rr.parquet(bench.folder, roll=0)
    outputs = [bench.numbers(batch) for batch in range(3)]
    first = bench.files(connector)
    for batch in range(3):
        first.publish(batch, outputs[batch])
    for batch in (1, 2):
        os.truncate(bench.folder / f"part-{batch:010d}-{batch:010d}.parquet", 0)
    assert values(first.table()) == [0]

    second = bench.files(connector, resume=True)
    assert (second.published, len(bench.listing())) == (0, 1)
    for batch in range(3):
        second.take_up(batch, outputs[batch])
    assert values(second.table()) == [0, 1, 2]


def test_a_database_that_gets_batches_on_record_again_has_them_once(bench: Bench, tmp_path: Path) -> None:
    connector = rr.to_sqlite(tmp_path / "out.db", "t")
    outputs = [bench.numbers(batch) for batch in range(4)]
    first = bench.publisher(connector)
    for batch in range(3):
        first.publish(batch, outputs[batch])

    second = bench.publisher(connector, resume=True)
    for batch in range(3):
        second.take_up(batch, outputs[batch])
    for batch in range(4):
        second.publish(batch, outputs[batch])

    assert values(second.table()) == [0, 1, 2, 3]


def test_half_a_file_is_never_seen(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    connector = rr.parquet(bench.folder, roll=0)
    publisher = bench.files(connector)
    seen: list[list[str]] = []

    def dies_half_way(table: pa.Table, path: Path, sink: FileSink) -> None:
        path.write_bytes(b"PAR1 and then")
        seen.append(bench.listing())
        raise OSError("the lights went out")

    monkeypatch.setattr(file_publisher, "write_table", dies_half_way)
    with pytest.raises(OSError, match="the lights went out"):
        publisher.publish(0, bench.numbers(1))
    monkeypatch.undo()

    # Spark and Arrow pass over names that start with '_', and so does our own source.
    assert seen == [["_part-0000000000-0000000000.parquet"]]
    assert rr.files(bench.folder, format="parquet", schema=SCHEMA).listing() == []
    again = bench.files(connector, resume=True)
    again.publish(0, bench.numbers(1))
    assert bench.listing() == ["part-0000000000-0000000000.parquet"]
    assert values(again.table()) == [1]


def test_an_earlier_runs_files_are_not_mixed_with_ours(bench: Bench) -> None:
    bench.files(rr.parquet(bench.folder, roll=0)).publish(0, bench.numbers(1))

    with pytest.raises(RunError) as caught:
        bench.files(rr.parquet(bench.folder))

    assert str(caught.value) == (
        f"the output folder {bench.folder} holds 1 files of an earlier run. Choose another folder, or replace them "
        "with overwrite=True (on the command line: --overwrite)"
    )
    assert bench.listing() == ["part-0000000000-0000000000.parquet"]


def test_overwrite_removes_parts_and_nothing_else(bench: Bench) -> None:
    bench.files(rr.parquet(bench.folder, roll=0)).publish(7, bench.numbers(1))
    (bench.folder / "notes.txt").write_text("mine")
    (bench.folder / "part-of-something.parquet").write_text("mine")

    publisher = bench.files(rr.parquet(bench.folder, overwrite=True))

    assert bench.listing() == ["notes.txt", "part-of-something.parquet"]
    assert publisher.published == -1


def test_overwrite_does_not_touch_a_run_that_is_taken_up_again(bench: Bench) -> None:
    connector = rr.parquet(bench.folder, roll=0, overwrite=True)
    bench.files(connector).publish(0, bench.numbers(1))

    assert bench.files(connector, resume=True).published == 0
    assert bench.listing() == ["part-0000000000-0000000000.parquet"]


def test_a_folder_that_cannot_be_made_is_named(bench: Bench) -> None:
    bench.folder.write_text("a file is in the way")

    with pytest.raises(RunError, match=r"cannot make the output folder .*/out"):
        bench.files(rr.parquet(bench.folder))


WIDE = parse_schema(
    "i int, d double, s string, m decimal(12,3), t timestamp, u timestamp_ntz, y date, b boolean"
)
WIDE_ROWS = [
    {
        "i": -5, "d": 0.1, "s": 'a "quoted", line\nbreak', "m": Decimal("-1.250"), "b": True, "y": date(2024, 2, 29),
        "t": datetime.fromisoformat("2024-02-29T12:00:00.000001+00:00"), "u": datetime(1969, 12, 31, 23, 59, 59),
    },
    {"i": 7, "d": 1e300, "s": "", "m": Decimal("0.000"), "b": False, "y": date(1, 1, 1),
     "t": datetime.fromisoformat("1969-12-31T23:59:59.999999+00:00"), "u": datetime(2200, 1, 1)},
    dict.fromkeys(WIDE.names),
]  # fmt: skip


@pytest.mark.parametrize("make", [rr.parquet, rr.csv, rr.json])
def test_every_type_can_be_read_back(tmp_path: Path, make: Any) -> None:
    bench = Bench(tmp_path, WIDE)
    publisher = bench.files(make(bench.folder, roll=0))

    publisher.publish(0, [bench.output(WIDE_ROWS)])
    publisher.publish(1, [bench.output(WIDE_ROWS[:1])])

    assert publisher.table().to_pylist() == [*WIDE_ROWS, WIDE_ROWS[0]]
    assert publisher.table().schema.equals(WIDE)


@pytest.mark.parametrize("make", [rr.parquet, rr.csv, rr.json])
def test_nan_and_infinities_can_be_read_back(tmp_path: Path, make: Any) -> None:
    bench = Bench(tmp_path, parse_schema('`a "b" \\ c` double, s string'))
    publisher = bench.files(make(bench.folder, roll=0))
    numbers = [float("nan"), float("-inf"), None, float("inf"), 1.5]

    publisher.publish(0, [bench.output([{'a "b" \\ c': number, "s": "NaN"} for number in numbers])])

    nan, *others = publisher.table().column(0).to_pylist()
    assert nan != nan
    assert others == numbers[1:]
    assert set(publisher.table().column("s").to_pylist()) == {"NaN"}


@pytest.mark.parametrize(
    ("make", "options", "name"),
    [
        (rr.parquet, {"compression": "zstd"}, "part-0000000000-0000000000.parquet"),
        (rr.json, {"compression": "gzip"}, "part-0000000000-0000000000.json.gz"),
        (rr.csv, {"compression": "gzip", "sep": ";"}, "part-0000000000-0000000000.csv.gz"),
        (rr.csv, {"header": False, "nullValue": "NULL", "sep": "\t"}, "part-0000000000-0000000000.csv"),
        (rr.csv, {"quoteAll": True, "nullValue": "NULL"}, "part-0000000000-0000000000.csv"),
    ],
)
def test_options_of_writers(tmp_path: Path, make: Any, options: dict[str, Any], name: str) -> None:
    bench = Bench(tmp_path, WIDE)
    publisher = bench.files(make(bench.folder, roll=0, **options))

    publisher.publish(0, [bench.output(WIDE_ROWS)])

    assert publisher.table().to_pylist() == WIDE_ROWS
    assert bench.listing() == [name]
    publisher.close()
    assert bench.files(make(bench.folder, roll=0, **options), resume=True).published == 0


def test_csv_is_written_as_it_was_asked_for(tmp_path: Path) -> None:
    bench = Bench(tmp_path, parse_schema("a int, b string"))
    publisher = bench.files(rr.csv(bench.folder, roll=0, sep=";", nullValue="NULL"))
    publisher.publish(0, [bench.output([{"a": 1, "b": 'x"y'}, {"a": None, "b": None}, {"a": 2, "b": ""}])])
    (name,) = bench.listing()
    assert (bench.folder / name).read_text() == '"a";"b"\n1;"x""y"\nNULL;NULL\n2;""\n'
    for make, options, problem in (
        (rr.csv, {"delimiter": ";"}, "it is called sep="),
        (rr.json, {"sep": ";"}, r"json\(...\) has no option 'sep': There are compression"),
        (rr.csv, {"compression": "zstd"}, r"csv\(compression=...\) is one of none, gzip, got 'zstd'"),
    ):
        with pytest.raises(GraphError, match=problem):
            make("out", **options)


def test_publishing_and_reading_from_two_threads_loses_nothing(bench: Bench) -> None:
    publisher = bench.files(rr.parquet(bench.folder, roll_rows=3, roll="1h"))
    outputs = [bench.numbers(batch) for batch in range(60)]
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            publisher.flush()

    reader = threading.Thread(target=look)
    reader.start()
    for batch, output in enumerate(outputs):
        publisher.publish(batch, output)
    done.set()
    reader.join()

    assert values(publisher.table()) == list(range(60))


def test_memory_keeps_each_batch_once(bench: Bench) -> None:
    publisher = bench.publisher(rr.memory())
    assert publisher.table().equals(SCHEMA.empty_table())

    for batch, numbers in ((0, [1, 2]), (1, []), (2, [3]), (2, [3])):
        publisher.publish(batch, bench.numbers(*numbers))
    bench.results.collect(lambda: [])

    assert values(publisher.table()) == [1, 2, 3]
    assert publisher.published == 2


def test_a_callback_gets_every_batch_with_its_number(bench: Bench) -> None:
    calls: list[tuple[int, list[int]]] = []
    publisher = bench.publisher(rr.callback(lambda batch, table: calls.append((batch, values(table)))))

    publisher.take_up(0, bench.numbers(0))
    publisher.publish(1, bench.numbers(1, 2))
    publisher.publish(2, [])

    assert calls == [(1, [1, 2]), (2, [])]
    assert publisher.published == 2
    with pytest.raises(RunError, match="sink 'out' hands its rows to a function"):
        publisher.table()


def test_files_without_contents_are_written_again_wherever_they_are(bench: Bench) -> None:
    connector = rr.parquet(bench.folder, roll="1000s")
    outputs = {batch: bench.numbers(batch) for batch in range(5)}
    publisher = bench.files(connector)
    for batch in range(5):
        publisher.publish(batch, outputs[batch])
        if batch != 1:
            publisher.flush()
    names = [f"part-{first:010d}-{last:010d}.parquet" for first, last in ((0, 0), (1, 2), (3, 3), (4, 4))]
    assert bench.listing() == names
    for name in names[1:3]:
        (bench.folder / name).write_bytes(b"")

    # It is killed before the results come again, and then all but one are at hand.
    assert not bench.files(connector, resume=True).has(2)
    publisher = bench.files(connector, resume=True)
    assert [publisher.has(batch) for batch in range(6)] == [True, False, False, False, True, False]
    for batch in (0, 1, 3, 4):
        publisher.take_up(batch, outputs[batch])
        publisher.take_up(batch, outputs[batch])

    assert values(publisher.table()) == [0, 1, 3, 4]
    assert bench.listing() == [names[0], "part-0000000001-0000000001.parquet", *names[2:]]
    assert publisher.published == 4


def test_a_callback_that_fails_is_named_with_its_line_and_batch(bench: Bench) -> None:
    def fails(batch: int, table: pa.Table) -> None:
        raise KeyError("oops")

    sink = bench.sink(rr.callback(fails))
    publisher = make_publisher(
        sink, bench.results, None, run="r", resume=False, tell=ignore, clock=bench.clock
    )

    with pytest.raises(OperatorError) as caught:
        publisher.publish(4, bench.numbers(1))

    said, line = str(caught.value).splitlines()
    assert said == f"Sink 'out' ({sink.location}) failed on batch 4: KeyError: 'oops'"
    assert line == f'    {__file__}:{fails.__code__.co_firstlineno + 1} in fails: raise KeyError("oops")'
    assert publisher.published == -1


def test_a_spark_sink_gets_a_dataframe_of_the_session(bench: Bench) -> None:
    class Session:
        def createDataFrame(self, table: pa.Table) -> list[int]:
            return values(table)

    calls: list[Any] = []
    sink = bench.sink(rr.to_spark(lambda frame, batch: calls.append((frame, batch))))
    publisher = make_publisher(
        sink, bench.results, Session(), run="r", resume=False, tell=ignore, clock=bench.clock
    )

    publisher.publish(3, bench.numbers(8, 9))

    assert calls == [([8, 9], 3)]


class Stubborn(rr.Sink):
    """A sink whose connection cannot even be closed, or that cannot be made at all."""

    PROMISE = rr.Promise(word="repeats", why_not="it keeps nothing")

    def __init__(self, *, makes: bool = True) -> None:
        self._makes = makes

    def target(self, schema: pa.Schema, run: str) -> rr.Target:
        if not self._makes:
            raise OSError("no such driver")

        class Its(rr.Target):
            def write(self, batch: int, table: pa.Table, *, again: bool) -> None: ...

            def close(self) -> None:
                raise OSError("broken pipe")

        return Its()


def test_a_sink_that_cannot_be_closed_is_told_of_and_one_that_cannot_be_made_is_named(bench: Bench) -> None:
    told: list[str] = []

    def make(sink: Stubborn) -> Publisher:
        return make_publisher(
            bench.sink(sink),
            bench.results,
            None,
            run="run",
            resume=False,
            tell=lambda kind, **details: told.append(f"{kind}: {details['message']}"),
            clock=bench.clock,
        )

    make(Stubborn()).close()
    (said,) = told
    assert "warning: Sink 'out' (" in said
    assert "failed to close: OSError: broken pipe" in said
    with pytest.raises(
        OperatorError, match=r"Sink 'out' \(.*\) failed to make its target: OSError: no such driver"
    ):
        make(Stubborn(makes=False))
