"""The other figures of a model: output over time, fitted curves, and predictions against measurements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from riprap.model.compare import Compared, Comparison
from riprap.model.figures import Figure
from riprap.model.measures import MEASURES, Measure
from riprap.model.number_words import duration, number
from riprap.model.sweep import Point


class Fitted(Protocol):
    """The fitted curve of a port: points of rate, recovery time, tuples lost, tuples observed and fitted."""

    @property
    def operator(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def points(self) -> Sequence[tuple[float, float, float, float, float]]: ...


def output_figure(point: Point, measured: Sequence[tuple[float, float]] | None) -> Figure:
    """Make the figure of the output over time, beside that of a real run (figure 5.15)."""
    prediction, setting = point.prediction, point.setting
    width = setting.horizon / len(prediction.series)
    whole = sum(clean + tainted for clean, tainted in prediction.series) / setting.horizon
    note = f"tuples a second at the sinks, in steps of {duration(width)}; {whole:,.4g} on average"

    def line(name: str, values: Sequence[tuple[float, float]], form: int) -> Figure:
        return {
            "name": name,
            "colour": form,
            "form": form,
            "dash": form,
            "points_shown": False,
            "points": [
                {"x": second, "y": rate, "tip": f"{name}, {duration(second)}: {number(rate, 1)} tuples a second"}
                for second, rate in values
            ],
        }  # fmt: skip

    def rates(which: int) -> list[tuple[float, float]]:
        return [((n + 0.5) * width, pair[which] / width) for n, pair in enumerate(prediction.series)]

    series = [line("predicted, clean", rates(0), 0), line("predicted, tainted", rates(1), 1)]
    if measured:
        series.append({**line("measured", measured, 7), "thin": True, "dash": 0})
        note += f"; {sum(rate for _, rate in measured) / len(measured):,.4g} as measured"
    faults = setting.faults
    at = setting.horizon / 4 if faults.at is None else faults.at
    return {
        "title": "Output over time",
        "note": note,
        "x": "seconds",
        "y": "tuples a second",
        "wide": True,
        "base": 0,
        "series": series,
        "marks": [] if faults.crash is None else [{"x": at, "name": f"{faults.crash} crashes"}],
    }


def fit_figures(fits: Sequence[Fitted]) -> Iterator[Figure]:
    """Make a figure for each port and rate: what was observed and what was fitted (figures 5.10 and 5.11)."""
    for fit in fits:
        for rate in sorted({point[0] for point in fit.points}):
            points = sorted(point for point in fit.points if point[0] == rate)

            yield {
                "group": f"{fit.operator}, port {fit.port}",
                "title": f"At {rate:,.6g} tuples a second",
                "note": "tuples that make up for those lost in a crash",
                "x": "recovery, seconds",
                "y": "tuples to reprocess",
                "base": 0,
                "series": [
                    {**_dots("observed", points, 3), "colour": 0, "form": 0, "line": False},
                    {**_dots("fitted", points, 4), "colour": 1, "form": 1, "points_shown": False},
                ],
            }


def _dots(name: str, points: Sequence[tuple[float, ...]], place: int) -> Figure:
    tips = (f"{name}, recovery {duration(p[1])}, {p[2]:,.0f} lost: {p[place]:,.0f} tuples" for p in points)
    return {
        "name": name,
        "points": [{"x": p[1], "y": p[place], "tip": tip} for p, tip in zip(points, tips, strict=True)],
    }


def ranking_figures(comparison: Comparison) -> Iterator[Figure]:
    """Make figures of prediction against measurement, a point for each operator."""
    availability, tainted, _ = MEASURES
    recovery = {each.operator: each.R for each in comparison.operators}
    impact = {each.operator: each.I for each in comparison.operators}
    yield _ranking(comparison.operators, availability, "R", "sections until right again", recovery)
    yield _ranking(comparison.operators, tainted, "I", "sum of squared errors", impact)


def _ranking(
    operators: Sequence[Compared],
    measure: Measure,
    name: str,
    long: str,
    measured: Mapping[str, float | None],
) -> Figure:
    series = []
    for place, each in enumerate(operators):
        value, estimate = measured[each.operator], measure.of(each.prediction)
        if value is None:
            continue
        point: Figure = {"x": value, "y": estimate.mean}
        point["tip"] = f"{each.operator}: {measure.label} {measure.words(estimate)}, {name} {number(value)}"
        if (bounds := measure.bounds(estimate)) is not None:
            point["low"], point["high"] = bounds
        look = {"colour": place, "form": place, "hollow": place >= 5, "line": False}
        series.append({"name": each.operator, **look, "points": [point]})
    return {
        "title": f"{measure.name}, predicted, against {name}, measured",
        "note": f"ranked alike if points {'fall' if measure.up else 'rise'} to the right",
        "x": f"{name}: {long}",
        "y": measure.label,
        "dodge": True,
        "series": series,
    }
