"""Predictions as `riprap model` prints them: a table for people, an object for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from riprap.cli.quantities import as_given
from riprap.cli.screen import Screen, new_table

if TYPE_CHECKING:
    from riprap.graph.graph import Graph
    from riprap.model import Estimate
    from riprap.model.sweep import Point


def as_json(application: str, points: Sequence[Point]) -> dict[str, Any]:
    """Return the object that ``--json`` prints: of one combination what is expected, of several each as a point."""
    if len(points) == 1:
        return {"application": application, **points[0].to_json()}
    return {"application": application, "points": [point.to_json() for point in points]}


def print_points(points: Sequence[Point], screen: Screen) -> None:
    """Print what is expected, a line for each combination; what all have in common stands above."""
    from riprap.model.sweep import assumed_of

    settings = [_words(point) for point in points]
    varying = [name for name in settings[0] if len({each[name] for each in settings}) > 1]
    screen.say(
        "; ".join(f"{name} {value}" for name, value in settings[0].items() if name not in varying and value)
    )
    screen.say()
    table = new_table()
    for name in varying:
        table.add_column(name, no_wrap=True)
    for heading in ("availability", "not spreading", "tainted tuples", "share", "copies", "checkpoints"):
        table.add_column(heading, justify="right", no_wrap=True)
    for point, words in zip(points, settings, strict=True):
        prediction = point.prediction
        written = prediction.cost.checkpoint_bytes
        table.add_row(
            *(words[name] for name in varying),
            with_interval(prediction.availability, 5, exact=prediction.exact is not None),
            f"{prediction.alone.mean:.5f}",
            with_interval(prediction.tainted_tuples, 0, exact=prediction.exact is not None),
            f"{prediction.share.mean:.2%}",
            f"+{prediction.cost.copies}",
            "?" if written is None else f"{written / 1e6:.2f} MB/s",
        )
    screen.out.print(table)
    screen.say(f"{_how_made(points)} Not spreading: availability if a fault hurt only the operator it hit.")
    for assumed in assumed_of(points):
        screen.say(f"Assumed: {assumed}.")


def say_groups(graph: Graph, points: Sequence[Point], failover: float | None, screen: Screen) -> None:
    """Say what a crash in the application's own replica groups costs, if they were asked about."""
    if graph.groups and "annotated" in {point.setting.technique for point in points}:
        costs = (
            f"in {group.name} ({', '.join(group.operators)}) a crash {group.describe_crash(failover)}"
            for group in graph.groups
        )
        screen.say(f"Replica groups: {'; '.join(costs)}, as long as one other replica is whole.")


def _how_made(points: Sequence[Point]) -> str:
    """Say how the numbers came about."""
    first, seconds = points[0].prediction, sum(point.prediction.seconds for point in points)
    states = [point.prediction.exact.states for point in points if point.prediction.exact is not None]
    if states:
        return f"Exact, {'at most ' if len(states) > 1 else ''}{max(states):,} states; {seconds:.1f} s."
    return f"{first.replications:,} replications each, 95% confidence; {seconds:.1f} s."


def _words(point: Point) -> dict[str, str]:
    setting, faults = point.setting, point.setting.faults
    return {
        "technique": setting.technique,
        "rate": f"{setting.rate:g}/s",
        "crash": "" if faults.crash is None else f"of {faults.crash}",
        "crashes": as_given(faults.crash_rate) if faults.crash_rate else "",
        "corruptions": as_given(faults.corruption_rate) if faults.corruption_rate else "",
        "recovery": as_given(faults.recovery),
        "horizon": as_given(setting.horizon),
    }


def with_interval(estimate: Estimate, digits: int, *, exact: bool = False) -> str:
    """Write a mean, give or take half its confidence interval; one that is exact has none."""
    mean = f"{estimate.mean:,.{digits}f}"
    return mean if exact else f"{mean} ± {estimate.high - estimate.mean:,.{digits}f}"
