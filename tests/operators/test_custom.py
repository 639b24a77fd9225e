"""Operators of the user's own: what they are given, and what becomes of what they submit."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.customs import ROWS, SCHEMA, Rows, Seen, feed_all, source_app, table_of, telling
from tests.stages import Stage, cut, cuts, dealings, run_batches

import riprap as rr
from riprap.runtime.failures import as_riprap_error
from riprap.testing import forget_instances


@pytest.fixture(autouse=True)
def no_instances() -> Iterator[None]:
    yield
    forget_instances()


class Numbering(rr.CustomOperator):
    """Numbers the tuples of each port and key, and submits each as often as its value says, to one output or both."""

    state: Seen

    def __init__(self, most: int = 3) -> None:
        self.most = most

    def on_tuple(self, port: Any, tuple: dict[str, Any]) -> None:
        self.state.count += 1
        self.state.by_key[tuple["k"]] = self.state.by_key.get(tuple["k"], 0) + 1
        for number in range(min(tuple["v"], self.most)):
            row = {
                "n": self.state.count,
                "port": port,
                "k": tuple["k"],
                "of_k": self.state.by_key[tuple["k"]],
            }
            self.submit(row, number % 2)


def numbered(rows: Rows, most: int) -> list[tuple[int, dict[str, Any]]]:
    """Return (output, row) pairs as Numbering submits them; a row of even value goes to both ports."""
    out, count, by_key = [], 0, dict[str | None, int]()
    for row in rows:
        for port in (0, 1) if row["v"] % 2 == 0 else (1,):
            count += 1
            by_key[row["k"]] = by_key.get(row["k"], 0) + 1
            made = {"n": count, "port": port, "k": row["k"], "of_k": by_key[row["k"]]}
            out += [(number % 2, made) for number in range(min(row["v"], most))]
    return out


def numbering() -> rr.Application:
    app, source = source_app()
    even = app.functor("even", source, where="v % 2 = 0")
    schema = "n int, port int, k string, of_k int"
    outputs = app.custom(
        "it", Numbering, even, source, outputs={"x": schema, "y": schema}, params={"most": 4}
    )
    app.sink("xs", outputs["x"], rr.memory())
    app.sink("both", app.union("merged", outputs["y"], outputs["x"]), rr.memory())
    return app


@settings(max_examples=40, deadline=None)
@given(data=st.data(), rows=ROWS)
def test_tuples_come_in_order_and_state_survives_batches(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, rows: Rows
) -> None:
    batches = cut(pa.Table.from_pylist(rows, SCHEMA), data.draw(cuts(len(rows))))
    stage = Stage(numbering(), tmp_path_factory.mktemp("stage"))

    got = feed_all(stage, batches, lambda: data.draw(st.booleans()))

    wanted = numbered(rows, 4)
    assert got["xs"] == [row for output, row in wanted if output == 0]
    # Brought together again, the outputs are in the order of submission.
    assert got["both"] == [row for _, row in wanted]


class Batched(rr.CustomOperator):
    """Adds up values batch by batch; tells what it was called with."""

    state: Seen

    def process(self, port: Any, batch: pa.RecordBatch) -> None:
        v = batch.column("v")
        sums = pc.cumulative_sum(v.cast(pa.int64()), start=self.state.count)
        self.state.count = sums[-1].as_py()
        odd = np.flatnonzero(v.to_numpy() % 2)
        told = pa.record_batch(
            {"port": pa.array([port], pa.int32()), "v": pa.array([v.to_pylist()], pa.list_(pa.int32()))}
        )
        self.submit(told, "calls")
        self.submit(pa.table({"total": sums.take(odd), "v": v.take(odd)}), "sums", rows=odd)


def batched(ports: int) -> rr.Application:
    app, source = source_app()
    streams = (
        [source]
        if ports == 1
        else [app.functor(f"p{i}", source, where=f"v % {ports} = {i}") for i in range(ports)]
    )
    calls, sums = app.custom(
        "it", Batched, *streams, outputs={"calls": "port int, v array<int>", "sums": "v int, total bigint"}
    ).values()
    app.sink("called", calls, rr.memory())
    app.sink("summed", sums, rr.memory())
    # What a whole batch is put next to shows which tuple it derives from.
    tagged = app.functor("tagged", source, select="v, cast(0 as bigint) as total")
    app.sink("among", app.union("all", tagged, sums), rr.memory())
    return app


@settings(max_examples=40, deadline=None)
@given(data=st.data(), rows=ROWS, ports=st.integers(1, 3))
def test_batches_are_runs_of_consecutive_tuples_of_one_port(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, rows: Rows, ports: int
) -> None:
    ends = data.draw(cuts(len(rows)))
    stage = Stage(batched(ports), tmp_path_factory.mktemp("stage"))

    got = feed_all(stage, cut(pa.Table.from_pylist(rows, SCHEMA), ends), lambda: data.draw(st.booleans()))

    calls: Rows = []
    for low, high in zip([0, *ends], ends, strict=False):
        for row in rows[low:high]:
            port = row["v"] % ports
            if not calls or calls[-1]["port"] != port or calls[-1]["batch"] != high:
                calls.append({"port": port, "batch": high, "v": []})
            calls[-1]["v"].append(row["v"])
        for call in calls:
            call["batch"] = -1
    assert got["called"] == [{"port": call["port"], "v": call["v"]} for call in calls]
    total, sums, among = 0, [], []
    for row in rows:
        total += row["v"]
        among.append({"v": row["v"], "total": 0})
        if row["v"] % 2:
            sums.append({"v": row["v"], "total": total})
            among.append(sums[-1])
    assert got["summed"] == sums
    assert got["among"] == among


class Marking(rr.CustomOperator):
    """Puts a punctuation after every tuple of value 2, and tells of those that come in."""

    state: Seen

    def on_tuple(self, port: Any, tuple: dict[str, Any]) -> None:
        self.submit(tuple)
        if tuple["v"] == 2:
            self.punctuate()

    def on_punctuation(self, port: int) -> None:
        self.state.count += 1
        self.submit({"k": "mark", "v": self.state.count})
        self.punctuate(0)
        self.submit({"k": "after", "v": self.state.count})


class Passing(rr.CustomOperator):
    def process(self, port: Any, batch: pa.RecordBatch) -> None:
        self.submit(batch, rows=range(batch.num_rows))


def punctuation_app(
    made_by: type[rr.CustomOperator], stateless: bool, by: str | tuple[()] = ()
) -> rr.Application:
    app, source = source_app()
    marked = app.punctor("marked", source, where="v = 1")
    out = app.custom("it", made_by, marked, schema="k string, v int", stateless=stateless)
    window = rr.tumbling(punctuation=True)
    select = "count(*) as n, min(k) as low, max(k) as high"
    app.sink("out", app.aggregate("counts", out, by=by, window=window, select=select), rr.memory())
    return app


@settings(max_examples=30, deadline=None)
@given(data=st.data(), rows=ROWS, own=st.booleans())
def test_punctuations_come_and_go_in_place(data: st.DataObject, rows: Rows, own: bool) -> None:
    batches = cut(pa.Table.from_pylist(rows, SCHEMA), data.draw(cuts(len(rows))))

    got = run_batches(punctuation_app(Marking if own else Passing, not own), batches)

    windows: list[list[str | None]] = [[]]
    marks = 0
    for row in rows:
        windows[-1].append(row["k"])
        if row["v"] == 1 and own:
            marks += 1
            windows[-1].append("mark")
            windows.append(["after"])
        elif row["v"] == 1 or (row["v"] == 2 and own):
            windows.append([])
    assert [(row["n"], row["low"], row["high"]) for row in got if row["n"]] == [
        (len(w), min(filter(None, w), default=None), max(filter(None, w), default=None))
        for w in windows[:-1]
        if w
    ]


@settings(max_examples=20, deadline=None)
@given(data=st.data(), rows=ROWS)
def test_a_stateless_operator_runs_in_any_number_of_tasks(data: st.DataObject, rows: Rows) -> None:
    app, source = source_app()
    window = rr.sliding(tuples=100)
    sums = app.aggregate("sums", source, by="k", window=window, select="sum(v) as s")
    app.sink(
        "out", app.custom("it", Doubling, sums, schema="k string, s bigint", stateless=True), rr.memory()
    )
    batches = cut(pa.Table.from_pylist(rows, SCHEMA), data.draw(cuts(len(rows))))

    got = run_batches(app, batches, buckets=3, tasks=data.draw(dealings(batches, 3)))

    sums_so_far, wanted = dict[Any, int](), []
    for row in rows:
        sums_so_far[row["k"]] = sums_so_far.get(row["k"], 0) + row["v"]
        wanted.append({"k": row["k"], "s": 2 * sums_so_far[row["k"]]})
    assert got == wanted


class Doubling(rr.CustomOperator):
    def process(self, port: Any, batch: pa.RecordBatch) -> None:
        s = pc.multiply(batch.column("s"), 2)
        self.submit(pa.record_batch({"s": s, "k": batch.column("k").dictionary_encode()}), rows=range(len(s)))


class Wrong(rr.CustomOperator):
    """Submits what its parameter says."""

    def __init__(self, what: Any, **options: Any) -> None:
        self.what, self.options = what, options

    def process(self, port: Any, batch: pa.RecordBatch) -> None:
        if batch.column("v")[-1].as_py() == 3:
            self.submit(self.what, **self.options)


A_ROW = {"told": "x"}
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a value of another type": (
        {"what": {"told": 3}},
        "submitted to output 'it': column 'told' is string, and 3 is not",
    ),
    "a missing column": (
        {"what": {}},
        "submitted to output 'it': 'told' is missing. Submit the columns told; what came has none",
    ),
    "another column": (
        {"what": {"told": "x", "old": 1}},
        "there is no column 'old'. Submit the columns told; what came has told, old",
    ),
    "a batch of another type": (
        {"what": pa.record_batch({"told": [1]})},
        "submitted to output 'it': column 'told' is string, and what came is bigint. Cast it",
    ),
    "a batch without a column": (
        {"what": pa.table({"x": [1]})},
        "'told' is missing and there is no column 'x'. Submit",
    ),
    "something else": ({"what": "x"}, "a str, not a mapping, a pyarrow.RecordBatch or a pyarrow.Table"),
    "an unknown output": (
        {"what": A_ROW, "output": "other"},
        "there is no output 'other'; there are: 0 'it'",
    ),
    "an unknown number": ({"what": A_ROW, "output": 1}, "there is no output 1; there are: 0 'it'"),
    "rows out of reach": ({"what": A_ROW, "rows": [99]}, "rows= are rows of the batch"),
    "too many rows": (
        {"what": A_ROW, "rows": [0, 1]},
        "rows= names a row for each of the 1 tuples submitted",
    ),
    "rows that fall": (
        {"what": pa.table({"told": ["a", "b"]}), "rows": [1, 0]},
        "rows= are rows of the batch",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_submitted_is_checked(tmp_path: Path, case: str) -> None:
    params, said = WRONG[case]

    with pytest.raises(rr.OperatorError) as caught:
        Stage(telling(Wrong, params=params, stateless=True), tmp_path).feed({"source": table_of(1, 2, 3)})

    assert "Custom 'it'" in str(caught.value)
    assert "failed at position 2 of source 'source'" in str(caught.value)
    assert said in str(caught.value)


def fail_deep_inside(how: str) -> None:
    if how == "exit":
        sys.exit(3)
    raise ValueError(f"first line\n\nthird line, of {how}")


class Failing(rr.CustomOperator):
    def __init__(self, how: str) -> None:
        self.how = how

    def on_tuple(self, port: Any, tuple: dict[str, Any]) -> None:
        fail_deep_inside(self.how)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("raise", "ValueError: first line\nthird line, of raise"),
        ("exit", "it called sys.exit(3), which would end Spark's worker. Raise an error instead"),
    ],
)
def test_a_failure_of_the_users_code_names_its_lines(tmp_path: Path, how: str, said: str) -> None:
    with pytest.raises(rr.OperatorError) as caught:
        Stage(telling(Failing, params={"how": how}, stateless=True), tmp_path).feed({"source": table_of(1)})

    *before, outer, inner = str(caught.value).splitlines()
    assert "\n".join(before).endswith(f"failed at position 0 of source 'source': {said}")
    assert outer == f"    {__file__}:{_line_of(Failing.on_tuple)} in on_tuple: fail_deep_inside(self.how)"
    assert inner.startswith(f"    {__file__}:")
    assert " in fail_deep_inside: " in inner
    # On its way through the JVM an error is text, in which it is found again.
    text = (
        f"Traceback ...\nriprap.errors.OperatorError: {caught.value}\n\n\tat org.apache.spark.Some(it.java:1)"
    )
    assert str(as_riprap_error(RuntimeError(text))) == str(caught.value)


def _line_of(function: Any) -> int:
    return int(function.__code__.co_firstlineno) + 1


@dataclass
class Locked:
    count: int = 0
    lock: Any = None


class Locking(rr.CustomOperator):
    state: Locked

    def on_tuple(self, port: Any, tuple: dict[str, Any]) -> None:
        self.state.lock = threading.Lock()


def test_state_that_cannot_be_saved_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        rr.OperatorError, match=r"'it' .* self\.state\.lock cannot be saved: .* in prepare\(\)"
    ):
        Stage(telling(Locking), tmp_path).feed({"source": table_of(1)})


def test_what_was_submitted_may_be_used_again(tmp_path: Path) -> None:
    class Reusing(rr.CustomOperator):
        def on_tuple(self, port: Any, tuple: dict[str, Any]) -> None:
            row: dict[str, Any] = {"v": [tuple["v"]]}
            self.submit(row)
            row["v"].append(0)
            row["v"] = None

    app, source = source_app()
    app.sink("out", app.custom("it", Reusing, source, schema="v array<int>", stateless=True), rr.memory())

    assert Stage(app, tmp_path).feed({"source": table_of(1, 2)})["out"] == [{"v": [1]}, {"v": [2]}]


class Needs(rr.CustomOperator):
    state: Seen

    def __init__(self, size: int) -> None: ...

    def process(self, port: Any, batch: pa.RecordBatch) -> None: ...


class Neither(rr.CustomOperator):
    state: Seen


class OneHalf(Passing):
    def checkpoint(self) -> Any: ...


class Saving(OneHalf):
    def reset(self, saved: Any) -> None: ...


class Twice(Saving):
    state: Seen


class Plain(Passing):
    state: int


class Unfounded(Passing):
    state: Nowhere  # type: ignore[name-defined]  # noqa: F821


@dataclass
class NoDefault:
    size: int


class Begins(Passing):
    state: NoDefault


Build = Callable[[rr.Application, rr.Stream], object]


def adding(made_by: Any, **options: Any) -> Build:
    return lambda app, s: app.custom("it", made_by, s, **{"schema": "v int", **options})


REFUSALS: dict[str, tuple[Build, str]] = {
    "no class": (
        adding(dict),
        "it is made by <class 'dict'>. Give it a class derived from rr.CustomOperator",
    ),
    "nothing to do": (adding(Neither), "Neither has both or neither of process and on_tuple"),
    "no params": (adding(Needs), "Needs cannot be made with params={}: missing a required argument: 'size'"),
    "no state": (adding(Passing), "Passing saves nothing. Declare its state"),
    "half a state": (adding(OneHalf), "OneHalf has one of checkpoint and reset"),
    "two states": (adding(Twice), "Twice declares state and has a checkpoint too"),
    "a state of none": (adding(Numbering, stateless=True), "Numbering is stateless, and has state"),
    "a checkpoint of none": (adding(Saving, stateless=True), "Saving is stateless, and has state"),
    "punctuations in many tasks": (
        adding(type("Heeding", (Passing,), {"on_punctuation": lambda self, port: None}), stateless=True),
        "Heeding is stateless, and has an on_punctuation",
    ),
    "a plain state": (adding(Plain), "Plain.state is <class 'int'>. Declare a dataclass"),
    "a state nobody finds": (
        adding(Unfounded),
        "the type of Unfounded.state cannot be found: name 'Nowhere'",
    ),
    "a state without defaults": (adding(Begins), "field 'size' of NoDefault has no default"),
    "no output": (adding(Numbering, schema=None), "it takes one of schema= and outputs="),
    "a wrong schema": (adding(Numbering, schema="v nothing"), "Custom 'it'"),
    "a name that is taken": (
        adding(Numbering, schema=None, outputs={"source": "v int"}),
        "its output's name 'source' is taken by Source",
    ),
    "no input": (lambda app, s: app.custom("it", Numbering, schema="v int"), "it has no input"),
    "a control port of none": (
        lambda app, s: app.custom("it", Passing, s, schema="v int", stateless=True, control=s),
        "Passing is stateless, and has a control port",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_is_refused(case: str) -> None:
    build, said = REFUSALS[case]
    app, source = source_app()

    with pytest.raises(rr.GraphError) as caught:
        build(app, source)

    assert said in str(caught.value)
    assert __file__ in str(caught.value)
