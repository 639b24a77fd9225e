"""Make a feed of trades and quotes, find the bargains in it on Spark, and show the best of them."""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from rich.progress import MofNCompleteColumn, TextColumn
from rich.table import Table

import riprap as rr
from riprap.apps.catalogue import CATALOGUE
from riprap.cli.applications import UsageError, positive
from riprap.cli.screen import Screen, new_table, shown

SUMMARY = "make a feed, find the bargains in it, show the best"
EXAMPLES = """\
examples:
  riprap demo
  riprap demo --events 200000 --out /tmp/demo
"""

FEED_FORMAT = "riprap-demo-feed/1"
_NOTE = "_feed.json"
# Small enough that the rate on the screen moves, large enough that it is one to be shown.
_BATCH_ROWS = 200_000
_FILE_ROWS = 250_000
_BEST = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "--events", type=positive, default=2_000_000, metavar="N", help="events in the feed (2000000)"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="another feed for each number (0)")
    parser.add_argument(
        "--out", type=Path, default=Path("demo"), metavar="DIR", help="the folder for it all (demo)"
    )


def execute(arguments: argparse.Namespace, screen: Screen) -> int:
    """Run the demonstration."""
    from riprap.cli.explain import print_graph
    from riprap.cli.following import follow
    from riprap.cli.summary import print_summary
    from riprap.drawing import draw_svg

    home: Path = arguments.out
    if home.exists() and not home.is_dir():
        raise UsageError(f"--out {home} is a file. Name a folder, or one that does not exist yet")
    feed, drawing, bargains = home / "feed", home / "graph.svg", home / "bargains"
    built_in = CATALOGUE["bargain"]
    if not screen.json:
        screen.say("Bargain Discovery: " + built_in.summary, style="bold")
        screen.say()
        print_graph(built_in.make(None, rr.memory()).graph(), screen)
        screen.say()
    _prepare_feed(feed, arguments.events, arguments.seed, screen)
    graph = built_in.make(feed, rr.parquet(bargains, overwrite=True)).graph()
    drawing.write_text(draw_svg(graph, title="Bargain Discovery"))
    notes = {"feed_events": arguments.events, "feed_seed": arguments.seed}
    summary = follow(graph, screen, master=None, runs=home / "runs", batch_rows=_BATCH_ROWS, notes=notes)
    best = _best(bargains, graph["Sink"].schema)
    if screen.json:
        screen.print_json({**summary.to_json(), "feed": str(feed.absolute()), "best": best.to_pylist()})
        return 130 if summary.interrupted else 0
    print_summary(summary, screen)
    screen.heading(f"The {best.num_rows} best bargains, one a ticker")
    screen.out.print(_table(best))
    _print_places(screen, feed, bargains, drawing, summary.run_folder)
    return 130 if summary.interrupted else 0


def _prepare_feed(folder: Path, events: int, seed: int, screen: Screen) -> None:
    """Make the feed, unless it is there. It appears whole, with a note of what it is, or not at all."""
    wanted = {"format": FEED_FORMAT, "events": events, "seed": seed}
    note = folder / _NOTE
    if note.exists() and json.loads(note.read_text()) == wanted:
        screen.note(f"Feed: {events:,} events, as they were made before")
        return
    if folder.exists() and not note.exists():
        raise UsageError(f"{folder} holds something that 'riprap demo' did not make. Choose another --out")
    making = folder.with_name(".feed-in-the-making")
    shutil.rmtree(making, ignore_errors=True)
    _generate(making, events, seed, screen)
    (making / _NOTE).write_text(json.dumps(wanted))
    shutil.rmtree(folder, ignore_errors=True)
    making.rename(folder)


def _generate(folder: Path, events: int, seed: int, screen: Screen) -> None:
    from riprap.apps.market import write_feed

    bars = screen.bars(
        TextColumn("[bold]{task.description}"), screen.bar(), MofNCompleteColumn(), TextColumn("events")
    )
    with bars:
        task = bars.add_task("Making the feed", total=events)
        write_feed(
            folder,
            events,
            seed=seed,
            rows_per_file=_FILE_ROWS,
            progress=lambda done: bars.update(task, completed=done),
        )
    screen.note(f"Feed: {events:,} events, seed {seed}")


def _best(folder: Path, schema: pa.Schema) -> pa.Table:
    parts = [pq.read_table(part, schema=schema) for part in sorted(folder.glob("part-*.parquet"))]
    found = pa.concat_tables([schema.empty_table(), *parts])
    ordered = found.sort_by([("gain", "descending"), ("seq", "ascending")])
    # A quote that stands is quoted again and again: one a ticker makes a better table.
    first = ordered.append_column("row", pa.array(range(len(ordered)), pa.int64()))
    rows = first.group_by("ticker").aggregate([("row", "min")])["row_min"].sort()
    return ordered.take(rows.slice(0, _BEST))


def _table(best: pa.Table) -> Table:
    table = new_table()
    formats = {"seq": ",d", "ticker": "", "vwap": ",.4f", "price": ",.2f", "size": ",d", "gain": ",.2f"}
    for name in formats:
        table.add_column(name, justify="left" if name == "ticker" else "right")
    for row in best.to_pylist():
        table.add_row(*(format(row[name], how) for name, how in formats.items()))
    return table


def _print_places(screen: Screen, feed: Path, bargains: Path, drawing: Path, run_folder: Path) -> None:
    places: dict[str, Any] = {
        "feed": feed,
        "bargains": bargains,
        "drawing": drawing,
        "metrics": run_folder / "metrics.jsonl",
    }
    screen.heading("Where things are")
    for name, path in places.items():
        screen.say(f"  {name:<9} {shown(path)}")
    screen.heading("What to try next")
    screen.say(f"  riprap explain bargain --feed {shown(feed)}")
    screen.say(f"  riprap run bargain --feed {shown(feed)} --out found.csv --rate 50000")
    screen.say("  riprap bench")
