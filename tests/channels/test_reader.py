"""Reading a channel: readers at different speeds, cuts inside a segment, rows skipped, segments that come and go."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.channels.model import SCHEMA, Model, batch_of, fill, open_writer, rows_of, simple, ticks

from riprap.channels import ChannelReader, folder, log_index
from riprap.channels import reader as reader_module
from riprap.channels.segment import SegmentName
from riprap.errors import ChannelError, DamagedFileError

READERS = ("a", "b")
ACTIONS = st.lists(
    st.tuples(st.just("append"), st.integers(0, 6), st.integers(0, 2))
    | st.tuples(st.just("read"), st.sampled_from(READERS), st.integers(0, 12))
    | st.tuples(st.just("skip"), st.sampled_from(READERS), st.just(0))
    | st.tuples(st.just("trim"), st.just(0), st.just(0))
    | st.tuples(st.just("restart"), st.just(0), st.just(0)),
    min_size=5,
    max_size=30,
)


@settings(max_examples=150, deadline=None)
@given(actions=ACTIONS, newest=st.sampled_from([1, 3, log_index.NEWEST]))
def test_each_reader_gets_all_it_did_not_skip_once_and_in_order(
    actions: list[tuple[str, int, int]], newest: int
) -> None:
    home = Path(tempfile.mkdtemp())
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(log_index, "NEWEST", newest)
            run_script(home, actions)
    finally:
        shutil.rmtree(home)


def run_script(home: Path, actions: list[tuple[str, int, int]]) -> None:
    writer = open_writer(home, readers=READERS)
    model = Model(tags=2, key=("name",), buckets=4)
    reached: dict[str, int | None] = dict.fromkeys(READERS)
    for action, which, size in actions:
        if action == "append":
            # Frontiers stand 10 apart, with rows on both sides of the middle; an empty batch repeats the one before.
            batch, before = len(model.batches), -10 if model.frontier is None else model.frontier
            frontier = before + 10 if which else before
            rows = [
                {"name": f"n{n}", "price": 0.5, "size": n, "$0": frontier - (3 if n < 3 else 0), "$1": n}
                for n in range(which)
            ]
            marks = [{"$0": frontier, "$1": n} for n in range(size)] if which else []
            writer.append(
                batch, batch_of(rows, 2), batch_of(marks, 2, pa.schema([])), frontier=frontier, sources={}
            )
            model.batches.append((frontier, rows, marks))
        elif action == "restart":
            writer = open_writer(home, readers=READERS)
        elif action == "trim":
            gone = writer.trim()
            low = min((-100 if r is None else r) for r in reached.values())
            left = len(list(home.rglob("*.segment")))
            needed = [i for i, (frontier, _, _) in enumerate(model.batches) if frontier > low]
            oldest = min([*needed, len(model.batches) - 1])
            assert left == max(len(model.batches) - max(oldest, 0), 0)
            assert gone >= 0
        else:
            reader, after = ChannelReader(home, str(which)), reached[str(which)]
            upto = reader.next(after, size)
            assert upto == model.next(after, size)
            if upto is None:
                continue
            if action == "skip":
                assert reader.skip(after, upto) == reader.skip(after, upto)
                assert reader.skip(after, upto) == len(model.all_between(after, upto))
                assert reader.count(after, upto) == 0
                assert [t.num_rows for t in reader.read(after, upto, [])] == [0, 0]
            else:
                tuples, punctuations = reader.read(after, upto, ["size", "name"])
                assert rows_of(tuples) == model.tuples(after, upto, ["size", "name"], None)
                assert rows_of(punctuations) == model.punctuations(after, upto)
            reader.acknowledge(upto)
            assert ChannelReader(home, str(which)).acknowledged == upto
            reached[str(which)] = upto


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log of five batches: 0 to 4 are their frontiers, ten tuples each."""
    fill(open_writer(tmp_path, readers=READERS), 5)
    return tmp_path


def sizes(reader: ChannelReader, after: int | None, upto: int) -> list[int]:
    found: list[int] = reader.read(after, upto, ["size"])[0].column("size").to_pylist()
    return found


def numbers(*batches: int) -> list[int]:
    return [n for batch in batches for n in range(batch * 100, batch * 100 + 10)]


