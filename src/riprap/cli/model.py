"""Predict how available an application is and how much of its output is tainted, for faults nobody can wait for."""

from __future__ import annotations

import argparse
import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rich.progress import TextColumn, TimeRemainingColumn

import riprap as rr
from riprap.apps.catalogue import CATALOGUE
from riprap.cli.applications import UsageError, load_from, positive, positive_number
from riprap.cli.model_compare import compare_with_campaign
from riprap.cli.model_table import as_json, print_points, say_groups
from riprap.cli.quantities import list_of, read_rate, read_time
from riprap.cli.run_folders import add_folder, find_run
from riprap.cli.screen import Screen, shown

if TYPE_CHECKING:
    from riprap.apps.models import BuiltInModel
    from riprap.model import Profile, Technique
    from riprap.model.prediction import Spread
    from riprap.model.sweep import Point, Sweep

SUMMARY = "predict availability and tainted output, under each protection"
EXAMPLES = """\
examples:
  riprap model bargain --paper --crash Aggregator --recovery 16 --rate 2200 --horizon 360
                                              one crash: a line of the dissertation's table 5.4
  riprap model bargain --paper --technique checkpoint,groups --rate 250,350,450,550 --fault-rate 90m --horizon 2h
                                              its figure 5.12
  riprap model app.py:app --profile app.profile.yaml --fault-rate 24h --horizon 720h
                                              an application of your own, with the protection it asks for
  riprap model app.py:app --profile app.profile.yaml --technique none,checkpoint,replication --json
  riprap model app.py:app --profile app.profile.yaml --exact
                                              solved and not simulated, if it is small enough for that

A list with commas is a sweep; several sweeps are combined. Times are 90m, 2h, 3.5s or seconds. A fault rate is faults
of each operator a second, or a time: one in so long. The profile comes from `riprap profile`, or is written by hand.
"""
TECHNIQUES = ("annotated", "none", "checkpoint", "groups", "exact-groups", "replication", "consistent")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    names = ", ".join(CATALOGUE)
    parser.add_argument("app", metavar="APP", help=f"file.py:name, or a built-in application ({names})")
    what = parser.add_argument_group("the model")
    what.add_argument("--profile", type=Path, metavar="FILE", help="what each operator does (riprap profile)")
    what.add_argument("--paper", action="store_true", help="the published profile of a built-in application")
    what.add_argument(
        "--technique",
        type=list_of(_technique),
        metavar="NAMES",
        help=f"of {', '.join(TECHNIQUES)} (default: annotated, what the application asks for; with --paper "
        "checkpoint, the first that was published)",
    )
    what.add_argument(
        "--group",
        action="append",
        default=[],
        type=lambda text: tuple(text.split(",")),
        metavar="A,B",
        help="operators of a high-availability group; once for each group",
    )
    what.add_argument("--failover", type=read_time, metavar="TIME", help="of a group (1s; own: detect=)")
    what.add_argument("--every", type=read_time, metavar="TIME", help="between checkpoints (1s)")
    what.add_argument(
        "--age",
        type=read_time,
        metavar="TIME",
        help="of the checkpoint restored (any up to --every; with --paper alone 1s)",
    )
    _add_faults(parser.add_argument_group("faults"))
    _add_simulation(parser.add_argument_group("the simulation"))
    _add_result(parser.add_argument_group("the result"))


def _add_faults(faults: argparse._ArgumentGroup) -> None:
    faults.add_argument(
        "--fault-rate", type=list_of(read_rate), metavar="RATES", help="crashes of each operator (24h)"
    )
    faults.add_argument(
        "--sdc-rate", type=list_of(read_rate), metavar="RATES", help="silent data corruptions (none)"
    )
    faults.add_argument(
        "--recovery", type=list_of(read_time), metavar="TIMES", help="until it is back (3.5s)"
    )
    faults.add_argument("--crash", metavar="OPERATOR", help="crash this one, once, and nothing else")
    faults.add_argument("--at", type=read_time, metavar="TIME", help="when (a quarter into the horizon)")
    faults.add_argument(
        "--together",
        action="append",
        default=[],
        type=lambda text: tuple(text.split(",")),
        metavar="A,B",
        help="operators that fail together, as those of a host; or pe: those of each processing element",
    )


def _add_simulation(how: argparse._ArgumentGroup) -> None:
    how.add_argument(
        "--exact",
        action="store_true",
        help="solve the model instead, if it is small: exponential times, no replications and no intervals",
    )
    how.add_argument(
        "--rate", type=list_of(positive_number), metavar="RATES", help="tuples a second of all sources"
    )
    how.add_argument("--horizon", type=list_of(read_time), metavar="TIMES", help="to simulate (2h)")
    how.add_argument("--replications", type=positive, default=1000, metavar="N", help="(1000)")
    how.add_argument("--seed", type=int, default=1, help="(1)")
    how.add_argument(
        "--master", metavar="URL", help="have Spark run the replications there (default: threads here)"
    )


