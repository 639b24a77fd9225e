"""An application with a state of every sort, and the same plainly: one call after the other."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from tests.runtime.checkpointing.policy import Book, Held, Key, Slots

import riprap as rr
from riprap.expressions import parse_schema
from riprap.graph.connectors import SinkConnector, SourceConnector
from riprap.state.hashing import buckets_of
from riprap.state.keys import encode_keys

SCHEMA = parse_schema("seq bigint, k string, v bigint, one bigint, calls boolean")
KEYS = "abcdef"
BUCKETS = 4
# How many tuples windows have.
SUMS, CALLS, ANSWERS, PLAIN = 4, 3, 2, 3
PROTECTED = ("sums", "running", "pairs", "tally")
SINKS = ("sums_out", "running_out", "plain_out", "pairs_out", "tally_out")


class Call(NamedTuple):
    """A row of the source."""

    k: str
    v: int
    calls: bool


class Tally(rr.CustomOperator):
    """Counts the tuples of each key."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: dict[str, int] = {}

    def on_tuple(self, port: int | str, tuple: dict[str, Any]) -> None:
        self.counts[tuple["k"]] = self.counts.get(tuple["k"], 0) + 1
        self.submit({"seq": tuple["seq"], "n": self.counts[tuple["k"]], "keys": len(self.counts)})

    def checkpoint(self) -> Any:
        return dict(self.counts)

    def reset(self, saved: Any) -> None:
        self.counts = dict(saved)

    def reset_to_initial_state(self) -> None:
        self.counts = {}


def calls_app(
    source: SourceConnector, sink: Callable[[str], SinkConnector], safe: rr.Checkpoint, *, pairs_by: str
) -> rr.Application:
    """Describe sums and totals by key, sums without protection, and pairs.

    Where pairs are of one key for all tuples, they are an element of their own; then there is also a tally in Python.
    """
    app = rr.Application("calls")
    calls = app.source("source", source, position="seq")
    sums = "sum(v) as total, count(*) as n, last(seq) as seq"
    app.sink(
        "sums_out",
        app.aggregate("sums", calls, by="k", window=rr.sliding(tuples=SUMS), select=sums, protect=safe),
        sink("sums_out"),
    )
    app.sink(
        "plain_out",
        app.aggregate("plain", calls, by="k", window=rr.sliding(tuples=PLAIN), select=sums),
        sink("plain_out"),
    )
    running = app.functor(
        "running",
        calls,
        by="k",
        variables={"n": "0L", "total": "0L"},
        update="n + 1 as n, total + v as total",
        select="k, seq, n, total",
        protect=safe,
    )
    app.sink("running_out", running, sink("running_out"))
    made = app.functor("made", calls, where="calls", select=f"seq, v, {pairs_by}")
    answered = app.functor("answered", calls, where="not calls", select=f"seq, v, {pairs_by}")
    pairs = app.join(
        "pairs",
        made,
        answered,
        by=pairs_by,
        windows=(rr.sliding(tuples=CALLS), rr.sliding(tuples=ANSWERS)),
        where="made.v <= answered.v",
        select="made.seq as made, answered.seq as answered",
        protect=safe,
    )
    app.sink("pairs_out", pairs, sink("pairs_out"))
    if pairs_by == "one":
        tally = app.custom("tally", Tally, calls, schema="seq bigint, n bigint, keys bigint", protect=safe)
        app.sink("tally_out", tally, sink("tally_out"))
    return app


def in_memory(keep: int) -> rr.Application:
    """Describe all of it with nothing outside, to be run by hand."""
    safe = rr.checkpoint(every="1h", keep=keep)
    return calls_app(rr.rows(SCHEMA.empty_table()), lambda _: rr.memory(), safe, pairs_by="one")


def on_disk(calls: Path, out: Path, every: str, rate: float | None = None) -> rr.Application:
    """Describe one processing element that reads files and writes files."""
    source = rr.files(str(calls), rate=rate)
    safe = rr.checkpoint(every=every)
    return calls_app(source, lambda name: rr.parquet(out / name, roll=0), safe, pairs_by="k")


