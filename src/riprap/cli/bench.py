"""Run a benchmark. Each checks its answers as well as the time it takes. Without NAME, list them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.progress import TextColumn, TimeRemainingColumn

from riprap.cli.applications import UsageError, make_importable, positive, positive_number
from riprap.cli.screen import Screen, new_table, shown
from riprap.state.durable_files import save_json

if TYPE_CHECKING:
    from riprap_bench import Benchmark

SUMMARY = "run a benchmark, or list them"
_SOME = (
    *("only", "repetitions", "corner_repetitions", "seconds", "long_seconds", "before"),
    *("points", "rate", "seed", "real", "feed", "at_once"),
)
EXAMPLES = """\
examples:
  riprap bench                                 what there is
  riprap bench NAME --quick                    a short version of one
  riprap bench NAME --json --out result.json   for a script, and kept
  riprap bench checkpoint --only single --repetitions 5 --out result.json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="the benchmark to run")
    parser.add_argument("--quick", action="store_true", help="measure less, for an idea of the figures")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the result to a file too, as JSON")
    some = parser.add_argument_group("options of some benchmarks")
    some.add_argument("--only", action="append", metavar="PART", help="measure this part; may be repeated")
    some.add_argument("--repetitions", type=int, metavar="N", help="how often to measure everything")
    some.add_argument("--corner-repetitions", type=int, metavar="N", help="how often to measure the extremes")
    some.add_argument("--seconds", type=float, metavar="S", help="how long a run is measured")
    some.add_argument("--long-seconds", type=float, metavar="S", help="the same, at long intervals")
    some.add_argument("--before", type=Path, metavar="PATH", help="an older source tree to compare with")
    some.add_argument("--points", type=positive, metavar="N", help="how many crashes to draw")
    some.add_argument(
        "--rate", type=positive_number, metavar="N", help="replay the feed as N tuples a second"
    )
    some.add_argument(
        "--seed", type=int, metavar="S", help="another feed, and other crashes, for each number"
    )
    some.add_argument("--real", type=int, metavar="N", help="at how many points to kill processes")
    some.add_argument("--feed", type=Path, metavar="PATH", help="a feed other than the one that is made")
    some.add_argument("--at-once", type=positive, metavar="N", help="how many runs share the machine")


def execute(arguments: argparse.Namespace, screen: Screen) -> int:
    """Run the benchmark, or list all."""
    make_importable(_benchmarks())
    from riprap_bench import BENCHMARKS

    if arguments.name is None:
        _list(BENCHMARKS, screen)
        return 0
    if arguments.name not in BENCHMARKS:
        names = ", ".join(BENCHMARKS)
        raise UsageError(f"there is no benchmark '{arguments.name}'; there are: {names}")
    if arguments.out is not None and not arguments.out.absolute().parent.is_dir():
        raise UsageError(f"--out {arguments.out}: its folder does not exist")
    benchmark = BENCHMARKS[arguments.name]
    options = _options(benchmark, arguments)
    if benchmark.long:
        result = _run_long(benchmark, arguments, options, screen)
    else:
        result = benchmark.run(arguments.quick, screen.note, **options)
    if arguments.out is not None:
        _write(arguments.out, result)
    if benchmark.figures is not None and arguments.out is not None:
        try:
            for path in benchmark.figures(result, arguments.out):
                screen.note(f"Figure: {shown(path)}")
        except ImportError as error:
            screen.note(str(error))
    if screen.json:
        screen.print_json(result)
        return 0
    screen.say(benchmark.table(result))
    if arguments.out is not None:
        screen.say(f"Result: {shown(arguments.out)}")
    return 0


def _benchmarks() -> Path:
    """Return the folder of the benchmarks, which are in the project's repository and not in what is installed."""
    folder = Path(__file__).resolve().parents[3] / "benchmarks"
    if not (folder / "riprap_bench").is_dir():
        raise UsageError(
            "the benchmarks are not in the installed package. Clone the project's repository and run them from "
            "there: make bench ARGS=NAME"
        )
    return folder


def _options(benchmark: Benchmark, arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the options given that not all benchmarks have; one that this benchmark does not have is an error."""
    given = {name: value for name in _SOME if (value := getattr(arguments, name)) is not None}
    for name in given:
        if name not in benchmark.takes:
            raise UsageError(f"'{benchmark.name}' has no --{name.replace('_', '-')}")
    return given


def _run_long(
    benchmark: Benchmark, arguments: argparse.Namespace, options: Mapping[str, Any], screen: Screen
) -> dict[str, Any]:
    """Run a benchmark that takes long. One of hours writes results as they come, on top of those that are there."""
    out: Path | None = arguments.out
    earlier = None
    if benchmark.goes_on and out is not None and out.exists():
        try:
            earlier = json.loads(out.read_text())
        except ValueError as error:
            raise UsageError(f"--out {out} is there and is no result: {error}") from error

    def keep(result: dict[str, Any]) -> None:
        if out is not None:
            _write(out, result)

    columns = (TextColumn("[dim]{task.percentage:3.0f}%"), screen.bar(), TimeRemainingColumn())
    with screen.bars(*columns) as bars:
        task = bars.add_task(benchmark.name, total=1.0)

        def show(share: float) -> None:
            bars.update(task, completed=share)

        more = {"earlier": earlier, "keep": keep} if benchmark.goes_on else {}
        return benchmark.run(arguments.quick, screen.note, show=show, **more, **options)


def _write(out: Path, result: Mapping[str, Any]) -> None:
    # Whoever stops us keeps what was there.
    save_json(out, result, indent=2)


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
