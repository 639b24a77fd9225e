"""`riprap model`: one combination, sweeps, a campaign beside it, and what is wrong with a command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Command

from riprap.apps.models import PAPER
from riprap.model import OperatorProfile, Profile

CRASH = ("--crash", "VWAP", "--recovery", "16", "--rate", "2200", "--horizon", "360", "--replications", "20")


def test_one_combination_is_one_object(riprap: Command) -> None:
    ran = riprap("model", "bargain", "--paper", *CRASH, "--json")
    made = json.loads(ran.out)
    assert ran.code == 0
    assert made["availability"]["mean"] == pytest.approx(0.93676, abs=0.0005)
    for name in ("availability", "tainted_tuples"):
        assert made[name]["low"] <= made[name]["mean"] <= made[name]["high"]
    assert made["crash"] == "VWAP"
    assert made["cost"] == {"copies": 0, "checkpoint_bytes_per_second": None}


def test_the_same_seed_gives_the_same_numbers(riprap: Command) -> None:
    def run(seed: str) -> Any:
        made = json.loads(riprap("model", "bargain", "--paper", *CRASH, "--seed", seed, "--json").out)
        return made["tainted_tuples"]

    assert run("3") == run("3") != run("4")


def test_lists_are_combined(riprap: Command) -> None:
    ran = riprap(
        *(
            "model",
            "bargain",
            "--paper",
            "--technique",
            "none,checkpoint,groups,replication,consistent,exact-groups",
        ),
        *("--fault-rate", "1h,2h", "--horizon", "1800", "--replications", "3", "--json"),
    )
    points = json.loads(ran.out)["points"]
    assert len(points) == 12
    assert {p["fault_rate"] for p in points} == {1 / 3600, 1 / 7200}
    copies = {p["technique"]: p["cost"]["copies"] for p in points}
    assert copies == {
        "none": 0,
        "checkpoint": 0,
        "groups": 5,
        "replication": 6,
        "consistent": 0,
        "exact-groups": 5,
    }


def test_a_table_names_what_varies_and_what_does_not(riprap: Command) -> None:
    ran = riprap(
        *("model", "bargain", "--paper", "--rate", "250,450", "--fault-rate", "90m", "--replications", "3"),
        *("--horizon", "600s"),
    )
    assert "technique checkpoint; crashes one in 90m; recovery 3.5s; horizon 600s" in ran.out
    assert "250/s" in ran.out
    assert "450/s" in ran.out
    ran = riprap("model", "bargain", "--paper", "--sdc-rate", "1.52e-4,110m", "--replications", "3")
    assert "horizon 2h" in ran.out
    assert "1.52e-4/s" in ran.out
    assert "one in 110m" in ran.out
    assert "3 replications each" in ran.out


def test_help_names_the_default_of_a_published_profile(riprap: Command) -> None:
    said = " ".join(riprap("model", "--help").out.split())
    assert f"with --paper {next(iter(PAPER['bargain'].configurations))}" in said


def test_operators_may_fail_together(riprap: Command) -> None:
    ran = riprap(
        *(
            "model",
            "bargain",
            "--paper",
            "--crash",
            "QuoteFilter",
            "--together",
            "QuoteFilter,VWAP",
            "--json",
        ),
        *("--horizon", "360", "--replications", "3", "--recovery", "16", "--rate", "2200"),
    )
    alone = riprap("model", "bargain", "--paper", *CRASH, "--json")
    assert json.loads(ran.out)["availability"]["mean"] == pytest.approx(
        json.loads(alone.out)["availability"]["mean"], abs=0.001
    )
    ran = riprap("model", "bargain", "--paper", "--together", "pe", "--replications", "3", "--json")
    assert ran.code == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["bargain"], "a model needs a profile: measure one with 'riprap profile bargain'"),
        (["logwatch", "--paper"], "there is a published profile of bargain only"),
        (["bargain", "--paper", "--crash", "Filter9"], "no operator 'Filter9' to crash; there are: Source"),
        (["bargain", "--paper", "--at", "3"], "--at says when --crash OPERATOR"),
        (["bargain", "--paper", "--crash", "VWAP", "--fault-rate", "1h"], "leave out --fault-rate"),
        (
            ["bargain", "--paper", "--technique", "magic"],
            "there is no technique 'magic'; there are: annotated",
        ),
        (["bargain", "--paper", "--rate", "500000"], "'Aggregator' would be busy 132% of the time"),
        (["bargain", "--profile", "gone.yaml"], "gone.yaml cannot be read"),
        (["bargain", "--paper", "--compare", "gone"], "gone is not the folder of a campaign"),
        (["bargain", "--paper", "--recovery", "soon"], "takes a time such as"),
        (["bargain", "--paper", "--failover", "-1"], "a time is at least 0"),
        (["bargain", "--paper", "--compare", "latest", "--rate", "9"], "leave out --rate"),
        (["bargain", "--paper", "--group", "VWAP"], "--group is for --technique groups"),
    ],
)
def test_what_is_wrong_is_said(riprap: Command, arguments: list[str], said: str) -> None:
    ran = riprap("model", *arguments)
    assert ran.code == 2
    assert said in " ".join(ran.err.split())


def test_groups_need_their_operators(riprap: Command, tmp_path: Path) -> None:
    PAPER["bargain"].profile.write(tmp_path / "profile.yaml")
    ran = riprap("model", "bargain", "--profile", "profile.yaml", "--technique", "groups")
    assert ran.code == 2
    assert "say which operators with --group A,B" in ran.err
    ran = riprap(
        *("model", "bargain", "--profile", "profile.yaml", "--technique", "groups", "--replications", "3"),
        *("--group", "TradeFilter,Aggregator,VWAP", "--group", "QuoteFilter", "--json"),
    )
    assert json.loads(ran.out)["cost"]["copies"] == 4


def campaign(folder: Path, measured: dict[str, tuple[int, float]]) -> Path:
    """Make the folder of a campaign that measured this."""
    folder.mkdir()
    about = {
        "format": "riprap-campaign/2",
        "application": "bargain",
        "campaign": {"rates": {"average": 2200.0}, "seconds": [1.0, 16.0], "tuples": []},
    }
    operators = [
        {"model": "loss", "targets": [name], "R": recovery, "I": impact}
        for name, (recovery, impact) in measured.items()
    ]
    (folder / "campaign.json").write_text(json.dumps(about))
    (folder / "result.json").write_text(
        json.dumps({"format": "riprap-campaign/2", "operators": operators, "rows": 792_000})
    )
    return folder


def test_predictions_beside_measurements(riprap: Command, tmp_path: Path) -> None:
    # What the dissertation measured. Its exception: more impact of VWAP, fewer tainted tuples.
    measured = {
        "Source": (340, 21.23),
        "TradeFilter": (340, 48.7),
        "VWAP": (73, 30.87),
        "QuoteFilter": (6, 6.0),
        "BargainIndex": (43, 7.89),
    }
    ran = riprap(
        *("model", "bargain", "--paper", "--compare", campaign(tmp_path / "found", measured)),
        *("--replications", "20", "--json", "--html", "page.html"),
    )
    made = json.loads(ran.out)
    assert made["operators"]["TradeFilter"]["availability"]["mean"] == pytest.approx(0.84533, abs=0.0005)
    assert made["operators"]["QuoteFilter"]["R"] == 6
    assert made["ranked_otherwise"] == {"availability": [], "tainted_tuples": [["Source", "VWAP"]]}
    assert "BargainIndex" in (tmp_path / "page.html").read_text(encoding="utf-8")
    told = riprap("model", "bargain", "--paper", "--compare", tmp_path / "found", "--replications", "20")
    assert "Availability: ranks all as R does." in told.out
    assert "Tainted tuples: ranks Source and VWAP otherwise than I does." in told.out


def test_a_small_model_is_solved(riprap: Command, tmp_path: Path) -> None:
    (tmp_path / "odd.py").write_text(
        "import riprap as rr\n"
        "app = rr.Application('odd')\n"
        "rows = app.source('Rows', rr.rows([{'v': 2}], 'v bigint'))\n"
        "app.sink('Out', app.functor('Odd', rows, where='v % 2 = 1'), rr.memory())\n"
    )
    operators = {name: OperatorProfile() for name in ("Rows", "Odd", "Out")}
    Profile(rates={"Rows": 50.0}, operators=operators).write(tmp_path / "odd.yaml")
    asked = (
        "model",
        "odd.py:app",
        "--profile",
        "odd.yaml",
        "--fault-rate",
        "500s",
        "--recovery",
        "20",
        "--exact",
    )
    ran = riprap(*asked, "--horizon", "10000h", "--html", "page.html")
    assert "0.88900" in ran.out  # (500 / 520) ** 3
    assert "±" not in ran.out
    assert "Exact, 8 states" in ran.out
    assert "Assumed: recoveries, failovers and the times between tuples are exponential" in ran.out
    page = (tmp_path / "page.html").read_text()
    assert "Solved exactly, as Markov chains of at most 8 states" in page
    assert "times between tuples are exponential" in page
    made = json.loads(riprap(*asked, "--rate", "10,20", "--json").out)["points"]
    assert [(p["exact"], p["states"], len(p["assumed"])) for p in made] == [(True, 8, 1)] * 2
    assert all(p["availability"]["low"] == p["availability"]["mean"] for p in made)
    ran = riprap(*asked, "--master", "local[1]")
    assert ran.code == 2
    assert "--exact simulates nothing: leave out --master, or --exact" in ran.err


def test_replica_groups_are_said_and_modelled(riprap: Command, tmp_path: Path) -> None:
    (tmp_path / "odd.py").write_text(
        "import riprap as rr\n"
        "def replicated(failover):\n"
        "    app = rr.Application('odd')\n"
        "    rows = app.source('Rows', rr.rows([{'v': 2}], 'v bigint'))\n"
        "    app.sink('Out', app.functor('Odd', rows, where='v % 2 = 1'), rr.memory())\n"
        "    app.replicate('hot', 'Odd', failover=failover, detect='3s')\n"
        "    return app\n"
        "exact, plain, ahead = map(replicated, ('exact', 'plain', 'ahead'))\n"
    )
    operators = {name: OperatorProfile() for name in ("Rows", "Odd", "Out")}
    Profile(rates={"Rows": 50.0}, operators=operators).write(tmp_path / "odd.yaml")

    def asked(failover: str, *more: str) -> Any:
        ran = riprap(
            *("model", f"odd.py:{failover}", "--profile", "odd.yaml", "--crash", "Odd", "--recovery", "20"),
            *("--horizon", "100", "--replications", "3", *more),
        )
        assert ran.code == 0, ran.err
        return ran.out

    def down_and_lost(failover: str, *more: str) -> tuple[float, float]:
        made = json.loads(asked(failover, "--json", *more))
        lost = made["fault_free_output_tuples"] - made["output_tuples"]["mean"]
        return 100 * (1 - made["availability"]["mean"]), lost

    assert "Replica groups: in hot (Odd) a crash costs up to 3 s and no tuple" in asked("exact")
    assert "a crash loses what the group puts out in 0.2 s" in asked("plain", "--failover", "0.2")
    assert "a crash costs nothing" in asked("ahead")
    assert "Replica groups" not in asked("plain", "--technique", "none")
    assert down_and_lost("exact") == pytest.approx((3, 0), abs=1)
    assert down_and_lost("plain") == pytest.approx((3, 150), abs=1)
    assert down_and_lost("plain", "--failover", "10") == pytest.approx((10, 500), abs=1)
    assert down_and_lost("ahead") == pytest.approx((0, 0), abs=1)
    assert down_and_lost("plain", "--technique", "exact-groups", "--group", "Odd") == pytest.approx(
        (1, 0), abs=1
    )
