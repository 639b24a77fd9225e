"""Plain per-tuple answers, written from what the operators mean and not from how they compute it."""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable
from decimal import ROUND_HALF_UP, Context, Decimal, localcontext
from fractions import Fraction
from typing import Any

Row = dict[str, Any]


def bargain_oracle(rows: Iterable[Row]) -> list[Row]:
    """Find the bargains of a market feed: quotes that ask less than their stock's last average price.

    >>> feed = [("trade", 10.0, 3), ("quote", 9.0, 2), ("quote", 11.0, 2)]
    >>> rows = [dict(seq=n, ticker="A", kind=k, price=p, size=s) for n, (k, p, s) in enumerate(feed)]
    >>> bargain_oracle(rows)
    [{'seq': 1, 'ticker': 'A', 'vwap': 10.0, 'price': 9.0, 'size': 2, 'gain': 2.0}]
    """
    trades: defaultdict[str, deque[tuple[float, int]]] = defaultdict(lambda: deque(maxlen=5))
    vwaps: dict[str, float] = {}
    bargains: list[Row] = []
    for row in sorted(rows, key=lambda row: row["seq"]):
        ticker, price, size = row["ticker"], row["price"], row["size"]
        if row["kind"] == "trade":
            trades[ticker].append((price, size))
            notional = math.fsum(price * size for price, size in trades[ticker])
            vwaps[ticker] = notional / float(sum(size for _, size in trades[ticker]))
        elif row["kind"] == "quote" and vwaps.get(ticker, -math.inf) > price:
            vwap = vwaps[ticker]
            bargain = {"seq": row["seq"], "ticker": ticker, "vwap": vwap, "price": price, "size": size}
            bargains.append({**bargain, "gain": (vwap - price) * size})
    return bargains


def group_of(key: Any) -> Any:
    """Return a value that is equal for keys of one group: null is one, NaN is one, -0.0 is 0.0.

    >>> group_of(float("nan")) == group_of(-float("nan")), group_of(-0.0) == group_of(0.0)
    (True, True)
    """
    return "NaN" if isinstance(key, float) and math.isnan(key) else key


def aggregate_oracle(
    rows: Iterable[Row], *, by: str | None, size: int, every: int, result: Callable[[list[Row]], Row]
) -> list[Row]:
    """After each n-th tuple of a key, give the result of the key's newest ``size`` tuples."""
    windows: defaultdict[Any, deque[Row]] = defaultdict(lambda: deque(maxlen=size))
    seen: Counter[Any] = Counter()
    outputs = []
    for row in rows:
        group = group_of(row[by]) if by else None
        windows[group].append(row)
        seen[group] += 1
        if seen[group] % every == 0:
            outputs.append({**({by: row[by]} if by else {}), **result(list(windows[group]))})
    return outputs


