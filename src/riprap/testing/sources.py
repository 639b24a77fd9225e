"""Check a source against the promise it makes, and what is promised of every source."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from riprap.durations import seconds
from riprap.errors import GraphError
from riprap.graph.connectors import Cursor, Fetched, Source
from riprap.graph.connectors.promise import SOURCE_WORDS
from riprap.testing.promises import Promises, pickled, same, same_rows


def check_source(source: Source, *, more: Callable[[], object] | None = None, pieces: int = 20) -> list[str]:
    """Check a source that has rows against the promise it makes, and return the promises it keeps.

    Of a source without an end the first ``pieces`` are looked at. ``more``, where it is given, adds some rows to what
    the source reads.

    >>> import pyarrow as pa
    >>> class Countdown(rr.Source, rr.Fetcher):
    ...     schema = pa.schema([("n", pa.int64())])
    ...     def fetcher(self, tell):
    ...         return self
    ...     def fetch(self, after):
    ...         for n in range(10 if after is None else after - 1, -1, -1):
    ...             yield rr.Fetched(table=pa.table({"n": [n]}), cursor=n)
    >>> rr.testing.check_source(Countdown())[-1]
    'replays: what comes after any cursor can be asked for again'

    Raise :class:`BrokenPromise` with all that it does not keep.
    """
    if not isinstance(source, Source):
        raise GraphError(f"check_source(...) takes a source that derives from rr.Source, got {source!r}")
    promises = Promises(f"source {source}")
    fetched: list[Fetched] = []
    with promises.promise("a description is pickled with the graph, and holds nothing open"):
        source = pickled(source)
        seconds("retry_for", source.retry_for)
    with promises.promise("its promise is a word for sources"):
        words = ", ".join(SOURCE_WORDS)
        same(source.PROMISE.word in SOURCE_WORDS, True, f"PROMISE {source.PROMISE.word!r} is one of {words}")
    with promises.promise("it has rows"):
        fetched = _fetch(source, None, pieces)
        same(any(piece.table.num_rows for piece in fetched), True, "a first fetch has rows")
    _check_pieces(promises, source, fetched)
    if source.PROMISE.word == "replays":
        _check_replays(promises, source, fetched, pieces)
    if more is not None:
        _check_added(promises, source, fetched, pieces, more)
    return promises.report()


def _check_pieces(promises: Promises, source: Source, fetched: list[Fetched]) -> None:
    with promises.promise("tables have the columns and types of its schema"):
        for number, piece in enumerate(fetched):
            same(piece.table.schema, source.schema, f"the schema of piece {number}")
    with promises.promise(
        "a cursor is a number, a text, or a dictionary of these, and each piece has another"
    ):
        for number, piece in enumerate(fetched):
            same(
                json.loads(json.dumps(piece.cursor)),
                piece.cursor,
                f"the cursor of piece {number}, saved and read",
            )
            before = fetched[number - 1].cursor if number else None
            same(piece.cursor != before, True, f"piece {number} has another cursor than {before!r}")
    with promises.promise("a bad record has a position, a reason, and its size"):
        for bad in (bad for piece in fetched for bad in piece.bad):
            same(bool(bad.position and bad.reason), True, f"{bad} has a position and a reason")
            same(bad.size >= len(bad.record), True, f"{bad} is as long as what is kept of it")


def _check_replays(promises: Promises, source: Source, fetched: list[Fetched], pieces: int) -> None:
    whole = _Numbered.of(fetched)
    with promises.promise("replays: all can be asked for again, with the same numbers"):
        whole.same_as(_Numbered.of(_fetch(source, None, pieces)), "all, fetched again")
    with promises.promise("replays: what comes after any cursor can be asked for again"):
        for number, piece in enumerate(fetched):
            again = _Numbered.of(_fetch(source, piece.cursor, max(1, pieces - number - 1)))
            rest = _Numbered.of(fetched[number + 1 :])
            rest.same_as(
                again, f"what comes after the cursor of piece {number}, {piece.cursor!r}", whole=False
            )


def _check_added(
    promises: Promises, source: Source, fetched: list[Fetched], pieces: int, more: Callable[[], object]
) -> None:
    with promises.promise("what is added comes after the newest cursor, and nothing else does"):
        last = (
            _fetch(source, None, pieces)[-1].cursor
            if source.PROMISE.word == "replays"
            else fetched[-1].cursor
        )
        more()
        added = _Numbered.of(_fetch(source, last, pieces)).rows
        same(bool(added), True, "a fetch after more was added has rows")
        old = [row for row in added if row in _Numbered.of(fetched).rows]
        same_rows(old, [], "rows that came before, and come again")


@dataclass(frozen=True, slots=True)
class _Numbered:
    """What was fetched, one after the other."""

    rows: list[dict[str, Any]]
    bad: list[dict[str, Any]]

    @classmethod
    def of(cls, fetched: list[Fetched]) -> _Numbered:
        return cls(
            [row for piece in fetched for row in piece.table.to_pylist()],
            [dict(bad.position) for piece in fetched for bad in piece.bad],
        )

    def same_as(self, again: _Numbered, what: str, *, whole: bool = True) -> None:
        """Compare; unless it is the ``whole``, as far as both go, for a fetch may cut pieces elsewhere."""
        rows = len(self.rows) if whole else min(len(self.rows), len(again.rows))
        same_rows(again.rows[: None if whole else rows], self.rows[:rows], what)
        bad = len(self.bad) if whole else min(len(self.bad), len(again.bad))
        same_rows(again.bad[: None if whole else bad], self.bad[:bad], f"{what}, bad records")
        if not whole:
            same(
                bool(again.rows or again.bad),
                bool(self.rows or self.bad),
                f"{what}: whether there is anything",
            )


def _fetch(source: Source, after: Cursor, pieces: int) -> list[Fetched]:
    """Fetch what there is after a cursor, up to so many pieces; what is waited for is not waited for."""
    fetched: list[Fetched] = []
    with closing(source.fetcher(lambda kind, **details: None)) as fetcher:
        for piece in fetcher.fetch(after):
            if piece is None:
                if fetched:
                    break
                continue
            fetched.append(piece)
            if len(fetched) == pieces:
                break
    return fetched
