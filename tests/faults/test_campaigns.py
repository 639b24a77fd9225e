"""Campaigns as written: YAML, defaults, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.faults.test_chain import application, campaign

import riprap as rr
from riprap.errors import GraphError, RunError
from riprap.faults import Campaign, Count, Crash, Loss, Mean, Overlap, Own, Replicas, Rmse, Sum, read_campaign
from riprap.faults.folder import fingerprint
from riprap.faults.models import Corruption, Duplication, Lateness, Reordering
from riprap.faults.placement import place
from riprap.faults.scored_trials import check_score
from riprap.faults.scores import Cut
from riprap.faults.setup import Setup
from riprap.protection import Checkpoint

WHOLE = """
sink: Out
score: {sum: total}
offsets: [12, 30]
outages: {seconds: [1, 4], rates: {average: 2, peak: 5}}
section: 6
by: n
key: n
targets: [Odd, [Odd, Sums]]
stretch: source
interleave: 3
repetitions: 2
golden: 4
models:
  loss: loss
  half: {loss: {keep: 0.5}}
  twice: {duplication: {copies: 1}}
  late: {delay: {distance: 3}}
  mixed: {reordering: {distance: 3}}
  wrong: {corruption: {columns: [v]}}
  doubled: {corruption: {columns: v, change: "more.py:double"}}
  crash: {crash: {protection: {checkpoint: {every: 2s}}, age: 1}}
  forget: {crash: {protection: none, restart: live}}
  failover: {crash: {protection: {replicas: {failover: 2, group: [Sums]}}, memory: kept}}
  exact: {crash: {protection: {replicas: {failover: exact, group: [Sums]}}}}
