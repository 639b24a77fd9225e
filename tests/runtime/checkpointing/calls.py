"""An application with a state of every sort, and the same plainly: one call after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from tests.runtime.checkpointing.policy import Book, Held, Key, Slots

import riprap as rr
from riprap.expressions import parse_schema
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


def calls_app(*, keep: int) -> rr.Application:
    """Describe sums and totals by key, pairs over all tuples, a tally in Python; and sums without protection."""
    app = rr.Application("calls")
    safe = rr.checkpoint(every="1h", keep=keep)
    source = app.source("source", rr.rows(SCHEMA.empty_table()), position="seq")
    sums = "sum(v) as total, count(*) as n, last(seq) as seq"
    app.sink(
        "sums_out",
        app.aggregate("sums", source, by="k", window=rr.sliding(tuples=SUMS), select=sums, protect=safe),
        rr.memory(),
    )
    app.sink(
        "plain_out",
        app.aggregate("plain", source, by="k", window=rr.sliding(tuples=PLAIN), select=sums),
        rr.memory(),
    )
    running = app.functor(
        "running",
        source,
        by="k",
        variables={"n": "0L", "total": "0L"},
        update="n + 1 as n, total + v as total",
        select="k, seq, n, total",
        protect=safe,
    )
    app.sink("running_out", running, rr.memory())
    made = app.functor("made", source, where="calls", select="seq, v, one")
    answered = app.functor("answered", source, where="not calls", select="seq, v, one")
    pairs = app.join(
        "pairs",
        made,
        answered,
        by="one",
        windows=(rr.sliding(tuples=CALLS), rr.sliding(tuples=ANSWERS)),
        where="made.v <= answered.v",
        select="made.seq as made, answered.seq as answered",
        protect=safe,
    )
    app.sink("pairs_out", pairs, rr.memory())
    tally = app.custom("tally", Tally, source, schema="seq bigint, n bigint, keys bigint", protect=safe)
    app.sink("tally_out", tally, rr.memory())
    return app


class Plainly:
    """The state of every operator, and what each batch puts out."""

    def __init__(self) -> None:
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
        self._push("pairs", port, 1, Held(time, (call.v, self.seq)), size)
        others = self._held("pairs", 1 - port, 1)
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


def books() -> dict[str, Book]:
    """Begin a book of each protected operator's checkpoints."""
    keys, codes = encode_keys([pa.array(list(KEYS))], len(KEYS))
    of_name = dict(zip(KEYS, buckets_of(keys.hashes, BUCKETS)[codes].tolist(), strict=True))
    one, _ = encode_keys([pa.array([1], pa.int64())], 1)
    (of_one,) = buckets_of(one.hashes, BUCKETS).tolist()
    return {
        "sums": Book(lambda key: of_name[key], {"sums/0"}, whole=False),
        "running": Book(lambda key: of_name[key], (), whole=False),
        "pairs": Book(lambda key: of_one, {"pairs/0", "pairs/1"}, whole=False),
        "tally": Book(lambda key: 0, (), whole=True),
    }
