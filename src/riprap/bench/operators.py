"""What each operator's kernel does alone: one process, one core, no Spark, state carried from batch to batch.

Each case is a small application, compiled as any other; its batches go through `run_stage`, and the time is
that of the operator under test. Results are checked against a plain computation of sampled windows.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import riprap as rr
from riprap.apps.bargain import bargain
from riprap.bench.bargain_table import grid
from riprap.bench.feed import make_feed
from riprap.bench.measuring import Report, about, middle, rounded, spread
from riprap.compiler import Plan, compile_graph
from riprap.errors import RunError
from riprap.graph import Stream
from riprap.operators.arrival import Rows, arrive
from riprap.operators.chunk import Chunk
from riprap.operators.stage import run_stage
from riprap.runtime import packets
from riprap.runtime.recorded import read_source
from riprap.runtime.segments import Segment

SEED = 7
WINDOW = 5
KEYS = (1, 100, 100_000)
BATCH_ROWS = 100_000
WARM_UP = 2
SCHEMA = "seq bigint, key string, side bigint, price double, size bigint"

Build = Callable[[rr.Application, Stream], Stream]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """An operator to measure: how to add it to an application, by which name, and with how many keys."""

    title: str
    build: Build
    operator: str
    keys: int
    expect: Callable[[Sequence[float]], float] | None = None


def run(quick: bool, report: Report) -> dict[str, Any]:
    """Measure every case."""
    return measure_operators(report, batches=8 if quick else 30, rows=BATCH_ROWS, quick=quick)


def measure_operators(report: Report, *, batches: int, rows: int, quick: bool = False) -> dict[str, Any]:
    """Measure every case over so many batches of so many rows."""
    described = about(seed=SEED, batches=batches, rows_a_batch=rows, quick=quick)
    lines = []
    for case in _cases():
        lines.append(_line(case.title, case.keys, _operator_rates(case, batches, rows)))
        report(_shown(lines[-1]))
    for title, keys, rates in _movers(batches, rows):
        lines.append(_line(title, keys, rates))
        report(_shown(lines[-1]))
    result: dict[str, Any] = rounded({"operators": lines, "about": described})
    return result


def table(result: dict[str, Any]) -> str:
    """Return the result as a Markdown table."""
    described = result["about"]
    rows = [
        [
            line["operator"],
            f"{line['keys']:,}" if line["keys"] else "",
            f"{line['tuples_per_s']:,.0f}",
            "{:,.0f} to {:,.0f}".format(*line["spread"]),
        ]
        for line in result["operators"]
    ]
    quick = " A quick run: a smoke test, not a measurement." if described["quick"] else ""
    return (
        grid(["one core, no Spark", "keys", "tuples/s in", "least to greatest"], rows)
        + f"\n\n{described['date']}; {described['machine']}, load {described['load_before']} before; "
        f"{described['batches']} batches of {described['rows_a_batch']:,} tuples, state carried over.{quick}"
    )


def _cases() -> Iterator[Case]:
    yield Case(title="functor: filter and project", build=_functor, operator="op", keys=100)
    for keys in KEYS:
        for function, expect in (("sum", math.fsum), ("count", len), ("min", min)):
            build = partial(_aggregate, function)
            title = f"aggregate: {function} over {WINDOW}"
            yield Case(title=title, build=build, operator="op", keys=keys, expect=expect)
    for keys in KEYS:
        yield Case(title="join: windows 1 and 0", build=_join, operator="op", keys=keys)


def _functor(app: rr.Application, feed: Stream) -> Stream:
    return app.functor("op", feed, where="side = 1", select="seq, key, price * size as result")


def _aggregate(function: str, app: rr.Application, feed: Stream) -> Stream:
    return app.aggregate(
        "op", feed, by="key", window=rr.sliding(tuples=WINDOW), emit=rr.every(tuples=1),
        select=f"{function}(price) as result",
    )  # fmt: skip


def _join(app: rr.Application, feed: Stream) -> Stream:
    left = app.functor("trades", feed, where="side = 0", select="key, price")
    right = app.functor("quotes", feed, where="side = 1", select="key, size")
    windows = (rr.sliding(tuples=1), rr.sliding(tuples=0))
    return app.join("op", left, right, by="key", windows=windows, select="key, price * size as result")


def _compile(build: Build, tasks: int = 1) -> Plan:
    app = rr.Application("case")
    feed = app.source("feed", rr.rows([], SCHEMA), position="seq")
    app.sink("out", build(app, feed), rr.memory())
    return compile_graph(app.graph(), buckets=tasks, tasks=tasks)


def _make_batches(keys: int, batches: int, rows: int) -> Iterator[Rows]:
    """Yield random tuples; text keys are dictionary-encoded, as Parquet hands them over."""
    random = np.random.default_rng(SEED)
    names = pa.array([f"key{i:06d}" for i in range(keys)])
    for batch in range(batches):
        seq = np.arange(batch * rows, (batch + 1) * rows)
        codes = pa.array(random.integers(0, keys, rows), pa.int32())
        columns = {
            "seq": pa.array(seq),
            "key": pa.DictionaryArray.from_arrays(codes, names),
            "side": pa.array((random.random(rows) < 0.8).astype(np.int64)),
            "price": pa.array(random.lognormal(3.0, 1.0, rows)),
            "size": pa.array(random.integers(1, 1000, rows)),
        }
        yield Rows(columns, seq)


def _operator_rates(case: Case, batches: int, rows: int) -> list[float]:
    plan = _compile(case.build)
    state: dict[str, list[pa.RecordBatch]] = {}
    rates = []
    past: list[Rows] = []
    for read in _make_batches(case.keys, batches, rows):
        needed = Rows({c: read.columns[c] for c in sorted(plan.needed["feed"])}, read.position)
        outcome = run_stage(plan.graph, plan.needed, arrive(plan.entries, {"feed": needed}), state)
        did = outcome.activity[case.operator]
        rates.append(did.tuples_in / did.seconds)
        for slot, (page, replaced) in outcome.pages.items():
            state[slot] = [page, *state.get(slot, [])[replaced:]]
        past.append(read)
    _check(case, past, outcome.outputs["out"])
    return rates[WARM_UP:]


def _check(case: Case, past: Sequence[Rows], last: Chunk, samples: int = 50) -> None:
    """Compare results of the last batch with what the definition says of tuples picked from it."""
    found = last.columns["result"].to_numpy(zero_copy_only=False)
    code, side = _all(past, "key"), _all(past, "side")
    price, size = _all(past, "price"), _all(past, "size")
    first = len(code) - past[-1].rows
    place = {int(rank): row for row, rank in enumerate(last.rank)}
    for rank in np.random.default_rng(SEED).integers(0, past[-1].rows, samples).tolist():
        row = first + rank
        mine = np.flatnonzero(code[: row + 1] == code[row])
        if case.expect is not None:
            wanted: float | None = case.expect(price[mine[-WINDOW:]].tolist())
        elif side[row] == 0:
            wanted = None
        elif case.build is _functor:
            wanted = price[row] * size[row]
        else:
            trades = mine[side[mine] == 0]
            wanted = price[trades[-1]] * size[row] if len(trades) else None
        got = found[place[rank]] if rank in place else None
        if got != wanted:
            raise RunError(f"{case.title}, {case.keys} keys: tuple {row} gives {got}, and {wanted} is right")


def _all(past: Sequence[Rows], name: str) -> Any:
    arrays = [rows.columns[name] for rows in past]
    plain = [a.indices if pa.types.is_dictionary(a.type) else a for a in arrays]
    return np.concatenate([a.to_numpy(zero_copy_only=False) for a in plain])


def _movers(batches: int, rows: int) -> Iterator[tuple[str, int, list[float]]]:
    """Measure what brings tuples to the operators: reading, keying and ordering, packing and unpacking."""
    yield "source: read Parquet", 0, _read_rates(batches, rows)
    for keys in KEYS:
        plan = _compile(partial(_aggregate, "sum"), tasks=2)
        arrived, packed, unpacked = [], [], []
        for read in _make_batches(keys, batches, rows):
            arrived.append(_rate(rows, partial(arrive, plan.entries, {"feed": read}, (0, 1), 2))[0])
            rate, sent = _rate(rows, partial(_pack, plan, read))
            packed.append(rate)
            rate, back = _rate(rows, partial(packets.unpack, plan, sent))
            unpacked.append(rate)
            if sorted(back["feed"].position.tolist()) != read.position.tolist():
                raise RunError(f"packing lost tuples at {keys} keys")
        yield "arrival: key, keep one of two tasks' buckets", keys, arrived[WARM_UP:]
        yield "packets: pack for two tasks", keys, packed[WARM_UP:]
        yield "packets: unpack", keys, unpacked[WARM_UP:]


def _pack(plan: Plan, rows: Rows) -> list[pa.RecordBatch]:
    return list(packets.pack(plan, 0, rows))


def _rate(rows: int, work: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    result = work()
    return rows / (time.perf_counter() - began), result


def _read_rates(batches: int, rows: int) -> list[float]:
    with tempfile.TemporaryDirectory(prefix="riprap-bench-") as folder:
        feed = make_feed(Path(folder) / "feed", batches * rows, rows_per_file=rows, seed=SEED)
        plan = compile_graph(bargain(Path(folder) / "feed", rr.memory()).graph(), buckets=1, tasks=1)
        rates = []
        for number, file in enumerate(feed.files):
            start = number * rows
            segment = Segment(file=file.name, path=str(file), kind="parquet", start=start, rows=rows)
            read = partial(read_source, plan, "Source", start, start + rows, [segment])
            rate, found = _rate(rows, read)
            if found.rows != rows:
                raise RunError(f"{file.name} has {found.rows} rows, not {rows}")
            rates.append(rate)
        return rates[WARM_UP:]


def _line(title: str, keys: int, rates: Sequence[float]) -> dict[str, Any]:
    return {"operator": title, "keys": keys, "tuples_per_s": middle(rates), "spread": spread(rates)}


def _shown(line: dict[str, Any]) -> str:
    keys = f", {line['keys']:,} keys" if line["keys"] else ""
    return f"{line['operator']}{keys}: {line['tuples_per_s']:,.0f} tuples/s"