def test_a_channel_that_is_not_there_yet(tmp_path: Path) -> None:
    reader = ChannelReader(tmp_path / "later", "a")

    assert reader.frontier is None
    assert reader.next(None, 100) is None
    assert not reader.ended
    assert reader.acknowledged is None
    assert reader.count(3, 3) == 0
    with pytest.raises(ChannelError, match="ends at frontier None, and 'a' asks for 0"):
        reader.count(None, 0)
    with pytest.raises(ChannelError, match="its producer has not begun"):
        reader.read(None, 0, [])
    assert not (tmp_path / "later").exists()

    fill(open_writer(tmp_path / "later"), 1)
    assert sizes(reader, None, 0) == numbers(0)


def test_a_log_without_rows(tmp_path: Path) -> None:
    writer = open_writer(tmp_path)
    reader = ChannelReader(tmp_path, "a")
    assert (reader.frontier, reader.next(None, 5)) == (None, None)

    for batch in (0, 1):
        writer.append(batch, simple(0, 0), None, frontier=-(2**63), sources={})

    assert reader.frontier == reader.next(None, 0) == -(2**63)
    assert reader.next(-(2**63), 5) is None
    assert reader.count(None, -(2**63)) == 0
    assert [t.num_rows for t in reader.read(None, -(2**63), SCHEMA.names)] == [0, 0]


def test_a_finished_log_without_a_segment(tmp_path: Path) -> None:
    open_writer(tmp_path).finish()
    reader = ChannelReader(tmp_path, "a")

    assert reader.ended
    assert (reader.frontier, reader.next(None, 5), reader.count(None, 7)) == (None, None, 0)
    assert [t.num_rows for t in reader.read(None, 7, ["name"])] == [0, 0]
    reader.acknowledge(7)


def test_next_takes_whole_segments_within_the_limit(log: Path) -> None:
    reader = ChannelReader(log, "a")

    assert [reader.next(None, rows) for rows in (0, 9, 10, 19, 20, 49, 50, 1000)] == [0, 0, 0, 0, 1, 3, 4, 4]
    assert [reader.next(after, 25) for after in (0, 2, 3, 4, 5)] == [2, 4, 4, None, None]


