"""Inject faults into an application, operator by operator, and measure what they do to the quality of its output."""

from __future__ import annotations

import argparse
import runpy
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.progress import TextColumn, TimeRemainingColumn
from rich.text import Text

import riprap as rr
from riprap.apps.catalogue import CATALOGUE
from riprap.cli.applications import UsageError, explained, load_from
from riprap.cli.screen import Screen, new_table, shown
from riprap.graph.faults import Crash, Replicas

if TYPE_CHECKING:
    from riprap.faults import Campaign, Criticality, Findings
    from riprap.faults.placement import FaultTarget

SUMMARY = "inject faults operator by operator, and measure what they do to the output"
EXAMPLES = """\
examples:
  riprap inject bargain --quick                               the paper's campaign on little data: a minute
  riprap inject bargain --campaign paper                      all of it: 1,500 trials, 300 golden runs, 5 million events
  riprap inject bargain --campaign real --feed trades.csv.gz  the same on real trades and quotes
  riprap inject app.py:app --campaign campaign.yaml           an application and a campaign of your own
  riprap inject app.py:app --campaign app.py:campaign --dry-run   where faults would be injected, and why
  riprap report latest                                        the newest campaign as a page

A campaign that was stopped goes on where it was when the same command is given again.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    names = ", ".join(name for name in CATALOGUE)
    parser.add_argument("app", metavar="APP", help=f"file.py:name, or a built-in application ({names})")
    parser.add_argument(
        "--campaign",
        metavar="WHAT",
        help="a YAML file, file.py:name, or of a built-in application one of its own: " + BUILT_IN,
    )
    parser.add_argument("--feed", metavar="PATH", help="what a built-in application reads (default: made up)")
    parser.add_argument(
        "--quick", action="store_true", help="a built-in campaign on less data, with fewer runs"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="list targets, what they stand for, and why; inject nothing"
    )
    parser.add_argument(
        "--folder", type=Path, metavar="DIR", help="where to keep what is found (under campaigns/)"
    )
    parser.add_argument("--trial", metavar="ID", help="repeat one trial alone, by its name")
    parser.add_argument(
        "--replay-all",
        action="store_true",
        help="replay every tuple of every trial: slow, and the same result",
    )
    parser.add_argument(
        "--no-compare", action="store_true", help="do not measure a run through the streaming runtime"
    )
    parser.add_argument("--master", metavar="URL", help="Spark's master (default: this machine)")


# What there is in riprap.apps.campaigns, which takes a second to import.
BUILT_IN = "bargain: paper, real, replicas, paper-replicas; logwatch: alerts; wafer: model"
# Of the feeds that are made: another, if they are made in another way.
FEED = "1"


def execute(arguments: argparse.Namespace, screen: Screen) -> int:
    """Run the campaign, or say what it would do."""
    from riprap.faults.campaign_run import inject, repeat

    app, campaign, name = asked(arguments, screen)
    if arguments.dry_run:
        return _dry_run(app.graph(), campaign, screen)
    if arguments.trial is not None:
        with screen.waiting("Running the trial"):
            scored = repeat(app, campaign, arguments.trial, shortcut=not arguments.replay_all)
        screen.print_json(scored.to_json()) if screen.json else _print_trial(scored, screen)
        return 1 if scored.error else 0
    columns = (
        TextColumn("[dim]{task.description}"),
        TextColumn("[dim]{task.percentage:3.0f}%"),
        screen.bar(),
        TimeRemainingColumn(),
    )
    with screen.bars(*columns) as bars:
        task = bars.add_task("starting", total=1.0)

        def show(doing: str, share: float) -> None:
            bars.update(task, description=doing, completed=share)

        if not screen.live:
            screen.note(f"{app.name}: campaign '{name}' ...")
        findings = inject(
            app,
            campaign,
            folder=arguments.folder,
            name=name,
            master=arguments.master,
            shortcut=not arguments.replay_all,
            compare=not arguments.no_compare,
            show=show,
        )
    if findings.earlier:
        screen.note(
            f"This was found before, and is in {shown(findings.folder)}. To find it anew, remove that folder."
        )
    if screen.json:
        screen.print_json(as_json(findings))
        return 0
    print_findings(findings, campaign, screen)
    say_groups(app.graph(), campaign, screen)
    return 0


def asked(arguments: argparse.Namespace, screen: Screen) -> tuple[rr.Application, Campaign, str]:
    """Return the application and the campaign that the command line names, and what to call the campaign."""
    from riprap.apps.campaigns import CAMPAIGNS
    from riprap.faults import Campaign, read_campaign

    own = CAMPAIGNS.get(arguments.app, {})
    if arguments.app in CATALOGUE and (arguments.campaign is None or arguments.campaign in own):
        if not own:
            raise UsageError(f"'{arguments.app}' has no campaign of its own: name a file with --campaign")
        name = arguments.campaign or next(iter(own))
        return *_built_in(arguments, name, screen), name + ("-quick" if arguments.quick else "")
    if arguments.quick:
        raise UsageError("--quick is for built-in campaigns: write a shorter one")
    if arguments.campaign is None:
        raise UsageError(
            "--campaign: name a YAML file, or file.py:name. docs/fault-injection.md shows how to write one"
        )
    if arguments.app in CATALOGUE:
        if arguments.feed is None:
            raise UsageError(f"'{arguments.app}' needs --feed PATH with a campaign of yours")
        app = CATALOGUE[arguments.app].make(arguments.feed, rr.memory())
    else:
        if arguments.feed is not None:
            raise UsageError(f"--feed: {arguments.app} has its own sources. Change them there")
        app = load_from(arguments.app)
    what = arguments.campaign
    if what.endswith((".yaml", ".yml")):
        with explained(what):
            return app, read_campaign(Path(what)), Path(what).stem
    if ":" not in what:
        choices = f"; '{arguments.app}' has {', '.join(own)}" if own else ""
        raise UsageError(f"--campaign {what}: name a YAML file, or file.py:name{choices}")
    campaign = _python_campaign(what)
    if not isinstance(campaign, Campaign):
        raise UsageError(f"--campaign {what} is {type(campaign).__name__}, not a riprap.faults.Campaign")
    return app, campaign, what.rpartition(":")[2]


def _python_campaign(what: str) -> Any:
    file, _, name = what.rpartition(":")
    if not Path(file).is_file():
        raise UsageError(f"--campaign {what}: there is no file {file}")
    with explained(file):
        names = runpy.run_path(file)
    if name not in names:
        raise UsageError(f"--campaign {what}: {file} has no '{name}'")
    return names[name]


def _built_in(arguments: argparse.Namespace, name: str, screen: Screen) -> tuple[rr.Application, Campaign]:
    from riprap.apps.campaigns import CAMPAIGNS

    built_in = CAMPAIGNS[arguments.app][name]
    if arguments.quick:
        built_in = built_in.quick(built_in)
    feed = arguments.feed
    if arguments.dry_run:
        # Where faults go does not depend on the feed.
        return CATALOGUE[arguments.app].make(None, rr.memory()), built_in.campaign
    if feed is None:
        if built_in.make is None:
            raise UsageError(f"campaign '{name}' of '{arguments.app}' needs --feed PATH: {built_in.summary}")
        folder = Path("campaigns") / "feeds" / f"{arguments.app}-{built_in.amount}-{FEED}"
        if not (folder / "_done").exists():
            with screen.waiting(f"Making a feed of {built_in.amount:,} {built_in.unit} in {shown(folder)}"):
                for half in folder.glob("*"):
                    half.unlink()
                built_in.make(folder, built_in.amount)
                (folder / "_done").touch()
        feed = str(folder)
    return built_in.build(feed), built_in.campaign


def _dry_run(graph: rr.Graph, campaign: Campaign, screen: Screen) -> int:
    from riprap.faults.placement import place

    campaign, chosen = place(graph, campaign)
    trials = sum(1 for _ in campaign.tasks())
    if screen.json:
        screen.print_json(
            {
                "application": graph.name,
                "sink": campaign.sink,
                "score": campaign.score.name,
                "targets": [_target(t) for t in next(iter(chosen.values()))],
                "models": {model: [_target(t) for t in targets] for model, targets in chosen.items()},
                "trials": trials,
                "golden": campaign.golden,
            }
        )
        return 0
    screen.say(
        f"{graph.name}: faults that sink '{campaign.sink}' would show, by {campaign.score.name}", style="bold"
    )
    screen.say()
    for model, targets in chosen.items():
        if len(chosen) > 1:
            screen.say(f"model '{model}':")
        table = new_table("target", "because", "stands for")
        for target in targets:
            table.add_row(target.name, Text(target.why), ", ".join(target.stands_for) or "itself alone")
        screen.out.print(table)
        screen.say()
    say_groups(graph, campaign, screen)
    models = ", ".join(campaign.models)
    screen.say(
        f"{trials:,} trials ({models}) and {campaign.golden:,} golden runs. Leave out --dry-run to run them."
    )
    return 0


def say_groups(graph: rr.Graph, campaign: Campaign, screen: Screen) -> None:
    """Say in a line what faults do to operators of replica groups, if there are any."""
    if not graph.groups:
        return
    own = [
        n for n, model in campaign.models.items() if isinstance(model, Crash) and model.protection == "own"
    ]
    costs = [f"in {g.name} ({', '.join(g.operators)}) a crash {g.describe_crash()}" for g in graph.groups]
    crashes = f"{'; '.join(costs)} (model {', '.join(own)}). " if own else ""
    screen.say(f"Replica groups: {crashes}Faults of other models are as if there were none.")


def _target(target: FaultTarget) -> dict[str, Any]:
    return {"name": target.name, "why": target.why, "stands_for": list(target.stands_for)}


def as_json(findings: Findings) -> dict[str, Any]:
    """Return the object that ``--json`` prints; its keys are stable."""
    by_model: dict[str, dict[str, Any]] = {}
    for each in findings.criticalities:
        by_model.setdefault(each.model, {})[each.name] = {"name": each.name, **each.to_json()}
    first = next(iter(by_model), "")
    result = findings.result
    return {
        "application": result["application"],
        "folder": str(findings.folder),
        "operators": by_model.get(first, {}),
        "models": by_model,
        "warnings": list(findings.warnings),
        **{
            name: result[name]
            for name in ("trials", "golden", "rows", "sections", "replayed", "took", "streaming")
        },
    }


def print_findings(findings: Findings, campaign: Campaign, screen: Screen) -> None:
    """Print the metrics, what they mean, and what to do next."""
    models = list(dict.fromkeys(c.model for c in findings.criticalities))
    for model in models:
        of_model = [c for c in findings.criticalities if c.model == model]
        screen.heading(f"Faults of model '{model}', the most critical operator first")
        screen.out.print(_table(of_model))
        for each in of_model:
            screen.say(f"{each.name}: {each.words}")
        screen.say()
        screen.say("R (and I) at each offset:")
        screen.out.print(by_offset(of_model, campaign))
    for warning in findings.warnings:
        screen.say()
        screen.say(f"Note: {warning}", style="yellow")
    result = findings.result
    screen.say()
    runs = result["trials"] + result["golden"]
    work = f"{result['trials']:,} trials and {result['golden']:,} golden runs over {result['rows']:,} tuples"
    screen.say(f"{work}: {result['took']:,.0f} s.")
    if result["streaming"] is not None:
        one, hours = result["streaming"]["seconds"], result["streaming"]["all"] / 3600
        screen.say(
            f"Through the streaming runtime a run takes {one:.1f} s, so all {runs:,} about {hours:.1f} h."
        )
    screen.say(f"As a page: riprap report {shown(findings.folder)}")


def _table(criticalities: list[Criticality]) -> Any:
    table = new_table("operator")
    for heading in ("C", "D", "ANOVA", "R", "I"):
        table.add_column(heading, justify="right")
    table.add_column("what to do")
    for each in criticalities:
        table.add_row(
            each.name,
            f"{each.C:.2f}",
            f"{each.D:.2f}",
            each.anova.outcome,
            "?" if each.R is None else str(each.R),
            f"{each.I:.2f}",
            each.verdict,
        )
    return table


def by_offset(criticalities: list[Criticality], campaign: Campaign) -> Any:
    """Show R and I at each offset: of the longest outage, and of those that are as long as a replica takes over."""
    crashes = (model.protection for model in campaign.models.values() if isinstance(model, Crash))
    failovers = {p.failover for p in crashes if isinstance(p, Replicas)}
    outages = campaign.outages
    shown = {str(o) for o in outages if o == outages[-1] or (o.tuples is None and o.seconds in failovers)}
    table = new_table("operator", "outage")
    for offset in campaign.offsets:
        table.add_column(f"at {offset:,}", justify="right")
    for each in criticalities:
        for at in (a for a in each.by_outage if a.outage in shown):
            cells = ("?" if r is None else f"{r} ({i:.2f})" for r, i in zip(at.R, at.I, strict=True))
            table.add_row(each.name, at.outage, *cells)
    return table


def _print_trial(scored: Any, screen: Screen) -> None:
    if scored.error:
        screen.error(f"trial {scored.id} is unknown: {scored.error}")
        return
    screen.say(f"trial {scored.id}", style="bold")
    screen.say(f"tuples hit: {scored.lost:,}; replayed: {scored.replayed:,}, in {scored.seconds:.2f} s")
    screen.say(f"score of the affected tuples: {scored.affected:g}")
    screen.say(
        f"sections with another score: {len(scored.sections):,}, the fault in {scored.begins} to {scored.ends}"
    )
