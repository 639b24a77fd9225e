"""Operators of the user's own: what they are given, what becomes of what they submit, and of their state."""

from __future__ import annotations

import dataclasses
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.stages import PATHS, Stage, Tables, cut, cuts, dealings, run_batches

import riprap as rr
from riprap.expressions import parse_schema
from riprap.graph.graph import Graph
from riprap.operators.custom import KEPT
from riprap.operators.permits import Permits

SCHEMA = parse_schema("k string, v int")
ROW = st.fixed_dictionaries({"k": st.sampled_from(["a", "b", None]), "v": st.integers(0, 5)})
ROWS = st.lists(ROW, max_size=25)
Rows = list[dict[str, Any]]


def abandon_all() -> None:
    """Forget the instances that wait in this process, as if it were another."""
    for instance in KEPT.instances.values():
        instance.permits.abandon()
    KEPT.instances.clear()


@pytest.fixture(autouse=True)
def no_instances() -> Iterator[None]:
    yield
    abandon_all()


def source_app() -> tuple[rr.Application, rr.Stream]:
    app = rr.Application("custom")
    return app, app.source("source", rr.rows(SCHEMA.empty_table()))


def table_of(*values: int, k: str = "a") -> pa.Table:
    return pa.Table.from_pylist([{"k": k, "v": v} for v in values], SCHEMA)


def feed_all(
    stage: Stage, batches: Sequence[Tables], fresh: Callable[[], bool] = lambda: False
) -> dict[str, Rows]:
    """Run batches, before some of which all instances are forgotten; return the rows that reached each sink."""
    found: dict[str, Rows] = {}
    for tables in batches:
        if fresh():
            abandon_all()
        for sink, rows in stage.feed(tables).items():
            found.setdefault(sink, []).extend(rows)
    return found


@dataclass
class Seen:
    count: int = 0
    by_key: dict[str | None, int] = field(default_factory=dict)


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
        told = pa.record_batch({"port": pa.array([port], pa.int32()), "v": pa.array([v.to_pylist()])})
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


@dataclass
class Inner:
    name: str = ""
    values: list[float] = field(default_factory=list)


@dataclass
class Everything:
    number: float = 0.5
    text: str = ""
    raw: bytes = b""
    array: np.ndarray = field(default_factory=lambda: np.zeros((2, 2)))
    table: pa.Table = field(default_factory=lambda: pa.table({"v": pa.array([], pa.int32())}))
    inner: dict[str, Inner] = field(default_factory=dict)
    seen: set[tuple[str, int]] = field(default_factory=set)


class Keeper(rr.CustomOperator):
    state: Everything

    def process(self, port: Any, batch: pa.RecordBatch) -> None:
        state = self.state
        state.number += batch.num_rows
        state.text += "x" * batch.num_rows
        state.raw += bytes(batch.column("v").to_pylist())
        state.array[batch.num_rows % 2] += 1
        state.table = pa.concat_tables([state.table, pa.table({"v": batch.column("v")})])
        state.inner.setdefault("i", Inner("i")).values.append(float(batch.num_rows))
        state.seen |= set(zip(batch.column("k").to_pylist(), batch.column("v").to_pylist(), strict=True))
        told = f"{state.number} {state.text} {state.raw!r} {state.array.tolist()} {state.table.column('v').to_pylist()}"
        self.submit({"told": f"{told} {state.inner['i']} {sorted(state.seen)}"})


def keeper(made_by: type[rr.CustomOperator] = Keeper, **options: Any) -> rr.Application:
    app, source = source_app()
    app.sink("out", app.custom("it", made_by, source, schema="told string", **options), rr.memory())
    return app


@pytest.mark.parametrize("fresh", [False, True])
def test_a_declared_state_is_saved_whatever_is_in_it(tmp_path: Path, fresh: bool) -> None:
    batches = [
        {"source": table_of(1, 2)},
        {"source": table_of(3)},
        {"source": table_of()},
        {"source": table_of(4, 2)},
    ]

    got = feed_all(Stage(keeper(), tmp_path), batches, lambda: fresh)["out"]

    assert got[-1]["told"] == (
        "5.5 xxxxx b'\\x01\\x02\\x03\\x04\\x02' [[2.0, 2.0], [1.0, 1.0]] [1, 2, 3, 4, 2] "
        "Inner(name='i', values=[2.0, 1.0, 2.0]) [('a', 1), ('a', 2), ('a', 3), ('a', 4)]"
    )
    assert len(got) == 3


