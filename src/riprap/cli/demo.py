"""Make input for a built-in application, run it on Spark, and show the best of what it finds."""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from rich.progress import MofNCompleteColumn, TextColumn
from rich.table import Table

import riprap as rr
from riprap.apps.catalogue import CATALOGUE
from riprap.cli.applications import UsageError, positive
from riprap.cli.demonstrations import DEMONSTRATIONS, Demonstration
from riprap.cli.screen import Screen, new_table, shown
from riprap.operators.sink import Sink

SUMMARY = "make input for a built-in application, run it, show the best of what it finds"
EXAMPLES = """\
examples:
  riprap demo                                  bargains among two million trades and quotes
  riprap demo --app logwatch                   attacks in the log of a server
  riprap demo --app wordcount --events 50      the words of 50 mails
  riprap demo --app wafer                      a model that learns to predict the yield of wafers
  riprap demo --app vwap                       average prices of stocks, weighted by volume
  riprap demo --app lois                       waves in the noise of radio antennas
  riprap demo --events 200000 --out /tmp/demo
"""

FEED_FORMAT = "riprap-demo-feed/2"
_NOTE = "_feed.json"
# Small enough that the rate on the screen moves, large enough that it is one to be shown.
_BATCH_ROWS = 200_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    amounts = "; ".join(f"{name}: {d.amount} {d.unit}" for name, d in DEMONSTRATIONS.items())
    parser.add_argument("--app", choices=tuple(DEMONSTRATIONS), default="bargain", help="which one (bargain)")
    parser.add_argument("--events", type=positive, metavar="N", help=f"how much input to make ({amounts})")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="another feed for each number (0)")
    parser.add_argument(
        "--out", type=Path, default=Path("demo"), metavar="DIR", help="the folder for it all (demo)"
    )


def execute(arguments: argparse.Namespace, screen: Screen) -> int:
    """Run the demonstration."""
    from riprap.cli.explain import elements_of, print_graph
    from riprap.cli.followed_run import follow
    from riprap.cli.summary import print_summary
    from riprap.compiler import compile_graph
    from riprap.drawing import draw_svg

    home: Path = arguments.out
    if home.exists() and not home.is_dir():
        raise UsageError(f"--out {home} is a file. Name a folder, or one that does not exist yet")
    app: str = arguments.app
    demonstration, built_in = DEMONSTRATIONS[app], CATALOGUE[app]
    amount = arguments.events or demonstration.amount
    feed, drawing, out = home / "feed", home / "graph.svg", home / built_in.default_out
    if not screen.json:
        screen.say(f"{demonstration.title}: {built_in.summary}", style="bold")
        screen.say()
        print_graph(built_in.make(None, rr.memory(), settings=demonstration.settings).graph(), screen)
        screen.say()
    prepare_feed(feed, app, amount, arguments.seed, screen)
    graph = built_in.make(feed, rr.parquet(out, overwrite=True), settings=demonstration.settings).graph()
    elements = elements_of(compile_graph(graph, buckets=1, tasks=1))
    drawing.write_text(draw_svg(graph, title=demonstration.title, elements=elements))
    notes = {"feed_events": amount, "feed_seed": arguments.seed}
    summary = follow(graph, screen, rr.RunOptions(runs=home / "runs", batch_rows=_BATCH_ROWS, notes=notes))
    best = demonstration.pick(_results(out, graph.of_kind(Sink)[0].schema))
    if screen.json:
        screen.print_json(
            {**summary.to_json(), "feed": str(feed.absolute()), demonstration.result: _as_json(best)}
        )
        return 130 if summary.interrupted else 0
    print_summary(summary, screen)
    screen.heading(demonstration.heading.format(count=best.num_rows))
    screen.out.print(_table(best, demonstration))
    places = {
        "feed": feed,
        out.name: out,
        "drawing": drawing,
        "metrics": summary.run_folder / "metrics.jsonl",
    }
    _print_places(screen, app, demonstration, places)
    return 130 if summary.interrupted else 0


def prepare_feed(folder: Path, app: str, amount: int, seed: int, screen: Screen) -> None:
    """Make the feed, unless it is there. It appears whole, with a note of what it is, or not at all."""
    unit = DEMONSTRATIONS[app].unit
    wanted = {"format": FEED_FORMAT, "app": app, unit: amount, "seed": seed}
    note = folder / _NOTE
    if note.exists() and json.loads(note.read_text()) == wanted:
        screen.note(f"Feed: {amount:,} {unit}, as they were made before")
        return
    if folder.exists() and not note.exists():
        raise UsageError(f"{folder} holds something that 'riprap demo' did not make. Choose another --out")
    making = folder.with_name(".feed-in-the-making")
    shutil.rmtree(making, ignore_errors=True)
    _generate(making, DEMONSTRATIONS[app], amount, seed, screen)
    (making / _NOTE).write_text(json.dumps(wanted))
    shutil.rmtree(folder, ignore_errors=True)
    making.rename(folder)


def _generate(folder: Path, demonstration: Demonstration, amount: int, seed: int, screen: Screen) -> None:
    bars = screen.bars(
        TextColumn("[bold]{task.description}"),
        screen.bar(),
        MofNCompleteColumn(),
        TextColumn(demonstration.unit),
    )
    with bars:
        task = bars.add_task("Making the feed", total=amount)
        demonstration.make_feed(
            folder, amount, seed=seed, progress=lambda done: bars.update(task, completed=done)
        )
    screen.note(f"Feed: {amount:,} {demonstration.unit}, seed {seed}")


def _results(folder: Path, schema: pa.Schema) -> pa.Table:
    parts = [pq.read_table(part, schema=schema) for part in sorted(folder.glob("part-*.parquet"))]
    return pa.concat_tables([schema.empty_table(), *parts])


def _as_json(rows: pa.Table) -> list[dict[str, Any]]:
    return [
        {name: value.isoformat() if isinstance(value, datetime) else value for name, value in row.items()}
        for row in rows.to_pylist()
    ]


def _table(rows: pa.Table, demonstration: Demonstration) -> Table:
    table = new_table()
    for name in demonstration.formats:
        table.add_column(name, justify="left" if rows.schema.field(name).type == pa.string() else "right")
    for row in rows.to_pylist():
        table.add_row(*(format(row[name], how) for name, how in demonstration.formats.items()))
    return table


def _print_places(screen: Screen, app: str, demonstration: Demonstration, places: Mapping[str, Path]) -> None:
    screen.heading("Where things are")
    for name, path in places.items():
        screen.say(f"  {name:<9} {shown(path)}")
    feed = shown(places["feed"])
    screen.heading("What to try next")
    screen.say(f"  riprap explain {app} --feed {feed}")
    screen.say(f"  riprap run {app} --feed {feed} --out found.csv{demonstration.run_options}")
    for line in ("riprap inject bargain --quick", "riprap bench") if app == "bargain" else ("riprap demo",):
        screen.say(f"  {line}")
