"""Benchmarks that check the answer as well as the time, against the other ways to do it on Spark.

    >>> sorted(BENCHMARKS)
    ['adapters', 'bargain', 'operators']

A benchmark writes nothing but temporary files. Its result is one JSON object, and `table` shows it to people.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from riprap.bench import adapters, bargain, operators
from riprap.bench.measuring import Report

__all__ = ["BENCHMARKS", "Benchmark", "Report"]

Result = dict[str, Any]


class Runner(Protocol):
    """What measures: ``quick`` is a smoke test of some minutes, ``report`` hears how far it has come."""

    def __call__(self, quick: bool, report: Report) -> Result: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """A named benchmark."""

    name: str
    summary: str
    run: Runner
    table: Callable[[Result], str]


BENCHMARKS: dict[str, Benchmark] = {
    b.name: b
    for b in (
        Benchmark(
            name="bargain",
            summary="Bargain Discovery on Riprap, on two ways of plain Spark, and on a bare Numba loop",
            run=bargain.run,
            table=bargain.table,
        ),
        Benchmark(
            name="operators",
            summary="what each operator's kernel does alone, on one core and without Spark",
            run=operators.run,
            table=operators.table,
        ),
        Benchmark(
            name="adapters",
            summary="each source and sink against its client library alone in a plain loop",
            run=adapters.run,
            table=adapters.table,
        ),
    )
}
