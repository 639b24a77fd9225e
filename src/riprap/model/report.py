"""The pages of a model: what is to be expected of an application, and how it compares with what was measured."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from html import escape
from importlib.metadata import version
from itertools import groupby
from pathlib import Path

from riprap.drawing import draw_svg
from riprap.drawing.pages import make_page, page_file
from riprap.graph.graph import Graph
from riprap.model.advice import advice
from riprap.model.compare import Comparison
from riprap.model.curves import Fitted, fit_figures, output_figure, ranking_figures
from riprap.model.figures import Figure, sweep_figures, varied
from riprap.model.measures import MEASURES
from riprap.model.number_words import AXES, duration
from riprap.model.prediction import Prediction
from riprap.model.profile import Profile
from riprap.model.sweep import Point, assumed_of
from riprap.model.tables import comparison_table, points_table, tiles

_LEFT_OUT = (
    "An operator does what its profile says on average: times, selectivities and state do not follow the data.",
    "Faults come at random, each on its own unless operators were said to fail together, and a recovery takes as long "
    "as was said: always, or on average where that is assumed; in a region also as long as it computes again. "
    "Machines, networks and stores do not fail by themselves.",
    "A tuple passes in no time, and copies and checkpoints slow nothing down: what they take is in the table only.",
    "A tuple is clean or tainted. How wrong a tainted one is, a campaign of fault injection measures "
    "(riprap inject).",
)  # fmt: skip


def write_page(
    file: Path,
    graph: Graph,
    profile: Profile,
    points: Sequence[Point],
    *,
    fits: Sequence[Fitted] = (),
    measured: Sequence[tuple[float, float]] | None = None,
    seed: int | None = None,
) -> None:
    """Write what was predicted as one page that needs nothing else.

    ``fits`` are curves that the profile was fitted with. ``measured`` is the output of a real run, as seconds and
    tuples a second, beside the prediction of one combination that has a series.
    """
    figures = list(sweep_figures(points))
    if len(points) == 1 and points[0].prediction.series:
        figures.append(output_figure(points[0], measured))
    curves = list(fit_figures(fits))
    lines = advice(points)
    parts = [
        _heading("What to do next", f"<ul>{''.join(f'<li>{line}</li>' for line in lines)}</ul>" if lines else ""),
        _heading("The application", f'<div class="card drawing">{draw_svg(graph)}</div>'),
        tiles(points[0]) if len(points) == 1 else "",
        _heading("Figures", _holders(figures, 0)),
        _heading("Techniques side by side", points_table(points) + _marked(points)) if len(points) > 1 else "",
        _heading("How operators recover: observed and fitted", _holders(curves, len(figures))),
        _heading("Assumed", _list([*profile.assumed, *assumed_of(points)])),
        _heading("Left out", _list(_LEFT_OUT)),
        _heading("How it was found", f"<p>{escape(_method([p.prediction for p in points], seed))}</p>"),
    ]  # fmt: skip
    _write(file, f"What to expect of {graph.name}", _asked(points), parts, [*figures, *curves])


def write_fits(file: Path, graph: Graph, fits: Sequence[Fitted]) -> None:
    """Write how long states stay wrong after an outage, as observed and as fitted (figures 5.10 and 5.11)."""
    curves = list(fit_figures(fits))
    none = "<p>No state of the application renews itself by tuples: there is nothing to draw.</p>"
    parts = [
        _heading(
            "Tuples until an operator is stable again: observed and fitted", _holders(curves, 0) or none
        ),
        _heading("The application", f'<div class="card drawing">{draw_svg(graph)}</div>'),
    ]
    _write(file, f"How {graph.name} recovers", "by outages at random places of its feed", parts, curves)


def write_comparison(file: Path, comparison: Comparison, *, seed: int | None = None) -> None:
    """Write predictions beside a campaign's measurements, as one page that needs nothing else."""
    figures = list(ranking_figures(comparison))
    parts = [
        _heading("Do they agree?", "".join(f"<p>{line}</p>" for line in _agreeing(comparison))),
        _heading("Operators, the greatest impact first", f'<div class="roomy">{comparison_table(comparison)}</div>'),
        "<p class='faint'>R is how many sections of the output pass until it is right again, I how wrong it is until "
        "then. Dots are means with 95% confidence intervals, bars are measured.</p>",
        _heading("Figures", _holders(figures, 0)),
        _heading("Left out", _list(_LEFT_OUT)),
        _heading("How it was found", f"<p>{escape(_method([o.prediction for o in comparison.operators], seed))}</p>"),
    ]  # fmt: skip
    subtitle = (
        f"One crash of {duration(comparison.outage)} at {comparison.rate:,.6g} tuples a second, over "
        f"{duration(comparison.horizon)}; campaign {comparison.campaign}"
    )
    _write(file, "Predicted and measured", subtitle, parts, figures)