def test_the_dataclasses_of_a_state_need_not_be_importable(tmp_path: Path) -> None:
    # So are those of a program's main module, to the processes that Spark starts.
    part = dataclasses.make_dataclass("Part", [("n", int, 0)])
    whole = dataclasses.make_dataclass("Whole", [("parts", list[part], field(default_factory=list))])

    class Parts(rr.CustomOperator):
        def on_tuple(self, port: Any, tuple: dict[str, Any]) -> None:
            self.state.parts.append(part(tuple["v"]))  # type: ignore[attr-defined]
            self.submit({"told": str(sum(p.n for p in self.state.parts))})  # type: ignore[attr-defined]

    Parts.__annotations__ = {"state": whole}

    got = feed_all(
        Stage(keeper(Parts), tmp_path), [{"source": table_of(1, 2)}, {"source": table_of(3)}], lambda: True
    )

    assert [row["told"] for row in got["out"]] == ["1", "3", "6"]


CALLS: list[str] = []


class Careful(rr.CustomOperator):
    """Saves its state itself, and notes what is asked of it."""

    def __init__(self) -> None:
        CALLS.append("made")
        self.total = 0

    def prepare(self) -> None:
        CALLS.append(f"prepare {self.total}")

    def reset(self, saved: Any) -> None:
        CALLS.append(f"reset {saved}")
        self.total = saved["total"]

    def reset_to_initial_state(self) -> None:
        CALLS.append("reset_to_initial_state")

    def on_tuple(self, port: Any, tuple: dict[str, Any]) -> None:
        self.total += 100 // tuple["v"]

    def drain(self) -> None:
        CALLS.append("drain")
        self.submit({"told": str(self.total)})

    def checkpoint(self) -> Any:
        CALLS.append("checkpoint")
        return {"total": self.total}


def calls() -> list[str]:
    found = list(CALLS)
    CALLS.clear()
    return found


def test_the_life_of_an_instance(tmp_path: Path) -> None:
    calls()
    stage = Stage(keeper(Careful), tmp_path)

    stage.feed({"source": table_of()})
    assert calls() == []
    stage.feed({"source": table_of(1, 2)})
    assert calls() == ["made", "reset_to_initial_state", "prepare 0", "drain", "checkpoint"]
    assert stage.feed({"source": table_of(4)})["out"] == [{"told": "175"}]
    assert calls() == ["drain", "checkpoint"]
    abandon_all()
    assert stage.feed({"source": table_of(5)})["out"] == [{"told": "195"}]
    assert calls() == ["made", "reset {'total': 175}", "prepare 175", "drain", "checkpoint"]


def test_a_repeated_batch_begins_from_the_state_before_it(tmp_path: Path) -> None:
    calls()
    stage = Stage(keeper(Careful), tmp_path)
    stage.feed({"source": table_of(1)})
    element = stage.elements[stage.plan.name]
    before = element.record
    first = stage.feed({"source": table_of(2)})["out"]
    element.record = before
    calls()

    # The instance at hand has seen the batch already: it must not see it again.
    again = stage.feed({"source": table_of(2)})["out"]

    assert first == again == [{"told": "150"}]
    assert calls()[:2] == ["made", "reset {'total': 100}"]


def test_a_failure_names_the_tuple_and_leaves_nothing_behind(tmp_path: Path) -> None:
    stage = Stage(keeper(Careful), tmp_path)
    stage.feed({"source": table_of(1, 2)})

    with pytest.raises(rr.OperatorError) as caught:
        stage.feed({"source": table_of(1, 2, 0, 3, 0)})

    assert "Custom 'it'" in str(caught.value)
    assert "failed at position 4 of source 'source': ZeroDivisionError" in str(caught.value)
    assert stage.feed({"source": table_of(4)})["out"] == [{"told": "175"}]


class Alert(rr.CustomOperator):
    """Puts out values above a threshold; the control port raises it."""

    state: Seen

    def on_tuple(self, port: Any, tuple: dict[str, Any]) -> None:
        if port == "control":
            self.state.count = max(self.state.count, tuple["v"])
        elif tuple["v"] > self.state.count:
            self.submit(tuple)


