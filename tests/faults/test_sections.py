"""Sections of the output are those of a stream that does not lag, and whole: as plain arithmetic says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

import riprap as rr
from riprap.faults import Campaign, Count
from riprap.faults.campaign_run import left_out
from riprap.faults.evaluation import evaluate
from riprap.faults.scored_trials import affected_sets, score_golden, score_trial
from riprap.faults.setup import Setup

SECTION = 10
START = datetime(2026, 1, 1, tzinfo=UTC)


def meeting(rows: int) -> rr.Application:
    """Describe two streams of one source, the odd and the even, that meet again."""
    app = rr.Application("meeting")
    told = [{"n": n, "at": START + timedelta(seconds=n)} for n in range(rows)]
    source = app.source("Rows", rr.rows(told, "n bigint, at timestamp"), position="n")
    odd = app.functor("Odd", source, where="n % 2 = 1", select="n, at")
    even = app.functor("Even", source, where="n % 2 = 0", select="n, at")
    app.sink("Out", app.union("Both", odd, even), rr.memory())
    return app


@pytest.mark.parametrize("by", ["n", None])
def test_a_fault_begins_where_it_would_if_no_stream_lagged(by: str | None) -> None:
    offsets = tuple(range(SECTION, 100, SECTION))
    campaign = Campaign(
        sink="Out", score=Count(), offsets=offsets, tuples=(2, 15), section=SECTION, by=by, key=("n",),
        stretch="source", targets=(("Odd",), ("Both",)), interleave=6, repetitions=3, golden=3,
    )  # fmt: skip
    setup = Setup.of(meeting(120).graph(), campaign, block_rows=1000)
    first = setup.seeded(0)
    affected = affected_sets(first, setup.campaign)
    for task in setup.campaign.tasks():
        seeded = first if task.repetition == 0 else setup.seeded(task.repetition)
        got = score_trial(seeded, task, affected)

        assert task.outage.tuples is not None
        assert (got.begins, got.ends) == (
            task.offset // SECTION,
            (task.offset + task.outage.tuples - 1) // SECTION,
        )


@pytest.mark.parametrize("by", ["n", None])
@pytest.mark.parametrize("offset", [101, 105])
def test_a_fault_whose_effects_nobody_would_see_is_refused(by: str | None, offset: int) -> None:
    campaign = Campaign(
        sink="Out",
        score=Count(),
        offsets=(offset,),
        tuples=(4,),
        section=SECTION,
        by=by,
        targets=(("Rows",),),
    )
    with pytest.raises(rr.GraphError, match=f"offset {offset}: .*does not reach the end of.*smaller offset"):
        Setup.of(meeting(109).graph(), campaign)


@pytest.mark.parametrize(("by", "section"), [("n", SECTION), (None, SECTION), ("at", SECTION * 1_000_000)])
def test_a_section_that_the_stream_does_not_reach_the_end_of_is_left_out(
    by: str | None, section: int
) -> None:
    for rows, whole, rest in ((100, 10, 0), (103, 10, 3), (109, 10, 9), (7, 1, 0)):
        campaign = Campaign(
            sink="Out", score=Count(), offsets=(rows // 10 * 9,), tuples=(50,), section=section, by=by,
            targets=(("Rows",),),
        )  # fmt: skip
        setup = Setup.of(meeting(rows).graph(), campaign)
        seeded = setup.seeded(0)
        affected = affected_sets(seeded, setup.campaign)
        trials = [score_trial(seeded, task, affected) for task in setup.campaign.tasks()]
        (found,) = evaluate(setup.campaign, trials, [score_golden(seeded, affected)])

        counts = [sum(n // SECTION == s for n in range(rows)) for s in range(whole)]
        assert np.asarray(seeded.right.local).tolist() == counts
        # All is lost from there on, and that is one whole section.
        assert found.R == 1
        assert any("that is no whole section" in warning for warning in left_out(setup.form)) == (rest > 0)
