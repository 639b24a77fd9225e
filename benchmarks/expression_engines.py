"""Measure engines for SQL expressions over Arrow batches, on the five expressions of the bargain application.

    python benchmarks/expression_engines.py            a table of milliseconds a batch
    python benchmarks/expression_engines.py --json     the same with versions, seed and spread

Each time is for one batch, from Arrow arrays to Arrow arrays: the median of many repeats, after one that
warms up. Every engine's answer is compared with numpy's. A second table says which of Spark's ANSI rules an
engine breaks as it comes; those would have to be repaired around it.

`--threads 1` is how a stage runs: Spark already puts one task on each core.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from decimal import Decimal

THREADS = int(sys.argv[sys.argv.index("--threads") + 1]) if "--threads" in sys.argv else os.cpu_count() or 1
os.environ["POLARS_MAX_THREADS"] = str(THREADS)  # read once, when polars is imported

# ruff: noqa: E402
import datafusion
import duckdb
import numba
import numpy as np
import polars as pl
import pyarrow as pa

from riprap.expressions import EvaluationError, Scope, parse_condition, parse_select

SEED = 7
SIZES = (10_000, 100_000, 500_000)
# name: (columns it reads, where, select). An engine is handed only these columns: some convert all they get.
EXPRESSIONS = {
    "filter and project": (("kind", "ticker", "price", "size"), "kind = 'trade'", "ticker, price, size"),
    "price * size": (("price", "size"), "", "price * size as y"),
    "notional / volume": (("notional", "volume"), "", "notional / volume as y"),
    "vwap > price": (("vwap", "price"), "", "vwap > price as y"),
    "(vwap - price) * size": (("vwap", "price", "size"), "", "(vwap - price) * size as y"),
}
Run = Callable[[], pa.RecordBatch]


def batch(rows: int) -> pa.RecordBatch:
    """Make a batch of market data."""
    random = np.random.default_rng(SEED)
    return pa.record_batch(
        {
            "kind": pa.array(random.choice(["trade", "quote"], rows).tolist()),
            "ticker": pa.array(random.choice([f"T{number:03}" for number in range(100)], rows).tolist()),
            "price": random.uniform(1, 200, rows),
            "size": random.integers(1, 1000, rows),
            "notional": random.uniform(1e3, 1e6, rows),
            "volume": random.integers(1, 5000, rows),
            "vwap": random.uniform(1, 200, rows),
        }
    )


def riprap_engine(data: pa.RecordBatch, where: str, select: str) -> Run:
    scope = Scope.of(data.schema)
    condition = parse_condition(where, scope) if where else None
    outputs = parse_select(select, scope)

    def run() -> pa.RecordBatch:
        columns = dict(zip(data.schema.names, data.columns, strict=True))
        rows = data.num_rows
        if condition is not None:
            chosen = condition.evaluate(columns, rows)
            needed = frozenset().union(*(output.expression.columns for output in outputs))
            columns = {name: columns[name].filter(chosen) for name in needed}
            rows = chosen.true_count
        return pa.record_batch({each.name: each.expression.evaluate(columns, rows) for each in outputs})

    return run


def duckdb_engine(data: pa.RecordBatch, where: str, select: str) -> Run:
    connection = duckdb.connect(config={"threads": THREADS})
    query = f"select {select} from data" + (f" where {where}" if where else "")

    def run() -> pa.RecordBatch:
        connection.register("data", pa.Table.from_batches([data]))
        # `execute(query).to_arrow_table()` would copy the rows once more.
        return connection.sql(query).to_arrow_table().combine_chunks().to_batches()[0]

    return run


def polars_engine(data: pa.RecordBatch, where: str, select: str) -> Run:
    condition = pl.sql_expr(where) if where else None
    outputs = [pl.sql_expr(part.strip()) for part in select.split(",")]

    def run() -> pa.RecordBatch:
        frame = pl.from_arrow(data)
        assert isinstance(frame, pl.DataFrame)
        if condition is not None:
            frame = frame.filter(condition)
        return frame.select(outputs).to_arrow().combine_chunks().to_batches()[0]

    return run


def datafusion_engine(data: pa.RecordBatch, where: str, select: str) -> Run:
    query = f"select {select} from data" + (f" where {where}" if where else "")

    def run() -> pa.RecordBatch:
        # One partition: with more, filtered rows come back in another order.
        context = datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(1))
        context.register_record_batches("data", [[data]])
        return pa.Table.from_batches(context.sql(query).collect()).combine_chunks().to_batches()[0]

    return run


@numba.njit(cache=False)
def _gain(vwap: np.ndarray, price: np.ndarray, size: np.ndarray) -> np.ndarray:  # pragma: no cover
    result = np.empty(len(vwap))
    for row in range(len(vwap)):
        result[row] = (vwap[row] - price[row]) * size[row]
    return result


def numba_engine(data: pa.RecordBatch, where: str, select: str) -> Run:
    def run() -> pa.RecordBatch:
        arrays = [data[name].to_numpy() for name in ("vwap", "price", "size")]
        return pa.record_batch({"y": pa.array(_gain(*arrays))})

    return run


ENGINES = {
    "arrow compute (riprap)": riprap_engine,
    "duckdb": duckdb_engine,
    "polars": polars_engine,
    "datafusion": datafusion_engine,
    "numba loop": numba_engine,
}


def expected(data: pa.RecordBatch, name: str) -> np.ndarray:
    values = {field: data[field].to_numpy(zero_copy_only=False) for field in data.schema.names}
    if name == "filter and project":
        return values["size"][values["kind"] == "trade"]
    compute: dict[str, Callable[[], np.ndarray]] = {
        "price * size": lambda: values["price"] * values["size"],
        "notional / volume": lambda: values["notional"] / values["volume"],
        "vwap > price": lambda: values["vwap"] > values["price"],
        "(vwap - price) * size": lambda: (values["vwap"] - values["price"]) * values["size"],
    }
    return compute[name]()


def measure(run: Run, rows: int) -> dict[str, float]:
    """Time repeats of a run; the quartiles show the spread."""
    repeats = max(15, 2_000_000 // rows)
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append((time.perf_counter() - start) * 1e3)
    low, middle, high = statistics.quantiles(times, n=4)
    return {"ms": round(middle, 3), "low": round(low, 3), "high": round(high, 3), "repeats": repeats}


def timings() -> list[dict[str, object]]:
    results: list[dict[str, object]] = []
    for rows in SIZES:
        whole = batch(rows)
        for name, (needed, where, select) in EXPRESSIONS.items():
            data = whole.select(list(needed))
            for engine, make in ENGINES.items():
                if engine == "numba loop" and name != "(vwap - price) * size":
                    continue
                run = make(data, where, select)
                answer = run().columns[-1].to_numpy(zero_copy_only=False)
                assert np.array_equal(answer, expected(data, name)), (engine, name)
                results.append({"rows": rows, "expression": name, "engine": engine, **measure(run, rows)})
    return results


RULES: dict[str, tuple[str, pa.RecordBatch, object]] = {
    "bigint overflow raises": ("a + b as y", pa.record_batch({"a": [2**63 - 1], "b": [1]}), "raises"),
    "1 / 0 raises": ("a / b as y", pa.record_batch({"a": [1], "b": [0]}), "raises"),
    "1e0 / 0e0 raises": ("a / b as y", pa.record_batch({"a": [1.0], "b": [0.0]}), "raises"),
    "1 / 2 is 0.5": ("a / b as y", pa.record_batch({"a": [1], "b": [2]}), 0.5),
    "NaN > infinity": ("a > b as y", pa.record_batch({"a": [math.nan], "b": [math.inf]}), True),
    "NaN = NaN": ("a = b as y", pa.record_batch({"a": [math.nan], "b": [math.nan]}), True),
    "decimal / has Spark's scale": (
        "a / b as y",
        pa.record_batch(
            {
                "a": pa.array([Decimal("2.00")], pa.decimal128(10, 2)),
                "b": pa.array([Decimal("3.00")], pa.decimal128(10, 2)),
            }
        ),
        Decimal("0.6666666666667"),
    ),
}


def rules() -> dict[str, dict[str, str]]:
    """Try each of Spark's rules in each engine; the answer is 'as Spark' or what came instead."""
    table: dict[str, dict[str, str]] = {}
    for rule, (select, data, wanted) in RULES.items():
        table[rule] = {}
        for engine, make in ENGINES.items():
            if engine == "numba loop":
                continue
            try:
                got: object = make(data, "", select)().column(0)[0].as_py()
            except (EvaluationError, duckdb.Error, pl.exceptions.PolarsError):
                got = "raises"
            except Exception as error:  # DataFusion raises plain Exception
                got = "raises" if str(error).startswith("DataFusion error") else error
            same = got == wanted and type(got) is type(wanted)
            table[rule][engine] = "as Spark" if same else repr(got)
    return table


