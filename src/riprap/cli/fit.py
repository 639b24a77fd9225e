"""Fit how long an application's state stays wrong after an outage, from the feed it reads, for models of it.

After an outage that lost L tuples, results are wrong until Z = min(alpha S + beta L, gamma S) tuples have come, where S
is how many the state holds. The application runs in memory over its feed; nothing is measured of Spark.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

import riprap as rr
from riprap.cli.applications import UsageError, positive
from riprap.cli.made_feeds import add_measured, measured_application
from riprap.cli.profile import profile_file, write_profile
from riprap.cli.screen import Screen, new_table, shown
from riprap.errors import FormatError
from riprap.graph.graph import Graph

if TYPE_CHECKING:
    from riprap.model.fitting import Fit
    from riprap.model.profile import Profile

SUMMARY = "fit how long an application's state stays wrong after an outage"
EXAMPLES = """\
examples:
  riprap fit bargain                                  on a feed that is made for it
  riprap fit bargain --feed TradesAndQuotes.csv.gz --profile bargain.profile.yaml
  riprap fit app.py:app --rates 100,200 --recovery 1,5,15
  riprap fit app.py:app --rates profile               at the rate that the profile has
  riprap fit bargain --json                           with Z as it was counted and as it is fitted
"""
_PROFILES_OWN = "profile"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add_measured(parser)
    group = parser.add_argument_group("what to fit")
    group.add_argument(
        "--profile",
        type=Path,
        metavar="FILE",
        help="the profile to start from (<app>.profile.yaml, if it is there)",
    )
    group.add_argument(
        "--out", type=Path, metavar="FILE", help="where to write it (the profile it starts from)"
    )
    group.add_argument(
        "--rates", metavar="N,N", help="tuples a second of the sources (250,350,450,550), or 'profile'"
    )
    group.add_argument("--recovery", metavar="N,N", help="seconds that outages take (1 to 17)")
    group.add_argument(
        "--points", type=positive, metavar="N", help="random points of the stream for each (1000)"
    )
    group.add_argument("--seed", type=int, default=0, metavar="S", help="of the random points (0)")
    group.add_argument(
        "--html", type=Path, metavar="FILE", help="draw what was counted and what is fitted, as a page"
    )


def execute(arguments: argparse.Namespace, screen: Screen) -> int:
    """Fit, write the profile, and show what was found."""
    from riprap.model.fitted_profile import blank_profile, put_in
    from riprap.model.fitting import POINTS, RATES, RECOVERIES, fit_graph

    recoveries = _numbers("--recovery", arguments.recovery) or RECOVERIES
    named = arguments.rates != _PROFILES_OWN
    rates = _numbers("--rates", arguments.rates if named else None) or RATES
    if arguments.profile is not None:
        # What is wrong with it is better said before the time it takes to play the feed.
        _read(arguments.profile)
    graph = measured_application(arguments, screen, out=rr.memory()).graph()
    start = _starting_profile(arguments.profile, graph)
    if not named:
        if start is None:
            raise UsageError("--rates profile: there is no profile. Name one with --profile")
        rates = (sum(start.rates.values()),)
    profile = start or blank_profile(graph, rates[0])
    if arguments.rate is not None:
        profile = profile.at_rate(arguments.rate)
    with screen.waiting(f"Watching the streams of {graph.name}"):
        fits = fit_graph(
            graph, rates=rates, recoveries=recoveries, points=arguments.points or POINTS, seed=arguments.seed
        )
    file = arguments.out or arguments.profile or profile_file(graph)
    write_profile(put_in(profile, fits), file)
    if arguments.html is not None:
        from riprap.model.report import write_fits

        write_fits(arguments.html, graph, fits)
        screen.note(f"As a page: {shown(arguments.html)}")
    if screen.json:
        screen.print_json(
            {"application": graph.name, "file": str(file), "fits": [_described(fit) for fit in fits]}
        )
        return 0
    if not fits:
        screen.say(f"{graph.name} keeps no state: there is nothing to fit.")
    else:
        screen.heading(f"{graph.name}: Z = min(alpha S + beta L, gamma S) tuples after an outage that lost L")
        screen.out.print(_table(fits))
        for fit in fits:
            if fit.note:
                screen.say(f"Assumed: {fit.note}")
    screen.say()
    screen.say(f"Written to {shown(file)}.")
    return 0


def _starting_profile(file: Path | None, graph: Graph) -> Profile | None:
    """Return the profile to start from: the one that is named, or the one that is where it usually is."""
    if file is None:
        file = profile_file(graph)
        if not file.exists():
            return None
    return _read(file)


def _read(file: Path) -> Profile:
    from riprap.model.profile import read_profile

    if not file.is_file():
        raise UsageError(f"--profile {file}: there is no such file. `riprap profile` writes one")
    try:
        return read_profile(file)
    except FormatError as error:
        raise UsageError(f"{file}: {error}") from error


def _numbers(option: str, text: str | None) -> tuple[float, ...]:
    """Read numbers above 0, such as ``1,2.5``."""
    numbers = []
    for each in text.split(",") if text is not None else ():
        try:
            number = float(each)
        except ValueError:
            number = 0.0
        if not 0 < number < float("inf"):
            raise UsageError(f"{option} {text}: give numbers above 0, such as {option} 1,5,15; got {each!r}")
        numbers.append(number)
    return tuple(numbers)


def _described(fit: Fit) -> dict[str, Any]:
    return {
        "operator": fit.operator,
        "port": fit.port,
        "how": fit.how,
        "state": fit.state,
        "alpha": fit.alpha,
        "beta": fit.beta,
        "gamma": fit.gamma,
        "r2": fit.r2,
        "share": fit.share,
        "note": fit.note,
        "points": [point._asdict() for point in fit.points],
    }


def _table(fits: tuple[Fit, ...]) -> Table:
    table = new_table("operator")
    for heading in ("port", "S", "alpha", "beta", "gamma", "R2"):
        table.add_column(heading, justify="right")
    table.add_column("its state is")
    for fit in fits:
        table.add_row(
            fit.operator,
            str(fit.port),
            f"{fit.state:,.0f}",
            f"{fit.alpha:g}",
            f"{fit.beta:g}",
            f"{fit.gamma:g}",
            "" if fit.r2 is None else f"{fit.r2:.3f}",
            {"tuples": "windows of tuples", "time": "windows of time", "other": "no window"}[fit.how],
        )
    return table
