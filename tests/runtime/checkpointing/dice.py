"""An application whose operators put out something else each time, and what must hold of its output all the same."""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

import riprap as rr

ROWS = 16_000
SCHEMA = "seq bigint, k string"


class Dice(rr.CustomOperator):
    """Rolls for each tuple, and adds up what it has rolled."""

    def __init__(self) -> None:
        super().__init__()
        self.rolled = 0
        self.random = random.SystemRandom()

    def on_tuple(self, port: int | str, tuple: dict[str, Any]) -> None:
        roll = self.random.randrange(1, 1_000_000)
        self.rolled += roll
        self.submit({"seq": tuple["seq"], "roll": roll, "rolled": self.rolled})

    def checkpoint(self) -> Any:
        return self.rolled

    def reset(self, saved: Any) -> None:
        self.rolled = saved

    def reset_to_initial_state(self) -> None:
        self.rolled = 0


class Noise(rr.CustomOperator):
    """Adds a number to each tuple, and remembers nothing."""

    def on_tuple(self, port: int | str, tuple: dict[str, Any]) -> None:
        self.submit({"seq": tuple["seq"], "roll": random.SystemRandom().randrange(1, 1_000_000)})


def dice(
    out: Path,
    *,
    period: str = "100ms",
    durable: Literal["host", "power"] = "host",
    stateless: bool = False,
    deterministic: bool = False,
) -> rr.Application:
    """Roll for each of many tuples; two elements with keys of their own, and sinks, read what was rolled."""
    app = rr.Application("dice")
    rows = pa.table({"seq": pa.array(range(ROWS)), "k": [f"k{n % 7}" for n in range(ROWS)]})
    read = app.source("read", rr.rows(rows), protect=rr.consistent(period=period, durable=durable))
    if stateless:
        rolls = app.custom(
            "rolls",
            Noise,
            read,
            schema="seq bigint, roll bigint",
            stateless=True,
            deterministic=deterministic,
        )
        columns = "seq, roll"
    else:
        rolls = app.custom(
            "rolls", Dice, read, schema="seq bigint, roll bigint, rolled bigint", deterministic=deterministic
        )
        columns = "seq, roll, rolled"
    app.sink("all", app.functor("all_of_them", rolls, select=columns), rr.parquet(out / "all"))
    for name, key in (("by_seq", "seq"), ("by_roll", "roll")):
        other = {"seq": "roll", "roll": "seq"}[key]
        last = app.aggregate(
            f"{name}_last", rolls, by=key, window=rr.tumbling(tuples=1), select=f"last({other}) as {other}"
        )
        app.sink(name, last, rr.to_sqlite(out / "again.db", name))
    return app


def check(out: Path, *, stateless: bool = False) -> None:
    """See to it that each tuple was rolled for once, that all saw the same, and that what is added up was put out."""
    files = sorted((out / "all").glob("*.parquet"))
    rows = pa.concat_tables([pq.read_table(file) for file in files]).to_pylist()
    assert Counter(row["seq"] for row in rows) == dict.fromkeys(range(ROWS), 1)
    if not stateless:
        total = 0
        for row in rows:
            total += row["roll"]
            assert row["rolled"] == total, f"at {row['seq']} the operator remembers what nobody has seen"
    expected = sorted((row["seq"], row["roll"]) for row in rows)
    with sqlite3.connect(out / "again.db") as connection:
        for name in ("by_seq", "by_roll"):
            seen = connection.execute(f"select seq, roll from {name} order by seq").fetchall()
            assert seen == expected, f"'{name}' saw other rolls"
