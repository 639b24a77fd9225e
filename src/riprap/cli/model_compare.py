"""Put predictions beside what a campaign measured: what `riprap model --compare` does."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from rich.progress import TextColumn, TimeRemainingColumn

import riprap as rr
from riprap.cli.applications import UsageError
from riprap.cli.model_table import with_interval
from riprap.cli.run_folders import find_run
from riprap.cli.screen import Screen, new_table, shown

if TYPE_CHECKING:
    from riprap.model import Profile

# What a campaign settles itself.
_SETTLED = ("technique", "rate", "recovery", "horizon", "fault_rate", "sdc_rate", "crash", "at", "together", "group",
            "every", "age", "failover", "master", "measured")  # fmt: skip


def _refuse_what_it_settles(arguments: argparse.Namespace) -> None:
    given = [f"--{name.replace('_', '-')}" for name in _SETTLED if getattr(arguments, name) not in (None, [])]
    if given:
        raise UsageError(
            f"--compare takes faults, rates and times from the campaign: leave out {', '.join(given)}"
        )


def compare_with_campaign(
    arguments: argparse.Namespace, graph: rr.Graph, profile: Profile, screen: Screen
) -> int:
    """Predict what the campaign measured, and print both."""
    _refuse_what_it_settles(arguments)
    from riprap.faults.folder import CampaignFolder
    from riprap.model.compare import compare

    path = find_run(
        arguments.compare, arguments.campaigns, kind="a campaign", sign="campaign.json", option="--campaigns"
    )
    with screen.bars(TextColumn("[dim]{task.description}"), screen.bar(), TimeRemainingColumn()) as bars:
        task = bars.add_task("starting", total=1.0)
        result = compare(
            graph,
            profile,
            CampaignFolder(path),
            replications=arguments.replications,
            seed=arguments.seed,
            show=lambda name, share: bars.update(task, description=f"a crash of {name}", completed=share),
        )
    if arguments.html is not None:
        from riprap.model.report import write_comparison

        write_comparison(arguments.html, result, seed=arguments.seed)
        screen.note(f"As a page: {shown(arguments.html)}")
    if screen.json:
        screen.print_json(result.to_json())
        return 0
    screen.say(
        f"One crash of {result.outage:g} s at {result.rate:g} tuples/s, over {result.horizon:,.0f} s; campaign {path}"
    )
    screen.say()
    table = new_table("operator")
    for heading in ("availability", "R, measured", "tainted tuples", "I, measured"):
        table.add_column(heading, justify="right")
    for each in result.operators:
        table.add_row(
            each.operator,
            with_interval(each.prediction.availability, 5),
            "?" if each.R is None else str(each.R),
            with_interval(each.prediction.tainted_tuples, 0),
            f"{each.I:.2f}",
        )
    screen.out.print(table)
    for what, pairs in result.ranked_otherwise().items():
        words = ", ".join(f"{one} and {other}" for one, other in pairs)
        measured = "R" if what == "availability" else "I"
        ranks = f"ranks {words} otherwise than {measured} does" if pairs else f"ranks all as {measured} does"
        screen.say(f"{what.replace('_', ' ').capitalize()}: {ranks}.")
    return 0
