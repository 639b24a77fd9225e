"""A Redis stream that others trim, delete from, or never made; and entries of all kinds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.edges.rigs import RedisRig, check_rows, check_table, copying, run_to_end, run_until
from tests.services.redis import Redis

import riprap as rr
from riprap.adapters import redis_streams
from riprap.adapters.redis_streams import RedisFetcher
from riprap.errors import ConnectionLost
from riprap.graph.connectors import Cursor, Fetched, FromRedis

# test_sources and test_sinks have the same for every system.
pytestmark = pytest.mark.slow

REMOVED = r"Redis stream {stream}: {gone} removed before the run had read them \(the last it read is {last}\)"


@pytest.fixture
def rig(redis: Redis) -> Iterator[RedisRig]:
    made = RedisRig(redis)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_streams, "_READ_ENTRIES", 10)


def fetcher_of(connector: Any, told: list[str] | None = None) -> RedisFetcher:
    assert isinstance(connector, FromRedis)

    def tell(kind: str, **details: str | float | int) -> None:
        if told is not None:
            told.append(f"{kind}: {details['message']}")

    return RedisFetcher(connector, tell)


def read(rig: RedisRig, after: Cursor = None, told: list[str] | None = None) -> tuple[list[int], Cursor]:
    """Return the numbers there are after a cursor, and the cursor behind them."""
    fetcher, found = fetcher_of(rig.source(), told), []
    for piece in fetcher.fetch(after):
        check_table(piece.table, (numbers := piece.table.column("n").to_pylist()))
        found += numbers
        after = piece.cursor
    fetcher.close()
    return found, after


def ids(rig: RedisRig) -> list[str]:
    with rig.client() as client:
        return [identity.decode() for identity, _ in client.xrange(rig.stream)]


def trim(rig: RedisRig, keep: int) -> None:
    with rig.client() as client:
        client.xtrim(rig.stream, maxlen=keep, approximate=False)


def removed(rig: RedisRig, gone: str, last: str) -> str:
    return REMOVED.format(stream=rig.stream, gone=gone, last=last)


def test_a_stream_is_read_piece_by_piece_and_on_from_any_of_them(rig: RedisRig) -> None:
    rig.put(0, 35)
    pieces = list(fetcher_of(rig.source()).fetch(None))
    assert [piece.table.num_rows for piece in pieces] == [10, 10, 10, 5]

    for count, piece in enumerate(pieces, 1):
        assert read(rig, piece.cursor)[0] == list(range(min(10 * count, 35), 35))
    rig.put(35, 50)
    assert read(rig, pieces[-1].cursor)[0] == list(range(35, 50))


def test_entries_that_come_while_it_reads_are_for_the_next_time(rig: RedisRig) -> None:
    rig.put(0, 15)
    pieces = fetcher_of(rig.source()).fetch(None)
    next(pieces)
    rig.put(15, 25)

    found = [n for piece in pieces for n in piece.table.column("n").to_pylist()]

    # The second piece is filled up; then it has what there was when it began.
    assert found == list(range(10, 20))


@pytest.mark.parametrize(("keep", "behind"), [(5, 0), (0, 0), (3, 2), (20, 12)])
def test_entries_trimmed_after_they_were_read_are_not_missed(rig: RedisRig, keep: int, behind: int) -> None:
    rig.put(0, 35)
    _, cursor = read(rig)
    trim(rig, keep)
    if behind:
        rig.put(35, 35 + behind)

    assert read(rig, cursor)[0] == list(range(35, 35 + behind))


@pytest.mark.parametrize("early", [0, 7])
@pytest.mark.parametrize("pieces", [1, 3, 4])
def test_entries_trimmed_before_they_were_read_are_an_error(rig: RedisRig, pieces: int, early: int) -> None:
    rig.put(0, 35 + early)
    # Those trimmed before the run began do not count.
    trim(rig, 35)
    all_pieces = list(fetcher_of(rig.source()).fetch(None))
    cursor, had = all_pieces[pieces - 1].cursor, min(10 * pieces, 35)
    assert isinstance(cursor, dict)
    rig.put(35 + early, 50 + early)
    trim(rig, 50 - had)
    assert len(read(rig, cursor)[0]) == 50 - had
    trim(rig, 50 - had - 2)

    with pytest.raises(rr.RunError, match=removed(rig, f"2 entries before {ids(rig)[0]} were", cursor["id"])):
        read(rig, cursor)


def test_a_stream_trimmed_to_nothing_is_an_error_too(rig: RedisRig) -> None:
    rig.put(0, 5)
    _, cursor = read(rig)
    assert isinstance(cursor, dict)
    rig.put(5, 8)
    newest = ids(rig)[-1]
    trim(rig, 0)

    with pytest.raises(rr.RunError, match=removed(rig, f"3 entries up to {newest} were", cursor["id"])):
        read(rig, cursor)


def test_entries_trimmed_between_two_pieces_are_an_error(rig: RedisRig) -> None:
    rig.put(0, 35)
    pieces = fetcher_of(rig.source()).fetch(None)
    first = next(pieces)
    assert isinstance(first.cursor, dict)
    trim(rig, 20)

    with pytest.raises(rr.RunError, match=removed(rig, "5 entries before .* were", first.cursor["id"])):
        next(pieces)


def test_an_entry_deleted_unread_is_an_error_and_one_deleted_before_the_run_is_not(rig: RedisRig) -> None:
    rig.put(0, 35)
    with rig.client() as client:
        client.xdel(rig.stream, ids(rig)[30])
        found, cursor = read(rig)
        assert found == [n for n in range(35) if n != 30]
        rig.put(35, 40)
        client.xdel(rig.stream, ids(rig)[3])
        assert read(rig, cursor)[0] == list(range(35, 40))
        client.xdel(rig.stream, gone := ids(rig)[-2])
    assert isinstance(cursor, dict)

    with pytest.raises(rr.RunError, match=removed(rig, f"entry {gone} was", cursor["id"])):
        read(rig, cursor)


def test_a_run_whose_entries_were_trimmed_says_so(
    spark: SparkSession, rig: RedisRig, runs: Path, tmp_path: Path
) -> None:
    rig.put(0, 20)
    left = run_until(copying([rig], tmp_path / "out"), spark, 20, leave=True, runs=runs)
    trim(rig, 3)
    rig.put(20, 25)
    trim(rig, 4)

    run = copying([rig], tmp_path / "out").run(spark=spark, folder=left.folder)
    with pytest.raises(rr.RunError, match=r"source 'redis' \(.*\): Redis stream .*: 1 entries before"), run:
        run.wait(timeout=60)
    check_rows(rig, tmp_path / "out", range(20))


@pytest.mark.parametrize("kind", ["string", "list"])
def test_a_key_that_is_no_stream_is_an_error_at_once(rig: RedisRig, kind: str) -> None:
    with rig.client() as client:
        client.set(rig.stream, "x") if kind == "string" else client.rpush(rig.stream, "x")

    with pytest.raises(rr.RunError, match=rf"Redis stream {rig.stream}: WRONGTYPE"):
        read(rig)


def test_a_wrong_password_is_an_error_at_once(rig: RedisRig) -> None:
    url = rig.server.url.replace("redis://", "redis://me:secret@")
    fetcher = fetcher_of(rr.from_redis(url, rig.stream, schema="n bigint"))

    with pytest.raises(rr.RunError, match=rf"Redis stream {rig.stream}: ") as caught:
        next(fetcher.fetch(None))
    assert "secret" not in str(caught.value)
    fetcher.close()


def test_a_stream_that_is_made_later_is_read_then(rig: RedisRig) -> None:
    fetcher = fetcher_of(rig.source())
    assert list(fetcher.fetch(None)) == []
    rig.put(0, 3)
    assert [piece.table.num_rows for piece in fetcher.fetch(None)] == [3]
    fetcher.close()


def test_a_lost_connection_between_two_pieces_goes_on_after_the_first(rig: RedisRig) -> None:
    rig.put(0, 35)
    fetcher = fetcher_of(rig.source())
    pieces = fetcher.fetch(None)
    first = next(pieces)
    # Only dropped, the client would connect again by itself.
    rig.relay.refuse()
    with pytest.raises(ConnectionLost):
        next(pieces)
    fetcher.close()
    rig.relay.accept()

    assert read(rig, first.cursor)[0] == list(range(10, 35))


def only(pieces: Iterator[Fetched]) -> Fetched:
    (piece,) = pieces
    return piece


def test_fields_are_columns_written_as_text(rig: RedisRig) -> None:
    schema = "i int, d double, b boolean, t timestamp, s string, raw binary, p decimal(9,2)"
    with rig.client() as client:
        client.xadd(rig.stream, {"i": "12", "d": "3.5", "b": "true", "extra": "x", "p": "1.50"})
        client.xadd(rig.stream, {"t": "2026-01-31T12:00:00Z", "s": "", "raw": b"\xff\x00"})
        client.xadd(rig.stream, {"i": "3000000000"})
        client.xadd(rig.stream, {"s": b"\xff", "i": "1"})
        client.xadd(rig.stream, {"i": "", "d": "x"})
        client.xadd(rig.stream, {"i": "-1"})
    fetcher = fetcher_of(rr.from_redis(rig.server.url, rig.stream, schema=schema))

    piece = only(fetcher.fetch(None))

    first, second, third = piece.table.to_pylist()
    none = dict.fromkeys(piece.table.schema.names)
    assert {**first, "p": str(first["p"])} == {**none, "i": 12, "d": 3.5, "b": True, "p": "1.50"}
    assert {**second, "t": second["t"].isoformat()} == {
        **none,
        "t": "2026-01-31T12:00:00+00:00",
        "s": "",
        "raw": b"\xff\x00",
    }
    assert third == {**none, "i": -1}
    assert [bad.position["id"] for bad in piece.bad] == ids(rig)[2:5]
    assert [bad.reason for bad in piece.bad] == [
        "column 'i': '3000000000' is not an int",
        r"column 's': b'\xff' is not a string",
        "column 'i': '' is not an int",
    ]
    fetcher.close()


def test_an_oversized_entry_is_a_bad_record(rig: RedisRig) -> None:
    with rig.client() as client:
        for size in (1, 100_000, 1000, 1001):
            client.xadd(rig.stream, {"s": "x" * size})
    source = rr.from_redis(rig.server.url, rig.stream, schema="s string", max_record_bytes=1000)
    fetcher = fetcher_of(source)

    piece = only(fetcher.fetch(None))

    assert [len(s) for s in piece.table.column("s").to_pylist()] == [1, 1000]
    assert [bad.reason for bad in piece.bad] == [
        f"{size} bytes, more than the 1,000 allowed: raise max_record_bytes=" for size in ("100,000", "1,001")
    ]
    assert [bad.position["id"] for bad in piece.bad] == [ids(rig)[1], ids(rig)[3]]
    assert all(len(bad.record) <= 4096 for bad in piece.bad)
    fetcher.close()


def test_a_stream_that_was_removed_and_made_again_is_read_on(rig: RedisRig) -> None:
    rig.put(0, 12)
    _, cursor = read(rig)
    with rig.client() as client:
        client.delete(rig.stream)
    told: list[str] = []
    assert read(rig, cursor, told)[0] == []
    assert len(told) == 1
    assert told[0].startswith("warning: the stream was removed; entries after ")
    rig.put(12, 40)

    found, cursor = read(rig, cursor)
    assert found == list(range(12, 40))
    trim(rig, 2)
    assert read(rig, cursor)[0] == []


def test_what_is_read_after_a_restart_of_the_server_is_the_rest(
    spark: SparkSession, rig: RedisRig, runs: Path, tmp_path: Path
) -> None:
    rig.put(0, 20)
    left = run_until(copying([rig], tmp_path / "out"), spark, 20, leave=True, runs=runs)
    rig.server.kill()
    rig.server.start()
    rig.put(20, 30)

    run_to_end(copying([rig], tmp_path / "out"), spark, folder=left.folder)

    check_rows(rig, tmp_path / "out", range(30))
