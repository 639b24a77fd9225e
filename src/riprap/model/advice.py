"""What predictions say, in words. Nothing is said that the confidence intervals do not bear out.

Two predictions differ only if their intervals do not meet, and by no less than the gap between them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import pairwise

from riprap.model.figures import varied
from riprap.model.measures import MEASURES, Measure
from riprap.model.number_words import AXES, bytes_a_second, copies, duration, shown
from riprap.model.prediction import Cost, Estimate, Prediction
from riprap.model.sweep import Point

PredictionsByTechnique = dict[str, Prediction]
_, _TAINTED, _ = MEASURES


def advice(points: Sequence[Point]) -> list[str]:
    """Say what to do next, as lines of HTML."""
    groups = grouped(points)
    techniques = list(dict.fromkeys(p.setting.technique for p in points))
    lines = []
    if len(techniques) > 1:
        # Each against the next cheaper one: what is it that the step up buys?
        costs = {p.setting.technique: p.prediction.cost for p in points}
        for cheap, dear in pairwise(sorted(techniques, key=lambda name: _price(costs[name]))):
            pairs = [(g[cheap], g[dear]) for g in groups if cheap in g and dear in g]
            lines += [_against(cheap, dear, pairs)] if pairs else []
    elif len(points) == 1:
        lines += _alone(points[0])
    lines += _trends(points)
    lines += _spreading([p.prediction for p in points])
    lines += _too_few([p.prediction for p in points])
    if len(techniques) == 1:
        lines.append(
            "Compare protections: name several with <code>--technique</code>, such as none,checkpoint,replication."
        )
    return lines


def grouped(points: Sequence[Point]) -> list[PredictionsByTechnique]:
    """Put techniques side by side that were asked the same."""
    groups: dict[tuple[float, ...], PredictionsByTechnique] = {}
    for point in points:
        key = tuple(axis.value(point.setting) for axis in AXES)
        groups.setdefault(key, {})[point.setting.technique] = point.prediction
    return list(groups.values())


def _price(cost: Cost) -> tuple[int, float]:
    return cost.copies, cost.checkpoint_bytes or 0.0


def below(one: Estimate, other: Estimate) -> bool:
    """Say whether an estimate is surely below another."""
    return one.high < other.low


def _against(base: str, name: str, pairs: Sequence[tuple[Prediction, Prediction]]) -> str:
    sentences = [_tainted(pairs), _available(pairs)]
    theirs, ours = pairs[0][0].cost, pairs[0][1].cost
    more = ours.copies - theirs.copies
    price = f"It takes {copies(more)}" if more else "It takes as many copies"
    if ours.checkpoint_bytes != theirs.checkpoint_bytes:
        price += f" and writes {_written(ours)} instead of {_written(theirs)}"
    return f"<b>{escape(name)}</b> against <b>{escape(base)}</b>: {'; '.join(sentences)}. {price}."


def _written(cost: Cost) -> str:
    written = cost.checkpoint_bytes
    if not written:
        return "no checkpoints" if written == 0 else "checkpoints of a size that the profile does not tell"
    return f"{bytes_a_second(written)} of checkpoints"


def _tainted(pairs: Sequence[tuple[Prediction, Prediction]]) -> str:
    estimates = [(a.tainted_tuples, b.tainted_tuples) for a, b in pairs]
    fewer = [(a, b) for a, b in estimates if below(b, a)]
    more = [(a, b) for a, b in estimates if below(a, b)]
    if len(fewer) == len(pairs):
        left = max(b.high / a.low for a, b in estimates)
        means = [b.mean / a.mean for a, b in estimates]
        halves = "less than half as many tainted tuples" if left < 0.5 else "fewer tainted tuples"
        return f"{halves}, by at least {_floor(1 - left)} ({_range([1 - m for m in means])} on average)"
    if len(more) == len(pairs):
        return "more tainted tuples"
    return _mixed(
        "tainted tuples", {"fewer tainted tuples": len(fewer), "more tainted tuples": len(more)}, len(pairs)
    )


def _available(pairs: Sequence[tuple[Prediction, Prediction]]) -> str:
    estimates = [(a.availability, b.availability) for a, b in pairs]
    higher = sum(below(a, b) for a, b in estimates)
    lower = sum(below(b, a) for a, b in estimates)
    moved = [abs(b.mean - a.mean) for a, b in estimates]
    least, most = (f"{value:.2g}" for value in (min(moved), max(moved)))
    by = least if least == most else f"{least} to {most}"
    if len(pairs) in (higher, lower):
        return f"availability is {'higher' if higher else 'lower'} by {by} on average"
    return _mixed("availability", {"more available": higher, "less available": lower}, len(pairs))


def _mixed(what: str, counted: Mapping[str, int], of: int) -> str:
    """Say in how many settings which is true, such as "more available in 2 of 4 settings"."""
    parts = [f"{words} in {count} of {of} settings" for words, count in counted.items() if count]
    if not parts:
        return f"{what} cannot be told apart" + (" in any setting" if of > 1 else "")
    rest = of - sum(counted.values())
    return ", ".join(parts) + (f", not to be told apart in {rest}" if rest else "")


def _floor(share: float) -> str:
    return f"{math.floor(100 * share)} %"


def _down(value: float) -> str:
    """Write a positive number with two digits, and not as more than it is."""
    step = 10.0 ** (math.floor(math.log10(value)) - 1)
    return f"{math.floor(value / step + 1e-9) * step:.2g}"


def _range(shares: Sequence[float]) -> str:
    low, high = (f"{100 * value:.0f}" for value in (min(shares), max(shares)))
    return f"{low} %" if low == high else f"{low} to {high} %"


def _alone(point: Point) -> Iterator[str]:
    own, horizon = point.prediction, point.setting.horizon
    down = Estimate(1 - own.availability.mean, 1 - own.availability.high, 1 - own.availability.low)
    if down.low > 0:
        yield (
            f"In {duration(horizon)} expect some operator to be down, or its results not to be trusted, for "
            f"{shown(down.scaled(horizon))} seconds."
        )
    if own.tainted_tuples.low > 0:
        yield f"Expect {shown(own.tainted_tuples)} tainted tuples, {shown(own.share, percent=True)} of the output."
    if own.output.low > own.fault_free:
        yield (
            f"More tuples come out than without faults ({shown(own.output)} instead of {own.fault_free:,.0f}): "
            "whoever reads them must bear with tuples too many."
        )


def _trends(points: Sequence[Point]) -> Iterator[str]:
    """Say what rises and falls along each axis, if it does so for every technique and other setting alike."""
    for axis in varied(points):
        values = sorted({axis.value(p.setting) for p in points})
        lines: dict[tuple[object, ...], dict[float, Prediction]] = {}
        for point in points:
            others = tuple(a.value(point.setting) for a in AXES if a is not axis)
            line = lines.setdefault((point.setting.technique, *others), {})
            line[axis.value(point.setting)] = point.prediction
        ends = [(line[min(line)], line[max(line)]) for line in lines.values() if len(line) > 1]
        moved = [(measure.name.lower(), _trend(measure, ends)) for measure in MEASURES]
        trends = [f"{name} {word}" for name, word in moved if word]
        if trends and ends:
            listed = " and ".join([", ".join(trends[:-1]), trends[-1]] if len(trends) > 1 else trends)
            everywhere = ", whatever the other settings" if len(ends) > 1 else ""
            span = f"{axis.words(values[0])} to {axis.words(values[-1])}"
            yield f"From {axis.name} {span}: {listed}{everywhere}."


def _trend(measure: Measure, ends: Sequence[tuple[Prediction, Prediction]]) -> str:
    if all(below(measure.of(first), measure.of(last)) for first, last in ends):
        return "rises" if measure is not _TAINTED else "rise"
    if all(below(measure.of(last), measure.of(first)) for first, last in ends):
        return "falls" if measure is not _TAINTED else "fall"
    return ""


def _spreading(predictions: Sequence[Prediction]) -> Iterator[str]:
    if all(below(p.availability, p.alone) for p in predictions):
        most = max(p.alone.low - p.availability.high for p in predictions)
        yield (
            "Do not reckon operator by operator: that faults spread to others makes availability lower, by at least "
            f"{_down(most)} where it matters most."
        )


def _too_few(predictions: Sequence[Prediction]) -> Iterator[str]:
    tainting = [p for p in predictions if p.tainted_tuples.mean > 0]
    widths = [(p.tainted_tuples.high / p.tainted_tuples.mean - 1, p.replications) for p in tainting]
    if not widths:
        return
    width, count = max(widths)
    if math.isinf(width):
        yield "One replication has no interval: ask for more with <code>--replications</code>."
    elif width > 0.1:
        needed = float(f"{count * (width / 0.1) ** 2:.2g}")
        yield (
            f"Intervals of tainted tuples are as wide as ± {100 * width:.0f} %. "
            f"About {needed:,.0f} replications would bring them to 10 %."
        )
