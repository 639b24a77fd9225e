"""The figures of a sweep, as the page's script draws them: lines with intervals against whatever was varied."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from riprap.model.measures import MEASURES, Measure
from riprap.model.number_words import AXES, Axis, shown
from riprap.model.sweep import Point

Figure = dict[str, Any]
_LINES = 8  # shown at first; the others are a click away


def varied(points: Sequence[Point]) -> list[Axis]:
    """Return what settings differ in, techniques aside."""
    return [axis for axis in AXES if len({axis.value(p.setting) for p in points}) > 1]


def sweep_figures(points: Sequence[Point]) -> Iterator[Figure]:
    """Make three figures against each thing that was varied (figures 5.12 to 5.14 of the dissertation)."""
    axes = varied(points)
    for axis in axes:
        values = sorted({axis.value(p.setting) for p in points})
        for measure in MEASURES:
            lines = list(_lines(points, axis, axes, measure))
            apart = axis.rate and measure.most == 1.0
            if apart:
                lines += [_alone(line) for line in lines]
            yield {
                "group": f"Against {axis.name}",
                "title": f"{measure.name} against {axis.name}",
                "note": measure.note + ("; dashed and thin: if faults did not spread" if apart else ""),
                "x": axis.label,
                "ticks": [[value, axis.tick(value)] for value in values],
                "y": measure.label,
                "dodge": True,
                **({} if measure.up else {"base": 0}),
                "series": [_drawn(line, n) for n, line in enumerate(lines)],
            }


def _lines(points: Sequence[Point], axis: Axis, axes: Sequence[Axis], measure: Measure) -> Iterator[Figure]:
    techniques = list(dict.fromkeys(p.setting.technique for p in points))
    others = [each for each in axes if each is not axis]
    settings = list(dict.fromkeys(tuple(each.value(p.setting) for each in others) for p in points))
    for dash, setting in enumerate(settings):
        for colour, technique in enumerate(techniques):
            chosen = [
                p
                for p in points
                if p.setting.technique == technique
                and tuple(each.value(p.setting) for each in others) == setting
            ]
            words = [f"{each.name} {each.words(v)}" for each, v in zip(others, setting, strict=True)]
            chosen.sort(key=lambda p: axis.value(p.setting))
            # One technique goes without saying, and leaves colours to the other settings.
            single = len(techniques) == 1 and bool(words)
            name = ", ".join(words if single else [technique, *words])
            look = dash if single else colour
            yield {
                "name": name,
                "colour": look,
                "form": look,
                "dash": dash,
                "hollow": dash % 2 == 1,
                "points": [_point(p, axis, measure, name) for p in chosen],
                "alone": [_alone_point(p, axis, name) for p in chosen],
            }


def _point(point: Point, axis: Axis, measure: Measure, name: str) -> Figure:
    value, estimate = axis.value(point.setting), measure.of(point.prediction)
    scale = 100.0 if measure.percent else 1.0
    bounds = measure.bounds(estimate)
    return {
        "x": value,
        "y": estimate.mean * scale,
        **({} if bounds is None else {"low": bounds[0] * scale, "high": bounds[1] * scale}),
        "tip": f"{name}; {axis.name} {axis.words(value)}: {measure.label} {measure.words(estimate)}",
    }


def _alone_point(point: Point, axis: Axis, name: str) -> Figure:
    value, alone = axis.value(point.setting), point.prediction.alone
    words = f"{axis.name} {axis.words(value)}: availability would be {shown(alone)} if faults did not spread"
    return {"x": value, "y": alone.mean, "tip": f"{name}; {words}"}


def _alone(line: Figure) -> Figure:
    return {
        **line,
        "name": f"{line['name']}, if faults did not spread",
        "points": line["alone"],
        "dash": 1,
        "thin": True,
        "hollow": True,
    }


def _drawn(line: Figure, number: int) -> Figure:
    drawn = {key: value for key, value in line.items() if key != "alone"}
    return {**drawn, "off": True} if number >= _LINES and not line.get("thin") else drawn
