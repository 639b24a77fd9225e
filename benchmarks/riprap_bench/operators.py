"""What each operator's kernel does alone: one process, one core, no Spark, state carried from batch to batch.

Each case is a small application, compiled as any other; its batches go through `run_stage`, and the time is
that of the operator under test. Results of the last batch are checked against a plain computation.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import riprap as rr
from riprap.apps.bargain import bargain
from riprap.channels import ChannelReader, ChannelWriter
from riprap.compiler import Plan, compile_graph
from riprap.errors import RunError
from riprap.feeds.segments import FeedSegment
from riprap.graph.connectors import Rows
from riprap.kernels.chunk import Chunk
from riprap.operators.lookup import Lookup, index_table
from riprap.runtime.source_inflow import read_source
from riprap.stage.arrival import ReadRows, arrive
from riprap.stage.fused import run_stage
from riprap_bench.bargain_table import grid
from riprap_bench.feed import make_feed
from riprap_bench.measuring import Report, about, middle, rounded, spread
from riprap_bench.operator_cases import AGGREGATES, KEYS, SCHEMA, WINDOWS, Build, Case, cases

SEED = 7
BAR = 2_000_000
BATCH_ROWS = 500_000
WARM_UP = 2


def run(quick: bool, report: Report) -> dict[str, Any]:
    """Measure every case."""
    rows = BATCH_ROWS // 10 if quick else BATCH_ROWS
    return measure_operators(report, batches=4 if quick else 8, rows=rows, quick=quick)


def measure_operators(report: Report, *, batches: int, rows: int, quick: bool = False) -> dict[str, Any]:
    """Measure every case over so many batches of so many rows."""
    described = about(seed=SEED, batches=batches, rows_a_batch=rows, quick=quick)
    lines = []
    for case in cases():
        line = _line(case.title, case.keys, _operator_rates(case, batches, rows), case.window)
        lines.append({**line, "bar": BAR if case.bar else None})
        report(_shown(lines[-1]))
    for title, keys, rates in (*_movers(batches, rows), *_channel(batches, rows)):
        lines.append({**_line(title, keys, rates), "bar": None})
        report(_shown(lines[-1]))
    result: dict[str, Any] = rounded({"operators": lines, "growth": _growth(lines), "about": described})
    return result


def _growth(lines: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Compare the cost of a tuple at the largest window with that at the smallest."""
    rate = {(line["operator"], line["keys"], line["window"]): line["tuples_per_s"] for line in lines}
    return [
        {"function": f, "keys": k, "times": rate[name, k, WINDOWS[0]] / rate[name, k, WINDOWS[-1]]}
        for f in AGGREGATES
        for name in [f"aggregate: {f}"]
        for k in KEYS
        if (name, k, WINDOWS[0]) in rate
    ]


def table(result: dict[str, Any]) -> str:
    """Return the result as a Markdown table."""
    described = result["about"]
    rows = [
        [
            line["operator"],
            f"{line['keys']:,}" if line["keys"] else "",
            f"{line['window']:,}" if line["window"] else "",
            f"{line['tuples_per_s']:,.0f}"
            + ("" if not line["bar"] or line["tuples_per_s"] >= line["bar"] else " (missed)"),
            "{:,.0f} to {:,.0f}".format(*line["spread"]),
        ]
        for line in result["operators"]
    ]
    quick = " A quick run: a smoke test, not a measurement." if described["quick"] else ""
    growth = [[g["function"], f"{g['keys']:,}", f"{g['times']:.2f}"] for g in result["growth"]]
    return (
        grid(["one core, no Spark", "keys", "window", "tuples/s in", "least to greatest"], rows)
        + "\n\n"
        + grid(["a tuple's cost at the largest window", "keys", "times that at the smallest"], growth)
        + f"\n\n{described['date']}; {described['machine']}, load {described['load_before']} before; "
        f"{described['batches']} batches of {described['rows_a_batch']:,} tuples, state carried over.{quick}"
    )


def _compile(build: Build, tasks: int = 1) -> Plan:
    return compile_graph(_describe(build), buckets=tasks, tasks=tasks).plans[0]


def _describe(build: Build) -> rr.Graph:
    app = rr.Application("case")
    feed = app.source("feed", rr.rows([], SCHEMA), position="seq")
    app.sink("out", build(app, feed), rr.memory())
    return app.graph()


def _make_batches(keys: int, batches: int, rows: int) -> Iterator[ReadRows]:
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
            "at": pa.array(seq, pa.timestamp("us", tz="UTC")),
        }
        yield ReadRows(columns, seq)


def _operator_rates(case: Case, batches: int, rows: int) -> list[float]:
    plan = _compile(case.build)
    tables = {
        o.name: index_table(o, o.table.table)
        for o in _describe(case.build).of_kind(Lookup)
        if isinstance(o.table, Rows)
    }
    state: dict[str, list[pa.RecordBatch]] = {}
    rates = []
    past: list[ReadRows] = []
    for number, read in enumerate(_make_batches(case.keys, batches, rows)):
        needed = ReadRows({c: read.columns[c] for c in sorted(plan.needed["feed"])}, read.position)
        arrival = arrive(plan.entries, {"feed": needed}, batch=number)
        outcome = run_stage(plan, arrival, state, tables=tables)
        did = outcome.activity["op"]
        rates.append(did.tuples_in / did.seconds)
        for slot, (page, replaced) in outcome.pages.items():
            state[slot] = [page, *state.get(slot, [])[replaced:]]
        past.append(read)
    _check(case, past, outcome.outputs["out"])
    return rates[WARM_UP:]


