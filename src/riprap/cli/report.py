"""Write the report of a fault-injection campaign: one HTML page that needs no network, and all trials as tables."""

from __future__ import annotations

import argparse

from riprap.cli.run_folders import add_folder, find_run
from riprap.cli.screen import Screen, shown

SUMMARY = "write the report of a fault-injection campaign"
EXAMPLES = """\
examples:
  riprap report latest                 the newest campaign
  riprap report bargain                the newest of an application
  riprap report campaigns/bargain/paper-0123456789 --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "run",
        metavar="RUN",
        help="a campaign's folder; or an application, or 'latest', for its newest campaign",
    )
    add_folder(parser, "--campaigns", "where their folders are")


def execute(arguments: argparse.Namespace, screen: Screen) -> int:
    """Write the report."""
    from riprap.faults.folder import CampaignFolder
    from riprap.faults.report import write_report

    path = find_run(
        arguments.run, arguments.campaigns, kind="a campaign", sign="campaign.json", option="--campaigns"
    )
    folder = CampaignFolder(path)
    files = write_report(folder)
    if screen.json:
        screen.print_json({name: str(file) for name, file in files.items()})
        return 0
    result = folder.result
    assert result is not None
    for each in result["operators"]:
        name = "+".join(each["targets"])
        screen.say(f"{name} ({each['model']}): {each['words']}")
    screen.say()
    for name, file in files.items():
        screen.say(f"{name}: {shown(file)}")
    return 0
