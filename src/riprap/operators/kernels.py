"""Which function computes which operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from riprap.graph.operators import (
    Aggregate,
    Barrier,
    Custom,
    Deduplicate,
    Delay,
    Faulty,
    Functor,
    Gate,
    Join,
    Lookup,
    Operator,
    Outlet,
    Punctor,
    Sink,
    Sort,
    Split,
    Throttle,
    TopN,
    Union,
)
from riprap.operators.aggregate import run_aggregate
from riprap.operators.barrier import run_barrier
from riprap.operators.custom import control_custom, run_custom
from riprap.operators.deduplicate import run_deduplicate
from riprap.operators.faulty import run_faulty
from riprap.operators.functor import run_functor
from riprap.operators.gate import run_gate
from riprap.operators.given import Given, Result
from riprap.operators.hold import run_hold
from riprap.operators.join import run_join
from riprap.operators.lookup import run_lookup
from riprap.operators.routing import run_punctor, run_split
from riprap.operators.sort import run_sort

Kernel = Callable[[Any, Given], Result]


def pass_on(operator: Operator, given: Given) -> Result:
    """Put out what comes in."""
    return Result(outputs=given.inputs)


KERNELS: Mapping[type[Operator], Kernel] = {
    Aggregate: run_aggregate,
    Barrier: run_barrier,
    Custom: run_custom,
    Deduplicate: run_deduplicate,
    Delay: run_hold,
    Faulty: run_faulty,
    Functor: run_functor,
    Gate: run_gate,
    Join: run_join,
    Lookup: run_lookup,
    Outlet: pass_on,
    Punctor: run_punctor,
    Sink: pass_on,
    Sort: run_sort,
    Split: run_split,
    Throttle: run_hold,
    TopN: run_sort,
    Union: pass_on,
}

# What an operator with a control port does with the tuples on it, once the rest of the batch is done.
CONTROLS: Mapping[type[Operator], Kernel] = {Custom: control_custom}
