"""``riprap inject`` and ``riprap report`` as a user gives them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from riprap.apps.campaigns import CAMPAIGNS
from riprap.cli import main
from riprap.cli.inject import BUILT_IN

APP = """
import riprap as rr
from riprap.faults import Campaign, Sum

app = rr.Application("small")
rows = app.source("Rows", rr.rows([{"n": n, "v": n % 5 + 1} for n in range(80)], "n bigint, v bigint"), position="n")
kept = app.functor("Kept", rows, where="v > 1", select="n, v")
sums = app.aggregate(
    "Sums", kept, window=rr.sliding(tuples=3), emit=rr.every(tuples=1), select="last(n) as n, sum(v) as total"
)
app.sink("Out", sums, rr.memory())

campaign = Campaign(sink="Out", score=Sum("total"), offsets=(20, 40), tuples=(2, 5), section=10, by="n", key=("n",))
"""
YAML = "{sink: Out, score: {sum: total}, offsets: [20, 40], outages: {tuples: [2, 5]}, section: 10, by: n, key: n}"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "c.yaml").write_text(YAML)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_dry_run_lists_targets_and_why(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inject", "app.py:app", "--campaign", "app.py:campaign", "--dry-run"]) == 0

    said = capsys.readouterr().out
    assert "a source" in said
    assert "Kept, Sums, Out" in said
    assert not (here / "campaigns").exists()


def test_replica_groups_are_said_in_a_line(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = """
from riprap.faults import Crash

app.replicate("hot", sums, failover="plain", detect="3s")
told = dict(sink="Out", score=Sum("total"), offsets=(20,), seconds=(2,), rates={"": 2}, section=10, by="n", key=("n",))
crashes = Campaign(**told, stretch="source", models={"crash": Crash()})
"""
    (here / "app.py").write_text(APP + more)

    for name in ("crashes", "campaign"):
        assert main(["inject", "app.py:app", "--campaign", f"app.py:{name}", "--dry-run"]) == 0
    first, second = (line for line in capsys.readouterr().out.replace("\n", " ").split("Replica groups:")[1:])

    assert "in hot (Sums) a crash loses what the group puts out in up to 3 s (model crash)" in first
    assert "as if there were none" in second
    assert "in hot" not in second


def test_a_dry_run_of_a_built_in_needs_no_feed(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inject", "bargain", "--dry-run", "--json"]) == 0

    told = json.loads(capsys.readouterr().out)
    assert [target["name"] for target in told["targets"]] == [
        "Source",
        "TradeFilter",
        "QuoteFilter",
        "VWAP",
        "BargainIndex",
    ]
    assert (told["trials"], told["golden"]) == (1500, 300)
    assert not (here / "campaigns").exists()


def test_one_trial_is_repeated(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["inject", "app.py:app", "--campaign", "c.yaml", "--trial", "loss/Rows/20/5t/0", "--json"]
    assert main(command) == 0
    fast = json.loads(capsys.readouterr().out)
    assert main([*command, "--replay-all"]) == 0
    slow = json.loads(capsys.readouterr().out)

    assert fast["lost"] == 5
    assert (fast["affected"], fast["sections"], fast["local"]) == (
        slow["affected"],
        slow["sections"],
        slow["local"],
    )


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["app.py:app"], "--campaign: name a YAML file"),
        (["app.py:app", "--campaign", "nothing"], "name a YAML file, or file.py:name"),
        (["app.py:app", "--campaign", "app.py:app"], "not a riprap.faults.Campaign"),
        (["app.py:app", "--campaign", "app.py:no"], "has no 'no'"),
        (["app.py:app", "--campaign", "c.yaml", "--quick"], "--quick is for built-in campaigns"),
        (["app.py:app", "--campaign", "c.yaml", "--feed", "x"], "has its own sources"),
        (
            ["app.py:app", "--campaign", "c.yaml", "--trial", "x"],
            "has no trial 'x'; one that it has is 'loss/",
        ),
        (["bargain", "--campaign", "real"], "needs --feed PATH"),
        (["bargain", "--campaign", "c.yaml"], "needs --feed PATH"),
        (["wordcount"], "has no campaign of its own"),
    ],
)
def test_what_cannot_be_done_is_said(
    here: Path, capsys: pytest.CaptureFixture[str], command: list[str], said: str
) -> None:
    assert main(["inject", *command]) == 2

    assert said in " ".join(capsys.readouterr().err.split())


def test_a_report_of_nothing_is_refused(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "latest"]) == 2

    assert "not the folder of a campaign" in capsys.readouterr().err


def test_the_help_names_the_campaigns_there_are() -> None:
    assert "; ".join(f"{app}: {', '.join(own)}" for app, own in CAMPAIGNS.items()) == BUILT_IN
