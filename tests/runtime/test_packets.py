"""Packets: every tuple reaches the task of its bucket, whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import riprap as rr
from riprap.compiler import Plan, compile_graph
from riprap.operators.arrival import Rows
from riprap.runtime.packets import labels, pack, spark_hash, unpack
from riprap.runtime.task import bucket_tasks
from riprap.state.hashing import first_hash, hash_arrays


def plan_of(buckets: int, tasks: int, *, keyed: bool = True) -> Plan:
    app = rr.Application("packed")
    left = app.source("left", rr.rows([], "k string, v bigint"))
    right = app.source("right", rr.rows([], "v bigint, k string"))
    if keyed:
        windows = (rr.sliding(tuples=1), rr.sliding(tuples=1))
        app.sink(
            "out",
            app.join("both", left, right, by="k", windows=windows, select="left.v as lv, right.v as rv"),
            rr.memory(),
        )
    else:
        app.sink("one", left, rr.memory())
        app.sink("two", right, rr.memory())
    return compile_graph(app.graph(), buckets=buckets, tasks=tasks).plans[0]


def rows_of(data: list[tuple[str | None, int]], *, encoded: bool = False) -> Rows:
    key = pa.array([k for k, _ in data], pa.string())
    columns = {
        "k": key.dictionary_encode() if encoded else key,
        "v": pa.array([v for _, v in data], pa.int64()),
    }
    return Rows(columns, np.array([10 * n for n in range(len(data))], np.int64))


TUPLES = st.lists(st.tuples(st.sampled_from(["a", "b", "c", "d", "", None]), st.integers(0, 99)), max_size=30)


def as_tuples(rows: Rows) -> list[tuple[int, Any, Any]]:
    values = {n: c.to_pylist() for n, c in rows.columns.items()}
    return sorted(zip(rows.position.tolist(), values["k"], values["v"], strict=True))


@settings(max_examples=60, deadline=None)
@given(
    sides=st.tuples(TUPLES, TUPLES),
    encoded=st.booleans(),
    buckets=st.integers(1, 6),
    data=st.data(),
    keyed=st.booleans(),
)
def test_tuples_come_out_as_they_went_in(
    sides: tuple[Any, Any], encoded: bool, buckets: int, data: st.DataObject, keyed: bool
) -> None:
    plan = plan_of(buckets, data.draw(st.integers(1, buckets)), keyed=keyed)
    sent = [rows_of(side, encoded=encoded) for side in sides]

    packets = [packet for number, rows in enumerate(sent) for packet in pack(plan, number, rows)]
    received = unpack(plan, data.draw(st.permutations(packets)))

    assert [as_tuples(received[name]) for name in ("left", "right")] == [as_tuples(rows) for rows in sent]


@settings(max_examples=40, deadline=None)
@given(tuples=TUPLES, buckets=st.integers(1, 6), data=st.data())
def test_a_packet_holds_one_tasks_tuples_and_says_which(
    tuples: list[Any], buckets: int, data: st.DataObject
) -> None:
    plan = plan_of(buckets, data.draw(st.integers(1, buckets)))

    for packet in pack(plan, 0, rows_of(tuples)):
        (row,) = packet.to_pylist()
        inside = unpack(plan, [packet])["left"]
        task = labels(plan.tasks).index(row["label"])
        assert set(bucket_tasks(plan, hash_arrays([inside.columns["k"]])).tolist()) == {task}
        assert (row["source"], row["rows"]) == (0, inside.rows)
        assert (row["first"], row["last"]) == (inside.position.min(), inside.position.max())


def test_no_tuples_make_no_packet_and_come_out_as_none() -> None:
    plan = plan_of(4, 2)

    assert list(pack(plan, 0, rows_of([]))) == []
    empty = unpack(plan, [])
    assert {name: rows.rows for name, rows in empty.items()} == {"left": 0, "right": 0}
    assert set(empty["left"].columns) == {"k", "v"}


def test_a_task_has_the_buckets_of_its_span() -> None:
    plan = plan_of(7, 3)
    hashes = np.array([first_hash(bucket, 7) for bucket in range(7)])

    tasks = bucket_tasks(plan, hashes)

    assert tasks.tolist() == [0, 0, 1, 1, 2, 2, 2]
    assert [plan.span(task) for task in range(3)] == [(0, 2), (2, 4), (4, 7)]


@pytest.mark.parametrize(("value", "hashed"), [(0, 933211791), (1, -559580957), (42, 29417773)])
def test_spark_hashes_ints_like_this(value: int, hashed: int) -> None:
    assert spark_hash(value) == hashed


@given(st.integers(1, 200))
def test_each_label_lands_in_its_own_partition(tasks: int) -> None:
    assert [spark_hash(label) % tasks for label in labels(tasks)] == list(range(tasks))
