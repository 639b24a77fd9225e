"""The sample programs of the Spade operators, in Riprap's form, with results worked out by hand.

They are the figures of appendix A of the dissertation on partial fault tolerance in stream processing. Time is data
here: where Spade looks at the wall clock, a column or a clock tells it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.stages import Stage, run_batches

import riprap as rr
from riprap.expressions import parse_schema

STRINGS = parse_schema("at bigint, id string, attr1 string, attr2 string")
NUMBERED = parse_schema("at bigint, id int, attr string")
INTEGERS = parse_schema("at bigint, intValue int")
TICKS = parse_schema("at bigint, time timestamp")


def table(schema: pa.Schema, rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)


def second(number: int) -> datetime:
    return datetime(2010, 1, 1, tzinfo=UTC) + timedelta(seconds=number)


def source(app: rr.Application, name: str, schema: pa.Schema = STRINGS) -> rr.Stream:
    """Add a source; several interleave by their column ``at``."""
    return app.source(name, rr.rows(schema.empty_table()), ordering="at")


def clock(app: rr.Application) -> rr.Stream:
    return app.clock("Clock", rr.rows(TICKS.empty_table()), time="time", ordering="at")


def ticks(*numbers: int) -> pa.Table:
    """Tick at these seconds; a tick of second s comes at 10 s."""
    return table(TICKS, [(10 * n, second(n)) for n in numbers])


def each_tuple(name: str, rows: pa.Table) -> list[dict[str, pa.Table]]:
    """Make every tuple a batch of its own."""
    return [{name: rows.slice(n, 1)} for n in range(rows.num_rows)]


def test_a1_and_a3_source_and_sink() -> None:
    app = rr.Application("appendix")
    app.sink("appResult", source(app, "SomeSourceStream"), rr.memory())
    rows = table(STRINGS, [(0, "a", "x", "y"), (1, "b", None, "z"), (2, "a", "x", "y")])

    got = run_batches(app, each_tuple("SomeSourceStream", rows), sink="appResult")

    assert got == rows.to_pylist()


def test_a5_functor_that_filters_three_streams() -> None:
    app = rr.Application("appendix")
    streams = [source(app, n) for n in ("SomeSourceStream", "AnotherSourceStream", "YetAnotherStream")]
    app.sink(
        "out",
        app.functor("AStringStream", streams, where="id = 'AString'", select="attr1, attr2"),
        rr.memory(),
    )

    got = run_batches(
        app,
        [
            {
                "SomeSourceStream": table(STRINGS, [(3, "AString", "some", "3"), (9, "Other", "some", "9")]),
                "AnotherSourceStream": table(
                    STRINGS, [(1, "AString", "another", "1"), (3, "AString", "another", "3")]
                ),
                "YetAnotherStream": table(STRINGS, [(2, None, "yet", "2"), (4, "AString", "yet", "4")]),
            }
        ],
    )

    assert [(r["attr1"], r["attr2"]) for r in got] == [
        ("another", "1"),
        ("some", "3"),
        ("another", "3"),
        ("yet", "4"),
    ]


def test_a6_functor_that_adds_a_timestamp() -> None:
    schema = parse_schema("at timestamp, id string, attr1 string, attr2 string")
    app = rr.Application("appendix")
    streams = [
        source(app, n, schema) for n in ("SomeSourceStream", "AnotherSourceStream", "YetAnotherStream")
    ]
    select = "cast(at as bigint) * 1000000 as timestamp, id, attr1, attr2"
    app.sink("out", app.functor("TimestampedStream", streams, select=select), rr.memory())

    got = run_batches(
        app,
        [
            {
                "SomeSourceStream": table(schema, [(second(2), "a", "x", "y")]),
                "AnotherSourceStream": table(schema, []),
                "YetAnotherStream": table(schema, [(second(1), "b", "u", "v")]),
            }
        ],
    )

    assert got == [
        {"timestamp": 1_262_304_001_000_000, "id": "b", "attr1": "u", "attr2": "v"},
        {"timestamp": 1_262_304_002_000_000, "id": "a", "attr1": "x", "attr2": "y"},
    ]


def test_a8_aggregate_of_the_last_20_tuples_after_every_tuple() -> None:
    app = rr.Application("appendix")
    integers = source(app, "IntegerStream", INTEGERS)
    window, emit = rr.sliding(tuples=20), rr.every(tuples=1)
    app.sink(
        "out",
        app.aggregate("MaxIntStream", integers, window=window, emit=emit, select="max(intValue) as max"),
        rr.memory(),
    )
    rows = table(INTEGERS, [(n, 50 if n == 0 else n) for n in range(25)])

    got = run_batches(app, [{"IntegerStream": rows.slice(n, 7)} for n in range(0, 25, 7)])

    # 50 is in the first 20 windows; then the newest is the greatest.
    assert [r["max"] for r in got] == [50] * 20 + [20, 21, 22, 23, 24]


def test_a9_aggregate_of_the_last_15_seconds_every_2_seconds() -> None:
    app = rr.Application("appendix")
    strings, time = source(app, "AStringStream"), clock(app)
    window, emit = rr.sliding(time="15s"), rr.every(time="2s")
    counts = app.aggregate(
        "CountAStringStream", strings, window=window, emit=emit, clock=time, select="count(*) as count"
    )
    app.sink("out", counts, rr.memory())
    rows = table(STRINGS, [(5, "a", "", ""), (6, "b", "", ""), (7, "c", "", ""), (35, "d", "", "")])

    got = run_batches(
        app,
        [
            {"AStringStream": rows, "Clock": ticks(*range(10))},
            {"AStringStream": rows.slice(4), "Clock": ticks(*range(10, 25))},
        ],
    )

    # Three tuples come at second 0 and one at second 3. At second m the window is [m - 15, m): the three are gone at
    # 16, the last one at 20, and an empty window puts out nothing.
    assert [r["count"] for r in got] == [3, 4, 4, 4, 4, 4, 4, 1, 1]


def correlated() -> rr.Application:
    app = rr.Application("appendix")
    first, second, third = (source(app, f"Stream{n}", NUMBERED) for n in (1, 2, 3))
    found = app.join(
        "CorrelatedStream",
        [first, second],
        third,
        by="id",
        windows=(rr.sliding(tuples=30), rr.sliding(tuples=30)),
        select="id, left.attr as attr1, Stream3.attr as attr2",
    )
    app.sink("out", found, rr.memory())
    return app


def test_a12_join_of_two_streams_with_a_third() -> None:
    got = run_batches(
        correlated(),
        [
            {
                "Stream1": table(NUMBERED, [(0, 1, "a")]),
                "Stream2": table(NUMBERED, [(1, 2, "b"), (3, 1, "c")]),
                "Stream3": table(NUMBERED, [(2, 1, "x")]),
            },
            {
                "Stream1": table(NUMBERED, []),
                "Stream2": table(NUMBERED, []),
                "Stream3": table(NUMBERED, [(4, 2, "y"), (5, 1, "z")]),
            },
        ],
        buckets=3,
        tasks=[1, 3],
    )

    assert [tuple(r.values()) for r in got] == [
        (1, "a", "x"),
        (1, "c", "x"),
        (2, "b", "y"),
        (1, "a", "z"),
        (1, "c", "z"),
    ]


def test_a12_join_keeps_30_tuples_of_a_key() -> None:
    got = run_batches(
        correlated(),
        [
            {
                "Stream1": table(NUMBERED, [(n, 7, f"a{n}") for n in range(0, 31, 2)]),
                "Stream2": table(NUMBERED, [(n, 7, f"a{n}") for n in range(1, 31, 2)]),
                "Stream3": table(NUMBERED, [(31, 7, "x")]),
            }
        ],
    )

    # The oldest of 31 has left.
    assert [r["attr1"] for r in got] == [f"a{n}" for n in range(1, 31)]


def test_a14_sort_of_20_seconds() -> None:
    app = rr.Application("appendix")
    integers, time = source(app, "IntegerStream", INTEGERS), clock(app)
    ordered = app.sort(
        "SortedStream", integers, order="intValue asc", window=rr.tumbling(time="20s"), clock=time
    )
    app.sink("out", ordered, rr.memory())
    # A punctuation follows every window.
    windows = app.aggregate(
        "Windows", ordered, window=rr.tumbling(punctuation=True), select="collect_list(intValue) as all"
    )
    app.sink("windows", windows, rr.memory())
    rows = table(INTEGERS, [(5, 5), (6, 3), (7, 4), (305, 2), (306, 9), (307, 2), (405, 1)])
    batches = [
        {"IntegerStream": rows.slice(0, 4), "Clock": ticks(0, 20)},
        {"IntegerStream": rows.slice(4), "Clock": ticks(40)},
    ]

    assert [r["intValue"] for r in run_batches(app, batches)] == [3, 4, 5, 2, 2, 9]
    assert [r["all"] for r in run_batches(app, batches, sink="windows")] == [[3, 4, 5], [2, 2, 9]]


def test_a16_barrier() -> None:
    app = rr.Application("appendix")
    first, second, third = (source(app, f"Stream{n}", NUMBERED) for n in (1, 2, 3))
    select = "port1.id as id1, port1.attr as attr1, Stream3.attr as attr2"
    app.sink("out", app.barrier("SyncStream", [first, second], third, select=select), rr.memory())

    got = run_batches(
        app,
        [
            {
                "Stream1": table(NUMBERED, [(0, 1, "a")]),
                "Stream2": table(NUMBERED, [(1, 2, "b")]),
                "Stream3": table(NUMBERED, [(2, 10, "x"), (3, 11, "y")]),
            },
            {
                "Stream1": table(NUMBERED, [(4, 3, "c")]),
                "Stream2": table(NUMBERED, []),
                "Stream3": table(NUMBERED, [(5, 12, "z"), (6, 13, "alone")]),
            },
        ],
    )

    assert [tuple(r.values()) for r in got] == [(1, "a", "x"), (2, "b", "y"), (3, "c", "z")]


def test_a17_punctor() -> None:
    app = rr.Application("appendix")
    marked = app.punctor(
        "PunctuatedStream", source(app, "Stream1", NUMBERED), where="id > 100", place="after"
    )
    app.sink("out", marked, rr.memory())
    windows = app.aggregate(
        "Windows", marked, window=rr.tumbling(punctuation=True), select="collect_list(id) as ids"
    )
    app.sink("windows", windows, rr.memory())
    rows = table(NUMBERED, [(n, i, "") for n, i in enumerate([1, 101, 5, 7, 200, 3])])

    assert [r["id"] for r in run_batches(app, each_tuple("Stream1", rows))] == [1, 101, 5, 7, 200, 3]
    got = run_batches(app, each_tuple("Stream1", rows), sink="windows")
    assert [r["ids"] for r in got] == [[1, 101], [5, 7, 200]]


def test_a19_split_by_a_file(tmp_path: Path) -> None:
    mapping = tmp_path / "map.txt"
    mapping.write_text(
        "value,output\nred,Attr1Stream\ngreen,Attr2Stream\nblue,Attr3Stream\ngreen,Attr3Stream\n"
    )
    app = rr.Application("appendix")
    names = ("Attr1Stream", "Attr2Stream", "Attr3Stream")
    streams = app.split("Split", source(app, "Stream1"), outputs=names, on="attr1", table=mapping)
    for name in names:
        app.sink(f"of_{name}", streams[name], rr.memory())
    colours = ["red", "green", "blue", "yellow", None, "red"]
    rows = table(STRINGS, [(n, str(n), colour, "") for n, colour in enumerate(colours)])

    with_folder = Stage(app, tmp_path / "run")
    got = with_folder.feed({"Stream1": rows})

    assert {name: [r["id"] for r in got[f"of_{name}"]] for name in names} == {
        "Attr1Stream": ["0", "5"],
        "Attr2Stream": ["1"],
        "Attr3Stream": ["1", "2"],
    }


def test_a21_delay_of_2_seconds(tmp_path: Path) -> None:
    app = rr.Application("appendix")
    stream, time = source(app, "Stream1"), clock(app)
    app.sink("out", app.delay("DelayedStream", stream, time=2.0, clock=time), rr.memory())
    stage = Stage(app, tmp_path)
    arrivals = {0: ["a", "b"], 1: ["c"], 3: ["d"]}

    left = {}
    for now in range(7):
        # Tuples come after the tick of their second.
        rows = [(10 * now + 5, name, "", "") for name in arrivals.get(now, ())]
        got = stage.feed({"Stream1": table(STRINGS, rows), "Clock": ticks(now)})["out"]
        left[now] = [r["id"] for r in got]

    assert left == {0: [], 1: [], 2: ["a", "b"], 3: ["c"], 4: [], 5: ["d"], 6: []}
