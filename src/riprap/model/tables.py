"""Predictions as tables of HTML, each number with its interval drawn beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape

from riprap.model.advice import below
from riprap.model.compare import Compared, Comparison
from riprap.model.figures import varied
from riprap.model.measures import MEASURES, Measure
from riprap.model.number_words import AXES, bytes_a_second, number, shown
from riprap.model.prediction import Estimate, Prediction
from riprap.model.sweep import Point

_WIDTH = 70.0
_BEST = "the best, or not to be told from the best"


def points_table(points: Sequence[Point]) -> str:
    """Write a row for each combination; among techniques that were asked the same, the best is marked."""
    axes = varied(points)
    rows, before = [], None
    for point in points:
        key = tuple(axis.value(point.setting) for axis in AXES)
        rivals = [p.prediction for p in points if tuple(a.value(p.setting) for a in AXES) == key]
        cells = [f"<td>{escape(point.setting.technique)}</td>"]
        cells += [f"<td>{escape(axis.words(axis.value(point.setting)))}</td>" for axis in axes]
        cells += _measured(point.prediction, rivals, [p.prediction for p in points])
        first = ' class="first"' if before is not None and key != before else ""
        rows.append(f'<tr{first} data-technique="{escape(point.setting.technique)}">{"".join(cells)}</tr>')
        before = key
    heads = ["technique", *(axis.name for axis in axes), *(m.name.lower() for m in MEASURES)]
    heads += ["copies", "checkpoints", "available if faults did not spread", "lost tuples", "crashes"]
    return _table(heads, rows)


def _measured(
    prediction: Prediction, rivals: Sequence[Prediction], everyone: Sequence[Prediction]
) -> Iterator[str]:
    for measure in MEASURES:
        best = _is_best(prediction, rivals, measure)
        scale = _span([b for p in everyone for b in measure.bounds(measure.of(p)) or (measure.of(p).mean,)])
        # A share is drawn where its tuples are.
        drawn = "" if measure.percent else _interval(measure, measure.of(prediction), scale)
        yield _cell(drawn + _two_lines(measure.words(measure.of(prediction))), best)
    yield _cell(f"+{prediction.cost.copies}", _is_cheapest(prediction, rivals, lambda p: p.cost.copies))
    written = escape(bytes_a_second(prediction.cost.checkpoint_bytes))
    yield _cell(written, _is_cheapest(prediction, rivals, lambda p: p.cost.checkpoint_bytes))
    yield _cell(_two_lines(shown(prediction.alone)), False)
    yield _cell(_two_lines(shown(prediction.lost)), False)
    yield _cell(_two_lines(shown(prediction.crashes)), False)


def _two_lines(words: str) -> str:
    mean, sign, half = words.partition(" ± ")
    below = f'<span class="range">± {escape(half)}</span>' if sign else ""
    return f'<span class="value">{escape(mean)}{below}</span>'


def _cell(content: str, best: bool) -> str:
    if not best:
        return f"<td>{content}</td>"
    return f'<td class="best" title="{_BEST}"><span class="tick">✓</span>{content}</td>'


def _is_best(prediction: Prediction, rivals: Sequence[Prediction], measure: Measure) -> bool:
    """Say whether nobody is surely better and somebody is surely worse."""

    def better(one: Prediction, other: Prediction) -> bool:
        low, high = (other, one) if measure.up else (one, other)
        return below(measure.of(low), measure.of(high))

    def beaten(one: Prediction) -> bool:
        return any(better(other, one) for other in rivals)

    return not beaten(prediction) and any(beaten(other) for other in rivals)


def _is_cheapest(
    prediction: Prediction, rivals: Sequence[Prediction], price: Callable[[Prediction], float | None]
) -> bool:
    prices = [p for p in map(price, rivals) if p is not None]
    return len(prices) == len(rivals) and price(prediction) == min(prices) < max(prices)


def _span(values: Sequence[float]) -> tuple[float, float]:
    return min(values), max(values)


def _interval(measure: Measure, estimate: Estimate, scale: tuple[float, float]) -> str:
    bounds = measure.bounds(estimate) or (estimate.mean, estimate.mean)
    mean, low, high = (_at(v, scale) for v in (estimate.mean, *bounds))
    return (
        f'<svg class="interval" viewBox="0 0 {_WIDTH + 8:g} 12" aria-hidden="true"><line class="ground" x1="4" '
        f'x2="{_WIDTH + 4:g}" y1="6" y2="6"/><line x1="{low:.1f}" x2="{high:.1f}" y1="6" y2="6"/>'
        f'<circle cx="{mean:.1f}" cy="6" r="3"/></svg>'
    )


def _at(value: float, scale: tuple[float, float]) -> float:
    low, high = scale
    return 4 + _WIDTH * ((value - low) / (high - low) if high > low else 0.5)


def tiles(point: Point) -> str:
    """Write what matters most of one combination, large."""
    prediction = point.prediction
    values = [
        *((m.name.lower(), m.words(m.of(prediction))) for m in MEASURES),
        ("tuples lost", shown(prediction.lost)),
        ("crashes", shown(prediction.crashes)),
        ("copies of operators", f"+{prediction.cost.copies}"),
        ("checkpoints", bytes_a_second(prediction.cost.checkpoint_bytes)),
    ]
    shapes = []
    for name, words in values:
        mean, sign, half = words.partition(" ± ")
        small = f"<small>{escape(sign + half)}</small>" if sign else ""
        mean += " %" if half.endswith(" %") else ""
        shapes.append(f'<div class="tile"><b>{escape(mean)}</b>{small}<span>{escape(name)}</span></div>')
    return f'<div class="tiles card">{"".join(shapes)}</div>'


def comparison_table(comparison: Comparison) -> str:
    """Write each operator with its prediction beside its measurement, the worst hit first (table 5.4)."""
    operators = sorted(comparison.operators, key=lambda each: -each.I)
    availability, tainted, _ = MEASURES
    rows = [
        f'<tr data-operator="{escape(each.operator)}"><td>{escape(each.operator)}</td>'
        f"{_predicted(each, operators, availability)}"
        f"{_bar(each.R, [o.R for o in operators], 'R', 0)}"
        f"{_predicted(each, operators, tainted)}{_bar(each.I, [o.I for o in operators], 'I', 2)}</tr>"
        for each in operators
    ]
    heads = ("operator", "availability, predicted", "R, measured", "tainted tuples, predicted", "I, measured")
    return _table(heads, rows)


def _predicted(compared: Compared, everyone: Sequence[Compared], measure: Measure) -> str:
    all_of = [measure.of(each.prediction) for each in everyone]
    scale = _span([b for e in all_of for b in measure.bounds(e) or (e.mean,)])
    estimate = measure.of(compared.prediction)
    return f"<td>{_interval(measure, estimate, scale)}{_two_lines(measure.words(estimate))}</td>"


def _bar(value: float | None, everyone: Sequence[float | None], name: str, digits: int) -> str:
    if value is None:
        return "<td>?</td>"
    most = max((v for v in everyone if v is not None), default=0.0) or 1.0
    words = number(value, digits)
    return (
        f'<td><svg class="bar" viewBox="0 0 {_WIDTH:g} 12" role="img" aria-label="{name} {words}">'
        f'<rect x="0" y="1" width="{_WIDTH * value / most:.1f}" height="10"/></svg>'
        f'<span class="value">{words}</span></td>'
    )


def _table(heads: Sequence[str], rows: Sequence[str]) -> str:
    head = "".join(f"<th>{escape(each)}</th>" for each in heads)
    body = "\n".join(rows)
    return f'<div class="card"><table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table></div>'
