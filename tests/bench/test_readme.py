"""What benchmarks/README.md and the pages say of results is what the result files have."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from riprap_bench.model import table

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


def metrics_row(name: str, told: Mapping[str, Any]) -> str:
    letter = {"accept": "A", "reject": "R"}.get(told["anova"], told["anova"])
    return f"| {name} | {told['C']:.2f} | {told['D']:.2f}, {letter} | {told['R']} | {told['I']:.1f} |"


def test_the_tables_of_campaigns_are_what_was_found() -> None:
    page = (TOP / "docs" / "fault-injection.md").read_text()
    models = (TOP / "docs" / "models.md").read_text()
    campaigns = result("faults")["campaigns"]
    for name, told in campaigns["paper-quick"]["models"]["loss"].items():
        assert metrics_row(name, told) in page
    for name, told in campaigns["real"]["models"]["loss"].items():
        assert metrics_row(name, told) in page
        (row,) = (
            line for line in models.splitlines() if line.startswith(f"| {name} |") and "0." in line[:40]
        )
        cells = [cell.strip() for cell in row.split("|")]
        assert (cells[3], cells[5]) == (str(told["R"]), f"{told['I']:.1f}")
    replicas = campaigns["replicas"]["models"]
    for model, names, outage in (
        ("loss", ("TradeFilter", "Aggregator"), "16s"), ("loss", ("TradeFilter", "Aggregator"), "2s"),
        ("loss", ("VWAP",), "16s"), ("loss", ("VWAP",), "2s"),
        ("failover", ("TradeFilter", "Aggregator", "VWAP"), "16s"),
        ("loss", ("Source", "TradeQuote"), "16s"), ("loss", ("Source", "TradeQuote"), "2s"),
    ):  # fmt: skip
        for name in names:
            (at,) = (each for each in replicas[model][name]["by_outage"] if each["outage"] == outage)
            both = [*zip(at["R_at"], at["I_at"], strict=True), (at["R"], at["I"])]
            assert " | ".join(f"{r} ({i:.2f})" for r, i in both) in page, (name, outage)


def test_predictions_are_those_of_the_result() -> None:
    points, _, growth, *_ = table(result("model")).split("\n\n")

    assert " ".join(points.split()) in README
    assert " ".join(growth.split()) in README
