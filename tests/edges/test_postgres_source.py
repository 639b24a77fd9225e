"""A PostgreSQL table read while others write it: late commits, ties, all kinds of ordering columns, mistakes."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import adbc_driver_postgresql.dbapi as postgresql
import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.edges.rigs import (
    PostgresRig,
    check_rows,
    copying,
    copying_of,
    events,
    run_to_end,
)
from tests.services.postgres import Postgres

import riprap as rr
from riprap.adapters import postgres as adapter
from riprap.adapters.postgres import PostgresFetcher
from riprap.errors import ConnectionLost
from riprap.graph.connectors import Cursor, Fetched, FromPostgres


@pytest.fixture
def rig(postgres: Postgres) -> Iterator[PostgresRig]:
    made = PostgresRig(postgres)
    yield made
    made.close()


class Reader:
    """Fetches as a feed does, step by step."""

    def __init__(self, connector: Any) -> None:
        assert isinstance(connector, FromPostgres)
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.fetcher = PostgresFetcher(connector, self._tell)
        self.cursor: Cursor = None
        self.pieces: list[Fetched] = []
        self.table = connector.schema.empty_table()

    def step(self, steps: Iterator[Fetched | None]) -> bool:
        """Take one step; say whether rows came. Raise StopIteration at the end."""
        piece = next(steps)
        if piece is None:
            return False
        self.pieces.append(piece)
        self.cursor = piece.cursor
        self.table = pa.concat_tables([self.table, piece.table])
        return True

    def read(self, steps: Iterator[Fetched | None] | None = None) -> list[Any]:
        """Read what there is; return the first column of all rows so far."""
        steps = self.fetcher.fetch(self.cursor) if steps is None else steps
        with contextlib.suppress(StopIteration):
            while True:
                self.step(steps)
        return self.table.column(0).to_pylist()

    def _tell(self, kind: str, **details: str | float | int) -> None:
        self.told.append((kind, details))


@pytest.fixture
def reader(rig: PostgresRig) -> Iterator[Reader]:
    """Read table ``late``, whose rows number themselves."""
    rig.execute("create table late (n bigint generated always as identity primary key, who text)")
    made = Reader(rig.table("late", schema="n bigint, who string"))
    yield made
    made.fetcher.close()


@contextlib.contextmanager
def transaction(rig: PostgresRig) -> Iterator[Any]:
    """Give a connection whose transaction ends when the test says so."""
    with postgresql.connect(rig.url) as connection:
        yield connection


def insert(connection: Any, who: str, rows: int = 1) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"insert into late (who) select '{who}' from generate_series(1, {rows})")


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_transaction_that_took_its_numbers_early_and_ends_late(
    rig: PostgresRig, reader: Reader, end: str
) -> None:
    with transaction(rig) as early, transaction(rig) as late:
        insert(early, "early", 3)
        insert(late, "late", 2)
        late.commit()
        steps = reader.fetcher.fetch(None)
        assert not reader.step(steps)
        # Rows that come while it waits are for the next time.
        insert(late, "later")
        late.commit()
        assert not reader.step(steps)
        getattr(early, end)()

        assert reader.read(steps) == ([1, 2, 3] if end == "commit" else []) + [4, 5]
        assert reader.read()[-2:] == [5, 6]


def test_a_long_open_transaction_holds_back_what_comes_after_it_and_not_what_was_read(
    rig: PostgresRig, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter, "_TELL_AFTER", 0.15)
    with transaction(rig) as writer, transaction(rig) as other:
        insert(other, "first", 2)
        other.commit()
        assert reader.read() == [1, 2]
        insert(writer, "open")
        insert(other, "held back", 5)
        other.commit()
        steps = reader.fetcher.fetch(reader.cursor)
        while len(reader.told) < 2:
            assert not reader.step(steps)
        writer.commit()

        assert reader.read(steps) == list(range(1, 9))
    assert [kind for kind, _ in reader.told] == ["waiting", "waiting"]
    assert "a transaction that writes the table has been open for" in reader.told[0][1]["message"]


def test_a_transaction_that_begins_later_is_not_waited_for(rig: PostgresRig, reader: Reader) -> None:
    with transaction(rig) as early, transaction(rig) as late, transaction(rig) as later:
        insert(early, "early")
        insert(late, "late")
        late.commit()
        steps = reader.fetcher.fetch(None)
        assert not reader.step(steps)
        insert(later, "later")
        early.commit()

        assert reader.read(steps) == [1, 2]
        assert reader.table.column("who").to_pylist() == ["early", "late"]
        later.rollback()


def test_many_writers_at_once_lose_nothing(
    rig: PostgresRig, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter, "_LOOK_AGAIN_SECONDS", 0.01)

    def write(seed: int) -> None:
        chance = random.Random(seed)
        with transaction(rig) as connection:
            while len(reader.pieces) < 20:
                for _ in range(chance.randint(1, 3)):
                    insert(connection, f"writer {seed}", chance.randint(1, 20))
                if chance.random() < 0.1:
                    connection.rollback()
                else:
                    connection.commit()

    writers = [threading.Thread(target=write, args=(seed,)) for seed in range(4)]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        reader.read()
    found = reader.read()

    with transaction(rig) as connection, connection.cursor() as cursor:
        cursor.execute("select n from late order by n")
        assert found == [n for (n,) in cursor.fetchall()]


def test_a_run_without_a_trigger_waits_for_an_open_transaction(
    spark: SparkSession, rig: PostgresRig, runs: Path, tmp_path: Path
) -> None:
    rig.put(50, 100)
    with transaction(rig) as early:
        with early.cursor() as cursor:
            cursor.execute("insert into t select n, 7 * n from generate_series(0, 49) n")
        app = copying([rig], tmp_path / "out")
        with app.run(spark=spark, runs=runs) as run:
            assert not run.wait(timeout=3)
            early.commit()
            assert run.wait(timeout=60)

    check_rows(rig, tmp_path / "out", range(100))


def test_equal_values_stay_together_over_the_borders_of_what_the_driver_hands_over(rig: PostgresRig) -> None:
    # About 48 MB in pieces of 16 MB at most; a thousand rows of each value.
    rig.execute(
        "create table ties (v bigint, k bigint, pad text)",
        "insert into ties select k / 1000, k, repeat('x', 800) from generate_series(0, 59999) k",
        "create index on ties (v)",
    )
    reader = Reader(rig.table("ties", by="v", schema="k bigint, v bigint, pad string"))

    found = np.array(reader.read())

    assert len(reader.pieces) > 2
    values = reader.table.column("v").to_numpy()
    np.testing.assert_array_equal(values, np.arange(60_000) // 1000)
    np.testing.assert_array_equal(np.sort(found), np.arange(60_000))
    for piece in reader.pieces:
        last = int(str(piece.cursor))
        assert piece.table.column("v")[-1].as_py() == last
    # Whoever goes on after any piece has the rest, and no row of it twice.
    for number, piece in enumerate(reader.pieces):
        rest = Reader(rig.table("ties", by="v", schema="k bigint, v bigint"))
        rest.cursor = piece.cursor
        assert len(rest.read()) == 60_000 - sum(p.table.num_rows for p in reader.pieces[: number + 1])
        rest.fetcher.close()
    reader.fetcher.close()


def test_a_connection_lost_within_a_table_goes_on_there(rig: PostgresRig) -> None:
    rig.execute(
        "create table wide (n bigint primary key, pad text)",
        "insert into wide select n, repeat('x', 800) from generate_series(0, 59999) n",
    )
    reader = Reader(rig.table("wide", schema="n bigint, pad string"))
    steps = reader.fetcher.fetch(None)
    assert reader.step(steps)
    rig.relay.drop()
    with pytest.raises(ConnectionLost):
        reader.read(steps)
    assert 0 < reader.table.num_rows < 60_000
    reader.fetcher.close()

    np.testing.assert_array_equal(np.array(reader.read()), np.arange(60_000))
    reader.fetcher.close()


ORDERED = {
    "smallint": "k",
    "integer": "k",
    "double precision": "k + 0.1",
    "numeric(12, 3)": "k / 7.0",
    "text": "'it''s \\ ' || chr(233) || to_char(k, '0000')",
    "varchar(20)": "to_char(k, '0000')",
    "date": "date '1999-12-01' + k",
    "timestamp": "timestamp '1999-12-31 23:59:59.999' + k * interval '1.000001 s'",
    "timestamptz": "timestamptz '2024-03-31 00:30:00+00' + k * interval '1 min'",
}
DECLARED = {
    "smallint": "smallint",
    "integer": "int",
    "double precision": "double",
    "numeric(12, 3)": "decimal(12,3)",
    "date": "date",
    "timestamp": "timestamp_ntz",
    "timestamptz": "timestamp",
}


@pytest.mark.parametrize("kind", ORDERED)
def test_columns_of_many_types_can_give_the_order(rig: PostgresRig, kind: str) -> None:
    def add(first: int, end: int) -> None:
        # Not in the order of their values.
        rig.execute(
            f"insert into o select k, {ORDERED[kind]} from generate_series({first}, {end - 1}) k order by k % 7"
        )

    rig.execute("set timezone to 'Europe/Berlin'", f"create table o (k int, v {kind} not null unique)")
    add(0, 100)
    reader = Reader(rig.table("o", by="v", schema=f"k int, v {DECLARED.get(kind, 'string')}"))
    assert reader.read() == list(range(100))
    # The cursor is read back as what it was: nothing again, and nothing left out.
    assert reader.read() == list(range(100))
    add(100, 150)
    assert reader.read() == list(range(150))
    reader.fetcher.close()
    assert reader.read() == list(range(150))
    reader.fetcher.close()
    assert not [bad for piece in reader.pieces for bad in piece.bad]


def test_names_are_taken_as_they_are_written(rig: PostgresRig) -> None:
    rig.execute(
        'create schema "Other One"',
        'create table "Other One"."Ta""ble" ("N o" bigint primary key, "Select" text)',
        """insert into "Other One"."Ta""ble" values (1, 'a'), (2, 'b')""",
    )
    schema = pa.schema([("N o", pa.int64()), ("Select", pa.string())])
    reader = Reader(rr.from_postgres(rig.url, 'Other One.Ta"ble', by="N o", schema=schema))

    assert reader.read() == [1, 2]
    assert reader.table.column("Select").to_pylist() == ["a", "b"]
    assert reader.told == []
    reader.fetcher.close()


def test_a_column_that_may_be_null_is_warned_of_once(
    spark: SparkSession, rig: PostgresRig, runs: Path, tmp_path: Path
) -> None:
    rig.execute("create table s (n bigint, m bigint)", "insert into s values (2, 14), (null, 7), (1, 7)")

    run = run_to_end(copying_of({"postgres": rig.table("s")}, tmp_path / "out"), spark, runs=runs)

    check_rows(rig, tmp_path / "out", [1, 2])
    (warning,) = events(run, "warning")
    assert warning["message"] == "column 'n' may be null; rows where it is are not read"


MISTAKES = {
    "table": (lambda rig: rig.table("nowhere"), r"table nowhere: .*nowhere.* does not exist"),
    "schema": (lambda rig: rig.table("nowhere.t"), r"table nowhere\.t: .*nowhere.* does not exist"),
    "column": (lambda rig: rig.table("t", schema="n bigint, price double"), r"price.* does not exist"),
    "by": (lambda rig: rig.table("t", by="k", schema="k bigint"), r"k.* does not exist"),
    "database": (
        lambda rig: rr.from_postgres(f"{rig.url}_not", "t", by="n", schema="n bigint"),
        r"database .*_not.* does not exist",
    ),
    "role": (
        lambda rig: rr.from_postgres(rig.url.replace("postgres@", "me:pw@"), "t", by="n", schema="n bigint"),
        r"role .*me.* does not exist",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_that_waiting_does_not_mend_are_errors_at_once(rig: PostgresRig, mistake: str) -> None:
    rig.put(0, 5)
    make, told = MISTAKES[mistake]
    reader = Reader(make(rig))

    with pytest.raises(rr.RunError, match=told) as caught:
        reader.read()
    assert "pw" not in str(caught.value)
    reader.fetcher.close()


def test_a_missing_table_fails_the_run_without_a_retry(
    spark: SparkSession, rig: PostgresRig, runs: Path, tmp_path: Path
) -> None:
    run = copying_of({"rows": rig.table("nowhere")}, tmp_path / "out").run(spark=spark, runs=runs)
    with pytest.raises(rr.RunError, match=r"source 'rows' \(.*\): table nowhere: .*does not exist"), run:
        run.wait(timeout=60)

    assert not events(run, "connection lost")


def test_values_that_do_not_fit_are_bad_records_that_say_where(rig: PostgresRig) -> None:
    rig.execute(
        "create table b (n bigint primary key, small bigint, words text[])",
        "insert into b values (1, 1, null), (2, 3000000000, null), (3, 3, '{a}'), (4, null, null)",
    )
    reader = Reader(rig.table("b", schema="n bigint, small int, words bigint"))

    assert reader.read() == [1, 4]
    found = [bad for piece in reader.pieces for bad in piece.bad]
    assert [(dict(bad.position), bad.reason) for bad in found] == [
        ({"table": "b", "n": "2"}, "column 'small': 3000000000 is not an int"),
        ({"table": "b", "n": "3"}, "column 'words': ['a'] is not a bigint"),
    ]
    assert b"3000000000" in found[0].record
    reader.fetcher.close()


def test_a_writer_of_a_partition_is_seen(rig: PostgresRig) -> None:
    rig.execute(
        "create table whole (n bigint generated always as identity, part int) partition by list (part)"
    )
    rig.execute("create table one partition of whole for values in (1)")
    rig.execute("create table two partition of whole for values in (2)")
    reader = Reader(rig.table("whole", schema="n bigint, part int"))
    with transaction(rig) as early, transaction(rig) as late:
        for connection, table, number in ((early, "one", 1), (late, "whole", 2)):
            with connection.cursor() as cursor:
                cursor.execute(
                    f"insert into {table} (n, part) overriding system value values ({number}, {number})"
                )
        late.commit()
        steps = reader.fetcher.fetch(None)
        assert not reader.step(steps)
        early.commit()

        assert reader.read(steps) == [1, 2]
    reader.fetcher.close()


def test_what_may_miss_rows_is_warned_of(rig: PostgresRig) -> None:
    rig.execute("create table base (at timestamptz not null, n bigint not null)")
    rig.execute("create view shown as select at, n from base")
    told = {}
    for table, by in (("base", "at"), ("shown", "n"), ("base", "n")):
        connector = rr.from_postgres(rig.url, table, by=by, schema="at timestamp, n bigint")
        reader = Reader(connector)
        reader.read()
        reader.fetcher.close()
        told[table, by] = [str(details["message"]) for _, details in reader.told]

    assert ["is a time" in message for message in told["base", "at"]] == [True]
    assert ["is no table" in message for message in told["shown", "n"]] == [True]
    assert told["base", "n"] == []
