"""Benchmarks that check the answer as well as the time, against the other ways to do it on Spark.

    >>> sorted(BENCHMARKS)
    ['adapters', 'bargain', 'checkpoint', 'eventual', 'faults', 'kill', 'latency', 'model', 'operators', 'regions',
     'replicas', 'san', 'wafer']

A benchmark writes nothing but temporary files. Its result is one JSON object, and `table` shows it to people.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from riprap_bench import (
    adapters,
    bargain,
    checkpoint,
    eventual,
    faults,
    kill,
    latency,
    model,
    operators,
    regions,
    replicas,
    san,
    wafer,
)
from riprap_bench.measuring import Report

__all__ = ["BENCHMARKS", "Benchmark", "Report"]

Result = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """A named benchmark.

    To ``run`` it takes whether it is to be quick, a smoke test of some minutes, and whom to tell how far it has come.
    ``takes`` names the options that it has beyond those of all. One that is ``long`` tells how far it has come; one
    that ``goes_on`` is told of an earlier result, and tells of its own as it comes. ``figures`` draws a result into
    files next to another.
    """

    name: str
    summary: str
    run: Callable[..., Result]
    table: Callable[[Result], str]
    takes: tuple[str, ...] = ()
    long: bool = False
    goes_on: bool = False
    figures: Callable[[Result, Path], list[Path]] | None = None


BENCHMARKS: dict[str, Benchmark] = {
    b.name: b
    for b in (
        Benchmark(
            name="bargain",
            summary="Bargain Discovery on Riprap, two ways each on plain Spark and Bytewax, and a bare Numba loop",
            run=bargain.run,
            table=bargain.table,
            takes=("only",),
        ),
        Benchmark(
            name="latency",
            summary="how long results take at a steady pace, by the clock of whoever gets them",
            run=latency.run,
            table=latency.table,
            takes=("rate", "repetitions", "seconds"),
        ),
        Benchmark(
            name="kill",
            summary="from SIGKILL of a worker, or of a driver with a spare, to the next batch on record",
            run=kill.run,
            table=kill.table,
            takes=("rate", "repetitions"),
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
        Benchmark(
            name="checkpoint",
            summary="joins and large windows with checkpoints and without, restoring, and no policy at all",
            run=checkpoint.run,
            table=checkpoint.table,
            takes=("only", "repetitions", "corner_repetitions", "seconds", "long_seconds", "before"),
            long=True,
            goes_on=True,
            figures=checkpoint.figures,
        ),
        Benchmark(
            name="regions",
            summary="what consistent regions cost, beside none and beside plain Spark, and how quickly they are back",
            run=regions.run,
            table=regions.table,
            takes=("only", "repetitions", "seconds", "long_seconds"),
            long=True,
            goes_on=True,
        ),
        Benchmark(
            name="eventual",
            summary="what recording windows in the output log costs, and how long it takes to come back by them",
            run=eventual.run,
            table=eventual.table,
        ),
        Benchmark(
            name="replicas",
            summary="how soon another replica is read, what it costs to have one, and how good results stay",
            run=replicas.run,
            table=replicas.table,
            takes=("only", "repetitions", "rate", "feed"),
            long=True,
            goes_on=True,
        ),
        Benchmark(
            name="wafer",
            summary="how far predictions are off after a crash, with a checkpoint of the model and without",
            run=wafer.run,
            table=wafer.table,
            takes=("points", "rate", "seed", "real", "feed", "at_once"),
            long=True,
            figures=wafer.figures,
        ),
        Benchmark(
            name="faults",
            summary="what a trial of fault injection costs as the stream grows, and against replaying all of it",
            run=faults.run,
            table=faults.table,
        ),
        Benchmark(
            name="san",
            summary="how many activities of a simulated net complete in a second, on one core",
            run=san.run,
            table=san.table,
        ),
        Benchmark(
            name="model",
            summary="how long predictions take, with more tuples, more time and more faults",
            run=model.run,
            table=model.table,
        ),
    )
}
