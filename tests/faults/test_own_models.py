"""Models of faults that users write: that of docs/extending.md, word for word, and what is refused."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.faults.test_models import passed
from tests.pages import code_of

from riprap.cli import main
from riprap.errors import GraphError
from riprap.faults import FaultModel, read_campaign
from riprap.graph.faults import Exposed, Fault

APP = """
import riprap as rr

app = rr.Application("plant")
rows = [{"n": n, "sensor": n % 4, "reading": float(n * 7 % 11)} for n in range(100)]
readings = app.source("Readings", rr.rows(rows, "n bigint, sensor bigint, reading double"), position="n")
high = app.aggregate(
    "High", readings, by="sensor", window=rr.sliding(tuples=2), emit=rr.every(tuples=1),
    select="last(n) as n, max(reading) as high",
)
app.sink("Out", high, rr.memory())
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put down the files of the page, where Python finds them for as long as the test takes."""
    for file, mark in (("sensors.py", "class Spikes"), ("campaign.yaml", "offsets:")):
        (tmp_path / file).write_text(code_of("extending.md", mark))
    (tmp_path / "app.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.delitem(sys.modules, "sensors", raising=False)
    return tmp_path


def scores(spiking: range) -> dict[int, float]:
    """Say what each section of the output sums up to, by a plain loop."""
    last: dict[int, float] = {}
    sums: dict[int, float] = {}
    for n in range(100):
        reading = float(n * 7 % 11) * (10 if n in spiking else 1)
        sums[n // 10] = sums.get(n // 10, 0.0) + max(reading, last.get(n % 4, reading))
        last[n % 4] = reading
    return sums


def test_the_model_of_the_page_is_injected(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def told(*more: str) -> Any:
        assert main(["inject", "app.py:app", "--campaign", "campaign.yaml", *more, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    plan = told("--dry-run")
    assert {model: [t["name"] for t in targets] for model, targets in plan["models"].items()} == {
        "all": ["Readings", "High"],
        "some": ["Readings", "High"],
    }

    trial = told("--trial", "all/High/20/5t/0")
    golden = scores(range(0))
    wanted = {s: v for s, v in scores(range(20, 25)).items() if v != golden[s]}
    assert dict(zip(trial["sections"], trial["local"], strict=True)) == wanted

    some, again = (told("--trial", "some/Readings/60/5t/0", *more) for more in ((), ("--replay-all",)))
    assert some["local"] == again["local"] != [golden[s] for s in some["sections"]]


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (
            '{"sensors:Spikes": {colum: x}}',
            "sensors:Spikes has no entry 'colum'; there are: column, factor, share",
        ),
        ('"sensors:Spikes"', "sensors:Spikes: give entries, of column, factor, share; got None"),
        ('{"sensors:Spikes": {column: x, share: 2}}', "share=2: give the share"),
        ('{"sensors:Spikes": {share: 1}}', "missing 1 required keyword-only argument: 'column'"),
        ('"sensors:pc"', "model 'sensors:pc': sensors has no dataclass 'pc' that derives from"),
        ('"censors:Spikes"', "model 'censors:Spikes': No module named 'censors'. Put it beside the campaign"),
        ("spikes", "and crash; one of your own is written module:Class"),
    ],
)
def test_what_is_wrong_with_a_model_is_said(here: Path, model: str, said: str) -> None:
    (here / "c.yaml").write_text(
        f"{{sink: Out, score: count, offsets: 1, outages: {{tuples: 3}}, section: 5, models: {{x: {model}}}}}"
    )

    with pytest.raises(GraphError, match=re.escape(said)) as error:
        read_campaign(here / "c.yaml")

    assert "c.yaml" in str(error.value)


@dataclass(frozen=True, kw_only=True)
class Wild(FaultModel):
    """Does what it should not."""

    what: str
    deep: bool = False

    def apply(self, tuples: Exposed) -> Exposed:
        match self.what:
            case "shallow":
                return tuples.repeat(np.ones(len(tuples.hit), np.int64))
            case "twice":
                return tuples.repeat(np.ones(len(tuples.hit), np.int64)).keep(tuples.hit)
            case "fewer":
                return tuples.change("x", lambda values: values[1:])
        return None  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (Wild(what="shallow"), "must say deep = True"),
        (Wild(what="twice", deep=True), "must be the last that a model does"),
        (Wild(what="fewer"), "'Kept': Wild.* in 1 stretch: of 5 values of x it made 4"),
        (Wild(what="nothing"), "must return tuples, and returned None"),
    ],
)
def test_a_model_that_does_what_it_cannot_is_told(model: Wild, said: str) -> None:
    assert Fault(model=model).describe() == f"{model} in 0 stretches"

    with pytest.raises(GraphError, match=said):
        passed(model, 10, 5)
