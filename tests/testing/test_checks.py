"""Checks find what is broken, and say which promise and how; what is Riprap's own keeps its promises."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.edges import rigs
from tests.edges.sink_rigs import PostgresRig, RedisRig
from tests.pages import code_of
from tests.services.postgres import Postgres
from tests.services.redis import Redis

import riprap as rr
from riprap.faults import Corruption, Duplication, FaultModel, Lateness, Loss, Reordering
from riprap.graph.faults import Exposed
from riprap.protection import Aftermath, OperatorOutage, Protectable, Saving
from riprap.testing import (
    BrokenPromise,
    check_fault_model,
    check_operator,
    check_policy,
    check_sink,
    check_source,
    check_store,
)

NUMBERS = pa.table({"n": range(20)})


def broken(check: Callable[[], object]) -> dict[str, str]:
    """Return the promises that a check finds broken, and how."""
    with pytest.raises(BrokenPromise) as caught:
        check()
    for words, how in caught.value.broken.items():
        assert words in str(caught.value)
        assert how.splitlines()[0] in str(caught.value)
    return caught.value.broken


class DictStore(rr.Store):
    """A store in memory, to be broken."""

    def __init__(self, values: dict[str, dict[str, bytes]]) -> None:
        super().__init__("dict://")
        self.values = values

    def put(self, entry: str, values: Any) -> None:
        if values:
            self.values.setdefault(entry, {}).update({k: bytes(memoryview(v)) for k, v in values.items()})

    def get(self, entry: str, key: str) -> pa.Buffer:
        return pa.py_buffer(self.values.get(entry, {})[key])

    def keys(self, entry: str) -> list[str]:
        return sorted(self.values.get(entry, {}))

    def delete(self, entry: str, keys: Any) -> None:
        there = self.values.get(entry, {})
        for key in keys:
            there.pop(key, None)
        if not there:
            self.values.pop(entry, None)

    def entries(self) -> list[str]:
        return sorted(self.values)


class Forgetful(DictStore):
    def get(self, entry: str, key: str) -> pa.Buffer:
        return pa.py_buffer(self.values.get(entry, {}).get(key, b""))


class Unsorted(DictStore):
    def keys(self, entry: str) -> list[str]:
        return sorted(self.values.get(entry, {}), reverse=True)


class Clinging(DictStore):
    def put(self, entry: str, values: Any) -> None:
        super().put(entry, {k: v for k, v in values.items() if k not in self.values.get(entry, {})})


class Prefixed(DictStore):
    def drop(self, entry: str) -> None:
        for each in [each for each in self.values if each.startswith(entry)]:
            del self.values[each]


class Volatile(DictStore):
    def close(self) -> None:
        self.values.clear()


TORN = """
import os, pathlib, riprap as rr, pyarrow as pa
class Torn(rr.Store):
    def __init__(self, url):
        super().__init__(url)
        self.folder = pathlib.Path(url.partition("://")[2])
    def path(self, entry, key=""):
        return self.folder / entry.replace("/", "%") / key
    def put(self, entry, values):
        for key, value in values.items():
            self.path(entry).mkdir(parents=True, exist_ok=True)
            with open(self.path(entry, key), "wb", buffering=0) as file:
                for byte in memoryview(value).cast("B")[:3000]:
                    file.write(bytes([byte]))
                file.write(memoryview(value).cast("B")[3000:])
    def get(self, entry, key):
        if not self.path(entry, key).exists():
            raise KeyError(key)
        return pa.py_buffer(self.path(entry, key).read_bytes())
    def keys(self, entry):
        return sorted(os.listdir(self.path(entry))) if self.path(entry).exists() else []
    def delete(self, entry, keys):
        for key in keys:
            self.path(entry, key).unlink(missing_ok=True)
        if self.path(entry).exists() and not os.listdir(self.path(entry)):
            self.path(entry).rmdir()
    def entries(self):
        return sorted(name.replace("%", "/") for name in os.listdir(self.folder))
