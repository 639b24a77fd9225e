"""Measure what each operator of an application does to tuples, and write it down for models of the application.

The application runs to the end of its input, a task a batch, and times leave out the first tenth of the batches.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from rich.table import Table

import riprap as rr
from riprap.apps.catalogue import CATALOGUE
from riprap.cli.applications import UsageError, positive, positive_number, refuse_occupied
from riprap.cli.made_feeds import add_measured, measured_application
from riprap.cli.run_folders import add_folder, find_run
from riprap.cli.screen import Screen, new_table, shown
from riprap.errors import RunError
from riprap.graph.graph import Graph
from riprap.graph.options import RunOptions

if TYPE_CHECKING:
    from riprap.model.profile import Profile

SUMMARY = "measure times, selectivities and state of an application's operators"
EXAMPLES = """\
examples:
  riprap profile bargain                                  on a feed that is made for it
  riprap profile bargain --feed market/ --rate 450        on yours, whose tuples come at 450 a second
  riprap profile app.py:app --out app.yaml                an application of your own
  riprap profile app.py:live --seconds 60                 one that has no end
  riprap profile bargain --run latest                     from what the newest run has measured
"""
_BATCH_ROWS = 25_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add_measured(parser)
    group = parser.add_argument_group("what to measure")
    group.add_argument(
        "--seconds", type=positive_number, metavar="N", help="stop it N seconds after its first batch"
    )
    group.add_argument("--run", metavar="RUN", help="a run's folder, an application or 'latest': run nothing")
    add_folder(group, "--runs", "where run folders are")
    group.add_argument(
        "--batch-rows",
        type=positive,
        default=_BATCH_ROWS,
        metavar="N",
        help=f"tuples a batch ({_BATCH_ROWS})",
    )
    group.add_argument("--master", metavar="URL", help="Spark's master (default: this machine)")
    group.add_argument("--out", type=Path, metavar="FILE", help="where to write it (<app>.profile.yaml)")


def execute(arguments: argparse.Namespace, screen: Screen) -> int:
    """Measure, write the profile, and show it."""
    from riprap.model.profiling import measure_profile
    from riprap.runtime.folder import RunFolder

    if arguments.run is not None:
        graph = measured_application(arguments, screen, out=rr.memory(), feed=False).graph()
        folder = find_run(arguments.run, arguments.runs)
        try:
            RunFolder.reopen(folder, graph.name, time.time)
        except RunError as error:
            raise UsageError(str(error)) from error
    else:
        graph, folder = _run(arguments, screen)
    metrics = list(RunFolder(folder, time.time).read_metrics())
    profile = measure_profile(graph, metrics, rate=arguments.rate, live=arguments.seconds is not None)
    file = arguments.out or profile_file(graph)
    write_profile(profile, file)
    if screen.json:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
        batches = sum(not line["repeated"] for line in metrics)
        screen.print_json(
            {
                "application": graph.name,
                "run_folder": str(folder),
                "batches": batches,
                "file": str(file),
                "profile": content,
            }
        )
        return 0
    screen.heading(f"{graph.name}: {', '.join(f'{n} {r:,g} tuples/s' for n, r in profile.rates.items())}")
    screen.out.print(profile_table(profile))
    for each in profile.assumed:
        screen.say(f"Assumed: {each}")
    screen.say()
    screen.say(f"Written to {shown(file)}. Next: riprap fit {arguments.app} --profile {shown(file)}")
    return 0


def _run(arguments: argparse.Namespace, screen: Screen) -> tuple[Graph, Path]:
    from riprap.cli.followed_run import follow

    with tempfile.TemporaryDirectory(prefix="riprap-profile-") as home:
        # What it finds is of no interest; to write it takes the time it takes.
        graph = measured_application(arguments, screen, out=rr.parquet(Path(home) / "out")).graph()
        if arguments.app not in CATALOGUE:
            refuse_occupied(graph)
        summary = follow(
            graph,
            screen,
            RunOptions(
                runs=arguments.runs,
                master=arguments.master,
                batch_rows=arguments.batch_rows,
                # Tasks that share cores would take each other's time.
                parallelism=1,
                trigger="1s" if arguments.seconds is not None else None,
            ),
            at_most=arguments.seconds,
            spare=False,
        )
        return graph, summary.run_folder


def profile_file(graph: Graph) -> Path:
    """Return where the profile of an application goes, if nobody says otherwise."""
    return Path(f"{graph.name}.profile.yaml")


def write_profile(profile: Profile, file: Path) -> None:
    """Write a profile, or say why it cannot be."""
    try:
        profile.write(file)
    except OSError as error:
        raise UsageError(f"--out {file} cannot be written: {error.strerror}") from error


def profile_table(profile: Profile) -> Table:
    """Return a profile as people like to read it."""
    table = new_table("operator")
    for heading in ("port", "us a tuple", "selectivity", "state", "alpha", "beta"):
        table.add_column(heading, justify="right")
    for name, operator in profile.operators.items():
        for number, port in enumerate(operator.ports):
            several = len(operator.ports) > 1
            fitted = (f"{port.alpha:g}", f"{port.beta:g}") if port.state else ("", "")
            table.add_row(
                name if number == 0 else "",
                str(number) if several else "",
                f"{port.time * 1e6:,.3f}",
                _shares(port.selectivity),
                f"{port.state:,.0f}" if port.state else "",
                *fitted,
            )
        if operator.tick is not None:
            table.add_row("", "", "", f"{operator.ticked:,.4g} every {operator.tick:g} s")
    return table


def _shares(selectivity: Any) -> str:
    if isinstance(selectivity, dict):
        return ", ".join(f"{stream} {share:g}" for stream, share in selectivity.items())
    return f"{selectivity:g}"
