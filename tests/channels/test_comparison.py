"""Logs of replicas, cut up in any way, are the same or are not; and if not, it is said where, and who is wrong."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.channels.model import tag_fields

from riprap.channels import ChannelWriter
from riprap.channels.comparison import PATIENCE_SECONDS, LogComparison, LogDifference
from riprap.channels.folder import scan
from riprap.channels.notes import COMPARED, Notes
from riprap.channels.replicas import begin_log, newest_log

SCHEMA = pa.schema(
    [("name", pa.string()), ("price", pa.float64()), ("size", pa.int64()), ("parts", pa.list_(pa.float64()))]
)
READER = "out"
Row = dict[str, Any]


def make_rows(count: int, *, first: int = 0) -> list[Row]:
    """Make rows of which three have each frontier, with all that is hard to compare in them."""
    prices = [1.5, None, math.nan, -0.0, 0.0, math.inf]
    return [
        {
            "name": None if n % 11 == 0 else f"n{n % 7}",
            "price": prices[n % 6],
            "size": n,
            "parts": None if n % 5 == 0 else [n / 2, math.nan, None][: n % 4],
            "$0": n // 3,
            "$1": n % 3,
        }
        for n in range(first, first + count)
    ]


def batch_of(rows: Sequence[Row], *, encoded: bool = False) -> pa.RecordBatch:
    batch = pa.RecordBatch.from_pylist(list(rows), schema=pa.schema([*SCHEMA, *tag_fields(2)]))
    if not encoded:
        return batch
    columns = [batch.column(0).dictionary_encode(), *batch.columns[1:]]
    return pa.RecordBatch.from_arrays(columns, batch.schema.names)


class Log:
    """The log of a replica: rows and punctuations are appended up to frontiers."""

    def __init__(self, channel: Path, letter: str, *, buckets: int = 4, encoded: bool = False) -> None:
        self._channel, self._letter, self._buckets, self._encoded = channel, letter, buckets, encoded
        self.writer = self._open()

    def _open(self) -> ChannelWriter:
        return ChannelWriter(
            newest_log(self._channel, self._letter).folder,
            stream="sums",
            schema=SCHEMA,
            tags=2,
            key=("name",),
            buckets=self._buckets,
            readers=[READER],
            notes=self._channel,
        )

    def begin_again(self, batch: int, frontier: int) -> None:
        begin_log(self._channel, self._letter, frontier)
        self.writer = self._open()
        self.writer.begin_at(batch, frontier, {})

    def put(self, rows: Sequence[Row], cuts: Sequence[int], ticks: Sequence[tuple[int, int]] = ()) -> None:
        """Append what comes up to each of some frontiers."""
        for upto in cuts:
            after = -1 if self.writer.frontier is None else self.writer.frontier
            marks = [{"$0": a, "$1": b} for a, b in ticks if after < a <= upto]
            self.writer.append(
                self.writer.batch + 1,
                batch_of([row for row in rows if after < row["$0"] <= upto], encoded=self._encoded),
                pa.RecordBatch.from_pylist(marks, schema=pa.schema(tag_fields(2))) if marks else None,
                frontier=upto,
                sources={},
            )


def logs_of(channel: Path, letters: str = "ab") -> list[Log]:
    return [Log(channel, letter) for letter in letters]


def find_all(comparison: LogComparison, **options: Any) -> list[LogDifference]:
    """Look until there is no more to be seen."""
    found = comparison.look(**options)
    while comparison.behind:
        found += comparison.look(**options)
    return found


def cuts_of(chance: random.Random, frontiers: int) -> list[int]:
    """Cut at random, and to the end."""
    return [
        *sorted(chance.sample(range(frontiers - 1), chance.randint(0, min(12, frontiers - 1)))),
        frontiers - 1,
    ]


def shuffled_nan(value: float) -> float:
    """Return another NaN than the usual one."""
    return float(np.array([0x7FF8000000000001 if math.isnan(value) else 0], np.uint64).view(np.float64)[0])


@pytest.mark.parametrize("seed", range(25))
def test_logs_cut_at_random_are_the_same_until_something_is_changed(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    rows, letters = make_rows(300), "abc"[: 2 + seed % 2]
    ticks = [(at, 5) for at in range(0, 100, 7)]
    same = chance.random() < 0.3
    wrong, place = chance.choice(letters), chance.randrange(300)
    at = rows[place]["$0"]
    comparison = LogComparison(
        tmp_path, letters, stretch_rows=chance.choice([1, 20, 1000]), clock=lambda: 0.0
    )
    changed = list(rows)
    if not same:
        changed[place] = {**rows[place], "size": rows[place]["size"] ^ 1 << chance.randrange(60)}

    found: list[LogDifference] = []
    logs = {x: Log(tmp_path, x, encoded=chance.random() < 0.5) for x in letters}
    left = {x: cuts_of(chance, 100) for x in letters}
    while any(left.values()):
        letter = chance.choice([x for x in letters if left[x]])
        logs[letter].put(changed if letter == wrong else rows, [left[letter].pop(0)], ticks)
        found += comparison.look(rows=chance.choice([1, 1000, 10**6]))
    found += find_all(comparison)

    assert comparison.counts.missed == 0
    if same:
        assert not found
        return
    (difference,) = found
    assert (-1 if difference.after is None else difference.after) < at <= difference.upto
    assert difference.replicas == tuple(letters)
    assert difference.wrong == ((wrong,) if len(letters) == 3 else ())
    tuples = difference.differing.tuples
    assert [row["size"] for row in tuples.pop(wrong)] == [changed[place]["size"]]
    assert [[row["size"] for row in part] for part in tuples.values()] == [[rows[place]["size"]]]


def test_what_was_cut_alike_is_compared_by_its_checksums(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, (a, b) = make_rows(90), logs_of(tmp_path)
    for log in (a, b):
        log.put(rows, [9, 19, 29])
    monkeypatch.setattr("riprap.channels.segment.SegmentFile.read", lambda *_: pytest.fail("it was read"))
    comparison = LogComparison(tmp_path, "ab")
    assert not find_all(comparison)
    assert comparison.counts.rows == 180


def change(rows: list[Row], kind: str) -> tuple[list[Row], list[Row], list[Row]]:
    """Change rows; return them with what only the first has, and only the second."""
    old = rows[20]
    match kind:
        case "missing":
            return [*rows[:20], *rows[21:]], [old], []
        case "extra":
            new = {**old, "$1": 7}
            return [*rows[:21], new, *rows[21:]], [], [new]
        case "order":
            tags = [{k: rows[n][k] for k in ("$0", "$1")} for n in (20, 19)]
            pair = [{**rows[19], **tags[0]}, {**rows[20], **tags[1]}]
            return [*rows[:19], pair[1], pair[0], *rows[21:]], rows[19:21], [pair[1], pair[0]]
        case "null":
            new = {**old, "price": 0.0 if old["price"] is None else None}
        case "zero":
            new = {**old, "price": -0.0}
        case "nan":
            new = {**old, "price": shuffled_nan(math.nan)}
        case "list":
            new = {**old, "parts": [1.0, None]}
        case "key":
            new = {**old, "name": "other"}
    return [*rows[:20], new, *rows[21:]], [old], [new]


@pytest.mark.parametrize("kind", ["missing", "extra", "order", "null", "zero", "nan", "list", "key"])
def test_every_kind_of_difference_is_told_with_its_tuples(tmp_path: Path, kind: str) -> None:
    rows = make_rows(60)
    rows[20]["price"] = {"zero": 0.0, "nan": math.nan}.get(kind, 2.0)
    changed, only_a, only_b = change(rows, kind)
    a, b = logs_of(tmp_path)
    a.put(rows, [4, 19])
    b.put(changed, [12, 19])

    (difference,) = find_all(LogComparison(tmp_path, "ab"))

    assert difference.wrong == ()
    for letter, wanted in (("a", only_a), ("b", only_b)):
        tags = [(row["$0"], row["$1"], row["size"]) for row in difference.differing.tuples[letter]]
        assert tags == [(row["$0"], row["$1"], row["size"]) for row in wanted]
        assert difference.differing.counts[letter] == len(wanted)


def test_equal_nans_lists_and_nulls_in_other_encodings_are_the_same(tmp_path: Path) -> None:
    rows = make_rows(60)
    Log(tmp_path, "a").put(rows, [4, 19])
    Log(tmp_path, "b", encoded=True).put(rows, [5, 19])
    assert not find_all(LogComparison(tmp_path, "ab"))


def test_a_punctuation_that_one_lacks_is_a_difference(tmp_path: Path) -> None:
    rows, (a, b) = make_rows(30), logs_of(tmp_path)
    a.put(rows, [9], [(3, 9), (5, 9)])
    b.put(rows, [4, 9], [(3, 9)])
    (difference,) = find_all(LogComparison(tmp_path, "ab"))
    assert difference.differing.counts == {"a": 1, "b": 0}
    assert difference.differing.tuples["a"] == [{"punctuation": True, "$0": 5, "$1": 9}]


def test_a_difference_waits_a_little_for_the_third_who_shows_who_is_wrong(tmp_path: Path) -> None:
    rows, now = make_rows(30), 0.0
    wrong = [{**row, "size": -1} if row["$0"] == 4 else row for row in rows]
    a, b, c = logs_of(tmp_path, "abc")
    comparison = LogComparison(tmp_path, "abc", clock=lambda: now)
    a.put(wrong, [9])
    b.put(rows, [9])
    assert not comparison.look()
    c.put(rows, [9])
    (difference,) = comparison.look()
    assert (difference.wrong, difference.differing.counts) == (("a",), {"a": 3, "b": 3})

    a.put(wrong, [10])
    b.put(rows[:-1], [10])
    assert not comparison.look(), "they agree: nothing is left of either"
    more = make_rows(3, first=33)
    a.put(more, [11])
    b.put([], [11])
    assert not comparison.look()
    now = PATIENCE_SECONDS
    (difference,) = comparison.look()
    assert (difference.replicas, difference.wrong) == (("a", "b"), ())
    c.put(more, [11])
    assert not comparison.look()


def test_one_that_lags_is_compared_when_it_comes_and_one_that_is_out_is_not_waited_for(
    tmp_path: Path,
) -> None:
    rows, (a, b, c) = make_rows(30), logs_of(tmp_path, "abc")
    comparison = LogComparison(tmp_path, "abc", clock=lambda: 0.0)
    a.put(rows, [5, 9])
    b.put(rows, [9])
    assert not comparison.look()
    assert comparison.counts.rows == 60
    c.put([{**row, "size": 0} for row in rows], [9])
    (difference,) = comparison.look()
    assert difference.wrong == ("c",)

    more = make_rows(3, first=33)
    a.put(more, [11])
    b.put([], [11])
    (difference,) = comparison.look(out=["c"])
    assert difference.differing.counts == {"a": 3, "b": 0}


def test_a_log_that_begins_later_is_compared_from_there(tmp_path: Path) -> None:
    rows, (a, b) = make_rows(90), logs_of(tmp_path)
    comparison = LogComparison(tmp_path, "ab")
    a.put(rows, [9, 14, 19])
    b.put(rows, [7])
    assert not find_all(comparison, out=["b"])
    # It comes back with the state of the other after frontier 14, and goes on wrongly.
    b.begin_again(2, 14)
    b.put([{**row, "size": 0} if row["$0"] == 16 else row for row in rows], [17])
    (difference,) = find_all(comparison)
    assert (difference.after, difference.upto, difference.differing.counts) == (14, 17, {"a": 3, "b": 3})
    assert comparison.counts.missed == 0
    a.put(rows, [29])
    b.put(rows, [29])
    assert not find_all(comparison)
    assert comparison.counts.rows == 2 * (24 + 45)


def test_writers_keep_what_is_not_compared_yet_within_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("riprap.channels.log_index._UNCOMPARED_SEGMENTS", 4)
    rows, (a, b) = make_rows(90), logs_of(tmp_path)
    comparison = LogComparison(tmp_path, "ab")

    def trimmed(upto: int) -> list[int]:
        Notes(acknowledged=upto).save(tmp_path, READER)
        a.writer.trim()
        return [name.frontier for name in scan(newest_log(tmp_path, "a").folder)]

    a.put(rows, [1, 3, 5])
    b.put(rows, [2])
    assert trimmed(5) == [1, 3, 5]
    assert not comparison.look()
    assert trimmed(5) == [3, 5], "up to 2 they are compared"
    a.put(rows, range(7, 30, 2))
    assert trimmed(29) == [23, 25, 27, 29], "too many"
    b.put(rows, [29])
    assert not find_all(comparison)
    assert comparison.counts.missed == 60
    Notes(acknowledged=29).save(tmp_path, READER)
    for log in (a, b):
        log.put([], [40, 41, 42])
    b.writer.trim()
    assert trimmed(42) == [40, 41, 42]
    comparison.close()
    assert trimmed(42) == [42], "nobody compares any more"


def test_what_was_trimmed_is_passed_over_and_counted(tmp_path: Path) -> None:
    rows, logs = make_rows(90), logs_of(tmp_path)
    for log in logs:
        log.put(rows, [9, 19, 24])
    Notes(acknowledged=19).save(tmp_path, READER)
    for log in logs:
        log.writer.trim()
    comparison = LogComparison(tmp_path, "ab")
    assert not find_all(comparison)
    assert (comparison.counts.rows, comparison.counts.missed) == (30, 60)
    assert Notes.find(tmp_path, COMPARED).acknowledged == 24


def test_it_goes_on_where_an_earlier_one_was(tmp_path: Path) -> None:
    rows, logs = make_rows(90), logs_of(tmp_path)
    for log in logs:
        log.put(rows, [19])
    assert not find_all(LogComparison(tmp_path, "ab"))
    for log in logs:
        log.put(rows, [29])
    comparison = LogComparison(tmp_path, "ab")
    assert not find_all(comparison)
    assert comparison.counts.rows == 60


def test_much_is_compared_in_bounded_steps(tmp_path: Path) -> None:
    rows, (a, b) = make_rows(6_000), logs_of(tmp_path)
    a.put(rows, range(49, 2_000, 50))
    b.put([{**row, "size": 0} if row["$0"] == 1_990 else row for row in rows], range(99, 2_000, 100))
    comparison = LogComparison(tmp_path, "ab", stretch_rows=300)
    steps, found = 0, []
    while True:
        before = comparison.counts.rows
        found += comparison.look(rows=2_000)
        steps += 1
        assert comparison.counts.rows - before <= 3_200
        if not comparison.behind:
            break
    assert steps >= 6
    assert [d.differing.counts for d in found] == [{"a": 3, "b": 3}]


def test_a_difference_in_very_many_tuples_is_counted_within_bounds(tmp_path: Path) -> None:
    rows, (a, b) = make_rows(3_000), logs_of(tmp_path)
    a.put(rows, [999])
    b.put([{**row, "size": -row["size"]} for row in rows], [500, 999])
    (difference,) = find_all(LogComparison(tmp_path, "ab"))
    assert difference.differing.counts == {"a": 2_999, "b": 2_999}
    assert len(difference.differing.tuples["a"]) == 5
