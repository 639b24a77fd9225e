"""What a task does with the rows of its buckets: take up the state, compute, leave pages, and answer.

The answer is small: the names of the pages it left. Whether they count is the driver's word, in the ledger.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial, reduce
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
from pyspark import cloudpickle

from riprap.channels.tags import tag_columns
from riprap.compiler import Plan
from riprap.errors import LedgerError
from riprap.expressions import normalise
from riprap.graph import connectors
from riprap.graph.connectors import Rows
from riprap.kernels.chunk import Chunk
from riprap.operators.channel import Outlet
from riprap.operators.source import Source
from riprap.ownership import read_file
from riprap.runtime.crash import reach
from riprap.runtime.site import Site
from riprap.stage.arrival import Arrival, ReadRows
from riprap.stage.batch import compute, take_in
from riprap.stage.fused import OperatorActivity, Outcome
from riprap.stage.plan import is_bookkeeping
from riprap.stage.recording import Recording, RecordOrder
from riprap.state.digests import digest_of
from riprap.state.durable_files import fields_of, save_private
from riprap.state.ledger import Manifest, Output, page_name
from riprap.state.pages import PageStore
from riprap.state.windows import merge, restrict, tuples_in

_SMALL_BYTES = 1 << 18
_NOTHING_DUE = RecordOrder()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a task tells the driver."""

    task: int
    manifest: Manifest
    outputs: Mapping[str, Output]
    activity: Mapping[str, OperatorActivity]
    state: Mapping[str, tuple[int, int]]
    seconds: Mapping[str, float]
    fresh: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> bytes:
        return json.dumps(
            self, default=lambda value: value.to_json() if isinstance(value, Output) else fields_of(value)
        ).encode()

    @classmethod
    def from_json(cls, text: bytes) -> Answer:
        data = json.loads(text)
        low, high = data["manifest"]["buckets"]
        return cls(
            task=data["task"],
            manifest=Manifest((low, high), {k: tuple(v) for k, v in data["manifest"]["pages"].items()}),
            outputs={k: Output(**v) for k, v in data["outputs"].items()},
            activity={
                k: OperatorActivity(**{**v, "ports": tuple(v["ports"])}) for k, v in data["activity"].items()
            },
            state={k: (v[0], v[1]) for k, v in data["state"].items()},
            seconds=data["seconds"],
            fresh=data["fresh"],
        )


class _SmallPages:
    """The small pages of the state that a process left last: to read them takes longer than to compute with them."""

    def __init__(self) -> None:
        self._pages: dict[tuple[str, str, tuple[int, int]], pa.RecordBatch] = {}

    def read(self, store: PageStore, name: str, span: tuple[int, int]) -> pa.RecordBatch:
        """Return what a page has of a span's buckets, and perhaps of others'."""
        page = self._pages.get((store.folder, name, span))
        return store.read(name) if page is None else page

    def note(
        self, store: PageStore, span: tuple[int, int], pages: Iterable[tuple[str, pa.RecordBatch]]
    ) -> None:
        """Take what the state of a span is now in place of what was noted before."""
        # By the buffers, which a slice keeps whole.
        small = ((name, page) for name, page in pages if page.get_total_buffer_size() < _SMALL_BYTES)
        self._pages = {(store.folder, name, span): page for name, page in small}


_left = _SmallPages()


def save_plan(path: Path, plan: Plan) -> None:
    """Write the plan where tasks find it, without what only the driver uses: how to fetch from a system outside."""
    operators = tuple(
        replace(o, connector=Rows(table=o.schema.empty_table()))
        if isinstance(o, Source) and isinstance(o.connector, connectors.Source)
        else o
        for o in plan.graph
    )
    plan = replace(plan, graph=replace(plan.graph, operators=operators))
    save_private(path, cloudpickle.dumps(plan))  # type: ignore[no-untyped-call]


@lru_cache(maxsize=64)
def load_plan(path: str, *, alone: bool = False) -> Plan:
    """Read a plan, or that of a batch that one task computes alone; a worker does so once.

    To load it is to run code: it must be ours.
    """
    plan: Plan = cloudpickle.loads(read_file(path))
    return plan.alone if alone else plan


