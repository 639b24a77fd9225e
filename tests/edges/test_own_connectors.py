"""A source and a sink of a user's own, as docs/extending.md has them, have the same guarantees as ours."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.pages import code_of
from tests.runtime.harness import lines_of, only_run, wait_until

import riprap as rr
from riprap.testing import crash_at

ROWS, BATCH, BAD = 4_000, 1_000, 1_234
EXPECTED = [{"n": n, "word": f"ROW {n}"} for n in range(1, ROWS, 2)]
NUMBERS = pa.table({"n": [1, 2, 3]})


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a folder with the files of the page, as a user would have them, and rows to read."""
    for name in ("entries_sink.py", "entries_source.py", "app.py"):
        (tmp_path / name).write_text(code_of("extending.md", f"# {name}"))
    with contextlib.closing(sqlite3.connect(tmp_path / "in.db")) as db, db:
        db.execute("create table entries (run text, batch integer, row text)")
        texts = [json.dumps({"n": n, "word": f"row {n}"}) for n in range(ROWS)]
        texts.insert(BAD, "{no JSON")
        db.executemany("insert into entries values ('', 0, ?)", [(text,) for text in texts])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def held(path: Path) -> list[dict[str, Any]]:
    with contextlib.closing(sqlite3.connect(path)) as db:
        return [json.loads(row) for (row,) in db.execute("select row from entries order by batch, rowid")]


def events_in(runs: Path) -> list[str]:
    return [e["event"] for path in runs.glob("*/*/events.jsonl") for e in lines_of(path)]


# Before a batch is published, and after: then nothing says yet that the sink has had it, and it comes again.
@pytest.mark.parametrize("step", [pytest.param("recorded", marks=pytest.mark.slow), "published"])
def test_a_lost_connection_and_a_killed_driver_change_nothing(own: Path, runs: Path, step: str) -> None:
    command = [
        sys.executable,
        "-m",
        "riprap",
        "run",
        "app.py:app",
        "--runs",
        str(runs),
        "--master",
        "local[1]",
    ]
    command += ["--batch-rows", str(BATCH), "--quiet"]
    crashing = crash_at(step, 2, marker=own / "crashed")
    with (
        contextlib.closing(sqlite3.connect("out.db", isolation_level=None)) as other,
        subprocess.Popen(command, env={**os.environ, **crashing}, stderr=subprocess.PIPE) as program,
    ):
        other.execute("begin exclusive")
        wait_until(lambda: program.poll() is not None or "connection lost" in events_in(runs))
        other.execute("rollback")
        said = program.communicate(timeout=300)[1]

    assert program.returncode == 0, said
    assert (own / "crashed").exists()
    events = events_in(runs)
    assert {"connection lost", "connection back", "recovered"} <= set(events), events
    (bad,) = lines_of(next(only_run(runs).glob("quarantine/in/*.jsonl")))[1:]
    assert (bad["position"], bad["text"]) == ({"rowid": BAD + 1}, "{no JSON")
    assert held(own / "out.db") == EXPECTED


class Fails(rr.Sink, rr.Target):
    """A sink that cannot write, and is its own target."""

    def target(self, schema: pa.Schema, run: str) -> rr.Target:
        return self

    def write(self, batch: int, table: pa.Table, *, again: bool) -> None:
        raise ValueError("no room")


class Fetches(rr.Source, rr.Fetcher):
    """A source of one piece, which may be wrong, and its own fetcher."""

    schema = NUMBERS.schema

    def __init__(self, make: Callable[[], pa.Table]) -> None:
        self._make = make

    def fetcher(self, tell: Callable[..., None]) -> rr.Fetcher:
        return self

    def fetch(self, after: Any) -> Iterator[rr.Fetched | None]:
        if after is None:
            yield rr.Fetched(table=self._make(), cursor=1)


def no_numbers() -> pa.Table:
    raise ValueError("no numbers today")


@pytest.mark.parametrize(
    ("source", "sink", "said"),
    [
        (rr.rows(NUMBERS), Fails(), r"Sink 'out' \(.*failed on batch 0: ValueError: no room\n.*in write: raise"),
        (Fetches(no_numbers), rr.memory(), r"source 'in' \(.*failed to fetch: ValueError: no numbers.*in no_numb"),
        (Fetches(lambda: NUMBERS.cast(pa.schema([("n", pa.int8())]))), rr.memory(), "source 'in' .*'n: int8'"),
    ],
)  # fmt: skip
def test_code_that_fails_is_named(
    spark: SparkSession, runs: Path, source: rr.Source, sink: rr.Sink, said: str
) -> None:
    app = rr.Application("failing")
    app.sink("out", app.source("in", source), sink)
    with pytest.raises(rr.RunError, match=f"(?s){said}"), app.run(spark=spark, runs=runs) as run:
        run.wait(timeout=120)


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        ({"PROMISE": rr.Promise(word="replays")}, "Odd.PROMISE is 'replays'.*one of replaces, once, repeats"),
        ({"retry_for": "soon"}, "Odd.retry_for takes a time"),
        ({"holds": lambda self, kind: kind != pa.int64()}, "Odd cannot hold the bigint column 'n'"),
    ],
)
def test_what_cannot_be_is_refused_when_the_application_is_built(
    attributes: dict[str, Any], said: str
) -> None:
    app = rr.Application("odd")
    odd = type("Odd", (Fails,), attributes)()
    with pytest.raises(rr.GraphError, match=rf"(?s)Sink 'out' \(.*test_own_connectors.py:\d+\).*{said}"):
        app.sink("out", app.source("in", rr.rows(NUMBERS)), odd)
