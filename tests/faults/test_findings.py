"""The findings of the paper, on the real slice of trades and quotes where it is there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from riprap.apps.campaigns import CAMPAIGNS
from riprap.faults import Campaign, Criticality, Mean
from riprap.faults.evaluation import evaluate
from riprap.faults.scored_trials import affected_sets, score_golden, score_trial
from riprap.faults.setup import Setup

REAL = Path(__file__).parents[3] / "shared" / "data" / "taq_ibm_streams" / "TradesAndQuotes.csv.gz"
pytestmark = pytest.mark.skipif(not REAL.exists(), reason=f"the real trades and quotes are not at {REAL}")


OFFSETS = CAMPAIGNS["bargain"]["real"].campaign.offsets


def carried_out(campaign: Campaign) -> dict[tuple[str, str], Criticality]:
    """Run a campaign here, one seed after the other."""
    setup = Setup.of(CAMPAIGNS["bargain"]["real"].build(str(REAL)).graph(), campaign)
    first = setup.seeded(0)
    affected = affected_sets(first, setup.campaign)
    trials, golden = [], []
    for seed in range(campaign.golden):
        seeded = first if seed == 0 else setup.seeded(seed)
        golden.append(score_golden(seeded, affected))
        trials += [score_trial(seeded, t, affected) for t in setup.campaign.tasks() if t.repetition == seed]
    assert not [t.error for t in trials if t.error]
    return {(c.model, c.name): c for c in evaluate(setup.campaign, trials, golden)}


def short(name: str) -> Campaign:
    return replace(CAMPAIGNS["bargain"][name].campaign, repetitions=3, golden=6)


@pytest.fixture(scope="module")
def found() -> dict[str, Criticality]:
    return {name: each for (_, name), each in carried_out(short("real")).items()}


def test_the_feed_has_the_events_with_a_price_and_a_size() -> None:
    setup = Setup.of(CAMPAIGNS["bargain"]["real"].build(str(REAL)).graph(), short("real"))

    assert setup.feed.rows["Source"].rows == 29_537


def test_impact_ranks_the_operators(found: dict[str, Criticality]) -> None:
    assert sorted(found, key=lambda name: -found[name].I) == [
        "TradeFilter",
        "VWAP",
        "Source",
        "BargainIndex",
        "QuoteFilter",
    ]


def test_source_and_trade_filter_take_longest_and_as_long(found: dict[str, Criticality]) -> None:
    assert (
        found["Source"].R
        == found["TradeFilter"].R
        > max(found[name].R for name in ("VWAP", "BargainIndex", "QuoteFilter"))
    )


def test_lost_quotes_are_lost_and_nothing_else(found: dict[str, Criticality]) -> None:
    quotes = found["QuoteFilter"]

    assert pytest.approx(-1.0, abs=0.01) == quotes.C
    assert (quotes.D, quotes.anova.outcome) == (0.0, "accept")
    assert quotes.verdict == "restart is enough"


def test_lost_trades_are_worse_the_longer(found: dict[str, Criticality]) -> None:
    assert found["TradeFilter"].C > 0.7
    assert found["VWAP"].C > 0.7


def test_the_mean_gain_ranks_them_alike() -> None:
    found = {n: c for (_, n), c in carried_out(replace(short("real"), score=Mean("gain"))).items()}

    assert sorted(found, key=lambda name: -found[name].I) == [
        "TradeFilter",
        "VWAP",
        "Source",
        "BargainIndex",
        "QuoteFilter",
    ]


def test_sections_are_whole_and_counted_from_where_the_fault_begins(found: dict[str, Criticality]) -> None:
    # 59 sections of 500 and 37 quotes and trades more; 16 s at 456 a second are 14.6 sections, of which two are cut.
    assert {len(span.errors) for span in found["QuoteFilter"].spans} == {59 - o // 500 for o in OFFSETS}
    assert (found["QuoteFilter"].R, found["TradeFilter"].R) == (14, 38)


def test_a_replica_takes_nearly_all_of_the_impact_away(found: dict[str, Criticality]) -> None:
    replicated = carried_out(replace(short("replicas"), seconds=(2.0, 16.0)))

    for name in ("TradeFilter", "Aggregator", "VWAP"):
        assert replicated["failover", name].I < 0.1 * replicated["loss", name].I
        assert replicated["failover", name].R < replicated["loss", name].R
        # What fails over for 2 s loses what VWAP puts out, as an outage of 2 s of the operator behind it does.
        assert replicated["failover", name].by_outage[-1].R == replicated["failover", name].by_outage[0].R
    for name in ("Source", "TradeQuote"):
        assert replicated["failover", name].by_outage[-1].R == replicated["loss", name].by_outage[-1].R
    # The same fault in another campaign recovers at the same sections, offset by offset.
    for name in ("Source", "TradeFilter", "VWAP"):
        assert replicated["loss", name].by_outage[-1].R == found[name].by_outage[-1].R
