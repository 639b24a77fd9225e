"""Profiles in files, and what is said of those that do not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

import riprap as rr
from riprap.apps.catalogue import CATALOGUE
from riprap.apps.models import PAPER
from riprap.errors import FormatError, ModelError
from riprap.model import (
    Annotated,
    Checkpoints,
    Faults,
    Groups,
    Profile,
    Unprotected,
    parts_of,
    predict,
    read_profile,
)
from riprap.model.profile import profile_of

GRAPH = CATALOGUE["bargain"].make(None, rr.memory()).graph()
PROFILE = PAPER["bargain"].profile


def test_a_profile_is_written_and_read(tmp_path: Path) -> None:
    PROFILE.write(tmp_path / "profile.yaml")
    assert read_profile(tmp_path / "profile.yaml") == PROFILE


def told(tmp_path: Path) -> dict[str, Any]:
    PROFILE.write(tmp_path / "profile.yaml")
    return dict(yaml.safe_load((tmp_path / "profile.yaml").read_text()))


@pytest.mark.parametrize(
    ("operator", "entry", "value", "said"),
    [
        (
            "TradeFilter",
            "selectivity",
            -0.1,
            "operator 'TradeFilter': selectivity is -0.1: give a number of at least zero",
        ),
        ("TradeFilter", "time", "soon", "operator 'TradeFilter': time is 'soon'"),
        ("Aggregator", "state", float("nan"), "operator 'Aggregator': state is nan"),
        (
            "Aggregator",
            "selectivty",
            1,
            "operator 'Aggregator': there is no entry 'selectivty'; there are: .*selectivity",
        ),
        ("Aggregator", "shift", -2, "operator 'Aggregator': shift is by how much"),
    ],
)
def test_entries_that_make_no_sense_are_named(
    operator: str, entry: str, value: object, said: str, tmp_path: Path
) -> None:
    entries = told(tmp_path)
    entries["operators"][operator][entry] = value
    with pytest.raises(ModelError, match=said):
        profile_of(entries)


def test_an_unknown_format_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="riprap profile 9"):
        profile_of({**told(tmp_path), "format": "riprap profile 9"})


def test_a_file_that_is_no_profile_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"gone\.yaml cannot be read"):
        read_profile(tmp_path / "gone.yaml")
    (tmp_path / "list.yaml").write_text("[1, 2]")
    with pytest.raises(ModelError, match=r"list\.yaml: a profile: expected entries by name"):
        read_profile(tmp_path / "list.yaml")


def changed(**changes: Any) -> Profile:
    operators = {**PROFILE.operators, **changes}
    return Profile(rates=PROFILE.rates, operators={k: v for k, v in operators.items() if v is not None})


def test_profiles_that_do_not_fit_the_application_say_so() -> None:
    with pytest.raises(ModelError, match=r"says nothing of VWAP: add an entry.*or measure"):
        parts_of(GRAPH, changed(VWAP=None))
    with pytest.raises(
        ModelError, match=r"speaks of 'Vwap', which 'bargain' does not have. There are: Source"
    ):
        parts_of(GRAPH, changed(Vwap=PROFILE.operators["VWAP"]))
    with pytest.raises(ModelError, match="'BargainIndex' has 2 ports, its profile 1"):
        parts_of(GRAPH, changed(BargainIndex=PROFILE.operators["VWAP"]))
    with pytest.raises(ModelError, match="no rate for source 'Source'"):
        parts_of(GRAPH, Profile(rates={}, operators=PROFILE.operators))


def test_an_operator_that_would_be_overloaded_is_named() -> None:
    with pytest.raises(
        ModelError, match=r"'Aggregator' would be busy 132% .* 100,000 tuples .* Lower the rate"
    ):
        predict(GRAPH, PROFILE.at_rate(500_000), Unprotected(), Faults(), horizon=1.0, replications=1)


@pytest.mark.parametrize(
    ("technique", "faults", "said"),
    [
        (Checkpoints(("Agregator",)), Faults(), "no operator 'Agregator' to protect; there are: Aggregator"),
        (Groups((("VWAP", "Vwap"),)), Faults(), "no operator 'Vwap' to protect"),
        (Groups((("VWAP",), ("VWAP",))), Faults(), "'VWAP' is protected twice"),
        (Groups((("BargainIndex", "Sink"),)), Faults(), "'Sink' is a sink"),
        (Groups((("VWAP",),), failover=-1.0), Faults(), "failover of a protection is -1"),
        (Unprotected(), Faults(crash="Vwap"), "no operator 'Vwap' to crash; there are: Source"),
        (Unprotected(), Faults(crash="VWAP", at=99.0), "a crash at 99 s is not within the 10 s"),
        (Unprotected(), Faults(together=(("VWAP", "Vwap"),)), "no operator 'Vwap' to fail together"),
        (Unprotected(), Faults(together=(("VWAP",), ("VWAP",))), "'VWAP' is to fail together with two"),
    ],
)
def test_what_is_asked_for_must_be_there(technique: Any, faults: Faults, said: str) -> None:
    with pytest.raises(ModelError, match=said):
        predict(GRAPH, PROFILE, technique, faults, horizon=10.0, replications=1)


def test_rates_below_zero_are_refused() -> None:
    with pytest.raises(ModelError, match="crash rate is -1"):
        Faults(crash_rate=-1)
    with pytest.raises(ModelError, match="a forced crash is the only fault"):
        Faults(crash="VWAP", crash_rate=0.1)
    with pytest.raises(ModelError, match="rate is 0"):
        PROFILE.at_rate(0)


def test_an_application_s_own_policies_are_its_techniques() -> None:
    app = rr.Application("sums")
    source = app.source("In", rr.rows([{"k": "a", "x": 1}], schema="k string, x int"))
    sums = app.aggregate(
        "Sums", source, by="k", window=rr.sliding(tuples=3), emit=rr.every(tuples=1), select="sum(x) as s",
        protect=rr.checkpoint(every="4s"),
    )  # fmt: skip
    app.sink("Out", sums, rr.memory())
    protections = Annotated(app.graph()).protect(())
    assert protections["Sums"].restore == "checkpoint"
    assert protections["Sums"].age == (0.0, 4.0)
    assert set(protections) == {"Sums"}
