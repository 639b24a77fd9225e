"""Aggregates over windows of each key's tuples.

The state holds the values of the aggregates' arguments, not whole tuples, and results are functions of the window's
contents alone.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from riprap.graph.operators import Aggregate
from riprap.operators.events import in_event_order
from riprap.operators.functions import compute_call
from riprap.operators.functor import compute
from riprap.operators.given import Given, Result
from riprap.operators.windowing import Windows


def run_aggregate(operator: Aggregate, given: Given) -> Result:
    """Aggregate a batch: results, and the new state page."""
    (chunk,) = given.inputs
    needed = given.needed[operator.name]
    arguments = {a.sql: a for call in operator.aggregation.calls for a in call.arguments}
    values = {f"a{i}": e.evaluate(chunk.columns, chunk.rows) for i, e in enumerate(arguments.values())}
    windows = Windows.of(operator.window, operator.emit, given, values)
    extents, events = windows.extents, windows.events
    order = in_event_order(extents.event, len(events.rank))
    columns = {sql: windows.column(f"a{i}") for i, sql in enumerate(arguments)}
    slots = {
        call.slot: compute_call(call, [columns[a.sql] for a in call.arguments], extents.low, extents.high)
        for call in operator.aggregation.calls
    }
    code = windows.history.touched[extents.key].astype(np.int32)
    index = pa.array(order)
    by = {k: given.keys.columns[i].take(pa.array(code[order])) for i, k in enumerate(operator.by)}
    in_order = {slot: column.take(index) for slot, column in slots.items()}
    event = extents.event[order]
    made = events.derive(event, code[order], {**by, **in_order}, given, operator.depth)
    outputs = compute(operator.aggregation.outputs, made, needed)
    kept_keys = {k: c for k, c in by.items() if k in needed}
    made = replace(
        made.with_columns({**kept_keys, **outputs}), marks=events.punctuations(event, operator.depth)
    )
    page = windows.page(given)
    return Result(outputs=(made,), pages={"0": page} if page is not None else {}, late=extents.late)
