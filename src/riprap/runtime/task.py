"""What a task does with the rows of its buckets: take up the state, compute, leave pages, and answer.

The answer is small: the names of the pages it left. Whether they count is the driver's word, in the ledger.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache, partial, reduce
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark import cloudpickle

from riprap.compiler import Plan
from riprap.errors import LedgerError
from riprap.expressions import normalise
from riprap.graph.graph import Graph
from riprap.operators.arrival import Arrival, Rows, arrive, order_numbers
from riprap.operators.chunk import Chunk
from riprap.operators.stage import Activity, run_stage, slots_of
from riprap.runtime.crash import reach
from riprap.runtime.site import Site
from riprap.state.hashing import buckets_of
from riprap.state.ledger import Manifest, Output, page_name
from riprap.state.windows import merge, restrict, tuples_in


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a task tells the driver."""

    task: int
    manifest: Manifest
    outputs: Mapping[str, Output]
    activity: Mapping[str, Activity]
    state: Mapping[str, tuple[int, int]]
    seconds: Mapping[str, float]

    def to_json(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_json(cls, text: bytes) -> Answer:
        data = json.loads(text)
        low, high = data["manifest"]["buckets"]
        return cls(
            task=data["task"],
            manifest=Manifest((low, high), {k: tuple(v) for k, v in data["manifest"]["pages"].items()}),
            outputs={k: Output(**v) for k, v in data["outputs"].items()},
            activity={k: Activity(**v) for k, v in data["activity"].items()},
            state={k: (v[0], v[1]) for k, v in data["state"].items()},
            seconds=data["seconds"],
        )


def save_plan(path: Path, plan: Plan) -> None:
    """Write the plan where tasks find it."""
    temporary = path.with_suffix(".tmp")
    temporary.write_bytes(cloudpickle.dumps(plan))  # type: ignore[no-untyped-call]
    temporary.rename(path)


@lru_cache(maxsize=4)
def load_plan(path: str) -> Plan:
    """Read a plan; a worker does so once."""
    plan: Plan = cloudpickle.loads(Path(path).read_bytes())
    return plan


def run_task(
    plan: Plan,
    site: Site,
    *,
    batch: int,
    task: int,
    attempt: str,
    rows: Mapping[str, Rows],
    read_seconds: float = 0.0,
) -> Answer:
    """Compute a task's buckets of a batch, from the state that the record before it names."""
    began = time.perf_counter()
    site = site.here()
    first, end = plan.span(task)
    arrival = arrive(plan.entries, rows, (first, end) if plan.keyed else None, plan.buckets)
    arrived = time.perf_counter()
    before = site.ledger.get(batch - 1).state_of(first, end)
    if sum(high - low for low, high in (m.buckets for m in before)) != end - first:
        raise LedgerError(
            f"the record of batch {batch - 1} names state for buckets {[m.buckets for m in before]}, and this task "
            f"has {first} to {end}: some state would be taken for empty. Was the number of buckets changed?"
        )
    names = {slot: [name for m in before for name in m.pages.get(slot, ())] for slot in _slots(plan.graph)}
    state = {
        slot: [
            restrict(site.pages.read(name), *m.buckets, plan.buckets)
            for m in before
            for name in m.pages.get(slot, ())
        ]
        for slot in names
    }
    loaded = time.perf_counter()
    outcome = run_stage(plan.graph, plan.needed, arrival, state)
    computed = time.perf_counter()
    reach("computed", batch)

    def name(slot: str) -> str:
        return page_name(epoch=site.ledger.epoch, batch=batch, attempt=attempt, slot=slot)

    pages, held = {}, {}
    for slot, size in _slots(plan.graph).items():
        page, replaced = outcome.pages.get(slot, (None, 0))
        made = [page] if page is not None else []
        if len(before) > 1 and state[slot]:
            # Buckets that several tasks had: a page of one must not count for the others', so all move to one page.
            made, replaced = (
                [reduce(partial(merge, size=size), [*made, *state[slot][replaced:]])],
                len(state[slot]),
            )
        pages[slot] = (*(site.pages.write(name(slot), p) for p in made), *names[slot][replaced:])
        held[slot] = [*made, *state[slot][replaced:]]
    reach("paged", batch)
    outputs = {
        sink: Output(
            site.results.write(name(f"{sink}/out"), _result_page(plan, sink, chunk, arrival)), chunk.rows
        )
        for sink, chunk in outcome.outputs.items()
        if chunk.rows
    }
    done = time.perf_counter()
    reach("answered", batch)
    return Answer(
        task=task,
        manifest=Manifest((first, end), pages),
        outputs=outputs,
        activity=outcome.activity,
        state={slot: (sum(map(tuples_in, p)), sum(q.nbytes for q in p)) for slot, p in held.items()},
        seconds={
            "read": read_seconds,
            "arrive": arrived - began,
            "load": loaded - arrived,
            "compute": computed - loaded,
            "write": done - computed,
        },
    )


def _slots(graph: Graph) -> dict[str, int]:
    return {slot: size for operator in graph for slot, size in slots_of(operator).items()}


def _result_page(plan: Plan, sink: str, chunk: Chunk, arrival: Arrival) -> pa.RecordBatch:
    """Put a sink's rows into a page, with hidden columns that say where they stand in the stream."""
    fields = list(plan.graph[sink].schema)
    columns = [_plain(chunk.columns[f.name], f.type) for f in fields]
    names = [f.name for f in fields]
    source, position = arrival.source[chunk.rank], arrival.position[chunk.rank]
    return pa.RecordBatch.from_arrays(
        [
            *columns,
            *(pa.array(a) for a in _order_columns(plan, arrival, chunk)),
            pa.array(source),
            pa.array(position),
        ],
        [*names, *(["$ordering"] if plan.entries[0].ordering else []), "$source", "$position"],
    )


def _order_columns(plan: Plan, arrival: Arrival, chunk: Chunk) -> list[np.ndarray]:
    if plan.entries[0].ordering is None:
        return []
    numbers = np.empty(len(arrival.position), np.int64)
    for entry in plan.entries:
        part = arrival.chunks[entry.name]
        numbers[part.rank] = order_numbers(part.columns[entry.ordering or ""])
    return [numbers[chunk.rank]]


def _plain(array: pa.Array, kind: pa.DataType) -> pa.Array:
    array = normalise(array)
    return array if array.type == kind else array.cast(kind)


def bucket_tasks(plan: Plan, hashes: np.ndarray) -> np.ndarray:
    """Return the task of each hash."""
    ends = np.array([plan.span(task)[1] for task in range(plan.tasks)])
    return np.searchsorted(ends, buckets_of(hashes, plan.buckets), side="right")
