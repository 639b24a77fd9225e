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
    arrivals: Iterable[tuple[int, Row]],
    *,
    by: str,
    sizes: tuple[int, int],
    where: Callable[[Row, Row], bool | None],
    select: Callable[[Row, Row], Row],
) -> list[Row]:
    """Let each (port, tuple) enter its own window, then meet the other port's window of its key."""
    windows = tuple(defaultdict(lambda size=size: deque(maxlen=size)) for size in sizes)
    outputs = []
    for port, row in arrivals:
        if row[by] is None:
            continue
        group = group_of(row[by])
        windows[port][group].append(row)
        for other in windows[1 - port][group]:
            left, right = (row, other) if port == 0 else (other, row)
            if where(left, right):
                outputs.append(select(left, right))
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
