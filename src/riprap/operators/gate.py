"""Let tuples pass while few are unacknowledged; the others wait, key by key in order of arrival."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from riprap.graph.builder import Builder
from riprap.graph.checks import Here, Streams
from riprap.graph.operator import Copies, Needed, PassesOn, Traits, by_columns, passed_on, typed
from riprap.graph.stream import Stream
from riprap.kernels.chunk import Chunk, places, struct_of
from riprap.kernels.given import Given, Result, index_among, same_order
from riprap.kernels.history import line_up
from riprap.kernels.queues import Queues
from riprap.machine_code import compiled
from riprap.operators.keyed import Keyed
from riprap.protection import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate(Keyed, PassesOn):
    """Lets a tuple pass while few are unacknowledged; the others wait for an acknowledgement, in order of arrival."""

    TRAITS: ClassVar[Traits] = Traits(
        does="waits for acknowledgements",
        state=("the tuples that wait", "how many are unacknowledged"),
        pages="window groups",
        key="by, or none",
        stale="holds tuples that were put out since, and waits for acknowledgements that were lost",
        holds=True,
        why_not="it blocks: a tuple waits for an acknowledgement that may never come",
        punctuation="ends here",
    )
    slots = ("0",)
    # Acknowledgements on several streams may derive from one tuple, and each lets one pass.
    depth = 1

    unacknowledged: int

    def reads(self, needed: Needed) -> tuple[frozenset[str], ...]:
        return passed_on(self, needed) | frozenset(self.by), frozenset(self.by)

    def copies(self) -> Copies:
        # An acknowledgement lets only tuples of its own key pass.
        return {n: frozenset({(0, n), (1, n)} if n in self.by else {(0, n)}) for n in self.schema.names}

    def layout(self, needed: Needed) -> str:
        kept = typed(self.schema, passed_on(self, needed))
        return f"{self.unacknowledged} by {', '.join(self.by)}: {kept}"

    def kept_columns(self, needed: Needed) -> Mapping[str, str]:
        return {f"c{number}": name for number, name in enumerate(sorted(needed[self.name]))}

    @property
    def unflushable(self) -> tuple[str, str]:
        return (
            "what waits for an acknowledgement cannot be put out at the end",
            "Leave out at_end=, or the gate",
        )

    def summary(self) -> str:
        return f"{self.unacknowledged} unacknowledged at most{by_columns(self.by)}"

    def run(self, given: Given) -> Result:
        """Let pass what may in a batch; return also the new state page."""
        data, answers = (c.without_marks() for c in given.inputs)
        keys = len(given.keys)
        touched = np.flatnonzero(
            np.bincount(data.code, minlength=keys) + np.bincount(answers.code, minlength=keys)
        )
        names = sorted(given.needed[self.name])
        new = struct_of({f"c{i}": data.columns[name] for i, name in enumerate(names)}, data.rows)
        queues = Queues.of(given.pages.get("0", ()), given.keys.take(touched), counters=1)
        # No answer lets more than one pass.
        answered = np.bincount(answers.code, minlength=keys)[touched]
        leaving = np.minimum(queues.lengths, answered)
        old = queues.first(leaving, new.type)
        history = line_up(data.code, touched, keys, old)
        open_ = np.zeros(keys, np.int64)
        open_[touched] = queues.counters[:, 0]
        first, fresh = history.start_of(keys)
        data_at, answer_at = places([data, answers])
        rows, arrival = _pass(
            data_at, answer_at, data.code, answers.code, open_, first, fresh, self.unacknowledged
        )
        index = pa.array(history.order[rows])
        columns = {
            name: pa.concat_arrays([old.tuples.field(i), new.field(i)]).take(index)
            for i, name in enumerate(names)
        }
        rank = np.concatenate([data.rank, answers.rank])[arrival]
        path = tuple(np.concatenate(parts)[arrival] for parts in zip(data.path, answers.path, strict=True))
        code = np.concatenate([data.code, answers.code])[arrival]
        output = Chunk(columns, rank, code, (*path, index_among(same_order(rank, path)))).without_marks()
        counters = open_[touched].reshape(-1, 1)
        held = queues.lengths - leaving + history.starts[1:] - first[touched]
        changed = (held != queues.lengths) | (counters != queues.counters).any(axis=1)
        page = history.page(given.keys, new, history.starts[1:] - held, counters, changed)
        return Result(outputs=(output,), pages={"0": page} if page is not None else {})


def gate(
    app: Builder,
    name: str,
    stream: Streams,
    acknowledgements: Streams,
    *,
    unacknowledged: int = 1,
    by: str | Sequence[str] = (),
    protect: Policy | None = None,
) -> Stream:
    """Add a gate: a tuple passes while fewer than ``unacknowledged`` tuples that passed are unacknowledged.

    Others wait; each acknowledgement lets the oldest pass. One that comes when none is outstanding is ignored.

    >>> app = rr.Application("demo")
    >>> jobs, done = (app.source(name, rr.rows([], "id bigint")) for name in ("jobs", "done"))
    >>> print(app.gate("few", jobs, done, unacknowledged=3))
    stream 'few' (id bigint)
    """
    here = Here("Gate", name, app, stream, acknowledgements)
    inputs, answers = here.port(stream), here.port(acknowledgements)
    keys = here.keys(by, inputs, answers)
    if not isinstance(unacknowledged, int) or isinstance(unacknowledged, bool) or unacknowledged < 1:
        raise here.error(f"unacknowledged= is {unacknowledged!r}", "Give it a whole number of at least 1")
    return here.add(
        Gate(
            **here.basics(inputs, answers, protect=protect),
            schema=inputs.schema,
            by=keys,
            unacknowledged=unacknowledged,
        ),
    )


@compiled
def _pass(data_at, answer_at, data_code, answer_code, open_, first, arrived, most):  # type: ignore[no-untyped-def]
    """Return the rows that pass, and the arrival that lets each one: of a tuple, or after those of an answer.

    Of each key ``open_`` counts the unacknowledged, ``first`` is the oldest row that waits, and rows up to ``arrived``
    have come; the first two are brought up to date.
    """
    room = len(data_at) + len(answer_at)
    row, arrival = np.empty(room, np.int64), np.empty(room, np.int64)
    i = j = found = 0
    while i < len(data_at) or j < len(answer_at):
        # The lower port goes first when both derive from one tuple.
        is_data = j == len(answer_at) or (i < len(data_at) and data_at[i] < answer_at[j])
        if is_data:
            key = data_code[i]
            arrived[key] += 1
            passes = open_[key] < most
            open_[key] += passes
        else:
            key = answer_code[j]
            # If one waits as many as may be are unacknowledged, and stay so.
            passes = first[key] < arrived[key]
            open_[key] -= open_[key] > 0 and not passes
        if passes:
            row[found], arrival[found] = first[key], i if is_data else len(data_at) + j
            first[key] += 1
            found += 1
        i += is_data
        j += not is_data
    return row[:found], arrival[:found]
