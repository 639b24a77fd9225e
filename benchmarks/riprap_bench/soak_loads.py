"""What is put under load for minutes on end, and what has to be at the sinks afterwards."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Set
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq

import riprap as rr
from riprap.apps.bargain import bargain
from riprap.apps.mails import make_mail
from riprap.apps.wordcount import wordcount
from riprap.graph.graph import Graph
from riprap_bench.answers import difference, read_answer
from riprap_bench.baselines import run_bare
from riprap_bench.feed import make_feed

_LAST = "thatwasall"
_STARTING_SECONDS = 20.0


class Load(Protocol):
    """An application and its input, which comes for as long as it has to.

    ``trigger`` is that of the run; without one it ends with its input.
    """

    @property
    def name(self) -> str: ...
    @property
    def element(self) -> str: ...
    @property
    def trigger(self) -> str | None: ...
    @property
    def out(self) -> Path: ...

    def graph(self) -> Graph:
        """Describe the application."""

    def tick(self) -> None:
        """Let more input come; called some times a second."""

    def close(self) -> None:
        """Let no more come."""

    def arrived(self) -> bool:
        """Whether everything that came in has come out, as far as one can see."""

    def wrong(self) -> str | None:
        """Say what at the sink is not what should be there, if anything."""


class Bargains:
    """Bargain Discovery over a feed that is replayed at a pace, and ends by itself."""

    name = element = "bargain"
    trigger = None

    def __init__(self, folder: Path, *, seconds: float, rate: float, seed: int) -> None:
        self._rate = rate
        self._folder, self.out = folder, folder / "out"
        # Its clock runs from the start of the run; load is to last as long as crashes do.
        events = int(rate * (seconds + _STARTING_SECONDS))
        self._feed = make_feed(folder / "feed", events, rows_per_file=500_000, seed=seed)

    def graph(self) -> Graph:
        feed = rr.files(list(map(str, self._feed.files)), rate=self._rate)
        return bargain(feed, rr.parquet(self.out)).graph()

    def tick(self) -> None:
        return None

    def close(self) -> None:
        return None

    def arrived(self) -> bool:
        return False

    def wrong(self) -> str | None:
        run_bare(self._feed.files, out=self._folder / "oracle")
        return difference(read_answer(self._folder / "oracle"), read_answer(self.out))


class Words:
    """Word count over a folder in which mails keep arriving, one at every tick."""

    name = element = "wordcount"
    trigger = "200ms"

    def __init__(self, folder: Path, *, seed: int) -> None:
        self._mails, self.out, self._seed = folder / "mails", folder / "out", seed
        self._mails.mkdir(parents=True)
        self._written = 0
        self._seen: dict[Path, pa.Table] = {}

    def graph(self) -> Graph:
        return wordcount(self._mails, rr.parquet(self.out)).graph()

    def tick(self) -> None:
        self._write(make_mail(self._written + 1, seed=self._seed))

    def close(self) -> None:
        self._write(_LAST)

    def _write(self, text: str) -> None:
        self._written += 1
        # It appears as a whole: names that begin with _ are left alone.
        path = self._mails / f"_{self._written:07d}.txt"
        path.write_text(text)
        path.rename(self._mails / path.name[1:])

    def arrived(self) -> bool:
        self._look()
        return any(_LAST in table["word"].to_pylist() for table in self._seen.values())

    def _look(self) -> None:
        for path in self.out.glob("part-*.parquet"):
            if path not in self._seen:
                self._seen[path] = pq.read_table(path)

    def wrong(self) -> str | None:
        self._look()
        found: Counter[tuple[str, int]] = Counter()
        for table in self._seen.values():
            found.update(zip(table["word"].to_pylist(), table["n"].to_pylist(), strict=True))
        return between(set(self._expected()), found)

    def _expected(self) -> Iterator[tuple[str, int]]:
        """A batch ends with each mail: then there is a row for each of its words, with how often it came up so far."""
        totals: Counter[str] = Counter()
        for path in sorted(self._mails.glob("*.txt")):
            words = Counter(
                w for run in re.findall(r"[a-z0-9']+", path.read_text().lower()) if (w := run.strip("'"))
            )
            totals += words
            yield from ((word, totals[word]) for word in words)


def between(expected: Set[tuple[str, int]], found: Counter[tuple[str, int]]) -> str | None:
    """Say how the rows that were found differ from those expected.

    Where tasks share a mail there are more, with numbers between: those are right as long as none comes twice.

    >>> between({("a", 1), ("a", 3)}, Counter({("a", 1): 2, ("a", 2): 1, ("a", 4): 1}))
    "1 rows are lost, 1 doubled, 1 say too much, the first ('a', 1)"
    >>> between({("a", 3)}, Counter({("a", 2): 1, ("a", 3): 1}))
    """
    totals: dict[str, int] = {}
    for word, n in expected:
        totals[word] = max(n, totals.get(word, 0))
    lost = expected - set(found)
    doubled = {row for row, times in found.items() if times > 1}
    more = {(word, n) for word, n in found if n > totals.get(word, 0)}
    if not lost and not doubled and not more:
        return None
    first = min(lost | doubled | more)
    return f"{len(lost)} rows are lost, {len(doubled)} doubled, {len(more)} say too much, the first {first}"
