"""Run the fused operators of a processing element over a batch, by plain function calls."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from riprap.errors import OperatorError, RiprapError
from riprap.graph.graph import Graph
from riprap.graph.operators import Aggregate, Functor, Join, Operator, Sink, Source
from riprap.operators.aggregate import run_aggregate
from riprap.operators.arrival import Arrival
from riprap.operators.chunk import Chunk
from riprap.operators.functor import run_functor
from riprap.operators.join import run_join
from riprap.state.windows import add_page

State = Mapping[str, Sequence[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class Activity:
    """What an operator did in a batch."""

    tuples_in: int
    tuples_out: int
    seconds: float


@dataclass(slots=True)
class Outcome:
    """What a batch came to: rows for each sink, new pages by ``operator/port`` (with how many of the newest older
    pages each replaces), and what each operator did."""

    outputs: dict[str, Chunk] = field(default_factory=dict)
    pages: dict[str, tuple[pa.RecordBatch, int]] = field(default_factory=dict)
    activity: dict[str, Activity] = field(default_factory=dict)


def run_stage(
    graph: Graph,
    needed: Mapping[str, frozenset[str]],
    arrival: Arrival,
    state: State,
    clock: Callable[[], float] = time.perf_counter,
) -> Outcome:
    """Run every operator once, each after its inputs. ``needed`` says which output columns anyone reads."""
    outcome = Outcome()
    chunks: dict[str, Chunk] = dict(arrival.chunks)
    readers = graph.fold(lambda o, _: len(graph.consumers(o.name)))
    for operator in graph:
        if isinstance(operator, Source):
            rows = chunks[operator.name].rows
            outcome.activity[operator.name] = Activity(rows, rows, 0.0)
            continue
        inputs = [chunks[name] for name in operator.inputs]
        began = clock()
        try:
            result, pages = _run(operator, inputs, arrival, state, needed[operator.name])
        except RiprapError:
            raise
        except Exception as error:
            raise _blame(operator, inputs, arrival, state, needed[operator.name], error) from error
        rows_in = sum(c.rows for c in inputs)
        outcome.activity[operator.name] = Activity(rows_in, result.rows, clock() - began)
        if isinstance(operator, Sink):
            outcome.outputs[operator.name] = result
        else:
            chunks[operator.name] = result
        for port, page in enumerate(pages):
            slot = f"{operator.name}/{port}"
            if page is not None:
                outcome.pages[slot] = add_page(page, state.get(slot, ()), _window_size(operator, port))
        for name in operator.inputs:
            # A chunk goes as soon as its last reader is done: memory follows the widest part of the graph.
            readers[name] -= 1
            if not readers[name]:
                chunks.pop(name, None)
    return outcome


def slots_of(operator: Operator) -> dict[str, int]:
    """Return the names under which an operator keeps state, and each one's window size."""
    sizes = {f"{operator.name}/{port}": _window_size(operator, port) for port in range(len(operator.inputs))}
    return {slot: size for slot, size in sizes.items() if size > 0}


def _window_size(operator: Operator, port: int) -> int:
    if isinstance(operator, Aggregate):
        return operator.window.tuples
    return operator.windows[port].tuples if isinstance(operator, Join) else 0


def _run(
    operator: Operator, inputs: Sequence[Chunk], arrival: Arrival, state: State, needed: frozenset[str]
) -> tuple[Chunk, tuple[pa.RecordBatch | None, ...]]:
    match operator:
        case Functor():
            return run_functor(operator, inputs[0], needed), ()
        case Aggregate():
            result, page = run_aggregate(
                operator, inputs[0], arrival.keys, state.get(f"{operator.name}/0", ()), needed
            )
            return result, (page,)
        case Join():
            pages = (state.get(f"{operator.name}/0", ()), state.get(f"{operator.name}/1", ()))
            return run_join(operator, (inputs[0], inputs[1]), arrival.keys, pages, needed)
        case Sink():
            return inputs[0], ()
    raise AssertionError(f"no kernel for {operator}")


def _blame(
    operator: Operator,
    inputs: Sequence[Chunk],
    arrival: Arrival,
    state: State,
    needed: frozenset[str],
    error: Exception,
) -> OperatorError:
    """Find the first tuple on which the operator fails, by running it on ever shorter beginnings of the batch."""
    ranks = np.unique(np.concatenate([c.rank for c in inputs]))
    low, high = 0, len(ranks)
    while low < high:
        middle = (low + high) // 2
        until = [c.slice(0, int(np.searchsorted(c.rank, ranks[middle], "right"))) for c in inputs]
        try:
            _run(operator, until, arrival, state, needed)
            low = middle + 1
        except Exception as again:
            error, high = again, middle
    where = "at a tuple that could not be found again"
    if low < len(ranks):
        rank = int(ranks[low])
        source = list(arrival.chunks)[arrival.source[rank]]
        where = f"at position {arrival.position[rank]} of source '{source}'"
    return OperatorError(
        f"{operator.kind} '{operator.name}' ({operator.location}) failed {where}: {type(error).__name__}: {error}"
    )
