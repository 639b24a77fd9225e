"""Models and Spark: replications as tasks, and taint that is carried through the real operators."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import riprap as rr
from riprap.apps.catalogue import CATALOGUE
from riprap.apps.models import PAPER
from riprap.model import Faults, OperatorProfile, Port, Profile, Unprotected, predict
from riprap.model.prediction import ask, model_of
from riprap.model.replication import simulate
from riprap.model.spark_replications import on_spark

KEYS, WINDOW, ROWS, RATE = 50, 4, 4000, 100.0
BUY = 0.3


def bargains(folder: Path) -> rr.Application:
    """Bargain Discovery in small, with an attribute that says whether anything of a result was corrupted."""
    app = rr.Application("taint")
    source = app.source("In", rr.files(folder), position="seq")
    trades = app.functor("Trades", source, where="trade", select="ticker, price, taint")
    sums = app.aggregate(
        "Sums", trades, by="ticker", window=rr.sliding(tuples=WINDOW), emit=rr.every(tuples=1),
        select="sum(price) as total, max(taint) as taint",
    )  # fmt: skip
    quotes = app.functor("Quotes", source, where="not trade", select="seq, ticker, price, taint")
    found = app.join(
        "Join", sums, quotes, by="ticker", windows=(rr.sliding(tuples=1), rr.sliding(tuples=0)),
        select="seq, ticker, greatest(sums.taint, quotes.taint) as taint",
    )  # fmt: skip
    app.sink("Out", found, rr.memory())
    return app


@pytest.fixture(scope="module")
def events() -> pa.Table:
    rng = np.random.default_rng(7)
    return pa.table(
        {
            "seq": np.arange(ROWS),
            "ticker": [f"k{n}" for n in rng.integers(0, KEYS, ROWS)],
            "trade": rng.random(ROWS) < BUY,
            "price": rng.random(ROWS),
            "taint": np.zeros(ROWS, np.int32),
        }
    )


def spread_of(spark: SparkSession, events: pa.Table, folder: Path, row: int) -> tuple[int, int]:
    """Corrupt one event; return how many results are tainted, and how many there are."""
    folder.mkdir()
    taint = np.zeros(ROWS, np.int32)
    taint[row] = 1
    pq.write_table(events.set_column(4, "taint", pa.array(taint)), folder / "events.parquet")
    with bargains(folder).run(spark=spark, runs=folder / "runs") as run:
        run.wait()
        out = run.table("Out")
    return int(np.sum(out["taint"].to_numpy())), out.num_rows


def predicted(operator: str, folder: Path) -> float:
    """Predict how many results one corrupted tuple of an operator taints."""
    # A key's window is renewed by as many of its tuples: of the stream, as many times the number of keys.
    renewed = WINDOW * KEYS
    profile = Profile(
        rates={"In": RATE},
        operators={
            "In": OperatorProfile(),
            "Trades": OperatorProfile(ports=(Port(selectivity=BUY),), shift=0.0),
            "Sums": OperatorProfile(ports=(Port(state=renewed, alpha_tainted=1.0),)),
            "Quotes": OperatorProfile(ports=(Port(selectivity=1 - BUY),), shift=0.0),
            "Join": OperatorProfile(
                ports=(Port(selectivity=0.0, state=KEYS, alpha_tainted=1.0), Port(selectivity=1.0)), shift=0.0
            ),
            "Out": OperatorProfile(),
        },
    )
    graph = bargains(folder).graph()
    wired = model_of(graph, profile, Unprotected(), Faults())
    asked = ask(wired, profile, Faults(), 100.0)
    rates = np.zeros(len(wired.nodes))
    rates[wired.nodes_of(operator)] = 0.01
    told = [
        simulate(wired.wiring, asked._replace(corruption_rate=rates), np.random.default_rng(n))
        for n in range(300)
    ]
    hit = [t for t in told if t.corruptions == 1]
    return float(np.mean([t.tainted.sum() for t in hit]))


def test_taint_spreads_through_the_real_operators_as_modelled(
    spark: SparkSession, events: pa.Table, tmp_path: Path
) -> None:
    trades = np.flatnonzero(events["trade"].to_numpy(zero_copy_only=False))
    quotes = np.flatnonzero(~events["trade"].to_numpy(zero_copy_only=False))
    early = [int(rows[len(rows) // 4]) for rows in (trades, quotes)]
    by_trade, all_results = spread_of(spark, events, tmp_path / "trade", early[0])
    by_quote, _ = spread_of(spark, events, tmp_path / "quote", early[1])
    assert by_quote == 1, "a quote passes a port without state: one result"
    assert 1 < by_trade < all_results / 10, "a trade stays in the window of its ticker: several"
    # What strikes an event in front of Quotes strikes a trade as well, which goes no further there.
    assert predicted("Quotes", tmp_path / "quote") == pytest.approx(1 - BUY, abs=0.2)
    # The model does not know keys: while one window is tainted, it takes all results for tainted.
    assert predicted("Trades", tmp_path / "trade") > by_trade


def test_replications_run_on_spark_and_are_the_same(spark: SparkSession) -> None:
    graph = CATALOGUE["bargain"].make(None, rr.memory()).graph()
    paper = PAPER["bargain"]
    technique = paper.configurations["groups"]
    faults = Faults(crash_rate=5.56e-4)
    here, there = (
        predict(graph, paper.profile, technique, faults, horizon=1800.0, replications=60, spread=spread)
        for spread in (None, on_spark(spark))
    )
    assert here.availability == there.availability
    assert here.tainted_tuples == there.tainted_tuples
