"""Word count: the same totals as a plain program over the same files, wherever batches end."""

from __future__ import annotations

import gzip
import json
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.stages import run_batches

import riprap as rr
from riprap.apps.mails import make_mail, write_mails
from riprap.apps.wordcount import wordcount, words_of

REAL = Path(__file__).parents[2].parent / "shared" / "data" / "enron"
MAILS = 300


def words_in(text: str) -> Iterator[str]:
    """Yield the words of a text, character by character, as docs/word-count.md has it."""

    def belongs(character: str) -> bool:
        return character == "'" or unicodedata.category(character)[0] in "LMN"

    for inside, run in groupby(text.replace("\N{RIGHT SINGLE QUOTATION MARK}", "'").lower(), belongs):
        word = "".join(run).strip("'")
        if inside and word:
            yield word


def count(lines: Sequence[str], ends: Sequence[int] = (), **options: Any) -> list[tuple[str, int]]:
    """Return what word count puts out for lines that come in batches."""
    table = pa.table({"line": pa.array(lines, pa.string())})
    app = wordcount(rr.rows(table), rr.memory())
    bounds = [0, *sorted(ends), len(lines)]
    batches = [{"Source": table.slice(low, high - low)} for low, high in pairwise(bounds)]
    return [(row["word"], row["n"]) for row in run_batches(app, batches, sink="Sink", **options)]


def totals(rows: Sequence[tuple[str, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for word, n in rows:
        # A total never falls: the last number of a word is its largest.
        assert n > found.get(word, 0)
        found[word] = n
    return found


def real_mails(name: str, most: int) -> list[str]:
    path = REAL / name
    if not path.exists():
        pytest.skip(f"{path} is not here: real mails are no part of the repository")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line)["text"] for _, line in zip(range(most), lines, strict=False)]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("The cat, the CAT.", ["the", "cat", "the", "cat"]),
        ("don't 'quote' it's o'neill's''", ["don't", "quote", "it's", "o'neill's"]),
        ("l\N{RIGHT SINGLE QUOTATION MARK}été", ["l'été"]),
        ("snake_case a-b 3.14 x2", ["snake", "case", "a", "b", "3", "14", "x2"]),
        ("ÉCOLE Straße Ωμέγα", ["école", "straße", "ωμέγα"]),
        ("cafe\N{COMBINING ACUTE ACCENT}", ["cafe\N{COMBINING ACUTE ACCENT}"]),
        ("", []),
        (" '' -- ", []),
        ("<a@example.org>\r", ["a", "example", "org"]),
    ],
)
def test_what_a_word_is(line: str, words: list[str]) -> None:
    assert words_of(pa.array([line])).to_pylist() == words == list(words_in(line))


def test_lines_without_text() -> None:
    assert words_of(pa.array([None, "a", None], pa.string())).to_pylist() == ["a"]
    assert words_of(pa.array([], pa.string())).to_pylist() == []


def test_a_row_says_how_often_a_word_has_come_up_so_far() -> None:
    lines = ["a rose is a rose", "is a rose", "is it"]
    assert count(lines, ends=[1, 2]) == [
        ("a", 2), ("rose", 2), ("is", 1),
        ("is", 2), ("a", 3), ("rose", 3),
        ("is", 3), ("it", 1),
    ]  # fmt: skip
    assert count(lines) == [("a", 3), ("rose", 3), ("is", 3), ("it", 1)]


TEXTS = st.lists(st.text("aAbB '\n\N{RIGHT SINGLE QUOTATION MARK}é9_", max_size=12), max_size=12)


@settings(max_examples=40, deadline=None)
@given(lines=TEXTS, ends=st.lists(st.integers(0, 12), max_size=3), tasks=st.integers(1, 4))
def test_totals_do_not_depend_on_batches_or_tasks(lines: list[str], ends: list[int], tasks: int) -> None:
    cut = [min(end, len(lines)) for end in ends]
    expected = Counter(word for line in lines for word in words_in(line))
    assert totals(count(lines, cut, buckets=4, tasks=[tasks] * (len(cut) + 1))) == expected


@pytest.mark.parametrize("name", ["enron_maildir_bailey_crandell.jsonl.gz", "enron_ham_16545.jsonl.gz"])
@pytest.mark.parametrize("batch_rows", [997, 100_000])
def test_real_mails(name: str, batch_rows: int) -> None:
    lines = [line for mail in real_mails(name, MAILS) for line in mail.split("\n")]
    expected = Counter(word for line in lines for word in words_in(line))
    assert len(expected) > 3000
    assert totals(count(lines, range(batch_rows, len(lines), batch_rows), buckets=4, tasks=[2])) == expected


def test_made_mails(tmp_path: Path) -> None:
    heard: list[int] = []
    write_mails(tmp_path, 30, seed=5, progress=heard.append)
    files = sorted(tmp_path.iterdir())
    assert [f.name for f in (files[0], files[-1])] == ["00001.txt", "00030.txt"]
    assert heard == list(range(1, 31))
    assert files[6].read_text() == make_mail(7, seed=5) != make_mail(7, seed=6)
    (the, first), (_, second), *_ = Counter(w for f in files for w in words_in(f.read_text())).most_common()
    assert the == "the"
    assert first > second > 10


def test_headers_can_be_left_out_with_a_functor() -> None:
    # As docs/word-count.md shows.
    rows = [
        (1, "Subject: x"),
        (2, "To: y"),
        (3, ""),
        (4, "hello"),
        (5, ""),
        (6, "you"),
        (1, "To: z"),
        (2, ""),
        (3, "end"),
    ]
    table = pa.table({"number": [n for n, _ in rows], "line": [line for _, line in rows]})
    app = rr.Application("bodies")
    body = app.functor(
        "Body", app.source("Source", rr.rows(table)), variables={"inside": "false"},
        update="number > 1 and (inside or line = '') as inside", where="inside", select="line",
    )  # fmt: skip
    app.sink("Sink", body, rr.memory())
    batches = [{"Source": table.slice(0, 2)}, {"Source": table.slice(2, 2)}, {"Source": table.slice(4)}]
    lines = [row["line"] for row in run_batches(app, batches, sink="Sink")]
    assert [line for line in lines if line] == ["hello", "you", "end"]
