"""Cases in which a run once put out something else than its graph means, made small and kept."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.graphs.expressions import Call, Column, Literal
from tests.graphs.holding import Gate
from tests.graphs.model import Operator
from tests.graphs.pairing import Barrier, Join
from tests.graphs.program import Circumstances, Program, Source, check
from tests.graphs.routing import Custom, Functor, Lookup, Split, Union
from tests.graphs.windowed import Aggregate
from tests.stages import run_batches

import riprap as rr
from riprap.expressions import parse_schema

SCHEMA = parse_schema("at bigint, k string, j string")
MANY = Circumstances(buckets=7, tasks=(7, 3), ends=(5,))


def test_paths_of_different_length_compare_alike_in_one_element_and_in_several() -> None:
    """A tuple from a channel goes on from the path it took before; lengthened paths changed who came first."""
    app = rr.Application("kept")
    first = app.source("first", rr.rows(SCHEMA.empty_table()), ordering="at")
    second = app.source("second", rr.rows(SCHEMA.empty_table()), ordering="at")
    both = app.union("both", second, first)
    windows = (rr.sliding(tuples=0), rr.sliding(tuples=2))
    joined = app.join("joined", both, second, by="k", windows=windows, select="both.j as j")
    counted = app.functor(
        "counted", second, variables={"n": "0"}, update="n + 1 as n", select="'barrier' as j"
    )
    paired = app.barrier("paired", counted, second, select="counted.j as j")
    app.sink("out", [joined, paired], rr.memory())
    row = pa.Table.from_pylist([{"at": 2, "k": "b", "j": "join"}], SCHEMA)

    got = run_batches(app, [{"first": SCHEMA.empty_table(), "second": row}])

    assert got == [{"j": "join"}, {"j": "barrier"}]


# A row goes by two ways, each of which takes another of its columns for the key.
PAIRS = Source(
    name="in0",
    schema=(("at", "bigint"), ("k", "string"), ("j", "string")),
    rows=tuple((at, *keys) for at, keys in enumerate(zip("abcdefghij", "jihgfedcba", strict=True))),
)
AT = ("n", Column("at", "bigint"))
BY_K = Functor(name="f0", ports=(("in0",),), select=(("k", Column("k", "string")), AT))
BY_J = Functor(name="f1", ports=(("in0",),), select=(("k", Column("j", "string")), AT))
BOTH = (("left", Column("n", "bigint", 0)), ("right", Column("n", "bigint", 1)))
NEWEST = (rr.sliding(tuples=3), rr.sliding(tuples=3))


def counts(name: str, *streams: str) -> Aggregate:
    return Aggregate(
        name=name, ports=(streams,), by=("k",), window=rr.sliding(tuples=3), calls=(("n", "count", None),)
    )


@pytest.mark.parametrize(
    ("operators", "sink"),
    [
        ((counts("a2", "f0", "f1"),), ("a2",)),
        ((counts("a2", "f0"), counts("a3", "f1")), ("a2", "a3")),
        (
            (
                Join(
                    name="j2", ports=(("f0",), ("f1",)), by=("k",), windows=NEWEST, select=BOTH, outer="full"
                ),
            ),
            ("j2",),
        ),
        ((Barrier(name="b2", ports=(("f0",), ("f1",)), by=("k",), select=BOTH),), ("b2",)),
        ((Gate(name="g2", ports=(("f0",), ("f1",)), by=("k",), unacknowledged=1),), ("g2",)),
    ],
    ids=["a port", "a sink", "a join", "a barrier", "a gate"],
)
def test_tuples_of_one_row_come_in_the_order_of_their_streams_whatever_task_each_is_in(
    operators: tuple[Operator, ...], sink: tuple[str, ...]
) -> None:
    """They had the same tag, and tasks answer in any order."""
    check(Program(sources=(PAIRS,), operators=(BY_K, BY_J, *operators), sinks=(sink,)), MANY)


def test_a_column_that_is_another_one_on_each_stream_of_a_union_is_a_copy_of_neither() -> None:
    """The element was keyed by the last stream's, so tuples of the first were in tasks that did not have their key."""
    union = Union(name="u2", ports=(("f0", "f1"),))

    check(
        Program(sources=(PAIRS,), operators=(BY_K, BY_J, union, counts("a3", "u2")), sinks=(("a3",),)), MANY
    )


def test_an_element_may_read_a_stream_that_is_made_after_its_first_operator() -> None:
    """The length of such a stream's tags was looked up before it was known."""
    gate = Gate(name="g0", ports=(("in0",), ("in0",)), by=("k",), unacknowledged=1)
    echo = Custom(name="c1", ports=(("g0",),), streams=("c1x", "c1y"))
    lookup = Lookup(name="l2", ports=(("in0",),), by="j", table=(("c", 1),), value="n", missing="null")
    functor = Functor(name="f3", ports=(("c1x", "l2"),), select=(AT,))

    check(Program(sources=(PAIRS,), operators=(gate, echo, lookup, functor), sinks=(("f3",),)), MANY)


def test_elements_that_the_compiler_chose_never_feed_each_other_in_a_circle() -> None:
    """A union went into an element that fed what it read."""
    true = Call("is not null", (Column("k", "string"),), "boolean")
    gate = Gate(name="g0", ports=(("in0",), ("in0",)), unacknowledged=2)
    split = Split(name="s1", ports=(("g0",),), streams=("s1x", "s1y"), conditions=(true, true))
    pair = (("left", Column("k", "string", 0)), ("right", Column("j", "string", 1)))
    barrier = Barrier(name="b2", ports=(("g0",), ("s1x",)), by=("k",), select=pair)
    join = Join(name="j3", ports=(("in0",), ("s1y",)), by=("at",), windows=NEWEST, select=pair)
    union = Union(name="u4", ports=(("j3", "b2"),))

    check(
        Program(sources=(PAIRS,), operators=(gate, split, barrier, join, union), sinks=(("b2", "u4"),)), MANY
    )


def test_a_tick_comes_after_the_tuples_that_it_made_in_another_element() -> None:
    """It came before them where they came by channel."""
    ticks = tuple((at, at * 1000) for at in range(0, 12, 2))
    clock = Source(name="clock", schema=(("at", "bigint"), ("now", "timestamp")), rows=ticks, tick="now")
    last = ("j", "last", Column("j", "string"))
    first = Aggregate(
        name="a0",
        ports=(("in0",),),
        by=("k",),
        window=rr.tumbling(time=0.002),
        calls=(last, ("n", "count", None)),
    )
    text = Call("coalesce", (Column("j", "string"), Literal("z", "string")), "string")
    other = Functor(name="f1", ports=(("a0",),), select=(("j", text), ("n", Column("n", "bigint"))))
    second = Aggregate(
        name="a2",
        ports=(("f1",),),
        by=("j",),
        window=rr.sliding(tuples=4),
        emit=rr.every(time=0.002),
        calls=(("n", "sum", Column("n", "bigint")),),
    )

    check(Program(sources=(PAIRS, clock), operators=(first, other, second), sinks=(("a2",),)), MANY)
