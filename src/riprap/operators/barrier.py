"""Bring together the first tuples of every port, then the second ones, and so on, key by key.

A tuple belongs to one round of its key, and a round is put out when its last tuple arrives. So a tuple makes one output
at most, and that takes its order. Rounds that lack a tuple wait in the state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pyarrow as pa

from riprap.arrays import Ints
from riprap.expressions import Scope, parse_select
from riprap.graph.builder import Builder
from riprap.graph.checks import Here, Streams
from riprap.graph.operator import Needed, Traits, by_columns, read_by, schema_of, typed
from riprap.graph.stream import Stream
from riprap.kernels.chunk import Chunk, places, struct_of
from riprap.kernels.evaluation import compute
from riprap.kernels.given import Given, Result
from riprap.kernels.history import History, line_up
from riprap.operators.pairing import Pairing, names_of_ports
from riprap.protection import Policy
from riprap.state.keys import Codes, KeyTable
from riprap.state.windows import Contents, gather, ranges

# When a tuple arrived that waited already.
_BEFORE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Barrier(Pairing):
    """Brings together the first tuples of every port, then the second ones, and so on, key by key."""

    TRAITS: ClassVar[Traits] = Traits(
        does="waits for a tuple of every port",
        state=("the tuples that wait",),
        pages="blocks of keys",
        key="by, or none",
        holds=True,
        punctuation="ends here",
    )
    # If tuples of one port were lost, all that come after them would be brought together with the wrong ones.
    pairs = True

    @property
    def traits(self) -> Traits:
        return replace(self.TRAITS, state=self.TRAITS.state * len(self.ports))

    @property
    def slots(self) -> tuple[str, ...]:
        return tuple(str(port) for port in range(len(self.ports)))

    def layout(self, needed: Needed) -> str:
        ports = (typed(s, self.kept_of_port(port)) or "nothing" for port, s in enumerate(self.schemas))
        return f"by {', '.join(self.by)}: {'; '.join(ports)}"

    def summary(self) -> str:
        return f"{', '.join(self.names)}{by_columns(self.by)}"

    def run(self, given: Given) -> Result:
        """Put out the rounds that a batch completes, and keep the tuples of the others."""
        chunks = [chunk.without_marks() for chunk in given.inputs]
        arrived = places(chunks)
        touched = np.flatnonzero(sum(np.bincount(c.code, minlength=len(given.keys)) for c in chunks))
        keys = given.keys.take(touched)
        queues = [_queue(self, port, touched, keys, arrived[port], given) for port in range(len(chunks))]
        rounds = np.minimum.reduce([np.diff(q.history.starts) for q in queues])
        pages = {}
        for port, queue in enumerate(queues):
            low = queue.history.starts[:-1] + rounds
            fewer = queue.history.starts[1:] - low != queue.old.lengths
            page = queue.history.page(given.keys, queue.new, low, queue.old.counters, fewer)
            if page is not None:
                pages[str(port)] = page
        rows = [ranges(q.history.starts[:-1], rounds) for q in queues]
        last = np.maximum.reduce([q.arrived[mine] for q, mine in zip(queues, rows, strict=True)])
        order, driver = _in_order(last, np.concatenate(arrived))
        code = np.repeat(touched, rounds)[order].astype(np.int32)
        columns = _columns(self, queues, [mine[order] for mine in rows], code, given)
        rank = np.concatenate([c.rank for c in chunks])[driver]
        path = tuple(np.concatenate(parts)[driver] for parts in zip(*(c.path for c in chunks), strict=True))
        made = Chunk(columns, rank, code, path).without_marks()
        made = made.with_columns(compute(self.select, made, given.needed[self.name]))
        return Result(outputs=(made,), pages=pages)


def barrier(
    app: Builder,
    name: str,
    *ports: Streams,
    by: str | Sequence[str] = (),
    select: str,
    protect: Policy | None = None,
) -> Stream:
    """Add a barrier: it puts out the first tuples of all ports as one, then the second ones, and so on, key by key.

    A tuple waits until every port has one to go with it; null is a key like any other. Expressions call a port by
    its stream's name; one that has several streams is called ``port1``, ``port2`` and so on.

    >>> app = rr.Application("demo")
    >>> asked, answered = (app.source(name, rr.rows([], "id bigint")) for name in ("asked", "answered"))
    >>> print(app.barrier("pairs", asked, answered, select="asked.id as question, answered.id as answer"))
    stream 'pairs' (question bigint, answer bigint)
    """
    here = Here("Barrier", name, app, *ports)
    if len(ports) < 2:
        raise here.error(f"it has {len(ports)} ports", "A barrier brings two or more together")
    inputs = tuple(here.port(port) for port in ports)
    keys = here.keys(by, *inputs)
    names = names_of_ports(here, ports, tuple(f"port{number}" for number in range(1, len(ports) + 1)))
    schemas = tuple(port.schema for port in inputs)
    scope = Scope.qualified(dict(zip(names, schemas, strict=True)), shared=frozenset(keys))
    with here:
        chosen = parse_select(select, scope, app.functions)
    return here.add(
        Barrier(
            **here.basics(*inputs, protect=protect),
            schema=schema_of(chosen),
            by=keys,
            names=names,
            schemas=schemas,
            select=chosen,
        ),
    )


@dataclass(frozen=True, slots=True)
class Queue:
    """A port's tuples, key by key: those that waited, then the batch's."""

    history: History
    old: Contents
    new: pa.StructArray
    arrived: Ints


def _queue(operator: Barrier, port: int, touched: Ints, keys: KeyTable, arrived: Ints, given: Given) -> Queue:
    chunk = given.inputs[port]
    new = struct_of({c: chunk.columns[c] for c in operator.kept_of_port(port)}, chunk.rows)
    old = gather(given.pages.get(str(port), ()), keys, new.type)
    history = line_up(chunk.code, touched, len(given.keys), old)
    waited = np.full(len(old.tuples), _BEFORE)
    return Queue(history, old, new, history.line_up_numbers(waited, arrived))


def _in_order(last: Ints, arrived: Ints) -> tuple[Ints, Ints]:
    """Return the order of rounds that complete at arrivals ``last``, and the tuple that completes each.

    No tuple completes two rounds, so sorting is finding a place.
    """
    round_at, tuple_at = np.full(len(arrived), -1), np.empty(len(arrived), np.int64)
    round_at[last], tuple_at[arrived] = np.arange(len(last)), np.arange(len(arrived))
    at = np.flatnonzero(round_at >= 0)
    return round_at[at], tuple_at[at]


def _columns(
    operator: Barrier, queues: list[Queue], rows: list[Ints], code: Codes, given: Given
) -> dict[str, pa.Array]:
    """Return the columns of every port that are read, as ``port.column``."""
    read = read_by(n for n in operator.select if n.name in given.needed[operator.name])
    columns = {}
    for port, (queue, mine) in enumerate(zip(queues, rows, strict=True)):
        kept = operator.kept_of_port(port)
        index = pa.array(queue.history.order[mine])
        for name in operator.columns_of_port(port):
            key = f"{operator.names[port]}.{name}"
            if key not in read:
                continue
            if name in kept:
                both = pa.concat_arrays([queue.old.tuples.field(name), queue.new.field(name)])
                columns[key] = both.take(index)
            else:
                columns[key] = given.keys.columns[operator.by.index(name)].take(pa.array(code))
    return columns
