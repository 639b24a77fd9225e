"""``riprap profile`` and ``riprap fit`` as a user gives them: one run on Spark, and what is made of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cli.conftest import Command, Outcome, in_process

from riprap.model import read_profile

APP = """
import riprap as rr

app = rr.Application("small")
rows = app.source(
    "Rows", rr.rows([{"n": n, "k": n % 7, "v": n % 5} for n in range(800)], "n long, k long, v long"), position="n"
)
parts = app.split("Parts", rows, outputs={"Low": "v < 1", "High": "v >= 2"})
renamed = app.functor("Renamed", parts["High"], select="k, v as w")
both = app.join(
    "Both", parts["Low"], renamed, by="k", windows=(rr.sliding(tuples=2), rr.sliding(tuples=0)), select="n, k, w"
)
marked = app.punctor("Marked", both, where="w = 2")
counts = app.aggregate("Counts", marked, by="k", window=rr.tumbling(punctuation=True), select="count(*) as c")
app.sink("Out", counts, rr.memory())

other = rr.Application("other")
other.sink("Out", other.source("Rows", rr.rows([], "n long")), rr.memory())
"""


class Measured:
    """The folder in which the application was measured, what the command said, and the metrics of its run."""

    def __init__(self, folder: Path, done: Outcome) -> None:
        self.folder, self.done = folder, done

    @property
    def told(self) -> dict[str, Any]:
        assert self.done.code == 0, self.done.err
        told: dict[str, Any] = json.loads(self.done.out)
        return told

    def metrics(self) -> list[dict[str, Any]]:
        text = (Path(self.told["run_folder"]) / "metrics.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    folder = tmp_path_factory.mktemp("measured")
    (folder / "app.py").write_text(APP)
    command = ["-m", "riprap", "profile", "app.py:app", "--batch-rows", "200", "--rate", "400", "--json"]
    return Measured(folder, in_process(command, folder))


@pytest.fixture
def here(measured: Measured, tmp_path: Path, riprap: Command) -> Path:
    """Give a folder with the application and its measured run, to be changed at will."""
    assert measured.done.code == 0, measured.done.err
    shutil.copytree(measured.folder, tmp_path, dirs_exist_ok=True, symlinks=True)
    return tmp_path


def test_a_run_tells_ports_streams_and_punctuations_where_there_are_several(measured: Measured) -> None:
    lines = measured.metrics()

    def each(operator: str) -> list[dict[str, Any]]:
        return [line["operators"][operator] for line in lines if operator in line["operators"]]

    assert sum(line["rows"] for line in lines) == 800
    assert each("Parts")[0]["streams"] == {"Low": 40, "High": 120}
    assert each("Both")[0]["ports"] == [40, 120]
    made = sum(did["punctuations"]["out"] for did in each("Marked"))
    assert made > 100
    # In another processing element.
    assert sum(did["punctuations"]["in"] for did in each("Counts") if "punctuations" in did) == made
    assert list(each("Renamed")[0]) == ["in", "out", "seconds"], "others have short lines"


def test_the_profile_is_written_and_can_be_read(measured: Measured) -> None:
    told = measured.told
    profile = read_profile(measured.folder / "small.profile.yaml")

    assert told["profile"] == yaml.safe_load((measured.folder / told["file"]).read_text())
    assert profile.rates == {"Rows": 400.0}
    assert profile.operators["Parts"].ports[0].selectivity == {"Low": 0.2, "High": 0.6}
    low, high = profile.operators["Both"].ports
    assert (low.selectivity, low.state, high.state) == (0.0, 14, 0)
    assert high.selectivity == pytest.approx(1.95, abs=0.1)
    assert 0.3 < profile.operators["Marked"].punctuated < 0.4
    assert profile.operators["Counts"].on_punctuation > 0
    assert all(port.time > 0 for name in ("Rows", "Parts", "Both") for port in profile.operators[name].ports)


def test_an_existing_run_is_measured_without_running_anything(here: Path, riprap: Command) -> None:
    done = riprap("profile", "app.py:app", "--run", "latest", "--out", "again.yaml", "--rate", "400")

    assert done.code == 0, done.err
    assert "Both" in done.out
    assert "Assumed: " in done.out
    assert (here / "again.yaml").read_text() == (here / "small.profile.yaml").read_text()


def test_a_fit_starts_from_the_profile_that_is_there(here: Path, riprap: Command) -> None:
    before = read_profile(here / "small.profile.yaml")

    done = riprap("fit", "app.py:app", "--rates", "50", "--recovery", "0.2,0.5,1", "--points", "40", "--json")

    assert done.code == 0, done.err
    both, counts = json.loads(done.out)["fits"]
    assert (both["operator"], both["port"], both["how"], both["state"]) == ("Both", 0, "tuples", 14.0)
    assert [(p["rate"], p["recovery"], p["lost"]) for p in both["points"]] == [
        (50, 0.2, 2),
        (50, 0.5, 5),
        (50, 1, 10),
    ]
    assert [p["observed"] for p in both["points"]] == [4.0, 10.0, 14.0]
    assert both["r2"] > 0.95
    assert counts["how"] == "other"
    after = read_profile(here / "small.profile.yaml")
    assert after.operators["Both"].ports[0].beta == both["beta"]
    assert after.operators["Parts"] == before.operators["Parts"]
    assert not any("riprap fit" in each for each in after.assumed)
    assert any(each.startswith("Counts: its state does not renew itself") for each in after.assumed)


def test_a_fit_at_the_rate_of_the_profile(here: Path, riprap: Command) -> None:
    done = riprap("fit", "app.py:app", "--rates", "profile", "--recovery", "0.1", "--points", "5", "--json")

    assert done.code == 0, done.err
    assert [p["rate"] for p in json.loads(done.out)["fits"][0]["points"]] == [400.0]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["profile", "nothing"], "there is no application 'nothing'"),
        (["fit", "nothing"], "there is no application 'nothing'"),
        (["profile", "app.py:app", "--feed", "x"], "has its own sources"),
        (
            ["profile", "app.py:app", "--run", "nothing"],
            "no run 'nothing' under runs. There are runs of: small",
        ),
        (["profile", "app.py:other", "--run", "latest"], "is a run of 'small', not of 'other'"),
        (["profile", "app.py:app", "--run", "bare"], "the run has no metrics"),
        (["profile", "app.py:app", "--run", "latest", "--out", "no/where.yaml"], "cannot be written"),
        (
            ["fit", "app.py:app", "--profile", "none.yaml"],
            "there is no such file. `riprap profile` writes one",
        ),
        (["fit", "app.py:app", "--profile", "damaged.yaml"], "the profile damaged.yaml cannot be read"),
        (["fit", "app.py:app", "--profile", "later.yaml"], "later.yaml: its format is 'riprap profile 9'"),
        (["fit", "app.py:app", "--profile", "wrong.yaml"], "wrong.yaml: operator 'Both': time is 'long'"),
        (["fit", "app.py:app", "--rates", "fast"], "--rates fast: give numbers above 0"),
        (["fit", "app.py:app", "--recovery", "1,0"], "--recovery 1,0: give numbers above 0"),
        (["fit", "app.py:app"], "takes 1,870 of its tuples, and the feed has 160. Give a longer feed"),
    ],
)
def test_what_cannot_be_done_is_said(here: Path, riprap: Command, command: list[str], said: str) -> None:
    (here / "damaged.yaml").write_text("{rates: [")
    (here / "later.yaml").write_text("{format: riprap profile 9, rates: {}, operators: {}}")
    (here / "wrong.yaml").write_text("{rates: {Rows: 1}, operators: {Both: {time: long}}}")
    shutil.copytree(here / "runs" / "small" / "latest", here / "bare")
    (here / "bare" / "metrics.jsonl").unlink()

    done = riprap(*command)

    assert done.code == 2
    assert said in " ".join(done.err.split())


def test_rates_of_a_profile_that_is_not_there(here: Path, riprap: Command) -> None:
    (here / "small.profile.yaml").unlink()

    done = riprap("fit", "app.py:app", "--rates", "profile")

    assert (done.code, done.out) == (2, "")
    assert "there is no profile. Name one with --profile" in done.err


def test_a_model_of_the_profile_puts_out_what_the_run_did(
    measured: Measured, here: Path, riprap: Command
) -> None:
    arguments = (
        "--profile",
        "small.profile.yaml",
        "--fault-rate",
        "0",
        "--horizon",
        "2",
        "--replications",
        "400",
    )
    ran = riprap("model", "app.py:app", *arguments, "--technique", "none", "--json")
    results = sum(line["operators"].get("Out", {"in": 0})["in"] for line in measured.metrics())
    assert results > 20
    assert json.loads(ran.out)["output_tuples"]["mean"] == pytest.approx(results, rel=0.1)
    one = riprap(
        "model", "app.py:app", *arguments, "--technique", "none", "--html", "page.html", "--measured", "small"
    )
    assert one.code == 0, one.err
    assert "as measured" in (here / "page.html").read_text(encoding="utf-8")
    refused = riprap("model", "app.py:app", *arguments, "--measured", "small")
    assert refused.code == 2
    assert "say where with --html FILE" in refused.err


def test_a_fit_is_drawn(here: Path, riprap: Command) -> None:
    ran = riprap(
        "fit", "app.py:app", "--rates", "100", "--recovery", "1,2", "--points", "20", "--html", "fit.html"
    )
    assert ran.code == 0, ran.err
    page = (here / "fit.html").read_text(encoding="utf-8")
    assert "How small recovers" in page
    assert "Both" in page
