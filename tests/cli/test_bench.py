"""``riprap bench`` lists benchmarks and passes results on, whatever they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Command

from riprap_bench import Benchmark, Report


def count(quick: bool, report: Report) -> dict[str, Any]:
    report("counting ...")
    print("a stray line")
    return {"counted": 3 if quick else 1000}


COUNTING = Benchmark(
    name="counting",
    summary="counts to a number",
    run=count,
    table=lambda result: f"counted to {result['counted']}",
)


@pytest.fixture(autouse=True)
def _one_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("riprap_bench.BENCHMARKS", {"counting": COUNTING})


def test_without_a_name_it_lists_them(riprap: Command) -> None:
    assert "counting    counts to a number" in riprap("bench").out
    assert json.loads(riprap("bench", "--json").out) == {"benchmarks": {"counting": "counts to a number"}}


def test_a_table_for_people(riprap: Command) -> None:
    done = riprap("bench", "counting")
    assert (done.code, "counted to 1000" in done.out, done.err) == (0, True, "counting ...\n")
    assert riprap("bench", "counting", "--quiet").err == ""


def test_json_for_scripts_and_nothing_else(riprap: Command, tmp_path: Path) -> None:
    done = riprap("bench", "counting", "--quick", "--json", "--out", "result.json")
    assert json.loads(done.out) == {"counted": 3}
    assert "a stray line" in done.err
    assert json.loads((tmp_path / "result.json").read_text()) == {"counted": 3}


def test_an_unknown_one(riprap: Command) -> None:
    done = riprap("bench", "sleeping")
    assert (done.code, "no benchmark 'sleeping'; there are: counting" in done.err) == (2, True)


def test_a_result_that_could_not_be_kept(riprap: Command) -> None:
    done = riprap("bench", "counting", "--out", "no/such/result.json")
    assert (done.code, "does not exist" in done.err) == (2, True)


def test_an_option_that_the_benchmark_does_not_have(riprap: Command) -> None:
    done = riprap("bench", "counting", "--corner-repetitions", "3")
    assert (done.code, "'counting' has no --corner-repetitions" in done.err) == (2, True)


def test_a_long_one_is_kept_as_it_goes_on_top_of_what_is_there(
    riprap: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def count_on(
        quick: bool, report: Report, *, earlier: Any, keep: Any, show: Any, only: Any
    ) -> dict[str, Any]:
        done = {**(earlier or {}), only[0]: 1}
        keep(done)
        show(0.5)
        if only[0] == "b":
            raise KeyboardInterrupt
        return done

    long = Benchmark(
        name="long", summary="counts on", run=count_on, table=str, takes=("only",), long=True, goes_on=True,
        figures=lambda result, beside: [beside.with_suffix(".svg")],
    )  # fmt: skip
    monkeypatch.setattr("riprap_bench.BENCHMARKS", {"long": long})
    assert "Figure: r.svg" in riprap("bench", "long", "--only", "a", "--out", "r.json").err
    assert riprap("bench", "long", "--only", "b", "--out", "r.json").code != 0
    assert json.loads((tmp_path / "r.json").read_text()) == {"a": 1, "b": 1}
    (tmp_path / "r.json").write_text("not a result")
    assert "is no result" in riprap("bench", "long", "--only", "a", "--out", "r.json").err


def test_without_the_repository_it_says_where_they_are(
    riprap: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    installed = tmp_path / "lib" / "site-packages" / "riprap" / "cli" / "bench.py"
    monkeypatch.setattr("riprap.cli.bench.__file__", str(installed))
    done = riprap("bench")
    assert (done.code, "Clone the project's repository" in done.err) == (2, True)
