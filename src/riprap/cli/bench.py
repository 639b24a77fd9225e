"""Run a benchmark. Each checks its answers as well as the time it takes. Without NAME, list them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from riprap.cli.applications import UsageError
from riprap.cli.screen import Screen, new_table, shown

if TYPE_CHECKING:
    from riprap.bench import Benchmark

SUMMARY = "run a benchmark, or list them"
EXAMPLES = """\
examples:
  riprap bench                                 what there is
  riprap bench NAME --quick                    a short version of one
  riprap bench NAME --json --out result.json   for a script, and kept
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="the benchmark to run")
    parser.add_argument("--quick", action="store_true", help="measure less, for an idea of the figures")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the result to a file too, as JSON")


def execute(arguments: argparse.Namespace, screen: Screen) -> int:
    """Run the benchmark, or list all."""
    from riprap.bench import BENCHMARKS

    if arguments.name is None:
        _list(BENCHMARKS, screen)
        return 0
    if arguments.name not in BENCHMARKS:
        there = ", ".join(BENCHMARKS)
        raise UsageError(f"there is no benchmark '{arguments.name}'; there are: {there}")
    if arguments.out is not None and not arguments.out.absolute().parent.is_dir():
        raise UsageError(f"--out {arguments.out}: its folder does not exist")
    benchmark = BENCHMARKS[arguments.name]
    result = benchmark.run(arguments.quick, screen.note)
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(result, indent=2) + "\n")
    if screen.json:
        screen.print_json(result)
        return 0
    screen.say(benchmark.table(result))
    if arguments.out is not None:
        screen.say(f"Result: {shown(arguments.out)}")
    return 0


def _list(benchmarks: Mapping[str, Benchmark], screen: Screen) -> None:
    if screen.json:
        screen.print_json({"benchmarks": {name: each.summary for name, each in benchmarks.items()}})
        return
    table = new_table("benchmark", "what it measures")
    for name, benchmark in benchmarks.items():
        table.add_row(name, benchmark.summary)
    screen.out.print(table)
    screen.say()
    screen.say("Run one with: riprap bench NAME [--quick]")