def loop_app() -> rr.Application:
    app, source = source_app()
    feedback = app.loop("feedback", "k string, v int")
    high = app.custom("high", Alert, source, schema="k string, v int", control=feedback)
    app.close(feedback, app.functor("raised", high, where="k is not null", select="k, v"))
    app.sink("out", high, rr.memory())
    return app


@settings(max_examples=40, deadline=None)
@given(data=st.data(), rows=ROWS)
def test_control_tuples_are_all_applied_before_the_batch_closes(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, rows: Rows
) -> None:
    ends = data.draw(cuts(len(rows)))
    stage = Stage(loop_app(), tmp_path_factory.mktemp("stage"))

    got = feed_all(stage, cut(pa.Table.from_pylist(rows, SCHEMA), ends), lambda: data.draw(st.booleans()))

    threshold, wanted = 0, []
    for low, high in zip([0, *ends], ends, strict=False):
        made = [row for row in rows[low:high] if row["v"] > threshold]
        threshold = max([threshold, *(row["v"] for row in made if row["k"] is not None)])
        wanted += made
    assert got["out"] == wanted


def test_a_control_port_may_read_a_stream_of_its_own_and_cannot_submit(tmp_path: Path) -> None:
    app = rr.Application("custom")
    source = app.source("source", rr.rows(SCHEMA.empty_table()))
    orders = app.source("orders", rr.rows(SCHEMA.empty_table()))

    class Loud(Alert):
        def on_tuple(self, port: Any, tuple: dict[str, Any]) -> None:
            super().on_tuple(port, tuple)
            if tuple["v"] == 9:
                self.submit(tuple)

    app.sink("out", app.custom("high", Loud, source, schema="k string, v int", control=orders), rr.memory())
    stage = Stage(app, tmp_path)

    assert stage.feed({"source": table_of(1, 5), "orders": table_of(3)})["out"] == [
        {"k": "a", "v": v} for v in (1, 5)
    ]
    assert stage.feed({"source": table_of(1, 5), "orders": table_of()})["out"] == [{"k": "a", "v": 5}]
    with pytest.raises(rr.OperatorError, match=r"failed at position 2 of source 'orders': .*control port"):
        stage.feed({"source": table_of(), "orders": table_of(1, 9, 2)})


def test_a_circle_through_a_control_port_is_a_graph() -> None:
    graph = loop_app().graph()

    assert graph["high"].control == ("raised",)
    assert [o.name for o in graph] == ["source", "high", "raised", "out"]


def test_a_circle_through_a_data_port_is_refused() -> None:
    app, source = source_app()
    feedback = app.loop("feedback", "k string, v int")
    both = app.union("both", source, feedback)
    app.close(feedback, app.functor("again", both, where="v > 1"))
    app.sink("out", both, rr.memory())

    with pytest.raises(rr.GraphError):
        app.graph()

    operators = list(loop_app().graph())
    high = next(o for o in operators if o.name == "high")
    circular = dataclasses.replace(high, ports=((*high.ports[0], "raised"),), control=())
    with pytest.raises(rr.GraphError, match="run in a circle: .*Only a control port may close one"):
        Graph.of("circle", [circular if o is high else o for o in operators])


class Helper(rr.CustomOperator):
    """Lets a thread do the work, and waits for it when drained."""

    state: Seen

    def __init__(self, fails: str = "") -> None:
        self.fails = fails
        self.work: queue.Queue[dict[str, Any]] = queue.Queue()

    def prepare(self) -> None:
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def on_tuple(self, port: Any, tuple: dict[str, Any]) -> None:
        self.work.put(tuple)

    def drain(self) -> None:
        self.work.join()

    def run(self) -> None:
        try:
            while True:
                with self.permit():
                    try:
                        tuple = self.work.get(timeout=0.01)
                    except queue.Empty:
                        continue
                    try:
                        self.do(tuple)
                    finally:
                        self.work.task_done()
        except (rr.Abandoned, ZeroDivisionError, RuntimeError):
            return

    def do(self, tuple: dict[str, Any]) -> None:
        if self.fails == "by itself" and tuple["v"] == 3:
            raise ZeroDivisionError("three")
        with self.permit():
            self.state.count += tuple["v"]
            self.submit({"told": f"{tuple['v']} makes {self.state.count}"})


