"""Compare an application with a plain reference, tuple by tuple, wherever batches may end."""

from __future__ import annotations

import bisect
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from riprap.application import Application
from riprap.errors import GraphError
from riprap.graph import Graph
from riprap.operators.sink import Sink
from riprap.operators.source import Source
from riprap.testing.element import forget_instances
from riprap.testing.promises import equal, shown
from riprap.testing.rehearsal import GivenRows, Rehearsal, Row

# What comes in, in order: rows of the one source, or pairs of a source's name and a row.
Event: TypeAlias = Row | tuple[str, Row]
Reference: TypeAlias = Callable[[list[Any]], Iterable[Row]]


def compare(
    app: Application | Graph,
    rows: GivenRows | Iterable[tuple[str, Mapping[str, Any]]],
    reference: Reference | None = None,
    *,
    sink: str | None = None,
    cuts: int = 8,
    buckets: int = 4,
    crashes: bool = False,
    seed: int = 0,
) -> None:
    """Run an application over rows that are cut into batches at random places, and compare what reaches a sink.

    ``reference`` is a plain function of all rows that returns what must come out, in order; without one it is what the
    application itself makes of one tuple at a time. ``rows`` are a table, dictionaries, or with several sources pairs
    of a source's name and a row, in the order they come in. They are cut so many times, ``cuts``, with keys dealt out
    to as many tasks as chance has it; with ``crashes`` processes are lost between batches. Of several sinks one is
    named.

    >>> app = rr.Application("sums")
    >>> numbers = app.source("numbers", rr.rows([], "k string, v bigint"))
    >>> sums = app.aggregate("sums", numbers, by="k", window=rr.sliding(tuples=2), select="sum(v) as v")
    >>> app.sink("out", sums, rr.memory())
    >>> def plainly(rows):
    ...     last = {}
    ...     for row in rows:
    ...         before, last[row["k"]] = last.get(row["k"], 0), row["v"]
    ...         yield {"k": row["k"], "v": before + row["v"]}
    >>> rr.testing.compare(app, [{"k": "ab"[n % 2], "v": n} for n in range(20)], plainly)

    An ``AssertionError`` says at which tuple results part, with which batches.
    """
    graph = app.graph() if isinstance(app, Application) else app
    run = _Compared(graph, _sink_of(graph, sink), buckets)
    events = run.events(rows)
    chance = random.Random(seed)
    plain = reference or (lambda events: run(events, [1] * len(events), [1] * len(events), ()))
    wanted = list(plain(list(events)))
    for _ in range(cuts):
        ends = sorted(chance.randrange(len(events) + 1) for _ in range(chance.randrange(6)))
        sizes = [b - a for a, b in zip([0, *ends], [*ends, len(events)], strict=True)]
        tasks = [chance.randint(1, buckets) for _ in sizes]
        lost = [number for number in range(len(sizes)) if crashes and chance.random() < 0.5]
        got = run(events, sizes, tasks, lost)
        if not equal(got, wanted):
            raise AssertionError(_parting(run, plain, events, sizes, tasks, lost))


class _Compared:
    """An application, to be run from the beginning over and over."""

    def __init__(self, graph: Graph, sink: str, buckets: int) -> None:
        self._graph = graph
        self._sources = [source.name for source in graph.of_kind(Source)]
        self._buckets = buckets
        self.sink = sink

    def events(self, rows: GivenRows | Iterable[tuple[str, Mapping[str, Any]]]) -> list[Event]:
        """Return what comes in, one after the other."""
        listed: list[Any] = rows.to_pylist() if isinstance(rows, pa.Table) else list(rows)
        pairs = [each for each in listed if isinstance(each, tuple)]
        if not pairs and len(self._sources) > 1:
            raise GraphError(
                f"there are several sources: give rows as pairs such as ('{self._sources[0]}', {{...}}), in order"
            )
        if pairs and len(self._sources) == 1:
            return [row for _, row in pairs]
        return listed

    def __call__(
        self, events: Sequence[Event], sizes: Sequence[int], tasks: Sequence[int], lost: Sequence[int]
    ) -> list[Row]:
        """Run batches of some sizes, and return what reached the sink; before some a process is lost."""
        forget_instances()
        rehearsal, found, first = Rehearsal(self._graph, buckets=self._buckets), list[Row](), 0
        for number, (size, many) in enumerate(zip(sizes, tasks, strict=True)):
            batch: dict[str, list[Row]] = {name: [] for name in self._sources}
            for event in events[first : first + size]:
                name, row = event if isinstance(event, tuple) else (self._sources[0], event)
                batch[name].append(row)
            if number in lost:
                for element in rehearsal.elements:
                    rehearsal.crash(element)
            found += rehearsal.feed(batch, tasks=many)[self.sink]
            first += size
        forget_instances()
        return found


def _sink_of(graph: Graph, sink: str | None) -> str:
    sinks = [operator.name for operator in graph.of_kind(Sink)]
    if sink is None and len(sinks) == 1:
        return sinks[0]
    if sink not in sinks:
        raise GraphError(f"compare(sink=...) takes one of {', '.join(sinks)}, got {sink!r}")
    return sink


def _parting(
    run: _Compared,
    plain: Reference,
    events: Sequence[Event],
    sizes: Sequence[int],
    tasks: Sequence[int],
    lost: Sequence[int],
) -> str:
    """Say at which tuple results part: the last of the shortest beginning that shows it, found by halving."""

    def shorter(length: int) -> list[int]:
        ends = [min(sum(sizes[: n + 1]), length) for n in range(len(sizes))]
        return [b - a for a, b in zip([0, *ends], ends, strict=False)]

    def differs(length: int) -> bool:
        beginning = list(events[:length])
        return not equal(run(beginning, shorter(length), tasks, lost), list(plain(beginning)))

    length = bisect.bisect_left(range(len(events)), True, key=differs)
    beginning = list(events[:length])
    got, wanted = run(beginning, shorter(length), tasks, lost), list(plain(beginning))
    at = next((n for n, (a, b) in enumerate(zip(got, wanted, strict=False)) if not equal(a, b)), None)
    at = min(len(got), len(wanted)) if at is None else at
    lines = [f"sink '{run.sink}' and the reference part at tuple {length - 1}, {shown(events[length - 1])}"]
    if not length:
        lines = [f"sink '{run.sink}' and the reference part before the first tuple"]
    for what, rows in (("the sink has", got), ("the reference", wanted)):
        lines.append(f"    {what}, row {at}: {shown(rows[at]) if at < len(rows) else 'nothing'}")
    lines.append(
        f"    with batches of {', '.join(map(str, sizes))} tuples, in {', '.join(map(str, tasks))} tasks"
    )
    if lost:
        lines.append(f"    and the process lost before batch {', '.join(map(str, lost))}")
    return "\n".join(lines)
