"""The state of operators of the user's own: saved, restored, and changed through the control port."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.customs import ROWS, SCHEMA, Rows, Seen, feed_all, source_app, table_of, telling
from tests.stages import Stage, cut, cuts

import riprap as rr
from riprap.errors import SealError
from riprap.graph.graph import Graph
from riprap.operators.custom.instances import HELD
from riprap.operators.custom.objects import FORMAT
from riprap.runtime import task
from riprap.state.keys import encode_keys
from riprap.state.seals import KEY, read_key, seal
from riprap.state.windows import Contents, make_page
from riprap.testing import forget_instances


@pytest.fixture(autouse=True)
def no_instances() -> Iterator[None]:
    yield
    forget_instances()


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


@pytest.mark.parametrize("fresh", [False, True])
def test_a_declared_state_is_saved_whatever_is_in_it(tmp_path: Path, fresh: bool) -> None:
    batches = [
        {"source": table_of(1, 2)},
        {"source": table_of(3)},
        {"source": table_of()},
        {"source": table_of(4, 2)},
    ]

    got = feed_all(Stage(telling(Keeper), tmp_path), batches, lambda: fresh)["out"]

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
        Stage(telling(Parts), tmp_path), [{"source": table_of(1, 2)}, {"source": table_of(3)}], lambda: True
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
    stage = Stage(telling(Careful), tmp_path)

    stage.feed({"source": table_of()})
    assert calls() == []
    stage.feed({"source": table_of(1, 2)})
    assert calls() == ["made", "reset_to_initial_state", "prepare 0", "drain", "checkpoint"]
    assert stage.feed({"source": table_of(4)})["out"] == [{"told": "175"}]
    assert calls() == ["drain", "checkpoint"]
    forget_instances()
    assert stage.feed({"source": table_of(5)})["out"] == [{"told": "195"}]
    assert calls() == ["made", "reset {'total': 175}", "prepare 175", "drain", "checkpoint"]


def test_a_repeated_batch_begins_from_the_state_before_it(tmp_path: Path) -> None:
    calls()
    stage = Stage(telling(Careful), tmp_path)
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
    stage = Stage(telling(Careful), tmp_path)
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
    with pytest.raises(rr.GraphError, match=r"run in a circle: .*Only a control port may close one"):
        Graph.of("circle", [circular if o is high else o for o in operators])


def test_the_layout_says_what_is_saved() -> None:
    layout = telling(Keeper).graph()["it"].layout({})

    assert layout.startswith("Everything: number float, text str")
    assert "Inner: name str, values list[float]" in layout
    assert telling(Careful).graph()["it"].layout({}) == "what checkpoint() returns"


class Remembers(rr.CustomOperator):
    state: Inner

    def on_tuple(self, port: Any, values: dict[str, Any]) -> None:
        self.state.values.append(values["v"])
        self.submit({"told": str(self.state.values)})


class Trap:
    """What would run if it were loaded."""

    sprung = 0

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        return spring, ()


def spring() -> None:
    Trap.sprung += 1


@pytest.mark.parametrize("sealed_by", [None, b"another run's key", "another operator"])
def test_state_without_the_seal_of_the_run_is_not_loaded(
    sealed_by: bytes | str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(telling(Remembers), tmp_path)
    stage.feed({"source": table_of(1)})
    forget_instances()
    assert stage.feed({"source": table_of(2)}) == {"out": [{"told": "[1, 2]"}]}, "what is ours is taken up"

    key = read_key(tmp_path / "custom" / KEY)
    pickled = pickle.dumps({"values": Trap()})
    name = sealed_by if isinstance(sealed_by, str) else "it"
    made = seal(sealed_by if isinstance(sealed_by, bytes) else key, "object", name.encode(), pickled)
    saved = pickled if sealed_by is None else FORMAT + made + pickled
    keys, _ = encode_keys([], 0)
    held = pa.array([{"object": saved, "token": "t"}], HELD)
    (page,) = stage.record.manifests[0].pages["it/0"]
    stage.pages.write(page, make_page(keys, Contents(np.array([0, 1]), held, np.zeros((1, 1), np.int64))))
    forget_instances()
    # As in another process, which has left no pages itself.
    monkeypatch.setattr(task, "_left", task._SmallPages())

    with pytest.raises(SealError, match=r"Custom 'it' .* is not loaded: .* \(--ignore-state it\)"):
        stage.feed({"source": table_of(3)})
    assert Trap.sprung == 0