def draw_calls(many: int, seed: int) -> list[Call]:
    """Draw calls, of some keys many more than of others."""
    luck = random.Random(seed)
    return [Call(luck.choice("aaaabbcdef"), luck.randrange(10), luck.random() < 0.5) for _ in range(many)]


class Plainly:
    """The state of every operator, and what each batch puts out."""

    def __init__(self, pairs_by: str = "one") -> None:
        self.pairs_by = pairs_by
        self.slots: dict[str, Slots] = {}
        for operator in (*PROTECTED, "plain"):
            self.forget(operator)
        self.seq = 0

    def forget(self, operator: str) -> None:
        """Let an operator start afresh."""
        many = 2 if operator == "pairs" else 1
        self.slots[operator] = {f"{operator}/{n}": {} for n in range(many)}

    def table(self, calls: Sequence[Call]) -> pa.Table:
        """Return calls as rows of the source."""
        numbered = enumerate(calls, self.seq)
        return pa.Table.from_pylist([{"seq": n, "one": 1, **call._asdict()} for n, call in numbered], SCHEMA)

    def feed(self, calls: Sequence[Call], time: float) -> dict[str, list[dict[str, Any]]]:
        """Take in a batch that is put on record at some time; return what reaches the sinks."""
        out: dict[str, list[dict[str, Any]]] = {sink: [] for sink in SINKS}
        for call in calls:
            for operator, size in (("sums", SUMS), ("plain", PLAIN)):
                window = self._push(operator, 0, call.k, Held(time, (call.v, self.seq)), size)
                total = sum(v for v, _ in window)
                out[f"{operator}_out"].append(
                    {"k": call.k, "total": total, "n": len(window), "seq": self.seq}
                )
            ((n, total),) = self._held("running", 0, call.k) or [(0, 0)]
            self._push("running", 0, call.k, Held(time, (n + 1, total + call.v)), 1)
            out["running_out"].append({"k": call.k, "seq": self.seq, "n": n + 1, "total": total + call.v})
            out["pairs_out"] += self._meet(call, time)
            (counts,) = self._held("tally", 0, None) or [{}]
            counts = {**counts, call.k: counts.get(call.k, 0) + 1}
            self._push("tally", 0, None, Held(time, counts), 1)
            out["tally_out"].append({"seq": self.seq, "n": counts[call.k], "keys": len(counts)})
            self.seq += 1
        return out

    def _meet(self, call: Call, time: float) -> list[dict[str, Any]]:
        port, size = (0, CALLS) if call.calls else (1, ANSWERS)
        key = 1 if self.pairs_by == "one" else call.k
        self._push("pairs", port, key, Held(time, (call.v, self.seq)), size)
        others = self._held("pairs", 1 - port, key)
        if call.calls:
            return [{"made": self.seq, "answered": seq} for v, seq in others if call.v <= v]
        return [{"made": seq, "answered": self.seq} for v, seq in others if v <= call.v]

    def _held(self, operator: str, port: int, key: Key) -> list[Any]:
        return [held.what for held in self.slots[operator][f"{operator}/{port}"].get(key, [])]

    def _push(self, operator: str, port: int, key: Key, held: Held, size: int) -> list[Any]:
        window = self.slots[operator][f"{operator}/{port}"].setdefault(key, [])
        window.append(held)
        del window[:-size]
        return [h.what for h in window]


def books(pairs_by: str = "one") -> dict[str, Book]:
    """Begin a book of each protected operator's checkpoints."""
    keys, codes = encode_keys([pa.array(list(KEYS))], len(KEYS))
    of_name = dict(zip(KEYS, buckets_of(keys.hashes, BUCKETS)[codes].tolist(), strict=True))
    one, _ = encode_keys([pa.array([1], pa.int64())], 1)
    (of_one,) = buckets_of(one.hashes, BUCKETS).tolist()
    return {
        "sums": Book(lambda key: of_name[key], {"sums/0"}, whole=False),
        "running": Book(lambda key: of_name[key], (), whole=False),
        "pairs": Book(
            lambda key: of_one if pairs_by == "one" else of_name[key], {"pairs/0", "pairs/1"}, whole=False
        ),
        "tally": Book(lambda key: 0, (), whole=True),
    }
