"""A channel that several replicas write: whichever log is read, and whenever, the rows are those of one log."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest
from tests.channels.model import SCHEMA, Row, batch_of, rows_of, tag_fields, ticks

from riprap.channels import ChannelWriter, ReplicatedReader
from riprap.channels.folder import list_segments
from riprap.channels.replicas import begin_log, forget_logs, list_logs, newest_log
from riprap.channels.segment import BEGIN
from riprap.errors import ChannelError

LETTERS = ("a", "b", "c")
END = 60


def truth(seed: int = 0, end: int = END) -> list[Row]:
    """Return the rows of a stream, some for most frontiers and none for others."""
    chance = Random(seed)
    return [
        {"name": f"n{chance.randrange(5)}", "price": n / 4, "size": frontier, "$0": frontier, "$1": n}
        for frontier in range(end)
        for n in range(chance.choice([0, 1, 1, 2, 3]))
    ]


def between(rows: list[Row], after: int | None, upto: int) -> list[Row]:
    return [row for row in rows if (-1 if after is None else after) < row["$0"] <= upto]


@dataclass
class Replica:
    """Writes its log, of the rows of everybody, with cuts of its own."""

    home: Path
    letter: str
    rows: list[Row]
    readers: tuple[str, ...] = ("out",)
    counts: Callable[[str], bool] = lambda _: True
    batch: int = -1
    frontier: int = -1
    writer: ChannelWriter = field(init=False)

    def __post_init__(self) -> None:
        self.writer = self.opened(newest_log(self.home, self.letter).folder)

    def opened(self, log: Path) -> ChannelWriter:
        return ChannelWriter(
            log,
            stream="trades",
            schema=SCHEMA,
            tags=2,
            key=("name",),
            buckets=4,
            readers=self.readers,
            notes=self.home,
            counts=self.counts,
        )

    def write(self, upto: int) -> None:
        """Put out all up to a frontier, in one batch."""
        self.batch += 1
        rows = between(self.rows, self.frontier, upto)
        marks = ticks(*((n, 0) for n in range(self.frontier + 1, upto + 1) if n % 10 == 0))
        self.writer.append(
            self.batch, batch_of(rows, 2), marks, frontier=upto, sources={"feed": [self.frontier, upto]}
        )
        self.frontier = upto

    def come_back(self, frontier: int) -> None:
        """Begin another log after a frontier that another replica has reached."""
        self.batch, self.frontier = self.batch + 1, frontier
        self.writer = self.opened(begin_log(self.home, self.letter, frontier).folder)
        self.writer.begin_at(self.batch, frontier, {"feed": [None, frontier]})


def opened(home: Path, prefer: str | None = None, reader: str = "out") -> ReplicatedReader:
    return ReplicatedReader(home, reader, prefer)


def read(reader: ReplicatedReader, after: int | None, upto: int) -> list[Row]:
    return rows_of(reader.read(after, upto, SCHEMA.names)[0])


def marks(reader: ReplicatedReader, after: int | None, upto: int) -> list[int]:
    return [row["$0"] for row in rows_of(reader.read(after, upto, [])[1])]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "trades@name"


@pytest.mark.parametrize("seed", range(30))
def test_any_switching_at_any_point_reads_the_rows_of_one_log(seed: int) -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        run_script(folder / "channel", Random(seed))
    finally:
        shutil.rmtree(folder)


def run_script(home: Path, chance: Random) -> None:
    rows = truth(chance.randrange(1000))
    replicas = {letter: Replica(home, letter, rows) for letter in LETTERS}
    alive = set(LETTERS)
    got: list[Row] = []
    ticked: list[int] = []
    done: int | None = None
    for _ in range(120):
        letter = chance.choice(LETTERS)
        replica = replicas[letter]
        action = chance.choice(
            ["write", "write", "write", "read", "read", "trim", "die", "come back", "open"]
        )
        if action == "write" and letter in alive and replica.frontier < END - 1:
            replica.write(min(replica.frontier + chance.randrange(1, 8), END - 1))
        elif action == "die" and len(alive) > 1:
            alive.discard(letter)
        elif action == "come back" and letter not in alive:
            # As a replica does: with the state of one that is alive and ahead.
            peer = max((replicas[each] for each in alive), key=lambda each: each.frontier)
            if peer.frontier > replica.frontier:
                replica.come_back(peer.frontier)
            alive.add(letter)
        elif action == "open" and letter in alive:
            replica.writer = replica.opened(newest_log(home, letter).folder)
        elif action == "trim":
            replica.writer.trim()
            forget_logs(home, letter, replica.writer.acknowledged)
        elif action == "read":
            # What is active need not be alive: its results up to there are as good.
            reader = opened(home, chance.choice([*LETTERS, None]))
            upto = reader.next(done, chance.randrange(1, 20))
            if upto is None:
                continue
            if chance.random() < 0.3:
                upto = chance.randint(0 if done is None else done + 1, upto)
            # A batch that is read again may be read in another log.
            reader = opened(home, chance.choice([*LETTERS, None]))
            span = [reader.read(done, upto, SCHEMA.names, each)[0] for each in ((0, 1), (1, 4))]
            part = sorted(
                (row for table in span for row in rows_of(table)), key=lambda row: (row["$0"], row["$1"])
            )
            assert part == read(reader, done, upto)
            assert len(part) == reader.count(done, upto)
            got += part
            ticked += marks(reader, done, upto)
            if chance.random() < 0.8:
                reader.acknowledge(upto)
            done = upto
    for letter in alive:
        while replicas[letter].frontier < END - 1:
            replicas[letter].write(min(replicas[letter].frontier + 9, END - 1))
    while (upto := opened(home).next(done, 7)) is not None:
        got += read(opened(home), done, upto)
        ticked += marks(opened(home), done, upto)
        done = upto
    assert done == END - 1
    assert got == rows
    assert ticked == list(range(0, END, 10))


def test_a_folder_without_logs_has_nothing(home: Path) -> None:
    for prefer in ("a", None):
        reader = opened(home, prefer)
        assert (reader.frontier, reader.newest, reader.ended, reader.acknowledged) == (
            None,
            None,
            False,
            None,
        )
        assert (reader.next(None, 5), reader.chosen(None), reader.ending_at(3)) == (None, None, None)
        assert (reader.lost, reader.begins) == (0, BEGIN)
        with pytest.raises(
            ChannelError, match=r"no log of a replica in .* has what 'out' asks for, .* are: none\."
        ):
            reader.read(None, 4, [])
    assert list_logs(home) == []
    assert not home.exists()


def test_logs_are_listed_by_replica_and_age(home: Path) -> None:
    rows = truth()
    for letter in ("b", "a"):
        Replica(home, letter, rows).write(4)
    begin_log(home, "b", -3)
    begin_log(home, "b", 2**62)
    (home / "logs" / "note.txt").touch()

    listed = list_logs(home)

    assert [(log.letter, log.number, log.start) for log in listed] == [
        ("a", 0, BEGIN), ("b", 0, BEGIN), ("b", 1, -3), ("b", 2, 2**62)
    ]  # fmt: skip
    assert listed[3].folder.name == "b.2.13835058055282163712"
    assert newest_log(home, "b") == listed[3]
    assert newest_log(home, "c").folder == home / "logs" / "c.0"
    assert [log.frontier for log in listed] == [4, 4, BEGIN, BEGIN]


def test_one_goes_on_in_the_log_it_prefers_as_far_as_that_is(home: Path) -> None:
    rows = truth()
    a, b = (Replica(home, letter, rows) for letter in "ab")
    a.write(9)
    a.write(19)
    b.write(12)

    assert [opened(home, prefer).frontier for prefer in ("a", "b", None)] == [19, 12, 19]
    assert [opened(home, prefer).next(None, 999) for prefer in ("a", "b", None)] == [19, 12, 19]
    # It was further in the other: it waits until this one is there.
    assert opened(home, "b").next(19, 999) is None
    b.write(25)
    assert opened(home, "b").next(19, 999) == 25
    assert read(opened(home, "b"), 19, 25) == between(rows, 19, 25)


def test_a_range_that_the_preferred_log_lacks_is_read_from_another(home: Path) -> None:
    rows = truth()
    a, b = (Replica(home, letter, rows) for letter in "ab")
    a.write(30)
    b.write(10)

    # Planned while a was active, and read when b is.
    assert read(opened(home, "b"), 5, 30) == between(rows, 5, 30)
    b.come_back(30)
    b.write(40)
    assert read(opened(home, "b"), 30, 40) == between(rows, 30, 40)
    assert read(opened(home, "b"), 5, 20) == between(rows, 5, 20)
    assert opened(home, "b").next(5, 999) == 30, "the part before its newest log is in another's"
    assert opened(home, "b").next(30, 999) == 40
    with pytest.raises(
        ChannelError, match=r"from 5 up to 40\. There are: a\.0, b\.0, b\.1\.0\d+\. The folder may be"
    ):
        read(opened(home, "b"), 5, 40)


def test_whichever_is_ahead_changes_from_batch_to_batch(home: Path) -> None:
    rows = truth()
    a, b = (Replica(home, letter, rows) for letter in "ab")
    done, got, chosen = None, [], []
    for replica, upto in ((a, 5), (b, 9), (a, 7), (a, 14), (b, 20), (b, 22)):
        replica.write(upto)
        reader = opened(home)
        log, further = reader.chosen(done), reader.next(done, 999)
        chosen.append("" if log is None or further is None else log.letter)
        if further is not None:
            got += read(reader, done, further)
            done = further

    assert chosen == ["a", "b", "", "a", "b", "b"]
    assert got == between(rows, None, 22)


def test_a_log_that_begins_later_is_chosen_from_there_on(home: Path) -> None:
    rows = truth()
    a, b = (Replica(home, letter, rows) for letter in "ab")
    a.write(20)
    b.write(6)
    b.come_back(20)
    reader = opened(home, "b")

    assert [reader.chosen(after).number for after in (None, 5, 19)] == [0, 0, 0]  # type: ignore[union-attr]
    assert reader.chosen(None).letter == "a"  # type: ignore[union-attr]
    at = reader.chosen(20)
    assert at is not None
    assert (at.letter, at.number, at.start) == ("b", 1, 20)
    assert (reader.frontier, reader.next(20, 9)) == (20, None)
    footer = reader.ending_at(20)
    assert footer is not None
    assert b.writer.batch == 1, "batches go on"


def test_a_reopened_log_that_begins_later_goes_on(home: Path) -> None:
    rows = truth()
    a, b = (Replica(home, letter, rows) for letter in "ab")
    a.write(20)
    b.come_back(20)
    b.writer = b.opened(newest_log(home, "b").folder)
    assert (b.writer.batch, b.writer.frontier, b.writer.released) == (0, 20, 0)
    b.write(33)

    assert read(opened(home, "b"), 20, 33) == between(rows, 20, 33)


def test_what_lies_between_a_log_that_was_lost_and_those_of_now_is_not_there(home: Path) -> None:
    rows = truth()
    a, b = (Replica(home, letter, rows) for letter in "ab")
    for replica, upto in ((a, 10), (b, 10), (a, 20), (a, 30)):
        replica.write(upto)
    reader = opened(home, "b")
    assert reader.begins == BEGIN
    assert reader.has(None, 30)
    assert not reader.has(None, 40)
    reader.acknowledge(20)
    a.writer.trim()
    b.come_back(30)

    assert [log.folder.name[:3] for log in list_logs(home)] == ["a.0", "b.0", "b.1"]
    assert reader.begins == 20, "all after that is in a log, and all up to 10 in another"
    assert reader.has(None, 10)
    assert not reader.has(None, 30)
    assert not reader.has(10, 30)
    assert reader.has(20, 30)


def test_a_log_that_was_begun_and_has_nothing_yet_holds_nobody_up(home: Path) -> None:
    rows = truth()
    a = Replica(home, "a", rows)
    a.write(20)
    begin_log(home, "b", 11)

    assert opened(home, "b").frontier is None
    assert opened(home, "b").next(5, 999) == 20
    assert opened(home, None).next(12, 999) == 20
    # From there on it is b that one waits for.
    assert opened(home, "b").next(12, 999) is None


def test_what_all_who_count_have_had_is_trimmed_from_every_log(home: Path) -> None:
    rows, out = truth(), {"out~b"}
    readers = ("out~a", "out~b")
    a, b = (Replica(home, x, rows, readers=readers, counts=lambda each: each not in out) for x in "ab")
    for upto in (9, 19, 29):
        a.write(upto)
    b.write(14)
    b.write(29)

    assert a.writer.acknowledged is None
    assert a.writer.trim() == 0
    opened(home, "a", "out~a").acknowledge(19)
    assert a.writer.acknowledged == 19, "who is out has no say"
    assert (a.writer.trim(), b.writer.trim()) == (2, 1)
    assert opened(home, "a", "out~a").begins == 14, "one log still has it"
    out.clear()
    assert a.writer.acknowledged is None, "who counts again and has nothing"
    a.write(39)
    assert a.writer.trim() == 0
    assert read(opened(home, "b", "out~a"), 19, 29) == between(rows, 19, 29)
    with pytest.raises(ChannelError, match=r"begins after frontier \d+, and 'out~b' asks for rows after 5"):
        read(opened(home, "a", "out~b"), 5, 29)
    opened(home, "b", "out~b").acknowledge(29)
    assert a.writer.acknowledged == 19


def test_acknowledging_less_than_before_changes_nothing(home: Path) -> None:
    Replica(home, "a", truth()).write(9)
    reader = opened(home, "a")
    reader.acknowledge(7)
    reader.acknowledge(3)

    assert (reader.acknowledged, opened(home, "b").acknowledged) == (7, 7)


def test_a_log_goes_once_all_have_had_it_but_never_the_newest(home: Path) -> None:
    rows = truth()
    a, b = (Replica(home, letter, rows) for letter in "ab")
    a.write(20)
    b.write(6)
    b.come_back(20)
    b.write(25)

    forget_logs(home, "b", None)
    forget_logs(home, "b", 5)
    assert len(list_logs(home)) == 3
    forget_logs(home, "b", 6)
    assert [(log.letter, log.number) for log in list_logs(home)] == [("a", 0), ("b", 1)]
    forget_logs(home, "b", 99)
    assert [(log.letter, log.number) for log in list_logs(home)] == [("a", 0), ("b", 1)]


def test_skipped_rows_are_left_out_of_every_log(home: Path) -> None:
    rows = truth()
    a, b = (Replica(home, letter, rows) for letter in "ab")
    a.write(10)
    b.write(14)
    lost = len(between(rows, 8, 14))

    assert opened(home, "b").skip(8, 14) == lost
    assert opened(home, "b").skip(8, 14) == lost, "again, the same number"
    assert (opened(home, "a").lost, opened(home, "b").lost) == (lost, lost)
    a.write(20)
    b.write(22)
    for prefer in ("a", "b", None):
        assert read(opened(home, prefer), 5, 20) == [*between(rows, 5, 8), *between(rows, 14, 20)]
        assert opened(home, prefer).count(8, 14) == 0
        assert read(opened(home, prefer), 8, 14) == []
    assert opened(home, "a").skip(14, 14) == 0
    assert read(opened(home, "a", "other"), 8, 14) == between(rows, 8, 14)


def test_what_is_skipped_may_lie_in_several_logs(home: Path) -> None:
    rows = truth()
    a, b, c = (Replica(home, letter, rows) for letter in LETTERS)
    a.write(10)
    c.write(25)
    b.come_back(25)
    b.write(31)

    # No log has all of it: c's ends where b's begins.
    assert opened(home, "b").skip(10, 31) == len(between(rows, 10, 31))
    assert read(opened(home, "b"), 10, 31) == []


def test_only_what_is_there_is_skipped(home: Path) -> None:
    a = Replica(home, "a", truth())
    a.write(10)
    with pytest.raises(ChannelError, match=r"from 10 up to 12\. There are: a\.0\."):
        opened(home, "a").skip(5, 12)
    assert opened(home, "a").lost == 0
    a.writer.finish()
    assert opened(home, "a").skip(5, 12) == len(between(a.rows, 5, 10))


def test_an_end_counts_as_soon_as_one_has_come_to_it_unless_another_is_beyond(home: Path) -> None:
    rows = truth()
    a, b = (Replica(home, letter, rows) for letter in "ab")
    a.write(20)
    b.write(20)
    b.writer.finish()
    assert (opened(home).ended, opened(home).frontier) == (True, 20)
    assert (opened(home, "a").ended, opened(home, "b").ended) == (False, True)
    assert opened(home, "b").newest is not None
    assert read(opened(home, "b"), 9, 99) == between(rows, 9, 20), "nothing comes beyond"
    # A run that was taken up in one process: there is more input by now, and b does not run.
    a.write(30)
    assert (opened(home).ended, opened(home).frontier) == (False, 30)


def test_damage_and_what_is_missing_are_errors(home: Path) -> None:
    rows = truth()
    a, b = (Replica(home, letter, rows) for letter in "ab")
    for upto in (9, 19, 29, 39):
        a.write(upto)
    b.write(39)
    b.write(45)
    at = newest_log(home, "a").folder
    second = at / list_segments(at)[1].file
    whole = second.read_bytes()

    second.write_bytes(whole[:-3] + bytes(3))
    with pytest.raises(ChannelError, match=f"{second.name} is damaged"):
        read(opened(home, "a"), 5, 29)
    assert read(opened(home, "b"), 5, 29) == between(rows, 5, 29)
    second.unlink()
    with pytest.raises(ChannelError, match="no segment of batch 1, though it has older and newer ones"):
        read(opened(home, "a"), 5, 29)
    second.write_bytes(whole)
    assert read(opened(home, "a"), 5, 29) == between(rows, 5, 29)
    (at / "channel.json").unlink()
    with pytest.raises(ChannelError, match="there is no channel in"):
        read(opened(home, "a"), 5, 29)


def test_who_would_write_another_stream_is_refused(home: Path) -> None:
    Replica(home, "a", truth()).write(3)
    assert [name for name, _ in tag_fields(2)] == ["$0", "$1"]
    with pytest.raises(ChannelError, match="has stream 'trades', not 'quotes'"):
        ChannelWriter(
            newest_log(home, "a").folder,
            stream="quotes",
            schema=SCHEMA,
            tags=2,
            key=None,
            buckets=1,
            readers=(),
        )