def run_task(
    plan: Plan,
    site: Site,
    *,
    batch: int,
    task: int,
    attempt: str,
    rows: Mapping[str, ReadRows],
    tables: Mapping[str, pa.Table] | None = None,
    read_seconds: float = 0.0,
    end: int | None = None,
    order: RecordOrder = _NOTHING_DUE,
) -> Answer:
    """Compute a task's buckets of a batch, from the state that the record before it names.

    A batch without rows may be the ``end`` of the input: the number is the frontier of what is still put out. Where
    open windows are recorded, the ``order`` says which, beside those that must be.
    """
    began = time.perf_counter()
    site = site.here()
    # What Spark reads it cuts up as it likes, and there is no state.
    span = (0, 0) if plan.ingests else plan.span(task)
    arrival = take_in(plan, rows, span, batch=batch)
    recording = Recording.of(plan, site.pages, span, batch, order)
    if recording is not None:
        arrival = recording.admit(arrival)
    arrived = time.perf_counter()
    before = _manifests_before(site, batch, span)
    state = _state_of(plan, site, before, span)
    loaded = time.perf_counter()
    key = site.read_key() if any(o.holds_objects for o in plan.graph) else b""
    # Without a key every task has a part of the rows; then all that is in it is its own.
    outcome = compute(plan, arrival, state, span, end=end, tables=tables, lead=task == 0, key=key)
    computed = time.perf_counter()
    reach("computed", batch, plan.name)
    name = partial(_page_name, site, batch, attempt)
    recorded = recording.note(state, outcome) if recording is not None else {}
    pages = _leave_state(plan, site, before, state, outcome, name)
    held = {slot: [page for _, page in named] for slot, named in pages.items()}
    _left.note(site.pages, span, (named for slot in plan.slots for named in pages[slot]))
    fresh = _leave_fresh(plan, site, outcome, held, name)
    reach("paged", batch, plan.name)
    outputs = _put_out(plan, site, outcome, name, recording)
    done = time.perf_counter()
    reach("answered", batch, plan.name)
    return Answer(
        task=task,
        manifest=Manifest(span, {slot: tuple(n for n, _ in named) for slot, named in pages.items()}),
        outputs=outputs,
        activity=outcome.activity,
        state=_sizes(held),
        fresh=fresh,
        seconds={"read": read_seconds, **_parts(began, arrived, loaded, computed, done), **recorded},
    )


def _manifests_before(site: Site, batch: int, span: tuple[int, int]) -> Sequence[Manifest]:
    """Return what the record before a batch says of the state of a span's buckets."""
    first, last = span
    before = site.ledger.get(batch - 1).state_of(first, last)
    if sum(high - low for low, high in (m.buckets for m in before)) != last - first:
        raise LedgerError(
            f"the record of batch {batch - 1} names state for buckets {[m.buckets for m in before]}, and this task "
            f"has {first} to {last}: some state would be taken for empty. Was the number of buckets changed?"
        )
    return before


def _state_of(
    plan: Plan, site: Site, before: Sequence[Manifest], span: tuple[int, int]
) -> dict[str, list[pa.RecordBatch]]:
    """Read the state of a span's buckets that a record names, by slot."""
    return {
        slot: [
            restrict(_left.read(site.pages, name, span), *m.buckets, plan.buckets)
            for m in before
            for name in m.pages.get(slot, ())
        ]
        for slot in plan.slots
    }


def _parts(*moments: float) -> dict[str, float]:
    """Say how long each part of a task took, of the moments between them."""
    names = ("arrive", "load", "compute", "write")
    return {name: end - begin for name, (begin, end) in zip(names, pairwise(moments), strict=True)}


def _sizes(held: Mapping[str, Sequence[pa.RecordBatch]]) -> dict[str, tuple[int, int]]:
    """Count tuples and bytes of the state, by slot."""
    return {
        slot: (sum(map(tuples_in, pages)), sum(page.nbytes for page in pages))
        for slot, pages in held.items()
        if not is_bookkeeping(slot)
    }