def join_oracle(
    events: Iterable[tuple[int | None, Any]],
    *,
    by: tuple[str, ...],
    windows: tuple[Row, Row],
    where: Callable[[Row, Row], bool | None],
    select: Callable[[Row | None, Row | None], Row],
    outer: str = "inner",
    clocked: bool = False,
    key_order: Callable[[tuple[Any, ...]], Any] = hash,
) -> list[Row]:
    """Let each (port, tuple) enter its own window, then meet the other port's window of its key.

    (None, time) is a tick. A window is ``{"tuples": 3}``, or ``{"time": 5}`` with ``"on"``, the column of times, unless
    the windows are clocked.
    """
    counted = ({0}, {0, 1}, set())[("left", "full", "inner").index(outer)]
    held: defaultdict[Any, tuple[list[Row], list[Row]]] = defaultdict(lambda: ([], []))
    times: dict[Any, int] = {}
    clock: int | None = None
    outputs: list[Row] = []

    def leave(port: int, entry: Row) -> None:
        if port in counted and not entry["matched"]:
            outputs.append(select(entry["row"], None) if port == 0 else select(None, entry["row"]))

    def expire(key: Any, now: int | None) -> None:
        for port, window in enumerate(windows):
            span, entries = window.get("time"), held[key][port]
            if not span or now is None:
                continue
            while entries and (entries[0]["time"] is None or entries[0]["time"] <= now - span):
                leave(port, entries.pop(0))

    for port, it in events:
        if port is None:
            clock = max((time for time in (clock, it) if time is not None), default=None)
            for key in sorted(held, key=key_order):
                expire(key, clock)
            continue
        entry = {"row": it, "time": None, "matched": False}
        key = tuple(group_of(it[c]) for c in by)
        if None in key:
            leave(port, entry)
            continue
        told = it[windows[port]["on"]] if windows[port].get("on") else None
        if not clocked and told is not None:
            times[key] = max(times.get(key, told), told)
        entry["time"] = clock if clocked else times.get(key)
        expire(key, entry["time"])
        mine, others = held[key][port], held[key][1 - port]
        if "tuples" in windows[port] and len(mine) == windows[port]["tuples"] > 0:
            leave(port, mine.pop(0))
        stays = bool(windows[port].get("tuples") or windows[port].get("time"))
        mine += [entry] if stays else []
        for other in others:
            left, right = (entry, other) if port == 0 else (other, entry)
            if where(left["row"], right["row"]):
                left["matched"] = right["matched"] = True
                outputs.append(select(left["row"], right["row"]))
        if not stays:
            leave(port, entry)
    return outputs


def barrier_oracle(
    arrivals: Iterable[tuple[int, Row]], *, ports: int, by: tuple[str, ...], select: Callable[..., Row]
) -> list[Row]:
    """Queue each (port, tuple) by key; whenever all queues of a key have a tuple, put out the first of each."""
    queues: defaultdict[Any, list[deque[Row]]] = defaultdict(lambda: [deque() for _ in range(ports)])
    outputs = []
    for port, row in arrivals:
        mine = queues[tuple(group_of(row[c]) for c in by)]
        mine[port].append(row)
        if all(mine):
            outputs.append(select(*(queue.popleft() for queue in mine)))
    return outputs


def exact_sum(values: Iterable[float]) -> float:
    """Add doubles without rounding, then round once; NaN and infinities as IEEE 754 adds them.

    >>> exact_sum([1e308, 1e308, -1e308]), exact_sum([1e308, 1e308]), exact_sum([float("inf"), float("-inf")])
    (1e+308, inf, nan)
    """
    values = list(values)
    special = [v for v in values if not math.isfinite(v)]
    if special:
        return sum(special)
    total = sum(map(Fraction, values))
    try:
        return float(total)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


def fold(function: str, values: list[Any]) -> Any:
    """Aggregate the values of a window as Spark does: first and last see nulls, the others pass over them."""
    if function in ("first", "last"):
        return values[0 if function == "first" else -1]
    values = [v for v in values if v is not None]
    if function == "count":
        return len(values)
    if not values:
        return None
    if function in ("min", "max"):
        # NaN is the greatest of all.
        choose = min if function == "min" else max
        return choose(values, key=lambda v: (v != v, 0.0 if v != v else v))
    if isinstance(values[0], Decimal):
        return _fold_decimals(function, values)
    if isinstance(values[0], float):
        total: Any = exact_sum(values)
    else:
        total = sum(values)
    return total if function == "sum" else exact_sum(map(float, values)) / len(values)


def _fold_decimals(function: str, values: list[Decimal]) -> Decimal:
    with localcontext(Context(prec=100, rounding=ROUND_HALF_UP)):
        total = sum(values, Decimal(0))
        if function == "sum":
            return total
        # All values of a column have one scale; Spark's average has four places more.
        return (total / len(values)).quantize(Decimal(1).scaleb(values[0].as_tuple().exponent - 4))


# What reaches an operator, in order: a tuple, the time of a tick in microseconds, or a punctuation.
Event = tuple[str, Any]


