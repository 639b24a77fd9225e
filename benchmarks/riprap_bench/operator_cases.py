"""The operators to measure: how to add each to an application, and what its results must be."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

import riprap as rr
from riprap.errors import RunError
from riprap.graph import Stream

KEYS = (1, 100, 100_000)
WINDOWS = (10, 100_000)
SCHEMA = "seq bigint, key string, side bigint, price double, size bigint, at timestamp"

Numbers = npt.NDArray[Any]
Past = Mapping[str, Numbers]
Build = Callable[[rr.Application, Stream], Stream]
# Given all tuples so far, where the last batch begins, and its results (columns, and the tuple each derives from).
Check = Callable[[Past, int, Mapping[str, Numbers], Numbers], None]

AGGREGATES: Mapping[str, Callable[[Sequence[float]], float]] = {
    "sum": math.fsum,
    "count": len,
    "avg": lambda values: math.fsum(values) / len(values),
    "min": min,
    "max": max,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """An operator to measure; ``bar`` is whether it must do two million tuples a second on one core."""

    title: str
    build: Build
    check: Check
    keys: int
    window: int | None = None
    bar: bool = False


def cases() -> Iterator[Case]:
    """List what is measured."""
    yield Case(title="functor: filter and project", build=_functor, check=_check_functor, keys=100, bar=True)
    for keys in KEYS:
        yield Case(
            title="functor: running mean by key", build=_variables, check=_check_mean, keys=keys, bar=True
        )
    for function in AGGREGATES:
        for window in WINDOWS:
            for keys in KEYS:
                yield Case(
                    title=f"aggregate: {function}",
                    build=partial(_aggregate, function, window),
                    check=partial(_check_aggregate, function, window),
                    keys=keys,
                    window=window,
                    bar=True,
                )
    for keys in KEYS:
        yield Case(
            title="join: windows 1 and 0", build=_join, check=_check_join, keys=keys, window=1, bar=True
        )
    for window in WINDOWS:
        for keys in KEYS:
            yield Case(
                title="sort",
                build=partial(_sort, window),
                check=_check_sort,
                keys=keys,
                window=window,
                bar=True,
            )
            yield Case(
                title="top 10", build=partial(_top, window), check=_check_sort, keys=keys, window=window
            )
            yield Case(
                title="deduplicate by tuples",
                build=partial(_deduplicate, window),
                check=partial(_check_deduplicate, window),
                keys=keys,
                window=window,
                bar=True,
            )
    for keys in KEYS:
        yield Case(title="barrier", build=_barrier, check=_check_barrier, keys=keys, bar=True)
        yield Case(title="split", build=_split, check=_check_side, keys=keys, bar=True)
        yield Case(title="union", build=_union, check=_check_all, keys=keys)
        yield Case(title="punctor", build=_punctor, check=_check_all, keys=keys)
        yield Case(title="delay by 10 ms", build=_delay, check=_check_late, keys=keys)
        yield Case(title="throttle", build=_throttle, check=_check_late, keys=keys)
        yield Case(title="gate", build=_gate, check=_check_late, keys=keys)
        yield Case(title="lookup", build=partial(_lookup, keys), check=_check_all, keys=keys)
    yield Case(title="custom: process", build=_custom, check=_check_all, keys=100)


def _functor(app: rr.Application, feed: Stream) -> Stream:
    return app.functor("op", feed, where="side = 1", select="seq, price * size as result")


def _variables(app: rr.Application, feed: Stream) -> Stream:
    return app.functor(
        "op",
        feed,
        by="key",
        variables={"n": "0", "total": "0e0"},
        update="n + 1 as n, total + price as total",
        select="seq, total / n as result",
    )


def _aggregate(function: str, window: int, app: rr.Application, feed: Stream) -> Stream:
    return app.aggregate(
        "op",
        feed,
        by="key",
        window=rr.sliding(tuples=window),
        select=f"{function}(price) as result, last(seq) as seq",
    )


def _sides(app: rr.Application, feed: Stream) -> tuple[Stream, Stream]:
    left = app.functor("trades", feed, where="side = 0", select="seq, key, price")
    return left, app.functor("quotes", feed, where="side = 1", select="seq, key, size")


def _join(app: rr.Application, feed: Stream) -> Stream:
    windows = (rr.sliding(tuples=1), rr.sliding(tuples=0))
    select = "quotes.seq as seq, price * size as result"
    return app.join("op", *_sides(app, feed), by="key", windows=windows, select=select)


def _sort(window: int, app: rr.Application, feed: Stream) -> Stream:
    return app.sort("op", feed, order="price", by="key", window=rr.tumbling(tuples=window))


def _top(window: int, app: rr.Application, feed: Stream) -> Stream:
    return app.top("op", feed, n=10, order="price", by="key", window=rr.tumbling(tuples=window))


def _deduplicate(window: int, app: rr.Application, feed: Stream) -> Stream:
    return app.deduplicate("op", feed, by="key", tuples=window)


def _barrier(app: rr.Application, feed: Stream) -> Stream:
    return app.barrier(
        "op", *_sides(app, feed), by="key", select="trades.seq as left, quotes.seq as seq, price, size"
    )


def _split(app: rr.Application, feed: Stream) -> Stream:
    streams = app.split("op", feed, outputs={"zero": "side = 0", "one": "side = 1"})
    app.sink("rest", streams["zero"], rr.memory())
    return streams["one"]


def _union(app: rr.Application, feed: Stream) -> Stream:
    left = app.functor("trades", feed, where="side = 0", select="seq, key, price")
    right = app.functor("quotes", feed, where="side = 1", select="seq, key, price")
    return app.union("op", left, right)


def _punctor(app: rr.Application, feed: Stream) -> Stream:
    return app.punctor("op", feed, where="size = 1")


def _delay(app: rr.Application, feed: Stream) -> Stream:
    return app.delay("op", feed, time="10ms", on="at", by="key")


def _throttle(app: rr.Application, feed: Stream) -> Stream:
    return app.throttle("op", feed, rate=1e6, on="at", by="key")


def _gate(app: rr.Application, feed: Stream) -> Stream:
    left = app.functor("quotes", feed, where="side = 1", select="seq, key")
    return app.gate(
        "op", left, app.functor("trades", feed, where="side = 0", select="key"), by="key", unacknowledged=5
    )


def _lookup(keys: int, app: rr.Application, feed: Stream) -> Stream:
    table = rr.rows([{"key": f"key{i:06d}", "number": i} for i in range(keys)], "key string, number bigint")
    return app.lookup("op", feed, table=table, by="key", select="seq, price, number")


class _Pass(rr.CustomOperator):
    def process(self, port: int | str, batch: Any) -> None:
        self.submit(batch, rows=range(batch.num_rows))


def _custom(app: rr.Application, feed: Stream) -> Stream:
    return app.custom("op", _Pass, feed, schema=feed.schema, stateless=True)


def _sampled(first: int, past: Past, samples: int = 30) -> list[int]:
    return [int(row) for row in np.random.default_rng(7).integers(first, len(past["seq"]), samples)]


def _by_seq(found: Mapping[str, Numbers]) -> dict[int, float]:
    return dict(zip(found["seq"].tolist(), found["result"].tolist(), strict=True))


def _compare(title: str, row: int, got: Any, wanted: Any) -> None:
    if got != wanted:
        raise RunError(f"{title}: tuple {row} gives {got}, and {wanted} is right")


def _check_functor(past: Past, first: int, found: Mapping[str, Numbers], origin: Numbers) -> None:
    got = _by_seq(found)
    for row in _sampled(first, past):
        wanted = past["price"][row] * past["size"][row] if past["side"][row] == 1 else None
        _compare("functor", row, got.get(row), wanted)


def _check_mean(past: Past, first: int, found: Mapping[str, Numbers], origin: Numbers) -> None:
    got = _by_seq(found)
    for row in _sampled(first, past, 5):
        mine = past["price"][: row + 1][past["key"][: row + 1] == past["key"][row]]
        total = 0.0
        for price in mine.tolist():
            total += price
        _compare("running mean", row, got.get(row), total / len(mine))


def _check_aggregate(
    function: str, window: int, past: Past, first: int, found: Mapping[str, Numbers], origin: Numbers
) -> None:
    got = _by_seq(found)
    for row in _sampled(first, past):
        mine = np.flatnonzero(past["key"][: row + 1] == past["key"][row])[-window:]
        _compare(function, row, got.get(row), AGGREGATES[function](past["price"][mine].tolist()))


def _check_join(past: Past, first: int, found: Mapping[str, Numbers], origin: Numbers) -> None:
    got = _by_seq(found)
    for row in _sampled(first, past):
        mine = np.flatnonzero((past["key"][:row] == past["key"][row]) & (past["side"][:row] == 0))
        wanted = past["price"][mine[-1]] * past["size"][row] if len(mine) and past["side"][row] == 1 else None
        _compare("join", row, got.get(row), wanted)


def _check_sort(past: Past, first: int, found: Mapping[str, Numbers], origin: Numbers) -> None:
    """Within what one tuple made, that is within a window, prices rise and there is one key."""
    same = origin[1:] == origin[:-1]
    if np.any(found["price"][1:][same] < found["price"][:-1][same]):
        raise RunError("sort: a window is not in order")
    keys = past["key"][found["seq"]]
    if np.any(keys[1:][same] != keys[:-1][same]):
        raise RunError("sort: a window has two keys")


def _check_deduplicate(
    window: int, past: Past, first: int, found: Mapping[str, Numbers], origin: Numbers
) -> None:
    last: dict[int, int] = {}
    wanted = []
    for row, key in enumerate(past["key"].tolist()):
        if row - last.get(key, -window - 1) > window:
            last[key] = row
            wanted.append(row)
    if [row for row in wanted if row >= first] != found["seq"].tolist():
        raise RunError("deduplicate: it put out other tuples than the first of each key")


def _check_barrier(past: Past, first: int, found: Mapping[str, Numbers], origin: Numbers) -> None:
    pairs = dict(zip(found["seq"].tolist(), found["left"].tolist(), strict=True))
    for row in _sampled(first, past):
        if row in pairs:
            mine = np.flatnonzero(past["key"] == past["key"][row])
            quotes, trades = mine[past["side"][mine] == 1], mine[past["side"][mine] == 0]
            place = int(np.searchsorted(quotes, row))
            _compare("barrier", row, pairs[row], trades[place])


def _check_side(past: Past, first: int, found: Mapping[str, Numbers], origin: Numbers) -> None:
    wanted = first + np.flatnonzero(past["side"][first:] == 1)
    if not np.array_equal(found["seq"], wanted):
        raise RunError("split: it sent other tuples than those of side 1")


def _check_all(past: Past, first: int, found: Mapping[str, Numbers], origin: Numbers) -> None:
    if not np.array_equal(found["seq"], np.arange(first, len(past["seq"]))):
        raise RunError("tuples are missing, or out of order")


def _check_late(past: Past, first: int, found: Mapping[str, Numbers], origin: Numbers) -> None:
    """A key's tuples leave in the order they came."""
    order = np.lexsort((np.arange(len(found["seq"])), past["key"][found["seq"]]))
    keys, seqs = past["key"][found["seq"]][order], found["seq"][order]
    if np.any((keys[1:] == keys[:-1]) & (seqs[1:] <= seqs[:-1])):
        raise RunError("a key's tuples overtook each other")
