"""Campaigns of other shapes: measured rates, sections of time, several sources, corruption, users' operators."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.faults.replaying import assert_same

import riprap as rr
from riprap.errors import GraphError
from riprap.faults import Campaign, Corruption, Count, Loss, Rmse, Sum
from riprap.faults.evaluation import evaluate
from riprap.faults.scored_trials import affected_sets, score_golden, score_trial
from riprap.faults.scores import Cut
from riprap.faults.setup import Seeded, Setup

START = datetime(2026, 1, 1, tzinfo=UTC)
# One a second for a minute, then twenty within one second, then one a second again.
SECONDS = [*range(60), *(60 + n / 20 for n in range(20)), *range(61, 121)]


def timed() -> rr.Application:
    app = rr.Application("timed")
    rows = [{"n": n, "at": START + timedelta(seconds=s), "v": n % 7 + 1} for n, s in enumerate(SECONDS)]
    source = app.source("Rows", rr.rows(rows, "n bigint, at timestamp, v bigint"), position="n")
    even = app.functor("Even", source, where="n % 2 = 0", select="n, at, v")
    app.sink("Out", app.functor("Kept", even, select="n, at, v"), rr.memory())
    return app


def both(app: rr.Application, campaign: Campaign) -> Seeded:
    """Run all trials of a campaign on both paths, and require that they are the same."""
    setup = Setup.of(app.graph(), campaign, block_rows=23)
    seeded = setup.seeded(0)
    for task in setup.campaign.tasks():
        assert_same(seeded.golden, seeded.run(task), seeded.run(task, shortcut=False))
    return seeded


def test_seconds_are_made_tuples_by_the_rates_that_are_measured() -> None:
    campaign = Campaign(
        sink="Out", score=Count(), offsets=(10,), seconds=(2.0,), clock="at", section=20, targets=(("Rows",), ("Kept",))
    )  # fmt: skip
    seeded = both(timed(), campaign)

    lost = {task.id: seeded.run(task).hit for task in seeded.setup.campaign.tasks()}

    # 139 intervals in 120 s are 1.16 a second, of which every other tuple comes to Kept; at most 20 and 10.
    assert lost == {
        "loss/Rows/10/2s-average/0": 2,
        "loss/Rows/10/2s-peak/0": 40,
        "loss/Kept/10/2s-average/0": 1,
        "loss/Kept/10/2s-peak/0": 20,
    }


def test_sections_of_time() -> None:
    campaign = Campaign(
        sink="Out", score=Count(), offsets=(20,), tuples=(10,), section=10_000_000, by="at", targets=(("Rows",),)
    )  # fmt: skip
    seeded = both(timed(), campaign)
    (task,) = seeded.setup.campaign.tasks()

    got = score_trial(seeded, task, affected_sets(seeded, seeded.setup.campaign))

    # Ten seconds each, of every other row; those of 20 to 30 s are lost.
    assert np.asarray(seeded.right.local).tolist() == [5, 5, 5, 5, 5, 5, 15, 5, 5, 5, 5, 5]
    assert (got.sections, got.local, got.begins, got.ends) == ((2,), (0.0,), 2, 3)


def test_errors_keep_their_sign_where_that_is_asked_for() -> None:
    found = {}
    for signed in (True, False):
        campaign = Campaign(
            sink="Out", score=Count(), offsets=(20,), tuples=(10,), section=10, by="n", targets=(("Rows",),),
            signed=signed,
        )  # fmt: skip
        seeded = both(timed(), campaign)
        affected = affected_sets(seeded, seeded.setup.campaign)
        trials = [score_trial(seeded, t, affected) for t in seeded.setup.campaign.tasks()]
        (only,) = evaluate(seeded.setup.campaign, trials, [score_golden(seeded, affected)])
        found[signed] = (only.spans[0].errors[0], only.R, only.I)

    assert found == {True: (-1.0, 1, 1.0), False: (1.0, 1, 1.0)}


def test_the_root_of_a_mean_square() -> None:
    columns = {"a": pa.array([1.0, 4.0, 9.0]), "b": pa.array([1.0, 1.0, 5.0])}
    cut = Cut(columns, np.array([0, 2, 2, 3]))

    assert Rmse("a", "b").of(cut, cut).tolist() == pytest.approx([(9 / 2) ** 0.5, 0.0, 4.0])


def test_several_sources_that_have_an_order() -> None:
    luck = np.random.default_rng(2)
    app = rr.Application("two")
    streams = []
    for name in ("A", "B"):
        table = pa.table(
            {"at": np.sort(luck.integers(0, 300, 120)), "k": luck.integers(0, 4, 120), "v": np.arange(120)}
        )
        streams.append(app.source(name, rr.rows(table), ordering="at"))
    met = app.join(
        "Met",
        *streams,
        by="k",
        windows=(rr.sliding(tuples=3), rr.sliding(tuples=2)),
        select="A.v as a, B.v as b",
    )
    app.sink("Out", met, rr.memory())
    told: dict[str, Any] = {
        "sink": "Out", "score": Sum("a"), "offsets": (20, 70), "tuples": (3, 15), "section": 10,
        "models": {"loss": Loss(), "half": Loss(keep=0.5)},
    }  # fmt: skip

    seeded = both(app, Campaign(**told))

    assert seeded.setup.campaign.targets == (("A",), ("B",), ("Met",))
    with pytest.raises(GraphError, match="here are several"):
        Setup.of(app.graph(), Campaign(**told, stretch="source"))


def test_corruption_on_both_paths() -> None:
    app = rr.Application("wrong")
    table = pa.table({"n": range(200), "k": [n % 3 for n in range(200)], "x": [float(n) for n in range(200)]})
    source = app.source("Rows", rr.rows(table), position="n")
    sums = app.aggregate(
        "Sums",
        source,
        by="k",
        window=rr.sliding(tuples=3),
        emit=rr.every(tuples=1),
        select="last(n) as n, sum(x) as x",
    )
    app.sink("Out", sums, rr.memory())
    campaign = Campaign(
        sink="Out", score=Sum("x"), offsets=(50, 120), tuples=(4, 20), section=20,
        models={"bits": Corruption(columns=("x",)), "less": Corruption(columns=("x",), change=pa.compute.negate)},
    )  # fmt: skip

    seeded = both(app, campaign)

    assert seeded.setup.campaign.placed["bits"] == (("Rows",), ("Sums",))


class Twice(rr.CustomOperator):
    """Puts out each tuple twice, all at the end of what it is called with."""

    def process(self, port: int | str, batch: pa.RecordBatch) -> None:
        self.submit(pa.Table.from_batches([batch, batch]).combine_chunks().to_batches()[0])


@dataclass
class Newest:
    values: list[int] = field(default_factory=list)


class Total(rr.CustomOperator):
    """Says the sum of the last four values."""

    state: Newest

    def process(self, port: int | str, batch: pa.RecordBatch) -> None:
        self.state.values = [*self.state.values, *batch.column("v").to_pylist()][-4:]
        self.submit(pa.record_batch({"v": pa.array([sum(self.state.values)], pa.int64())}))


def rows() -> pa.Table:
    return pa.table(
        {"n": range(300), "k": [n % 5 for n in range(300)], "v": [n * 7 % 13 for n in range(300)]}
    )


def test_a_users_operator_beside_a_keyed_one() -> None:
    app = rr.Application("beside")
    source = app.source("Rows", rr.rows(rows()), position="n")
    sums = app.aggregate(
        "Sums",
        source,
        by="k",
        window=rr.sliding(tuples=3),
        emit=rr.every(tuples=1),
        select="last(n) as n, sum(v) as v",
    )
    app.sink("A", sums, rr.memory())
    app.sink(
        "B",
        app.custom("Twice", Twice, source, schema="n bigint, k bigint, v bigint", stateless=True),
        rr.memory(),
    )

    both(
        app,
        Campaign(
            sink="A", score=Sum("v"), offsets=(40, 200), tuples=(2, 30), section=20, targets=(("Rows",),)
        ),
    )


def test_a_users_state_converges() -> None:
    app = rr.Application("own")
    source = app.source("Rows", rr.rows(rows()), position="n")
    app.sink("Out", app.custom("Total", Total, source, schema="v bigint"), rr.memory())
    campaign = Campaign(
        sink="Out", score=Sum("v"), offsets=(40,), tuples=(2,), section=20, targets=(("Rows",), ("Total",))
    )

    seeded = both(app, campaign)

    # The fault is in one block of 23, and what is held is the last four: the next block is the same again.
    for task in seeded.setup.campaign.tasks():
        assert seeded.run(task).replayed <= 2 * 23