def threads_of_instances() -> list[threading.Thread]:
    return [instance._user.thread for instance in KEPT.instances.values()]  # type: ignore[attr-defined]


def test_threads_with_permits_change_state_and_submit(tmp_path: Path) -> None:
    stage = Stage(keeper(Helper), tmp_path)

    first = stage.feed({"source": table_of(1, 2, 3)})["out"]
    (thread,) = threads_of_instances()
    second = stage.feed({"source": table_of(4)})["out"]

    assert [row["told"] for row in first] == ["1 makes 1", "2 makes 3", "3 makes 6"]
    assert [row["told"] for row in second] == ["4 makes 10"]
    assert threads_of_instances() == [thread]

    abandon_all()
    thread.join(10)
    assert not thread.is_alive()
    third = stage.feed({"source": table_of(5)})["out"]
    assert [row["told"] for row in third] == ["5 makes 15"]


def test_a_thread_that_fails_fails_the_batch(tmp_path: Path) -> None:
    stage = Stage(keeper(Helper, params={"fails": "by itself"}), tmp_path)

    with pytest.raises(
        rr.OperatorError, match=r"Custom 'it' .* failed in a thread of its own: ZeroDivisionError: three"
    ):
        stage.feed({"source": table_of(1, 3)})
    assert KEPT.instances == {}


class Thief(rr.CustomOperator):
    """Submits from a thread without a permit."""

    def process(self, port: Any, batch: pa.RecordBatch) -> None:
        caught: list[Exception] = []

        def steal() -> None:
            try:
                self.submit({"told": "stolen"})
            except RuntimeError as error:
                caught.append(error)

        thread = threading.Thread(target=steal)
        thread.start()
        thread.join()
        assert "without a permit" in str(caught[0])


def test_a_thread_without_a_permit_cannot_submit(tmp_path: Path) -> None:
    with pytest.raises(rr.OperatorError, match=r"in a thread of its own: RuntimeError: .*without a permit"):
        Stage(keeper(Thief, stateless=True), tmp_path).feed({"source": table_of(1)})


def test_permits_wait_while_closed_and_are_waited_for() -> None:
    permits = Permits()
    got, give_back, done = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        with permits.permit():
            got.set()
            give_back.wait(10)
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    assert not got.wait(0.05)
    permits.open()
    assert got.wait(10)
    assert not permits.close(patience=0.05)
    give_back.set()
    assert permits.close(patience=10)
    assert done.wait(10)
    permits.abandon()
    with pytest.raises(rr.Abandoned), permits.permit():
        pass
    thread.join()


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

    got = run_batches(punctuation_app(Marking if own else Passing, not own), batches, path=None)

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

    got = run_batches(app, batches, buckets=3, tasks=data.draw(dealings(batches, 3)), path=data.draw(PATHS))

    sums_so_far, wanted = dict[Any, int](), []
    for row in rows:
        sums_so_far[row["k"]] = sums_so_far.get(row["k"], 0) + row["v"]
        wanted.append({"k": row["k"], "s": 2 * sums_so_far[row["k"]]})
    assert got == wanted
    assert "made" not in CALLS[1:]


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
    "a missing column": ({"what": {}}, "submitted to output 'it': column 'told' is missing. It has: told"),
    "another column": ({"what": {"told": "x", "old": 1}}, "there is no column 'old'. It has: told"),
    "a batch of another type": (
        {"what": pa.record_batch({"told": [1]})},
        "submitted to output 'it': column 'told' is string, and what came is bigint. Cast it",
    ),
    "a batch without a column": ({"what": pa.table({"x": [1]})}, "column 'told' is missing"),
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
        Stage(keeper(Wrong, params=params, stateless=True), tmp_path).feed({"source": table_of(1, 2, 3)})

    assert "Custom 'it'" in str(caught.value)
    assert "failed at position 2 of source 'source'" in str(caught.value)
    assert said in str(caught.value)


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


class Twice(Careful):
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
    "a checkpoint of none": (adding(Careful, stateless=True), "Careful is stateless, and has state"),
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


def test_the_layout_says_what_is_saved() -> None:
    layout = keeper().graph()["it"].layout({})

    assert layout.startswith("Everything: number float, text str")
    assert "Inner: name str, values list[float]" in layout
    assert keeper(Careful).graph()["it"].layout({}) == "what checkpoint() returns"