"""


def test_a_campaign_in_yaml_is_what_it_is_in_python(tmp_path: Path) -> None:
    (tmp_path / "more.py").write_text("def double(values):\n    return values\n")
    (tmp_path / "c.yaml").write_text(WHOLE)

    got = read_campaign(tmp_path / "c.yaml")

    assert (got.sink, got.score, got.offsets, got.section) == ("Out", Sum("total"), (12, 30), 6)
    assert (got.seconds, got.rates, got.by, got.key) == ((1, 4), {"average": 2, "peak": 5}, "n", ("n",))
    assert got.targets == (("Odd",), ("Odd", "Sums"))
    assert (got.repetitions, got.golden, got.interleave) == (2, 4, 3)
    doubled = got.models["doubled"]
    assert isinstance(doubled, Corruption)
    assert callable(doubled.change)
    assert {name: model for name, model in got.models.items() if name != "doubled"} == {
        "loss": Loss(),
        "half": Loss(keep=0.5),
        "twice": Duplication(copies=1),
        "late": Lateness(distance=3),
        "mixed": Reordering(distance=3),
        "wrong": Corruption(columns=("v",)),
        "crash": Crash(protection=Checkpoint(every=2.0), age=1),
        "forget": Crash(protection=None, restart="live"),
        "failover": Crash(protection=Replicas(failover=2, group=("Sums",)), memory="kept"),
        "exact": Crash(protection=Replicas(failover="exact", group=("Sums",))),
    }


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("count", Count()),
        ("{mean: v}", Mean("v")),
        ("{rmse: {column: a, reference: b}}", Rmse("a", "b")),
        ("{overlap: {columns: [a, b], measure: recall}}", Overlap(("a", "b"), "recall")),
    ],
)
def test_scores_in_yaml(tmp_path: Path, text: str, score: object) -> None:
    (tmp_path / "c.yaml").write_text(
        f"sink: Out\nscore: {text}\noffsets: 1\noutages: {{tuples: 3}}\nsection: 5\n"
    )

    assert read_campaign(tmp_path / "c.yaml").score == score


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sink: Out", "needs an entry 'score'"),
        ("[1, 2]", "give entries"),
        ("sink: [", "cannot be read"),
        ("{sink: A, score: best, offsets: 1, outages: {tuples: 1}, section: 1}", "score 'best': there are"),
        (
            "{sink: A, score: count, offsets: 1, outages: {tuples: 1}, section: 1, colour: 1}",
            "no entry 'colour'",
        ),
        (
            "{sink: A, score: count, offsets: 1, outages: {tuples: 1}, section: 1, models: {x: {fire: {}}}}",
            "model 'fire': there are",
        ),
        (
            "{sink: A, score: count, offsets: 1, outages: {hours: 1}, section: 1}",
            "outages has no entry 'hours'",
        ),
        (
            "{sink: A, score: {function: no.py:f}, offsets: 1, outages: {tuples: 1}, section: 1}",
            "file.py:name",
        ),
    ],
)
def test_what_is_wrong_in_yaml_is_said(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "c.yaml").write_text(text)

    with pytest.raises(GraphError, match=said) as error:
        read_campaign(tmp_path / "c.yaml")

    assert "c.yaml" in str(error.value)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"offsets": ()}, "without offsets"),
        ({"tuples": ()}, "seconds=, or in tuples="),
        ({"tuples": (), "seconds": (1.0,)}, "rates="),
        ({"section": 0}, "must be positive"),
        ({"offsets": (-1,)}, "from 0 on"),
        ({"repetitions": 3}, "interleave="),
        ({"golden": 3, "models": {"half": Loss(keep=0.5)}}, "interleave="),
        ({"offsets": (5, 5)}, "there twice"),
        ({"models": {"a/b": Loss()}}, "letters, digits"),
        ({"interleave": 2, "key": ()}, "key="),
        ({"models": {"crash": Crash()}}, "stretch='source'"),
        ({"models": {"crash": Crash()}, "stretch": "source"}, "outages in seconds"),
        ({"stretch": "all"}, "'own' or 'source'"),
        ({"covered": 0.0}, "covered"),
    ],
)
def test_what_is_wrong_in_a_campaign_is_said(more: dict[str, Any], said: str) -> None:
    with pytest.raises(GraphError, match=said):
        campaign(**more)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"offsets": (12, 60)}, "offset 60 is beyond the stream, whose last position is 59"),
        ({"targets": (("Even",),)}, "no operator 'Even'"),
        ({"targets": (("pe:none",),)}, "no processing element"),
        ({"sink": "In"}, "no sink 'In'"),
        ({"targets": (("Odd",), ("Odd",))}, "there twice"),
        ({"models": {"wrong": Corruption(columns=("price",))}, "targets": ()}, "has what it is about"),
        ({"models": {"wrong": Corruption(columns=("k",))}}, "kept by"),
    ],
)
def test_what_does_not_fit_the_application_is_said(more: dict[str, Any], said: str) -> None:
    with pytest.raises(GraphError, match=said):
        Setup.of(application().graph(), campaign(**more))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"score": Sum("gain")}, "column 'gain'"),
        ({"by": "time"}, "column 'time'"),
        ({"key": ("v",)}, "column 'v'"),
    ],
)
def test_columns_that_the_sink_has_not_are_said(more: dict[str, Any], said: str) -> None:
    with pytest.raises(GraphError, match=said):
        Setup.of(application().graph(), campaign(**more)).seeded(0)


@pytest.mark.parametrize(
    ("score", "said"),
    [
        (Own(lambda table: 0.0, name="nothing"), "'nothing' is zero in every section"),
        (Own(lambda table: float("nan"), name="odd"), "'odd' is nan in section 0"),
        (Own(lambda table: table["n"][0].as_py() / 0, name="bad"), "'bad' failed on a section of"),
    ],
)
def test_a_score_that_says_nothing_is_refused(score: Own, said: str) -> None:
    with pytest.raises(RunError, match=said):
        check_score(Setup.of(application().graph(), campaign(score=score)).seeded(0))


def test_tuples_that_share_a_key_are_said() -> None:
    app = rr.Application("same")
    rows = app.source("Rows", rr.rows([{"n": 1}, {"n": 1}], "n bigint"))
    app.sink("Out", rows, rr.memory())

    with pytest.raises(RunError, match="two tuples of the output have the same"):
        Setup.of(app.graph(), campaign(targets=(("Rows",),), offsets=(0,), score=Count())).seeded(0)


def test_a_processing_element_is_all_its_operators() -> None:
    app = application()
    app.place("apart", "Sums", "Out")

    asked, _ = place(app.graph(), campaign(targets=(("pe:apart",),)))

    assert asked.targets == (("Sums",),)


def test_two_campaigns_that_say_the_same_are_the_same() -> None:
    assert campaign().describe() == campaign().describe()
    assert campaign().describe() != campaign(seed=1).describe()


def test_overlap_is_that_of_sets() -> None:
    def cut(values: list[int]) -> Cut:
        return Cut({"a": pa.array(values, pa.int64())}, np.array([0, len(values)]))

    mine, right = cut([1, 2, 2, 5]), cut([1, 2, 3, 4])
    got = {m: float(Overlap(("a",), m).of(mine, right)[0]) for m in ("precision", "recall", "f1", "jaccard")}  # type: ignore[arg-type]

    assert got == {"precision": 2 / 3, "recall": 0.5, "f1": pytest.approx(4 / 7), "jaccard": 0.4}
    assert float(Overlap(("a",)).of(cut([]), cut([]))[0]) == 1.0
    assert float(Overlap(("a",)).of(cut([]), right)[0]) == 0.0


def test_the_shortest_outage_comes_first() -> None:
    asked = Campaign(
        sink="Out",
        score=Count(),
        offsets=(1,),
        section=5,
        seconds=(4, 1),
        rates={"peak": 3.0, "average": 1.0},
    )

    assert [str(outage) for outage in asked.outages] == ["1s-average", "1s-peak", "4s-average", "4s-peak"]


@pytest.mark.parametrize("options", [{"failover": -1}, {"failover": "plain"}, {"failover": True}])
def test_a_failover_takes_a_time_or_is_exact(options: Any) -> None:
    with pytest.raises(GraphError, match="give how many seconds it takes, 0 or more, or 'exact'"):
        Replicas(**options)
    with pytest.raises(GraphError, match="diverging=True with failover='exact'"):
        Replicas(failover="exact", diverging=True)


def test_another_replica_group_is_another_question() -> None:
    def asked(**group: Any) -> str:
        app = rr.Application("grouped")
        rows = app.source("Rows", rr.rows([{"n": 1}], "n bigint"))
        odd = app.functor("Odd", rows, where="n % 2 = 1")
        app.sink("Out", odd, rr.memory())
        if group:
            app.replicate("hot", odd, **group)
        campaign = Campaign(sink="Out", score=Count(), offsets=(1,), section=2, tuples=(1,))
        return fingerprint(app.graph(), campaign, {})

    groups: list[dict[str, Any]] = [{}, {"failover": "exact"}, {"failover": "plain"}]
    groups.append({"failover": "plain", "detect": "2s"})
    assert len({asked(**group) for group in groups}) == 4
