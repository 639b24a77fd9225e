"""Let tuples pass while few are unacknowledged; the others wait, key by key in order of arrival."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from riprap.graph.operators import Gate
from riprap.machine_code import compiled
from riprap.operators.chunk import Chunk, Ints, Path, places, struct_of
from riprap.operators.given import Given, Result, index_among
from riprap.operators.history import line_up
from riprap.operators.queues import Queues


def run_gate(operator: Gate, given: Given) -> Result:
    """Let pass what may in a batch; return also the new state page."""
    data, answers = (c.without_marks() for c in given.inputs)
    keys = len(given.keys)
    touched = np.flatnonzero(
        np.bincount(data.code, minlength=keys) + np.bincount(answers.code, minlength=keys)
    )
    names = sorted(given.needed[operator.name])
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
        data_at, answer_at, data.code, answers.code, open_, first, fresh, operator.unacknowledged
    )
    index = pa.array(history.order[rows])
    columns = {
        name: pa.concat_arrays([old.tuples.field(i), new.field(i)]).take(index)
        for i, name in enumerate(names)
    }
    rank = np.concatenate([data.rank, answers.rank])[arrival]
    path = tuple(np.concatenate(parts)[arrival] for parts in zip(data.path, answers.path, strict=True))
    code = np.concatenate([data.code, answers.code])[arrival]
    output = Chunk(columns, rank, code, (*path, _index(rank, path))).without_marks()
    counters = open_[touched].reshape(-1, 1)
    held = queues.lengths - leaving + history.starts[1:] - first[touched]
    changed = (held != queues.lengths) | (counters != queues.counters).any(axis=1)
    page = history.page(given.keys, new, history.starts[1:] - held, counters, changed)
    return Result(outputs=(output,), pages={"0": page} if page is not None else {})


def _index(rank: Ints, path: Path) -> Ints:
    """Number the outputs that derive from one tuple."""
    new = np.zeros(len(rank), bool)
    for column in (rank, *path):
        new[1:] |= column[1:] != column[:-1]
    return index_among(np.cumsum(new))


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