def _add_result(out: argparse._ArgumentGroup) -> None:
    out.add_argument("--html", type=Path, metavar="FILE", help="write a page with figures")
    out.add_argument(
        "--measured",
        metavar="RUN",
        help="draw the output of a run beside the predicted one: its folder, its application, or 'latest'",
    )
    add_folder(out, "--runs", "where run folders are")
    out.add_argument(
        "--compare",
        metavar="RUN",
        help="put predictions beside a campaign's measurements: its folder, its application, or 'latest'",
    )
    add_folder(out, "--campaigns", "where campaigns are")


def execute(arguments: argparse.Namespace, screen: Screen) -> int:
    """Predict, and print what came out."""
    graph, profile, published = _asked(arguments)
    for assumed in profile.assumed:
        screen.note(f"assumed: {assumed}")
    if arguments.exact:
        _refuse_what_is_simulated(arguments)
    if arguments.compare is not None:
        return compare_with_campaign(arguments, graph, profile, screen)
    measured = _measured(arguments, graph, profile)
    points = _predict(arguments, graph, profile, published, screen)
    if arguments.html is not None:
        from riprap.model.report import write_page

        write_page(arguments.html, graph, profile, points, measured=measured, seed=arguments.seed)
        screen.note(f"As a page: {shown(arguments.html)}")
    if screen.json:
        screen.print_json(as_json(graph.name, points))
        return 0
    print_points(points, screen)
    say_groups(graph, points, arguments.failover, screen)
    return 0


def _refuse_what_is_simulated(arguments: argparse.Namespace) -> None:
    """Raise the error that names options which only a simulation has an answer to."""
    given = [
        f"--{name}" for name in ("compare", "measured", "master") if getattr(arguments, name) is not None
    ]
    if given:
        raise UsageError(f"--exact simulates nothing: leave out {', '.join(given)}, or --exact")


def _measured(
    arguments: argparse.Namespace, graph: rr.Graph, profile: Profile
) -> list[tuple[float, float]] | None:
    """Return the output of the run that is to be drawn, if one is."""
    if arguments.measured is None:
        return None
    if arguments.html is None:
        raise UsageError("--measured draws a run's output on a page: say where with --html FILE")
    from riprap.model.measured import output_over_time
    from riprap.runtime.folder import RunFolder

    path = find_run(arguments.measured, arguments.runs)
    rate = sum(profile.rates.values()) if arguments.rate is None else arguments.rate[0]
    return output_over_time(graph, list(RunFolder(path, time.time).read_metrics()), rate)


def _predict(
    arguments: argparse.Namespace,
    graph: rr.Graph,
    profile: Profile,
    published: BuiltInModel | None,
    screen: Screen,
) -> list[Point]:
    from riprap.model.sweep import predict_all

    sweep = _sweep(arguments, graph, profile, published)
    columns = (
        TextColumn("[dim]{task.description}"),
        TextColumn("[dim]{task.percentage:3.0f}%"),
        screen.bar(),
        TimeRemainingColumn(),
    )
    with _spread(arguments.master) as spread, screen.bars(*columns) as bars:
        task = bars.add_task("starting", total=1.0)
        return predict_all(
            graph,
            profile,
            sweep,
            replications=arguments.replications,
            seed=arguments.seed,
            spread=spread,
            exact=arguments.exact,
            # A page draws the output of one combination over time.
            ticks=120 if arguments.html is not None and len(sweep.settings()) == 1 else 0,
            show=lambda setting, share: bars.update(
                task, description=f"{setting.technique} at {setting.rate:g}/s", completed=share
            ),
        )


@contextlib.contextmanager
def _spread(master: str | None) -> Iterator[Spread | None]:
    """Give what runs replications on Spark, if that is asked for."""
    if master is None:
        yield None
        return
    from riprap.model.spark_replications import on_spark
    from riprap.runtime.session import make_session

    session = make_session(master, log=Path(os.devnull))
    try:
        yield on_spark(session)
    finally:
        session.stop()


