"""`riprap model --html`: what is predicted, as a page."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tests.cli.conftest import Command


def told(page: Path) -> Any:
    found = re.search(r'id="told">(.*?)</script>', page.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def test_one_combination_is_drawn_over_time(riprap: Command, tmp_path: Path) -> None:
    ran = riprap(
        *("model", "bargain", "--paper", "--crash", "Aggregator", "--recovery", "16", "--rate", "2200"),
        *("--horizon", "360", "--replications", "2", "--seed", "7", "--html", "page.html"),
    )

    assert ran.code == 0
    assert "As a page: page.html" in ran.err
    (figure,) = told(tmp_path / "page.html")["figures"]
    clean, tainted = ([p["y"] for p in s["points"]] for s in figure["series"])
    assert len(clean) == len(tainted) == 120
    assert clean[-1] > 0
    assert tainted[0] == 0 < max(tainted)
    assert figure["marks"] == [{"x": 90.0, "name": "Aggregator crashes"}]
    assert "Seed 7." in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_a_sweep_is_drawn_against_what_varies(riprap: Command, tmp_path: Path) -> None:
    ran = riprap(
        *("model", "bargain", "--paper", "--technique", "checkpoint,groups", "--rate", "250,450"),
        *("--horizon", "600", "--fault-rate", "30m", "--replications", "2", "--html", "page.html", "--json"),
    )

    points = json.loads(ran.out)["points"]
    availability = told(tmp_path / "page.html")["figures"][0]
    assert [s["name"] for s in availability["series"]] == ["checkpoint", "groups"]
    drawn = {(s["name"], p["x"]): p["y"] for s in availability["series"] for p in s["points"]}
    assert drawn == {(p["technique"], p["rate"]): p["availability"]["mean"] for p in points}


def test_the_last_step_is_counted_whichever_way_the_horizon_is_rounded(
    riprap: Command, tmp_path: Path
) -> None:
    # 120 * (horizon / 120) is above the first and below the second.
    for horizon in ("10.003", "10.009"):
        asked = (
            "--fault-rate",
            "0",
            "--horizon",
            horizon,
            "--replications",
            "1",
            "--html",
            "page.html",
            "--json",
        )
        ran = riprap("model", "bargain", "--paper", *asked)

        clean = told(tmp_path / "page.html")["figures"][0]["series"][0]["points"]
        counted = sum(point["y"] for point in clean) * float(horizon) / 120
        assert round(counted) == json.loads(ran.out)["output_tuples"]["mean"]
        assert min(point["y"] for point in clean) >= 0
