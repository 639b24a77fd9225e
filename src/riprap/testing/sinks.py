"""Check a sink against the promise it makes, and what is promised of every sink."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from riprap.durations import seconds
from riprap.errors import GraphError
from riprap.graph.connectors import Sink, Target
from riprap.graph.connectors.promise import SINK_WORDS
from riprap.kernels.user_code import FAILURES
from riprap.testing.promises import Promises, pickled, same, same_rows

ReadHeld = Callable[[], Sequence[Mapping[str, Any]]]


def some_rows(count: int = 24) -> pa.Table:
    """Return rows that can be told apart, with nulls, empty texts and letters beyond ASCII among them."""
    numbers = range(count)
    return pa.table(
        {
            "n": pa.array(numbers, pa.int64()),
            "s": pa.array([(None, "", "it's", "ü \N{GRINNING FACE}\n")[n % 4] for n in numbers], pa.string()),
            "x": pa.array([None if n % 5 == 0 else n / 7 for n in numbers], pa.float64()),
        }
    )


def check_sink(sink: Sink, *, held: ReadHeld | None = None, rows: pa.Table | None = None) -> list[str]:
    """Check a sink against the promise it makes, and return the promises it keeps.

    It writes to what the sink names, for some runs of their own. What is there is read by ``target.read()``, or where
    the sink has none by a function ``held`` that returns all rows, as dictionaries in the order they came in. ``rows``
    are what to write, at least eight that differ from each other; without them a number, a text and a float.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     kept = rr.testing.check_sink(rr.to_sqlite(f"{folder}/out.db", "t"))
    >>> [words for words in kept if words.startswith("replaces")][0]
    'replaces: a batch that comes again is held once'

    Raise :class:`BrokenPromise` with all that it does not keep.
    """
    if not isinstance(sink, Sink):
        raise GraphError(f"check_sink(...) takes a sink that derives from rr.Sink, got {sink!r}")
    table = some_rows() if rows is None else rows
    if table.num_rows < 8:
        raise GraphError(f"check_sink(rows=...) takes at least 8 rows, got {table.num_rows}")
    bench = _SinkBench(sink, table, held)
    promises = Promises(f"sink {sink}")
    with promises.promise("a description is pickled with the graph, and holds nothing open"):
        sink = bench.sink = pickled(sink)
        seconds("retry_for", sink.retry_for)
    with promises.promise("its promise is a word for sinks"):
        same(
            sink.PROMISE.word in SINK_WORDS,
            True,
            f"PROMISE {sink.PROMISE.word!r} is one of {', '.join(SINK_WORDS)}",
        )
    for words, check in _CHECKS.items():
        with promises.promise(words):
            check(bench)
    word = sink.PROMISE.word
    most = 2 if word == "repeats" else 1
    counted = "once or twice, and others once" if most == 2 else "once"
    for when, check_again in _REPEATS.items():
        with promises.promise(f"{word}: a batch that comes again{when} is held {counted}"):
            check_again(bench, most)
    return promises.report()


class _SinkBench:
    """A sink, batches for it, and a look at what it holds."""

    def __init__(self, sink: Sink, table: pa.Table, held: ReadHeld | None) -> None:
        self.sink = sink
        self.table = table
        self._held = held
        quarter = table.num_rows // 4
        self.batches = [table.slice(n * quarter, quarter) for n in range(4)]

    @contextmanager
    def run(self) -> Iterator[_SinkRun]:
        """Give a run of the sink's, closed in the end."""
        run = _SinkRun(self, f"check-{uuid.uuid4().hex[:8]}/out")
        try:
            yield run
        finally:
            for target in (*run.crashed, run.target):
                target.close()

    def look(self) -> list[dict[str, Any]] | None:
        """Return all rows there are, where a function says so."""
        return None if self._held is None else [dict(row) for row in self._held()]


class _SinkRun:
    """A run of an application, as a sink has it."""

    def __init__(self, bench: _SinkBench, name: str) -> None:
        self._bench = bench
        self._name = name
        self._before = len(bench.look() or ())
        self.crashed: list[Target] = []
        self.target = self._made(resume=False)

    def _made(self, *, resume: bool) -> Target:
        target = self._bench.sink.target(self._bench.table.schema, self._name)
        target.open(resume=resume)
        return target

    def write(self, batch: int, *, again: bool = False) -> None:
        self.target.write(batch, self._bench.batches[batch], again=again)

    def crash(self) -> None:
        """Take the run up again, as another process would: nothing was closed, and nothing is known."""
        self.crashed.append(self.target)
        self.target = self._made(resume=True)

    def holds(self, *batches: int, most: int = 1) -> None:
        """Check that some batches are there, in order; the newest at most so many times."""
        all_there = self._bench.look()
        got = self.target.read().to_pylist() if all_there is None else all_there[self._before :]
        wanted = [row for batch in batches for row in self._bench.batches[batch].to_pylist()]
        again = self._bench.batches[batches[-1]].to_pylist()
        if most > 1 and len(got) == len(wanted) + len(again):
            wanted += again
        same_rows(got, wanted, f"what is held after batches {', '.join(map(str, batches))}")


def _in_order(bench: _SinkBench) -> None:
    with bench.run() as run:
        for batch in (0, 1, 2):
            run.write(batch)
        run.holds(0, 1, 2)


def _without_rows(bench: _SinkBench) -> None:
    with bench.run() as run:
        run.write(0)
        run.target.write(1, bench.table.slice(0, 0), again=False)
        run.target.write(2, bench.table.slice(0, 0), again=True)
        run.holds(0)


def _closed(bench: _SinkBench) -> None:
    with bench.run() as run:
        run.write(0)
        run.target.close()
        run.write(1)
        run.holds(0, 1)
        run.target.close()
        run.target.close()


def _other_threads(bench: _SinkBench) -> None:
    with bench.run() as run:
        run.write(0)
        failures: list[BaseException] = []

        def write() -> None:
            try:
                run.write(1)
            except FAILURES as error:
                failures.append(error)

        thread = threading.Thread(target=write)
        thread.start()
        thread.join()
        if failures:
            raise failures[0]
        run.write(2)
        run.holds(0, 1, 2)


def _other_runs(bench: _SinkBench) -> None:
    with bench.run() as first:
        first.write(0)
        with bench.run() as second:
            second.write(0, again=True)
            second.write(1)
            second.holds(0, 1)
        if bench.look() is None:
            first.holds(0)


_CHECKS: dict[str, Callable[[_SinkBench], None]] = {
    "batches are held in order": _in_order,
    "a batch may have no rows": _without_rows,
    "after close() the next call opens it again": _closed,
    "calls come from several threads, one at a time": _other_threads,
    "runs do not touch each other's rows": _other_runs,
}


def _at_once(bench: _SinkBench, most: int) -> None:
    with bench.run() as run:
        run.write(0)
        run.write(1)
        run.write(1, again=True)
        run.holds(0, 1, most=most)


def _after_a_crash(bench: _SinkBench, most: int) -> None:
    with bench.run() as run:
        run.write(0)
        run.write(1)
        run.crash()
        run.write(1, again=True)
        run.holds(0, 1, most=most)
        run.write(2)
        run.write(3)


def _crashed_before(bench: _SinkBench, most: int) -> None:
    with bench.run() as run:
        run.write(0)
        run.crash()
        run.write(1, again=True)
        run.holds(0, 1)


_REPEATS: dict[str, Callable[[_SinkBench, int], None]] = {
    "": _at_once,
    " after a crash": _after_a_crash,
    ", and was not there before the crash,": _crashed_before,
}