def _asked(arguments: argparse.Namespace) -> tuple[rr.Graph, Profile, BuiltInModel | None]:
    from riprap.apps.models import PAPER
    from riprap.model import read_profile

    if arguments.app in CATALOGUE:
        graph = CATALOGUE[arguments.app].make(None, rr.memory()).graph()
    else:
        graph = load_from(arguments.app).graph()
    published = None
    if arguments.paper:
        published = PAPER.get(arguments.app)
        if published is None:
            raise UsageError(f"--paper: there is a published profile of {', '.join(PAPER)} only")
        if arguments.profile is not None:
            raise UsageError("--paper and --profile: name one of them")
        return graph, published.profile, published
    if arguments.profile is None:
        paper = ", or --paper for the published one" if arguments.app in PAPER else ""
        raise UsageError(f"a model needs a profile: measure one with 'riprap profile {arguments.app}' and name it "
                         f"with --profile FILE{paper}")  # fmt: skip
    return graph, read_profile(arguments.profile), None


def _sweep(
    arguments: argparse.Namespace, graph: rr.Graph, profile: Profile, published: BuiltInModel | None
) -> Sweep:
    from riprap.model import Faults
    from riprap.model.sweep import Sweep

    if arguments.crash is not None and (arguments.fault_rate or arguments.sdc_rate):
        raise UsageError("--crash is for one crash and nothing else: leave out --fault-rate and --sdc-rate")
    if arguments.crash is None and arguments.at is not None:
        raise UsageError("--at says when --crash OPERATOR is to happen: name the operator")
    crashes = (0.0,) if arguments.crash or arguments.sdc_rate else (read_rate("24h"),)
    together = tuple(names for names in arguments.together if names != ("pe",))
    if ("pe",) in arguments.together:
        together += _elements(graph)
    return Sweep(
        techniques=_techniques(arguments, graph, published),
        rates=arguments.rate or (sum(profile.rates.values()),),
        crash_rates=arguments.fault_rate or crashes,
        corruption_rates=arguments.sdc_rate or (0.0,),
        recoveries=arguments.recovery or (read_time("3.5s"),),
        horizons=arguments.horizon or (read_time("2h"),),
        faults=Faults(crash=arguments.crash, at=arguments.at, together=together),
    )


def _elements(graph: rr.Graph) -> tuple[tuple[str, ...], ...]:
    """Return the operators of each processing element."""
    from riprap.compiler import compile_graph
    from riprap.faults.placement import unprotected
    from riprap.operators.channel import Inlet, Outlet

    plans = compile_graph(unprotected(graph), buckets=1, tasks=1).plans
    return tuple(
        tuple(o.name for o in p.graph if not isinstance(o, Inlet | Outlet) and o.tick is None) for p in plans
    )


def _techniques(
    arguments: argparse.Namespace, graph: rr.Graph, published: BuiltInModel | None
) -> Mapping[str, Technique]:
    from riprap.model import Annotated, Checkpoints, ConsistentRegion, Groups, Replication, Unprotected

    every = 1.0 if arguments.every is None else arguments.every
    failover = 1.0 if arguments.failover is None else arguments.failover
    age = arguments.age
    if age is None and arguments.every is None and published is not None:
        age = published.age
    chosen = tuple(arguments.group) or (published.groups if published is not None else ())

    def groups(*, exact: bool = False) -> Technique:
        if not chosen:
            asked = "exact-groups" if exact else "groups"
            raise UsageError(
                f"--technique {asked}: say which operators with --group A,B, once for each group"
            )
        grouped = {name for group in chosen for name in group}
        others = tuple(o.name for o in graph if o.stateful and o.name not in grouped)
        also = Checkpoints(others, every=every, age=age) if others else Unprotected()
        return Groups(chosen, failover, also, exact)

    makers: Mapping[str, Callable[[], Technique]] = {
        "annotated": lambda: Annotated(graph, arguments.failover),
        "none": Unprotected,
        "checkpoint": lambda: Checkpoints(every=every, age=age),
        "groups": groups,
        "exact-groups": lambda: groups(exact=True),
        "replication": Replication,
        "consistent": lambda: ConsistentRegion(period=every),
    }
    given = (arguments.every, arguments.age, arguments.failover)
    as_published = published is not None and not arguments.group and given == (None, None, None)
    own = dict(published.configurations) if published is not None and as_published else {}
    names = arguments.technique or (
        ("annotated",) if published is None else (next(iter(published.configurations)),)
    )
    if arguments.group and not {"groups", "exact-groups"} & set(names):
        raise UsageError("--group is for --technique groups: name that technique, or leave it out")
    return {name: own[name] if name in own else makers[name]() for name in names}


def _technique(text: str) -> str:
    if text not in TECHNIQUES:
        raise argparse.ArgumentTypeError(
            f"there is no technique '{text}'; there are: {', '.join(TECHNIQUES)}"
        )
    return text