def _write(file: Path, title: str, subtitle: str, parts: Sequence[str], figures: Sequence[Figure]) -> None:
    page = make_page(
        title=title,
        subtitle=subtitle,
        body="\n".join(part for part in parts if part) + "\n",
        told={"figures": figures},
        css=page_file("riprap.model", "page.css"),
        js=page_file("riprap.model", "page.js"),
    )
    file.write_text(page, encoding="utf-8")


def _asked(points: Sequence[Point]) -> str:
    """Say what all combinations have in common, and what was varied."""
    first, axes = points[0].setting, varied(points)
    techniques = list(dict.fromkeys(p.setting.technique for p in points))
    parts = [f"{'techniques' if len(techniques) > 1 else 'technique'} {', '.join(techniques)}"]
    for axis in AXES:
        values = sorted({axis.value(p.setting) for p in points})
        if axis in axes or not axis.rate or values != [0.0]:
            parts.append(f"{axis.name} {', '.join(axis.words(v) for v in values)}")
    if first.faults.crash is not None:
        parts.append(f"one crash of {first.faults.crash}")
    parts += [f"{' and '.join(names)} fail together" for names in first.faults.together]
    return "; ".join(parts)


def _method(predictions: Sequence[Prediction], seed: int | None) -> str:
    states = [p.exact.states for p in predictions if p.exact is not None]
    spent = f"{sum(p.seconds for p in predictions):.1f} s in all"
    if states:
        text = f"Solved exactly, as Markov chains of at most {max(states):,} states, {spent}."
    else:
        counts = sorted({p.replications for p in predictions})
        text = " to ".join(f"{n:,}" for n in (counts[0], counts[-1])[: len(counts)])
        text += f" replications of each combination, {spent}; intervals hold the mean with 95% confidence."
        text += f" Seed {seed}." if seed is not None else ""
    libraries = ", ".join(f"{name} {version(name)}" for name in ("riprap", "numba", "numpy", "scipy"))
    return f"{text} Versions: {libraries}, python {platform.python_version()}."


def _agreeing(comparison: Comparison) -> Iterator[str]:
    for what, pairs in comparison.ranked_otherwise().items():
        name, measured = ("Availability", "R") if what == "availability" else ("Tainted tuples", "I")
        verb = "ranks" if what == "availability" else "rank"
        if not pairs:
            yield f"{name} {verb} no two operators otherwise than {measured} does, as far as the intervals can tell."
            continue
        words = ", ".join(f"<b>{escape(one)}</b> and <b>{escape(other)}</b>" for one, other in pairs)
        yield f"{name} {verb} {words} otherwise than {measured} does."


def _marked(points: Sequence[Point]) -> str:
    if len({p.setting.technique for p in points}) < 2:
        return ""
    return (
        "<p class='faint'>✓: of the techniques that were asked the same, the best, or not to be told from the best by "
        f"its interval; more is better of {MEASURES[0].label}, less of everything else. Copies and checkpoints are "
        "what a technique takes; ? where the profile does not say how many bytes a tuple has.</p>"
    )


def _holders(figures: Sequence[Figure], first: int) -> str:
    """Write the places that the script draws figures into, those of a group together."""
    sections = []
    numbered = enumerate(figures, first)
    for group, members in groupby(numbered, key=lambda pair: pair[1].get("group", "")):
        shapes = [
            f'<figure class="card{" wide" if each.get("wide") else ""}"><figcaption>{escape(each["title"])}'
            f'<small>{escape(each["note"])}</small></figcaption><div id="figure-{number}"></div></figure>'
            for number, each in members
        ]
        heading = f"<h3>{escape(group)}</h3>" if group else ""
        sections.append(f'{heading}<div class="figures">{"".join(shapes)}</div>')
    return "\n".join(sections)


def _heading(name: str, content: str) -> str:
    return f"<h2>{name}</h2>\n{content}" if content else ""


def _list(lines: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>" if lines else ""