def test_a_range_may_begin_and_end_inside_a_segment(tmp_path: Path) -> None:
    writer = open_writer(tmp_path)
    rows = [{"name": f"n{n}", "price": 0.0, "size": n, "$0": n // 5, "$1": n} for n in range(500)]
    for batch in range(2):
        part = rows[250 * batch : 250 * batch + 250]
        marks = ticks(*((r["$0"], 0) for r in part[::50]))
        writer.append(batch, batch_of(part, 2), marks, frontier=49 + 50 * batch, sources={})
    reader = ChannelReader(tmp_path, "a")

    assert sizes(reader, 19, 29) == list(range(100, 150))
    assert sizes(reader, 39, 59) == list(range(200, 300))
    assert reader.count(39, 59) == 100
    assert reader.next(39, 50) == 49
    assert reader.next(39, 300) == 99
    assert rows_of(reader.read(30, 69, [])[1]) == [{"$0": n, "$1": 0} for n in (40, 50, 60)]
    both = [reader.read(19, 29, ["size"], span)[0] for span in ((0, 2), (2, 4))]
    assert sorted(n for t in both for n in t.column("size").to_pylist()) == list(range(100, 150))
    assert all(t.num_rows for t in both)


def test_punctuations_go_to_every_bucket(tmp_path: Path) -> None:
    writer = open_writer(tmp_path)
    writer.append(0, simple(0, 0), ticks((0, 1), (0, 2)), frontier=0, sources={})
    reader = ChannelReader(tmp_path, "a")

    for bucket in range(4):
        tuples, punctuations = reader.read(None, 0, ["name"], (bucket, bucket + 1))
        assert tuples.num_rows == 0
        assert rows_of(punctuations) == [{"$0": 0, "$1": 1}, {"$0": 0, "$1": 2}]


def test_what_is_not_in_the_log_is_not_read_as_nothing(log: Path) -> None:
    reader = ChannelReader(log, "a")

    for call in (reader.count, reader.skip, lambda a, u: reader.read(a, u, [])):
        with pytest.raises(ChannelError, match="ends at frontier 4, and 'a' asks for 5"):
            call(2, 5)
    with pytest.raises(ChannelError, match="ends at frontier 4, and 'a' asks for 5"):
        reader.acknowledge(5)
    with pytest.raises(ChannelError, match=r"no column nome\. It has: name string"):
        reader.read(2, 4, ["name", "nome"])
    with pytest.raises(ChannelError, match="has buckets 0 to 3, so buckets 4 to 7 are another division"):
        reader.read(2, 4, ["name"], (4, 8))


def test_an_ended_log_holds_nothing_beyond(log: Path) -> None:
    open_writer(log).finish()

    assert sizes(ChannelReader(log, "a"), 3, 100) == numbers(4)


def test_trim_keeps_what_the_slowest_reader_needs(log: Path) -> None:
    writer = open_writer(log, readers=READERS)
    fast, slow = (ChannelReader(log, name) for name in READERS)
    assert writer.trim() == 0

    fast.acknowledge(4)
    assert writer.trim() == 0
    slow.acknowledge(1)
    assert writer.trim() == 2
    assert sizes(slow, 1, 4) == numbers(2, 3, 4)
    slow.acknowledge(0)
    assert slow.acknowledged == 1
    slow.acknowledge(4)
    assert writer.trim() == 2

    assert writer.trim() == 0
    assert len(list(log.glob("*.segment"))) == 1
    assert slow.next(4, 10) is None
    assert open_writer(log).batch == 4


def test_what_was_trimmed_is_not_read_as_nothing(log: Path) -> None:
    for name in READERS:
        ChannelReader(log, name).acknowledge(2)
    open_writer(log, readers=READERS).trim()
    reader = ChannelReader(log, "b")

    for call in (reader.count, lambda a, u: reader.next(a, 5), lambda a, u: reader.read(a, u, [])):
        with pytest.raises(ChannelError, match="begins after frontier 2, and 'b' asks for rows after 1"):
            call(1, 4)
    with pytest.raises(ChannelError, match=r"asks for rows after the beginning\. It has acknowledged 2"):
        reader.count(None, 4)
    assert sizes(reader, 2, 4) == numbers(3, 4)
    # Rows that are gone already are not lost by skipping them.
    assert reader.skip(None, 3) == 10
    assert sizes(reader, None, 4) == numbers(4)


def test_skipped_rows_are_left_out_for_good_and_by_one_reader(log: Path) -> None:
    reader = ChannelReader(log, "a")

    assert reader.skip(0, 2) == 20
    reader.acknowledge(0)

    again = ChannelReader(log, "a")
    assert again.skip(0, 2) == 20
    assert sizes(again, None, 4) == numbers(0, 3, 4)
    assert sizes(again, 1, 3) == numbers(3)
    assert again.count(0, 4) == 20
    assert [again.next(0, rows) for rows in (0, 9, 10, 20)] == [2, 2, 3, 4]
    assert again.skip(1, 3) == 10
    assert sizes(again, None, 4) == numbers(0, 4)
    assert again.skip(3, 3) == 0
    assert sizes(ChannelReader(log, "b"), None, 4) == numbers(0, 1, 2, 3, 4)


def test_skipping_may_begin_and_end_inside_a_segment(tmp_path: Path) -> None:
    rows = [{"name": "n", "price": 0.0, "size": n, "$0": n, "$1": 0} for n in range(100)]
    open_writer(tmp_path).append(0, batch_of(rows, 2), None, frontier=99, sources={})
    reader = ChannelReader(tmp_path, "a")

    assert reader.skip(29, 59) == 30
    assert reader.skip(69, 74) == 5

    left = [*range(30), *range(60, 70), *range(75, 100)]
    assert sizes(reader, None, 99) == left
    assert sizes(reader, 49, 64) == list(range(60, 65))
    assert reader.count(None, 99) == len(left)


def test_a_segment_that_is_missing_is_an_error(log: Path) -> None:
    next(log.glob("0000000002-*")).unlink()

    for call in (lambda: ChannelReader(log, "a").count(None, 4), lambda: open_writer(log)):
        with pytest.raises(ChannelError, match="no segment of batch 2, though it has older and newer ones"):
            call()


def test_a_listing_may_be_older_than_the_log(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = folder.list_segments(log)
    for name in READERS:
        ChannelReader(log, name).acknowledge(2)
    open_writer(log, readers=READERS).trim()
    monkeypatch.setattr(reader_module, "list_segments", lambda *_: listed)
    reader = ChannelReader(log, "a")

    assert reader.next(2, 100) == 4
    assert sizes(reader, 2, 4) == numbers(3, 4)
    with pytest.raises(ChannelError, match=r"went while 'a' read the log\. It has acknowledged 2"):
        reader.read(1, 4, [])


def test_where_a_log_begins_is_looked_up_again_if_it_is_trimmed_meanwhile(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = open_writer(log, readers=READERS)
    for name in READERS:
        ChannelReader(log, name).acknowledge(0)
    writer.trim()
    stale = folder.list_segments(log)
    for name in READERS:
        ChannelReader(log, name).acknowledge(2)
    writer.trim()
    listings = iter([stale, folder.list_segments(log)])
    monkeypatch.setattr(reader_module, "list_segments", lambda *_: next(listings))

    assert ChannelReader(log, "a").begins == 2


def test_all_but_the_newest_are_set_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_index, "NEWEST", 3)
    log = tmp_path / "log"
    fill(open_writer(log, readers=READERS), 5)
    fast, slow = (ChannelReader(log, name) for name in READERS)

    assert [len(list(at.glob("*.segment"))) for at in (log, log / folder.OLDER)] == [3, 2]
    assert sizes(slow, None, 4) == numbers(0, 1, 2, 3, 4)
    assert slow.next(None, 11) == 0
    assert slow.count(0, 4) == len(numbers(1, 2, 3, 4))
    fast.acknowledge(4)
    slow.acknowledge(0)
    assert open_writer(log, readers=READERS).trim() == 1
    assert sizes(slow, 0, 4) == numbers(1, 2, 3, 4)
    (log / folder.OLDER / folder.list_segments(log)[0].file).unlink()
    with pytest.raises(ChannelError, match="begins after frontier 1"):
        slow.read(0, 4, [])
    slow.acknowledge(4)
    open_writer(log, readers=READERS).trim()
    assert [name.batch for name in folder.list_segments(log)] == [4]


def test_segments_may_be_set_aside_after_they_were_listed(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = folder.list_segments(log)
    monkeypatch.setattr(log_index, "NEWEST", 1)
    writer = open_writer(log)
    writer.append(5, simple(5), None, frontier=5, sources={})
    monkeypatch.setattr(reader_module, "list_segments", lambda *_: listed)

    assert len(list((log / folder.OLDER).iterdir())) == 5
    assert sizes(ChannelReader(log, "a"), None, 4) == numbers(0, 1, 2, 3, 4)


def test_two_segments_of_a_batch_are_an_error(log: Path) -> None:
    (log / SegmentName(2, 20, 11, 2).file).touch()

    with pytest.raises(ChannelError, match="two segments of batch 2"):
        ChannelReader(log, "a").count(None, 4)


@pytest.mark.parametrize(
    ("scans", "expected"),
    [
        ([[1, 2, 3]], [1, 2, 3]),
        # 3 and 4 were written during the first scan, 5 and 6 during the second.
        ([[1, 2, 4], [1, 2, 3, 4, 6]], [1, 2, 3, 4]),
        # 2 was removed during the first scan, after 1 was seen; 3 during the second, after itself.
        ([[1, 3, 4, 5], [3, 4, 5]], [3, 4, 5]),
        # 0 to 2 were removed during the first scan, 3 and 4 during the second.
        ([[0, 1, 3, 4, 5, 6], [3, 5, 6]], [5, 6]),
        ([[1, 3], [1, 3]], None),
        ([[1, 2, 4, 5], [2, 4, 5]], None),
    ],
)
def test_what_comes_and_goes_during_a_scan_leaves_no_hole(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, scans: list[list[int]], expected: list[int] | None
) -> None:
    seen: Iterator[list[int]] = iter(scans)

    def scan(at: Path) -> list[SegmentName]:
        return [] if at.name == folder.OLDER else [SegmentName(b, 0, 0, b) for b in next(seen)]

    monkeypatch.setattr(folder, "scan", scan)

    if expected is None:
        with pytest.raises(ChannelError, match="no segment of batch"):
            folder.list_segments(tmp_path)
    else:
        assert [name.batch for name in folder.list_segments(tmp_path)] == expected


def test_names_of_readers_may_be_anything(log: Path) -> None:
    for number, name in enumerate(("x/y", "..", "é", "A b")):
        ChannelReader(log, name).acknowledge(number)

    assert [ChannelReader(log, n).acknowledged for n in ("x/y", "..", "é", "A b")] == [0, 1, 2, 3]
    assert len(list((log / "readers").iterdir())) == 4


def test_damaged_notes_are_an_error(log: Path) -> None:
    ChannelReader(log, "a").acknowledge(1)
    (log / "readers" / "a.json").write_text('{"format": "riprap-channel-reader/1"}')

    with pytest.raises(DamagedFileError, match=r"a\.json is damaged"):
        open_writer(log, readers=READERS).trim()
