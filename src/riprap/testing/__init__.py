"""Test applications, and what is plugged into them: without Spark where that is possible, and with nothing but Riprap.

Tests in memory
    Rehearsal           drive an application batch by batch, and crash it at named steps
    compare             with a plain function of rows, wherever batches may end
    forget_instances    lose what instances of your operators hold besides their state

Checks of parts of your own
    check_operator      a class derived from rr.CustomOperator
    check_source, check_sink, check_store, check_policy
                        one from rr.Source, rr.Sink, rr.Store, rr.Policy
    check_fault_model   one from riprap.faults.FaultModel
    BrokenPromise       what they raise: each promise that is broken, and how

Crashes of runs on Spark
    crash_at            have a program die at a step of a batch
    kill_process, kill_executor, kill_host
                        kill what there is of a supervised run
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from riprap.runtime.supervision.real_crashes import kill_executor, kill_host, kill_process
    from riprap.testing.comparison import compare
    from riprap.testing.element import forget_instances
    from riprap.testing.fault_models import check_fault_model
    from riprap.testing.operators import check_operator
    from riprap.testing.policies import check_policy
    from riprap.testing.promises import BrokenPromise
    from riprap.testing.rehearsal import Rehearsal
    from riprap.testing.runs import crash_at
    from riprap.testing.sinks import check_sink
    from riprap.testing.sources import check_source
    from riprap.testing.stores import check_store

__all__ = [
    "BrokenPromise",
    "Rehearsal",
    "check_fault_model",
    "check_operator",
    "check_policy",
    "check_sink",
    "check_source",
    "check_store",
    "compare",
    "crash_at",
    "forget_instances",
    "kill_executor",
    "kill_host",
    "kill_process",
]

# Whoever checks a store need not wait for operators, and who rehearses need not wait for Spark.
_HOMES = {
    "riprap.runtime.supervision.real_crashes": ("kill_executor", "kill_host", "kill_process"),
    "riprap.testing.comparison": ("compare",),
    "riprap.testing.element": ("forget_instances",),
    "riprap.testing.fault_models": ("check_fault_model",),
    "riprap.testing.operators": ("check_operator",),
    "riprap.testing.policies": ("check_policy",),
    "riprap.testing.promises": ("BrokenPromise",),
    "riprap.testing.rehearsal": ("Rehearsal",),
    "riprap.testing.runs": ("crash_at",),
    "riprap.testing.sinks": ("check_sink",),
    "riprap.testing.sources": ("check_source",),
    "riprap.testing.stores": ("check_store",),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            globals()[name] = value = getattr(import_module(home), name)
            return value
    raise AttributeError(f"module 'riprap.testing' has no attribute '{name}'")