"""


@pytest.mark.parametrize(
    ("kind", "words", "how"),
    [
        (Forgetful, "an empty store has nothing", "get() of a key that is not there: got .*wanted KeyError"),
        (Unsorted, "values of all sizes come back", r"keys(): got \['v"),
        (Clinging, "a deleted key does not bring", "a key that was put twice: got .*b'1'"),
        (Prefixed, "entries are apart", "what is left after entry A was dropped"),
        (Volatile, "values of all sizes come back", "KeyError"),
    ],
)
def test_a_broken_store(kind: type[DictStore], words: str, how: str) -> None:
    values: dict[str, dict[str, bytes]] = {}
    found = broken(lambda: check_store(lambda: kind(values)))
    (said,) = (said for promise, said in found.items() if promise.startswith(words))
    assert re.search(how.replace("()", r"\(\)"), said), said


def test_a_store_whose_values_are_torn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torn_store.py").write_text(TORN)
    (tmp_path / "torn").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")

    found = broken(lambda: check_store(f"torn_store:Torn://{tmp_path}/torn", kills=40))

    # Readers may come upon one that is torn before its writer is killed.
    told = ("keys whose values are not what was put", "the value that every put() replaces")
    assert any(words in said for said in found.values() for words in told), found


@dataclass(frozen=True)
class ToTable(rr.Sink):
    """A sink that keeps rows in SQLite, to be broken."""

    PROMISE = rr.Promise(word="replaces")

    path: str
    heeds: bool = True
    by_run: bool = True
    threads: bool = True

    def target(self, schema: pa.Schema, run: str) -> rr.Target:
        return TableTarget(self, schema, run)


class Twice(ToTable):
    PROMISE = rr.Promise(word="repeats", why_not="what was written cannot be taken back")


class TableTarget(rr.Target):
    def __init__(self, sink: ToTable, schema: pa.Schema, run: str) -> None:
        self.sink, self.schema, self.run = sink, schema, run if sink.by_run else ""
        self.held: sqlite3.Connection | None = None

    def db(self) -> sqlite3.Connection:
        if self.held is None:
            self.held = sqlite3.connect(self.sink.path, check_same_thread=not self.sink.threads)
        return self.held

    def open(self, *, resume: bool) -> None:
        self.db().execute("create table if not exists t (run, batch, row)")

    def write(self, batch: int, table: pa.Table, *, again: bool) -> None:
        with self.db() as db:
            if again and self.sink.heeds:
                db.execute("delete from t where run = ? and batch = ?", (self.run, batch))
            rows = [(self.run, batch, json.dumps(row)) for row in table.to_pylist()]
            db.executemany("insert into t values (?, ?, ?)", rows)

    def read(self) -> pa.Table:
        query = "select row from t where run = ? order by batch, rowid"
        rows = self.db().execute(query, (self.run,)).fetchall()
        return pa.Table.from_pylist([json.loads(row) for (row,) in rows], self.schema)

    def close(self) -> None:
        if self.held is not None:
            self.held.close()
            self.held = None


def test_a_broken_sink(tmp_path: Path) -> None:
    def check(name: str, kind: type[ToTable] = ToTable, **options: Any) -> list[str]:
        return check_sink(kind(str(tmp_path / f"{name}.db"), **options))

    assert len(check("whole")) == 10
    twice = broken(lambda: check("twice", heeds=False))
    assert [*twice] == [
        "replaces: a batch that comes again is held once",
        "replaces: a batch that comes again after a crash is held once",
    ]
    assert "got 18 rows, wanted 12; the first more is {'n': 6" in next(iter(twice.values()))
    assert "runs do not touch each other's rows" in broken(lambda: check("runs", by_run=False))
    threads = broken(lambda: check("threads", threads=False))
    assert [*threads] == ["calls come from several threads, one at a time"]
    assert "ProgrammingError" in threads["calls come from several threads, one at a time"]
    # What it says of itself is all that is asked of it.
    assert "once or twice" in check("repeats", Twice, heeds=False)[-1]


class Rows(rr.Source, rr.Fetcher):
    """A source of numbers, to be broken."""

    schema = NUMBERS.schema

    def __init__(self, numbers: list[int], *, skips: int = 0, kind: Any = None, cursor: Any = None) -> None:
        self.numbers, self.skips, self.kind, self.cursor = numbers, skips, kind or pa.int64(), cursor

    def fetcher(self, tell: Callable[..., None]) -> rr.Fetcher:
        return self

    def fetch(self, after: Any) -> Iterator[rr.Fetched | None]:
        first = 0 if after is None else after + 1 + self.skips
        for place in range(first, len(self.numbers), 3):
            numbers = self.numbers[place : place + 3]
            cursor = self.cursor if self.cursor is not None else place + len(numbers) - 1
            yield rr.Fetched(table=pa.table({"n": pa.array(numbers, self.kind)}), cursor=cursor)


FILLED: list[int] = []


class Filled(Rows):
    """One that is pickled without its rows, as a table elsewhere is."""

    def __init__(self, *, repeats: bool = False) -> None:
        super().__init__([])
        self.repeats = repeats

    def fetch(self, after: Any) -> Iterator[rr.Fetched | None]:
        self.numbers = FILLED
        return super().fetch(None if self.repeats and len(FILLED) > 7 else after)


def test_a_broken_source() -> None:
    assert len(check_source(Rows([*range(20)]))) == 8
    again = broken(lambda: check_source(Rows([*range(20)], skips=1)))
    assert [*again] == ["replays: what comes after any cursor can be asked for again"]
    assert "after the cursor of piece 0, 2, row 0: got {'n': 4}, wanted {'n': 3}" in next(
        iter(again.values())
    )
    (of_types,) = broken(lambda: check_source(Rows([1, 2], kind=pa.int8()))).values()
    assert "the schema of piece 0" in of_types
    of_cursors = broken(lambda: check_source(Rows([*range(9)], cursor=(1, 2))))
    assert "saved and read: got [1, 2], wanted (1, 2)" in str(of_cursors)
    assert "it has rows" in broken(lambda: check_source(Rows([])))

    for repeats in (False, True):
        FILLED[:] = range(7)
        source = Filled(repeats=repeats)
        if repeats:
            found = broken(lambda source=source: check_source(source, more=lambda: FILLED.append(7)))  # type: ignore[misc]
            assert [*found] == ["what is added comes after the newest cursor, and nothing else does"]
        else:
            check_source(source, more=lambda: FILLED.append(7))


@dataclass
class Counts:
    seen: int = 0
    by: dict[str, int] = field(default_factory=dict)


class Counter(rr.CustomOperator):
    state: Counts

    def on_tuple(self, port: Any, tuple: dict[str, Any]) -> None:
        self.state.seen += 1
        self.submit({"n": tuple["n"], "seen": self.state.seen})


class Batched(rr.CustomOperator):
    state: Counts

    def process(self, port: Any, batch: pa.RecordBatch) -> None:
        self.state.seen += 1
        self.submit({"n": batch.column("n")[0].as_py(), "seen": self.state.seen})


class Unsaved(rr.CustomOperator):
    state: Counts
    seen = 0

    def on_tuple(self, port: Any, tuple: dict[str, Any]) -> None:
        self.seen += 1
        self.submit({"n": tuple["n"], "seen": self.seen})


class Moody(Counter):
    made = 0

    def prepare(self) -> None:
        Moody.made += 1
        self.state.seen += Moody.made


def test_a_broken_operator() -> None:
    def check(kind: type[rr.CustomOperator], **options: Any) -> list[str]:
        return check_operator(kind, NUMBERS, schema="n bigint, seen int", **options)

    def plainly(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{"n": row["n"], "seen": number + 1} for number, row in enumerate(rows)]

    assert len(check(Counter, reference=plainly)) == 5
    (at_once, _) = broken(lambda: check(Batched)).items()
    assert at_once[0].startswith("it does not matter how many tuples come at once")
    assert "part at tuple 2, {'n': 2}" in at_once[1]
    assert "the sink has, row 2: nothing" in at_once[1]
    (unsaved,) = broken(lambda: check(Unsaved)).items()
    assert "a process may be lost" in unsaved[0]
    assert "and the process lost before batch" in unsaved[1]
    assert "the same tuples make the same output" in broken(lambda: check(Moody))
    wrong = broken(
        lambda: check(Counter, reference=lambda rows: [{**r, "seen": r["seen"] % 13} for r in plainly(rows)])
    )
    assert all("part at tuple 12" in said for said in wrong.values())


READINGS = pa.table(
    {
        "k": ["abc"[n * n % 3] for n in range(40)],
        "v": [n * 7 % 11 for n in range(40)],
        "at": pa.array([n * 900_000 + n % 5 for n in range(40)]).cast(pa.timestamp("us", tz="UTC")),
    }
)
OURS: dict[str, dict[str, Any]] = {
    "aggregate": {"by": "k", "window": rr.sliding(tuples=3), "select": "sum(v) as s, max(at) as at"},
    "deduplicate": {"by": "k", "time": "5s", "on": "at"},
    "delay": {"time": "5s", "on": "at"},
    "functor": {"where": "v > 3", "select": "k, v * 2 as w"},
    "punctor": {"where": "v = 1", "place": "after"},
    "sort": {"by": "k", "order": "v", "window": rr.tumbling(tuples=4)},
    "split": {"outputs": {"high": "v > 3", "low": "v < 7"}},
    "throttle": {"by": "k", "rate": 0.5, "on": "at"},
    "top": {"n": 2, "order": "v desc", "window": rr.tumbling(time="9s", on="at")},
}


@pytest.mark.parametrize("name", OURS)
def test_our_own_operators_keep_their_promises(name: str) -> None:
    check_operator(getattr(rr.Application, name), READINGS, **OURS[name])


def test_an_operator_of_a_file_of_its_own() -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(code_of("extending.md", "class Changes"), "changes.py", "exec", dont_inherit=True), names)

    def plainly(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        last: dict[str, int] = {}
        for row in rows:
            if last.get(row["k"]) != row["v"]:
                yield row
            last[row["k"]] = row["v"]

    check_operator(names["changes"], READINGS, reference=plainly, by="k", of="v")
    names["Changes"].reads = lambda self, needed: ({*needed[self.name], *self.by},)
    (blind,) = broken(lambda: check_operator(names["changes"], READINGS, by="k", of="v"))
    assert blind == "columns that nobody reads may be left out"


@dataclass(frozen=True)
class Unsure(rr.Policy):
    """A policy whose answers do not go together."""

    def after(self, operator: Protectable, outage: OperatorOutage) -> Aftermath:
        return Aftermath(misses=True, holds="older")

    def describe(self) -> str:
        return ""


@dataclass(frozen=True)
class Loose(rr.Policy):
    """A policy that is no value."""

    options: list[str] = field(default_factory=list)

    def saving(self, operator: Protectable) -> Any:
        return "often"


def test_a_broken_policy() -> None:
    unsure = broken(lambda: check_policy(Unsure()))
    assert [*unsure] == [
        "it says how an operator comes back from every outage",
        "it describes itself in a line",
    ]
    assert "it misses what the outage does not take" in next(iter(unsure.values()))
    loose = broken(lambda: check_policy(Loose()))
    assert "it is a value: equal to what another process has of it" in loose
    assert "saving(numbers) is 'often'" in loose["it says how state is saved, and always the same"]
    for policy in (rr.checkpoint(every="1s"), rr.consistent(period="1s"), rr.eventual()):
        check_policy(policy)
    names: dict[str, Any] = {}
    exec(code_of("extending.md", "class Journal"), names)
    assert isinstance(names["Journal"]().saving(None), Saving)
    check_policy(names["Journal"]())


@dataclass(frozen=True, kw_only=True)
class Raised(FaultModel):
    """A model that makes numbers greater, to be broken."""

    column: str = "v"
    does: str = "raise"

    @property
    def changes(self) -> tuple[str, ...]:
        return (self.column,)

    def apply(self, tuples: Exposed) -> Exposed:
        count = len(tuples.hit)
        match self.does:
            case "shallow":
                return tuples.repeat(np.ones(count, np.int64))
            case "all":
                return tuples.keep(tuples.position % 9 != 0)
            case "other":
                tuples = tuples.change("w", lambda values: pc.add(values, 1))
            case "own":
                return tuples.keep(~tuples.hit | (np.random.default_rng().random(count) < 0.5))
            case "seed":
                return tuples.keep(~tuples.hit | (tuples.chance() < 0.5))
            case "second":
                return tuples.keep(~tuples.hit | (np.arange(count) % 2 == 0))
            case "value":
                return tuples.keep(~tuples.hit | (np.asarray(tuples.columns["v"]) < 5))
        return tuples.change(self.column, lambda values: pc.add(values, 1))

    def describe(self, where: str) -> str:
        return "" if self.does == "silent" else f"raises {self.column} {where}"


class Listed(Raised):
    """One whose fields no campaign file can give."""

    @classmethod
    def from_entries(cls, entries: Any, find: Any) -> Any:
        return cls()


VALUES = pa.table({"v": [n * 7 % 11 for n in range(40)], "w": [n * 5 % 7 for n in range(40)]})


def test_a_broken_fault_model() -> None:
    def check(does: str, kind: type[Raised] = Raised) -> dict[str, str]:
        return broken(lambda: check_fault_model(kind(does=does), VALUES))

    assert len(check_fault_model(Raised(), VALUES)) == 9
    ((words, how),) = check("shallow").items()
    assert words.startswith("it does what a model may")
    assert "must say deep = True" in how
    every = check("all")
    assert "row 0: got {'checked_at': 1, " in every["tuples that are not hit it leaves alone"]
    (other,) = check("other").values()
    assert other == "w of tuple 0 became 1; changes is ('v',)"
    assert "the same seed does the same again, and in another process" in check("own")
    assert [*check("seed")] == ["it does not say that it is drawn, and so does the same with every seed"]
    (second,) = check("second").items()
    assert second[0] == "what becomes of a tuple does not depend on those around it"
    assert "in batches of 7" in second[1]
    (value,) = check("value").items()
    assert value[0] == "columns that nobody reads may be missing"
    assert [*check("silent")] == ["it describes itself in a line"]
    (listed,) = check("plain", Listed).values()
    assert "the model of entries {'column': 'v', 'does': 'plain'}" in listed


def test_a_table_without_what_a_model_changes_is_refused() -> None:
    for model, table, said in (
        (Raised(column="x"), VALUES, "there is no column 'x'"),
        (Raised(), VALUES.slice(0, 11), "12 rows or more, got 11"),
        (Corruption(columns=("l",)), pa.table({"l": [[1]] * 20}), "no bits of l, which is list"),
    ):
        with pytest.raises(rr.GraphError, match=said):
            check_fault_model(model, table)


def test_our_own_fault_models_keep_their_promises() -> None:
    names: dict[str, Any] = {}
    exec(code_of("extending.md", "class Spikes"), names)
    for model in (
        Loss(),
        Loss(keep=0.5),
        Duplication(copies=2),
        Lateness(distance=3),
        Reordering(distance=4),
        Corruption(columns=("v",)),
        Corruption(columns=("v", "w"), change=pc.negate),
        names["Spikes"](column="v"),
        names["Spikes"](column="v", share=0.4),
    ):
        check_fault_model(model)
    # Of all kinds of values a bit can flip.
    kinds = pa.table(
        {
            "text": [f"row {n}" for n in range(20)],
            "flag": [n % 3 == 0 for n in range(20)],
            "at": pa.array(range(20), pa.timestamp("us", tz="UTC")),
            "none": pa.array([None, 1] * 10, pa.int64()),
        }
    )
    check_fault_model(Corruption(columns=("text", "flag", "at", "none")), kinds)


def test_our_own_sinks_keep_their_promises(tmp_path: Path, postgres: Postgres, redis: Redis) -> None:
    check_sink(rr.to_sqlite(tmp_path / "out.db", "out"))
    check_sink(rr.to_postgres(PostgresRig(postgres.database()).url, "out"))
    stream = RedisRig(redis.url, redis.prefix() + "out")
    check_sink(
        rr.to_redis(redis.url, stream.stream), held=lambda: [{"n": n} for _, n in stream.held()], rows=NUMBERS
    )


def test_our_own_sources_keep_their_promises(postgres: Postgres, redis: Redis) -> None:
    for rig in (rigs.PostgresRig(postgres), rigs.RedisRig(redis)):
        rig.put(0, 30, bad=[7])
        check_source(rig.source(), more=lambda rig=rig: rig.put(30, 40))  # type: ignore[misc]
        rig.close()


def test_those_of_the_page_keep_their_promises(tmp_path: Path) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    for file in ("entries_sink.py", "entries_source.py"):
        exec(code_of("extending.md", f"# {file}"), names)
    rows, path = NUMBERS.append_column("word", pa.array(map(str, range(20)))), tmp_path / "entries.db"

    def held() -> list[dict[str, Any]]:
        with closing(sqlite3.connect(path)) as db:
            there = db.execute("select count(*) from sqlite_master").fetchone()[0]
            return (
                [json.loads(row) for (row,) in db.execute("select row from entries order by rowid")]
                if there
                else []
            )

    check_sink(names["ToEntries"](str(path)), held=held, rows=rows)
    check_source(names["FromEntries"](str(path), rows.schema))


def test_what_cannot_be_checked_is_named() -> None:
    for check, thing in (
        (check_sink, rr.parquet("out")),
        (check_source, rr.rate(1)),
        (check_policy, "often"),
        (check_fault_model, "loss"),
    ):
        with pytest.raises(
            rr.GraphError, match=rf"{check.__name__}\(...\) takes a \w+ that derives from r\w+\.[\w.]+, got "
        ):
            check(thing)  # type: ignore[operator]
