"""Run an application on Spark until its input is used up, or, with --trigger, until Ctrl-C."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from riprap.cli.applications import (
    UsageError,
    add_application,
    add_output,
    application_of,
    positive,
    refuse_occupied,
)
from riprap.cli.run_folders import add_folder
from riprap.cli.screen import Screen
from riprap.compiler import compile_graph
from riprap.durations import seconds
from riprap.graph.options import RunOptions

SUMMARY = "run an application"
_FAILED = 1
EXAMPLES = """\
examples:
  riprap run bargain --feed market/ --out bargains/            a folder of Parquet files
  riprap run bargain --feed 'day-*.parquet' --out found.csv    a pattern; CSV, as the name of --out ends
  riprap run bargain --feed TradesAndQuotes.csv.gz             real events
  riprap run logwatch --feed '/var/log/auth.log*'              break-in attempts, in rotated logs too
  riprap run bargain --feed market/ --rate 20000 --trigger 1s  as a live feed, until Ctrl-C
  riprap run app.py:app --json                                 an application of your own, for a script
  riprap run app.py:app --folder runs/app/latest               take up a run that was killed
  riprap run app.py:app --trigger 1s --standby spark://b:7077  go there if Spark does not last here
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add_application(parser)
    add_output(parser)
    _add_running(parser.add_argument_group("how to run"))
    _add_dying(parser.add_argument_group("when processes die"))


def _add_running(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--master", metavar="URL", help="Spark's master (default: this machine)")
    group.add_argument(
        "--trigger", metavar="TIME", help="look for input every TIME (1s, 500ms), until Ctrl-C"
    )
    group.add_argument(
        "--at-end",
        choices=("flush",),
        help="at the end of finite input put out what windows and queues still hold",
    )
    group.add_argument(
        "--batch-rows",
        type=batch_rows,
        default="auto",
        metavar="N",
        help="tuples a batch (auto: as many as are waiting, up to what takes a fraction of a second)",
    )
    group.add_argument(
        "--buckets", type=positive, metavar="N", help="key buckets, fixed for the life of the state"
    )
    group.add_argument("--parallelism", type=positive, metavar="N", help="tasks a batch (default: the cores)")
    group.add_argument(
        "--resident",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="whether tasks stay from batch to batch (default: where Spark has slots for them)",
    )
    add_folder(group, "--runs", "where run folders go")
    group.add_argument("--folder", type=Path, metavar="RUN", help="take up the run in this folder")
    group.add_argument(
        "--store", metavar="URL", help="where checkpoints go: a folder or an URL (default: the run's folder)"
    )
    group.add_argument(
        "--ignore-state",
        action="append",
        default=[],
        metavar="NAME",
        help="with --folder: let the state of operator NAME go, because it has changed; may be given several times",
    )
    group.add_argument(
        "--pages", type=Path, metavar="DIR", help="where state pages live (default: shared memory)"
    )
    group.add_argument(
        "--config",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting of Spark, such as spark.driver.memory=4g; may be given several times",
    )
    group.add_argument("--fresh", action="store_true", help="with --folder: let all state go")


def _add_dying(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--standby",
        action="append",
        default=[],
        metavar="URL",
        help="a Spark master to go to when restarts do not help; may be given several times",
    )
    group.add_argument(
        "--spare",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="keep a driver process with a warm Spark ready to step in (default: with --trigger)",
    )
    group.add_argument(
        "--restart-delay", metavar="TIME", help="leave what failed down for TIME before it is started again"
    )


def batch_rows(text: str) -> int | str:
    """Read a number of tuples, or auto."""
    return text if text == "auto" else positive(text)


def spark_settings(given: Sequence[str]) -> dict[str, str]:
    """Read settings of Spark, each as KEY=VALUE.

    >>> spark_settings(["spark.driver.memory=4g", "spark.executorEnv.A=b=c"])
    {'spark.driver.memory': '4g', 'spark.executorEnv.A': 'b=c'}
    """
    wrong = [each for each in given if not each.startswith("spark.") or "=" not in each]
    if wrong:
        raise UsageError(f"--config {wrong[0]}: write spark.NAME=VALUE, such as spark.driver.memory=4g")
    return {name: value for name, _, value in (each.partition("=") for each in given)}


def execute(arguments: argparse.Namespace, screen: Screen) -> int:
    """Run the application and report."""
    from riprap.cli.followed_run import follow
    from riprap.cli.summary import print_summary
    from riprap.runtime.site import left_behind
    from riprap.runtime.supervision.decisions import Patience

    if arguments.trigger is not None:
        seconds("--trigger", arguments.trigger)
    config = spark_settings(arguments.config)
    graph = application_of(arguments, needs_feed=True).graph()
    # What is wrong is better said before the seconds it takes to start Spark.
    compile_graph(graph, buckets=arguments.buckets or 1, tasks=arguments.parallelism or 1)
    if arguments.folder is None:
        try:
            refuse_occupied(graph)
        except UsageError as error:
            raise UsageError(f"{error}{left_behind(arguments.runs / graph.name)}") from error
    delay = seconds("--restart-delay", arguments.restart_delay) if arguments.restart_delay else 0.0
    options = {f.name: getattr(arguments, f.name) for f in fields(RunOptions) if hasattr(arguments, f.name)}
    summary = follow(
        graph,
        screen,
        RunOptions(**{**options, "config": config}),
        patience=Patience(delay=delay, standby=tuple(arguments.standby)),
        spare=arguments.spare,
    )
    if screen.json:
        screen.print_json(summary.to_json())
    else:
        print_summary(summary, screen)
    if summary.halted:
        return _FAILED
    return 130 if summary.interrupted else 0