def _check(case: Case, past: Sequence[ReadRows], last: Chunk) -> None:
    """Compare results of the last batch with what the definition says."""
    everything = {name: _all(past, name) for name in ("seq", "key", "side", "price", "size")}
    found = {name: column.to_numpy(zero_copy_only=False) for name, column in last.columns.items()}
    case.check(everything, len(everything["seq"]) - past[-1].rows, found, last.rank)


def _all(past: Sequence[ReadRows], name: str) -> Any:
    arrays = [rows.columns[name] for rows in past]
    plain = [a.indices if pa.types.is_dictionary(a.type) else a for a in arrays]
    return np.concatenate([a.to_numpy(zero_copy_only=False) for a in plain])


def _movers(batches: int, rows: int) -> Iterator[tuple[str, int, list[float]]]:
    """Measure what brings tuples to the operators: reading, keying and ordering."""
    yield "source: read Parquet", 0, _read_rates(batches, rows)
    for keys in KEYS:
        plan = _compile(_sums, tasks=2)
        arrived = []
        for read in _make_batches(keys, batches, rows):
            arrived.append(
                _rate(rows, partial(arrive, plan.entries, {"feed": read}, span=(0, 1), buckets=2))[0]
            )
        yield "arrival: key, keep one of two tasks' buckets", keys, arrived[WARM_UP:]


def _sums(app: rr.Application, feed: rr.Stream) -> rr.Stream:
    return app.aggregate("op", feed, by="key", window=rr.sliding(tuples=10), select="sum(price) as result")


def _channel(batches: int, rows: int) -> Iterator[tuple[str, int, list[float]]]:
    """Measure what it takes to bring tuples from one processing element to another: append, and read half of it."""
    schema = pa.schema(
        [("seq", pa.int64()), ("key", pa.string()), ("price", pa.float64()), ("size", pa.int64())]
    )
    for keys in KEYS:
        with tempfile.TemporaryDirectory(prefix="riprap-bench-") as folder:
            log = Path(folder) / "log"
            writer = ChannelWriter(
                log, stream="feed", schema=schema, tags=3, key=("key",), buckets=8, readers=["reader"]
            )
            reader = ChannelReader(log, "reader")
            written, taken = [], []
            for number, read in enumerate(_make_batches(keys, batches, rows)):
                columns = [
                    *(read.columns[n] for n in schema.names),
                    *(pa.array(np.full(rows, n)) for n in (number, 0)),
                ]
                names = [*schema.names, "$0", "$1", "$2"]
                batch = pa.RecordBatch.from_arrays([*columns, pa.array(read.position)], names)
                append = partial(writer.append, number, batch, None, frontier=number, sources={})
                written.append(_rate(rows, append)[0])
                before = number - 1 if number else None
                rate, found = _rate(rows, partial(reader.read, before, number, schema.names, (0, 4)))
                taken.append(rate)
                rest, _ = reader.read(before, number, ["seq"], (4, 8))
                if found[0].num_rows + rest.num_rows != rows:
                    raise RunError(f"the channel lost tuples at {keys} keys")
                reader.acknowledge(number)
                writer.trim()
            yield "channel: append for 8 buckets", keys, written[WARM_UP:]
            yield "channel: read half of the buckets", keys, taken[WARM_UP:]


def _rate(rows: int, work: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    result = work()
    return rows / (time.perf_counter() - began), result


def _read_rates(batches: int, rows: int) -> list[float]:
    with tempfile.TemporaryDirectory(prefix="riprap-bench-") as folder:
        feed = make_feed(Path(folder) / "feed", batches * rows, rows_per_file=rows, seed=SEED)
        plan = compile_graph(bargain(Path(folder) / "feed", rr.memory()).graph(), buckets=1, tasks=1).plans[0]
        rates = []
        for number, file in enumerate(feed.files):
            start = number * rows
            segment = FeedSegment(file=file.name, path=str(file), kind="parquet", start=start, rows=rows)
            read = partial(read_source, plan, "Source", start, start + rows, [segment])
            rate, found = _rate(rows, read)
            if found.rows != rows:
                raise RunError(f"{file.name} has {found.rows} rows, not {rows}")
            rates.append(rate)
        return rates[WARM_UP:]


def _line(title: str, keys: int, rates: Sequence[float], window: int | None = None) -> dict[str, Any]:
    return {
        "operator": title,
        "keys": keys,
        "window": window,
        "tuples_per_s": middle(rates),
        "spread": spread(rates),
    }


def _shown(line: dict[str, Any]) -> str:
    keys = f", {line['keys']:,} keys" if line["keys"] else ""
    window = f", window {line['window']:,}" if line["window"] else ""
    return f"{line['operator']}{keys}{window}: {line['tuples_per_s']:,.0f} tuples/s"