def sort_oracle(rows: Iterable[Row], order: Iterable[tuple[str, bool, bool]]) -> list[Row]:
    """Sort by columns (name, whether it falls, whether nulls come first), the first one counting most.

    >>> rows = [{"a": 1.0}, {"a": None}, {"a": float("nan")}, {"a": 2.0}]
    >>> [row["a"] for row in sort_oracle(rows, [("a", True, False)])]
    [nan, 2.0, 1.0, None]
    """
    listed = list(rows)
    for column, falls, nulls_first in reversed(list(order)):
        nulls = [row for row in listed if row[column] is None]
        others = [row for row in listed if row[column] is not None]
        others.sort(key=lambda row: _comparable(row[column]), reverse=falls)
        listed = nulls + others if nulls_first else others + nulls
    return listed


def _comparable(value: Any) -> Any:
    nan = isinstance(value, float) and math.isnan(value)
    return (nan, 0.0 if nan else value.encode() if isinstance(value, str) else value)


def tumbling_oracle(
    events: Iterable[Event],
    *,
    by: str | None,
    key_order: Callable[[Any], Any] = lambda key: 0,
    tuples: int | None = None,
    time: int | None = None,
    delta: float | None = None,
    on: str | None = None,
    punctuation: bool = False,
) -> list[list[Row]]:
    """List the windows in the order they close; what closes those of many keys does so in the keys' order."""
    windows: defaultdict[Any, list[Row]] = defaultdict(list)
    newest: dict[Any, int] = {}
    clock: int | None = None
    closed: list[list[Row]] = []

    def close(group: Any) -> None:
        if windows[group]:
            closed.append(windows.pop(group))

    for kind, what in events:
        if kind == "tick":
            before, clock = clock, what if clock is None else max(clock, what)
            if time is not None and (before is None or before // time < clock // time):
                for group in sorted(windows, key=key_order):
                    close(group)
        elif kind == "punctuation":
            for group in sorted(windows, key=key_order) if punctuation else ():
                close(group)
        else:
            group = group_of(what[by]) if by else None
            if time is not None and on is not None and what[on] is not None:
                before = newest.get(group)
                newest[group] = what[on] if before is None else max(before, what[on])
                if before is None or before // time < newest[group] // time:
                    close(group)
            if delta is not None and windows[group] and abs(what[on] - windows[group][0][on]) > delta:
                close(group)
            windows[group].append(what)
            if tuples is not None and len(windows[group]) == tuples:
                close(group)
    return closed


def deduplicate_oracle(
    events: Iterable[Event],
    *,
    by: str,
    tuples: int | None = None,
    time: int | None = None,
    on: str | None = None,
) -> list[Row]:
    """Drop each tuple of which one of the same key was put out among the ones before it, or less than ``time`` ago."""
    outputs: list[Row] = []
    stream: list[tuple[Any, bool]] = []
    put_out: defaultdict[Any, list[float]] = defaultdict(list)
    # Before any time is known it is as long ago as can be.
    newest: defaultdict[Any, float] = defaultdict(lambda: -math.inf)
    clock = -math.inf
    for kind, what in events:
        if kind == "tick":
            clock = max(clock, what)
        if kind != "tuple":
            continue
        group = group_of(what[by])
        if tuples is not None:
            dropped = any(passed and other == group for other, passed in stream[-tuples:])
        else:
            if on is not None and what[on] is not None:
                newest[group] = max(newest[group], what[on])
            now = newest[group] if on is not None else clock
            dropped = any(now == then or now - then < time for then in put_out[group])
            put_out[group] += [] if dropped else [now]
        stream.append((group, not dropped))
        outputs += [] if dropped else [what]
    return outputs


def hold_oracle(
    events: Iterable[Event],
    *,
    by: str | None,
    key_order: Callable[[Any], Any] = lambda key: 0,
    delay: int | None = None,
    gap: int | None = None,
    on: str | None = None,
) -> list[Event]:
    """Let tuples go when they are due: each after a delay, or no two of a key closer than a gap.

    Say also when: an arrival stands before what it lets go, a tick after it.
    """
    waiting: defaultdict[Any, deque[tuple[float, Row]]] = defaultdict(deque)
    # Before any time is known it is as long ago as can be.
    newest: defaultdict[Any, float] = defaultdict(lambda: -math.inf)
    last_due: defaultdict[Any, float] = defaultdict(lambda: -math.inf)
    clock = -math.inf
    outputs: list[Event] = []

    def release(group: Any, now: float) -> None:
        while waiting[group] and now > -math.inf and waiting[group][0][0] <= now:
            outputs.append(("tuple", waiting[group].popleft()[1]))

    for kind, what in events:
        if kind == "tick":
            clock = max(clock, what)
            for group in sorted(waiting, key=key_order):
                release(group, clock)
            outputs.append((kind, what))
        if kind != "tuple":
            continue
        group = group_of(what[by]) if by else None
        outputs.append(("arrival", what))
        if on is not None and what[on] is not None:
            newest[group] = max(newest[group], what[on])
        now = newest[group] if on is not None else clock
        if delay is not None:
            release(group, now)
            waiting[group].append((now + delay, what))
        else:
            last_due[group] = max(now, last_due[group] + gap)
            waiting[group].append((last_due[group], what))
            release(group, now)
    return outputs


def gate_oracle(arrivals: Iterable[tuple[int, Row]], *, by: str | None, most: int) -> list[Row]:
    """Let tuples (port 0) pass while fewer than ``most`` are unacknowledged; answers (port 1) let those that wait."""
    waiting: defaultdict[Any, deque[Row]] = defaultdict(deque)
    outstanding: Counter[Any] = Counter()
    outputs: list[Row] = []
    for port, row in arrivals:
        group = group_of(row[by]) if by else None
        if port == 0:
            waiting[group].append(row)
        elif outstanding[group]:
            outstanding[group] -= 1
        while waiting[group] and outstanding[group] < most:
            outputs.append(waiting[group].popleft())
            outstanding[group] += 1
    return outputs


def split_oracle(
    rows: Iterable[Row], *, outputs: dict[str, Callable[[Row], bool | None]], first: bool = False
) -> dict[str, list[Row]]:
    """Send each tuple to every output whose condition is true, or to the first of them."""
    routed: dict[str, list[Row]] = {name: [] for name in outputs}
    for row in rows:
        chosen = [name for name, condition in outputs.items() if condition(row) is True]
        for name in chosen[:1] if first else chosen:
            routed[name].append(row)
    return routed


def punctor_oracle(
    elements: Iterable[Row | None], *, where: Callable[[Row], bool | None], place: str
) -> list[Row | None]:
    """Put a punctuation (None) next to each tuple that meets a condition, among the ones there are.

    >>> punctor_oracle([{"v": 1}, None, {"v": 2}], where=lambda row: row["v"] > 1, place="before")
    [{'v': 1}, None, None, {'v': 2}]
    """
    out: list[Row | None] = []
    for element in elements:
        meets = element is not None and where(element) is True
        out += [None] if meets and place == "before" else []
        out.append(element)
        out += [None] if meets and place == "after" else []
    return out


def lookup_oracle(
    rows: Iterable[Row], table: Iterable[Row], *, by: dict[str, str], add: dict[str, str], drop: bool
) -> list[Row]:
    """Add columns of the table's row of the same key to each tuple; null finds nothing."""
    known = {tuple(group_of(row[its]) for its in by.values()): row for row in table}
    found = []
    for row in rows:
        key = tuple(group_of(row[mine]) for mine in by)
        match = known.get(key) if None not in key else None
        if match is not None or not drop:
            found.append({**row, **{name: match[its] if match else None for name, its in add.items()}})
    return found