def _page_name(site: Site, batch: int, attempt: str, slot: str) -> str:
    return page_name(epoch=site.ledger.epoch, batch=batch, attempt=attempt, slot=slot)


def _leave_state(
    plan: Plan,
    site: Site,
    before: Sequence[Manifest],
    state: Mapping[str, Sequence[pa.RecordBatch]],
    outcome: Outcome,
    name: Callable[[str], str],
) -> dict[str, list[tuple[str, pa.RecordBatch]]]:
    """Write the pages that are new in the state; return all that are in it now, by slot."""
    pages = {}
    for slot in plan.slots:
        page, replaced = outcome.pages.get(slot, (None, 0))
        new = [page] if page is not None else []
        older = [n for m in before for n in m.pages.get(slot, ())]
        if len(before) > 1 and state[slot]:
            # Buckets that several tasks had: a page of one must not count for the others', so all move to one page.
            new, replaced = [reduce(merge, [*new, *state[slot][replaced:]])], len(state[slot])
        written = [(site.pages.write(name(slot), p), p) for p in new]
        pages[slot] = [*written, *zip(older[replaced:], state[slot][replaced:], strict=True)]
    return pages


def _leave_fresh(
    plan: Plan,
    site: Site,
    outcome: Outcome,
    held: Mapping[str, Sequence[pa.RecordBatch]],
    name: Callable[[str], str],
) -> dict[str, str]:
    """Leave what came in with the batch where it is to be saved: as it is in the state, or else as a page beside it."""
    left = {}
    for slot in dict.fromkeys(s for o in plan.protected for s in plan.saved_slots(o)):
        page = outcome.fresh.get(slot)
        if page is not None:
            left[slot] = (
                name(slot) if page is held[slot][0] else site.pages.write(name(f"{slot}/fresh"), page)
            )
    return left


def _put_out(
    plan: Plan, site: Site, outcome: Outcome, name: Callable[[str], str], recording: Recording | None
) -> dict[str, Output]:
    """Write what sinks and channels get, where that is anything; with the windows that are recorded beside it."""
    outputs = {
        sink: _put_out_to(plan, sink, chunk, outcome.arrival, site, name)
        for sink, chunk in outcome.outputs.items()
        if recording is not None or chunk.rows or (len(chunk.marks) and isinstance(plan.graph[sink], Outlet))
    }
    if recording is None:
        return outputs
    (sink,) = outputs
    page = None
    if recording.control is not None:
        page = site.results.write(name(f"{sink}/control"), recording.control)
    return {sink: replace(outputs[sink], windows={"control": page, **recording.counts})}


def _put_out_to(
    plan: Plan, sink: str, chunk: Chunk, arrival: Arrival, site: Site, name: Callable[[str], str]
) -> Output:
    """Write what a sink or channel gets, with hidden columns that say where it stands in the stream."""
    fields = list(plan.graph[sink].schema)
    columns = [_plain(chunk.columns[f.name], f.type) for f in fields]
    tags = arrival.tags_at(chunk.rank, chunk.path)
    page = pa.RecordBatch.from_arrays(
        [*columns, *map(pa.array, tags)], [*(f.name for f in fields), *tag_columns(len(tags))]
    )
    written = site.results.write(name(f"{sink}/out"), page)
    digest = digest_of(page) if plan.replays and not plan.holds else None
    marks = chunk.marks
    if not len(marks) or not isinstance(plan.graph[sink], Outlet):
        return Output(written, chunk.rows, digest=digest)
    tags = arrival.tags_at(marks.rank, marks.path)
    punctuations = pa.RecordBatch.from_arrays(list(map(pa.array, tags)), tag_columns(len(tags)))
    return Output(written, chunk.rows, site.results.write(name(f"{sink}/marks"), punctuations), digest)


def _plain(array: pa.Array, kind: pa.DataType) -> pa.Array:
    array = normalise(array)
    return array if array.type == kind else array.cast(kind)
