"""Fit how long state stays wrong after an outage: alpha and beta of Z = min(alpha S + beta L, gamma S), from data.

As in section 5.6.4 of the dissertation: at random points of the stream that comes in at a stateful port, drop the
tuples of an outage, and count those that renew the windows it hit; average over the points, for several recovery times
and input rates; then find the alpha and beta that fit best.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from riprap.arrays import Floats
from riprap.errors import ModelError
from riprap.graph.graph import Graph
from riprap.graph.operator import Operator
from riprap.model.factors import explained, fit_factors
from riprap.model.outages import held_by_key, renewals
from riprap.model.watched_ports import PortStream, stateful_ports, watch_ports
from riprap.windows import Window

RATES = (250.0, 350.0, 450.0, 550.0)
RECOVERIES = tuple(float(second) for second in range(1, 18))
POINTS = 1000
_MICROSECONDS = 1_000_000


class ObservedOutage(NamedTuple):
    """An outage: the sources' tuples a second, its seconds, the tuples it takes from the port, and Z as it was counted
    and as it is fitted."""

    rate: float
    recovery: float
    lost: int
    observed: float
    fitted: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """What was found of a stateful port. ``r2`` is the share of the variance that the fit explains.

    ``how`` is what the port holds: windows of so many tuples, of a time, or something that no stream of tuples renews.
    ``note`` says what is assumed.
    """

    operator: str
    port: int
    how: Literal["tuples", "time", "other"]
    state: float
    alpha: float
    beta: float
    gamma: float = 1.0
    r2: float | None = None
    share: float = 0.0
    points: tuple[ObservedOutage, ...] = ()
    note: str = ""


def fit_graph(
    graph: Graph,
    *,
    rates: Sequence[float] = RATES,
    recoveries: Sequence[float] = RECOVERIES,
    points: int = POINTS,
    seed: int = 0,
) -> tuple[Fit, ...]:
    """Fit every stateful port of an application to the feed it reads; rates are those of all sources together."""
    streams = _streams(graph)
    return tuple(
        fit_port(
            operator,
            port,
            streams[operator.name, port],
            rates=rates,
            recoveries=recoveries,
            points=points,
            # Each port draws for itself, so that another operator in the graph does not change what is found.
            rng=np.random.default_rng([seed, port, *operator.name.encode()]),
        )
        for operator, port in stateful_ports(graph)
    )


def _streams(graph: Graph) -> dict[tuple[str, int], PortStream]:
    """Watch the stateful ports; where none has a window, and they cannot be watched, nothing has to be."""
    try:
        return watch_ports(graph)
    except ModelError:
        ports = stateful_ports(graph)
        if any(_renews(operator.window_of(port)) for operator, port in ports):
            raise
        none = PortStream(np.empty(0, np.int64), None, 0.0, 0.0)
        return {(operator.name, port): none for operator, port in ports}


def _renews(window: Window | None) -> bool:
    return window is not None and (window.tuples is not None or window.time is not None)


def fit_port(
    operator: Operator,
    port: int,
    stream: PortStream,
    *,
    rates: Sequence[float],
    recoveries: Sequence[float],
    points: int,
    rng: np.random.Generator,
) -> Fit:
    """Fit a stateful port to the tuples that came in."""
    window = operator.window_of(port)
    outages = [(rate, second, round(rate * stream.share * second)) for rate in rates for second in recoveries]
    if window is not None and window.tuples is not None:
        return _by_tuples(operator, port, stream, window, outages, points, rng)
    if window is not None and window.time is not None:
        return _by_time(operator, port, stream, window, outages)
    return Fit(
        operator=operator.name,
        port=port,
        how="other",
        state=stream.state,
        alpha=1.0,
        beta=0.0,
        share=stream.share,
        note=_unrenewed(operator, port),
    )


def _unrenewed(operator: Operator, port: int) -> str:
    taken = "its state does not renew itself by tuples alone; taken for right again after as many as it holds"
    one = ", where an object of a class counts as one: give the state by hand"
    return f"{_at(operator, port)}: {taken} (gamma * state){one if operator.holds_objects else ''}"


def _by_tuples(
    operator: Operator,
    port: int,
    stream: PortStream,
    window: Window,
    outages: Sequence[tuple[float, float, int]],
    points: int,
    rng: np.random.Generator,
) -> Fit:
    assert window.tuples is not None
    rate, second, longest = max(outages, key=lambda outage: outage[2])
    if longest >= len(stream.keys):
        raise ModelError(
            f"{_at(operator, port)}: an outage of {second:g} s at {rate:g} tuples a second takes {longest:,} of its "
            f"tuples, and the feed has {len(stream.keys):,}. Give a longer feed, or less to --recovery or --rates"
        )
    held = held_by_key(stream.keys, window.tuples)
    state = float(held.sum())
    lost = np.array([tuples for _, _, tuples in outages], np.float64)
    observed = np.array(
        [
            renewals(stream.keys, held, tuples, points=points, rng=rng).mean() if tuples else 0.0
            for _, _, tuples in outages
        ]
    )
    alpha, beta = fit_factors(lost, observed, state)
    fitted = np.minimum(alpha * state + beta * lost, state)
    full = window.shape == "tumbling"
    return Fit(
        operator=operator.name,
        port=port,
        how="tuples",
        state=state,
        alpha=alpha,
        beta=beta,
        r2=explained(observed, fitted),
        share=stream.share,
        points=_points(outages, observed, fitted),
        note=f"{_at(operator, port)}: windows that tumble are taken for full" if full else "",
    )


def _by_time(
    operator: Operator,
    port: int,
    stream: PortStream,
    window: Window,
    outages: Sequence[tuple[float, float, int]],
) -> Fit:
    """Take what comes in one length of the window: by then, all that the outage left is gone."""
    length = window.time or 0
    if stream.times is None:
        comes = np.array([rate * stream.share * length / _MICROSECONDS for rate, _, _ in outages])
        state = float(comes.mean())
    else:
        state = _within(stream.times, length)
        comes = np.full(len(outages), state)
    observed = np.minimum(comes, state)
    fitted = np.full(len(outages), state)
    return Fit(
        operator=operator.name,
        port=port,
        how="time",
        state=float(round(state)),
        alpha=1.0,
        beta=0.0,
        r2=explained(observed, fitted),
        share=stream.share,
        points=_points(outages, observed, fitted),
        note=f"{_at(operator, port)}: right again after what comes in one length of its window, whatever was lost",
    )


def _within(times: npt.NDArray[np.int64], length: int) -> float:
    """Return how many tuples there are on average in so long a time before a tuple, itself included."""
    newest = np.maximum.accumulate(times)
    counts = np.arange(1, len(times) + 1) - np.searchsorted(newest, newest - length, "right")
    return float(counts[len(counts) // 2 :].mean()) if len(counts) else 0.0


def _points(
    outages: Sequence[tuple[float, float, int]], observed: Floats, fitted: Floats
) -> tuple[ObservedOutage, ...]:
    return tuple(
        ObservedOutage(rate, second, lost, float(seen), float(curve))
        for (rate, second, lost), seen, curve in zip(outages, observed, fitted, strict=True)
    )


def _at(operator: Operator, port: int) -> str:
    return f"{operator.name}, port {port}" if len(operator.ports) > 1 else operator.name
