"""What benchmarks/README.md and the pages say of results is what the result files have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

TOP = Path(__file__).parents[2]
README = " ".join((TOP / "benchmarks" / "README.md").read_text().split())


def result(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((TOP / "benchmarks" / "results" / f"{name}.json").read_text())
    return found


def test_bytes_of_checkpoints_go_from_the_least_to_the_greatest() -> None:
    parts = result("checkpoint")["parts"]
    bytes_ = [
        line["bytes"] for name in ("single", "per-key", "zipf", "size") for line in parts[name]["lines"]
    ]
    there = [value for value in bytes_ if value is not None]

    assert f"{min(there):.2f} to {max(there):.2f} wherever there was a second checkpoint" in README


def test_rates_are_said_to_fall_where_they_do() -> None:
    rates: dict[int, list[float]] = {}
    for line in result("checkpoint")["parts"]["single"]["unprotected"]:
        rates.setdefault(line["window"], []).append(line["tuples_per_s"])
    small, next_, *_, largest = (" and ".join(f"{rate:,.0f}" for rate in rates[w]) for w in sorted(rates))

    assert (
        min(rates[16_384]) > max(rates[8_192]) > max(rates[32_768]) > max(rates[65_536]) > max(rates[131_072])
    )
    assert (
        f"rise from 8,192 to 16,384 (medians {small}, then {next_}) and fall from there to {largest}"
        in README
    )


def test_worst_errors_are_compared_within_one_run() -> None:
    found = result("wafer")
    point = found["distribution"]["worst_point"]
    worst = {
        t["scenario"]: t["worst"] for t in found["trials"] if (t["point"], t["way"]) == (point, "session")
    }

    assert f"worst of run {point + 1}" in README
    assert f"{worst['checkpoint']:.2f} and {worst['none']:.1f}" in README