def versions() -> dict[str, str]:
    return {
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {platform.system()}",
        "pyarrow": pa.__version__,
        "duckdb": duckdb.__version__,
        "polars": pl.__version__,
        "datafusion": datafusion.__version__,
        "numba": numba.__version__,
        "numpy": np.__version__,
        "threads": str(THREADS),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--threads", type=int, help="for the engines that have their own; all cores unless told"
    )
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    arguments = parser.parse_args()
    results, broken = timings(), rules()
    if arguments.json:
        print(
            json.dumps({"seed": SEED, "versions": versions(), "timings": results, "rules": broken}, indent=1)
        )
        return
    print("| rows | expression | " + " | ".join(ENGINES) + " |")
    print("|---" * (2 + len(ENGINES)) + "|")
    for rows in SIZES:
        for name in EXPRESSIONS:
            found = {
                each["engine"]: each["ms"]
                for each in results
                if (each["rows"], each["expression"]) == (rows, name)
            }
            cells = [f"{found[engine]:.3f}" if engine in found else "" for engine in ENGINES]
            print(f"| {rows} | `{name}` | " + " | ".join(cells) + " |")
    print()
    engines = [engine for engine in ENGINES if engine != "numba loop"]
    print("| rule of Spark | " + " | ".join(engines) + " |")
    print("|---" * (1 + len(engines)) + "|")
    for rule, row in broken.items():
        print(f"| {rule} | " + " | ".join(row[engine] for engine in engines) + " |")
    print(versions())


if __name__ == "__main__":
    main()
