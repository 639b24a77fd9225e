"""Campaigns of fault injection for the built-in applications: what they are fed, and by which score they are judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import riprap as rr
from riprap.apps.bargain import bargain
from riprap.apps.catalogue import log_files, market_feed, wafer_feed
from riprap.apps.logwatch import logwatch
from riprap.apps.made_log import YEAR, write_log
from riprap.apps.market import write_feed
from riprap.apps.market_real import read_real
from riprap.apps.wafer import wafer
from riprap.apps.wafer_feed import write_wafers
from riprap.faults import Campaign, Crash, Loss, Mean, Overlap, Replicas, Sum
from riprap.graph.connectors import SourceConnector

# Bargain Discovery of the paper: outages as long as it takes to restart a process, up to moving it to another host.
_OUTAGES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
_AVERAGE, _PEAK = 500.0, 2200.0
_REAL_RATE = 456.0
_REPLICATED = ("TradeFilter", "Aggregator", "VWAP")
# What is not in the group has no copy, and misses its input of the outage.
_FAILOVER = Crash(protection=Replicas(failover=2.0, group=_REPLICATED), restart="live", memory="kept")

MakeFeed = Callable[[Path, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltInCampaign:
    """A campaign, the application and the feed it is for.

    ``make`` writes a feed of so much (``amount``, in ``unit``) to a folder, where the user gives none; without it the
    user must. ``quick`` is the same on less.
    """

    summary: str
    campaign: Campaign
    build: Callable[[str], rr.Application]
    make: MakeFeed | None = None
    amount: int = 0
    unit: str = "events"
    quick: Callable[[BuiltInCampaign], BuiltInCampaign] = lambda built_in: built_in


def _market(folder: Path, events: int) -> None:
    write_feed(folder, events, seed=0)


def _log(folder: Path, lines: int) -> None:
    write_log(folder, lines, seed=0)


def _wafers(folder: Path, wafers: int) -> None:
    write_wafers(folder, wafers, seed=0)


def _bargain(feed: str) -> rr.Application:
    """Describe Bargain Discovery; of real events, those with a positive price and size, numbered from 0."""
    source: SourceConnector = market_feed(feed)
    if feed.endswith((".csv", ".csv.gz")):
        source = rr.rows(usable(read_real(Path(feed))))
    return bargain(source, rr.memory())


def usable(events: pa.Table) -> pa.Table:
    """Return the events that have a positive price and size, numbered anew from 0."""
    kept = events.filter(pc.and_(pc.greater(events["price"], 0), pc.greater(events["size"], 0)))
    numbered = pa.array(np.arange(len(kept)), events.schema.field("seq").type)
    at = events.schema.get_field_index("seq")
    return kept.set_column(at, events.schema.field("seq"), numbered).replace_schema_metadata(None)


def _logwatch(feed: str) -> rr.Application:
    return logwatch(log_files(feed), rr.memory(), year=YEAR)


def _wafer(feed: str) -> rr.Application:
    return wafer(wafer_feed(feed), rr.memory(), protect=rr.checkpoint(every="1s"))


_PAPER = Campaign(
    sink="Sink",
    score=Sum("gain"),
    offsets=(500_000, 1_500_000, 2_500_000, 3_500_000, 4_500_000),
    seconds=_OUTAGES,
    rates={"average": _AVERAGE, "peak": _PEAK},
    section=5000,
    by="seq",
    key=("seq",),
    repetitions=5,
    golden=300,
    # More makes golden runs differ by more than the threshold in some sections.
    interleave=2,
)
_REAL = replace(
    _PAPER,
    offsets=(6000, 10000, 14000, 18000),
    rates={"average": _REAL_RATE},
    section=500,
    stretch="source",
    golden=30,
    interleave=5,
)
_REPLICAS = replace(
    _REAL,
    models={"loss": Loss(), "failover": _FAILOVER},
    targets=tuple((o,) for o in (*_REPLICATED, "Source", "TradeQuote")),
)
_PAPER_REPLICAS = replace(
    _PAPER,
    models=_REPLICAS.models,
    targets=_REPLICAS.targets,
    seconds=(2.0, 16.0),
    rates={"peak": _PEAK},
    stretch="source",
    golden=30,
)


def _shorter_market(built_in: BuiltInCampaign) -> BuiltInCampaign:
    """Take a tenth of the events, and few runs."""
    campaign = replace(
        built_in.campaign,
        offsets=tuple(o // 10 for o in built_in.campaign.offsets[1:4]),
        section=2000,
        repetitions=2,
        golden=6,
    )
    return replace(built_in, campaign=campaign, amount=built_in.amount // 10)


def _fewer_runs(built_in: BuiltInCampaign) -> BuiltInCampaign:
    return replace(built_in, campaign=replace(built_in.campaign, repetitions=2, golden=6))


def _half(built_in: BuiltInCampaign) -> BuiltInCampaign:
    offsets = tuple(o // 2 for o in built_in.campaign.offsets[:2])
    return replace(
        built_in, campaign=replace(built_in.campaign, offsets=offsets), amount=built_in.amount // 2
    )


CAMPAIGNS: Mapping[str, Mapping[str, BuiltInCampaign]] = {
    "bargain": {
        "paper": BuiltInCampaign(
            summary="that of the paper: bursts lost at five operators, on 5 million events made up",
            campaign=_PAPER,
            build=_bargain,
            make=_market,
            amount=5_000_000,
            quick=_shorter_market,
        ),
        "real": BuiltInCampaign(
            summary="the same on real trades and quotes (--feed TradesAndQuotes.csv.gz)",
            campaign=_REAL,
            build=_bargain,
            quick=_fewer_runs,
        ),
        "replicas": BuiltInCampaign(
            summary="bursts lost, and what a replica that takes over within 2 s leaves of them",
            campaign=_REPLICAS,
            build=_bargain,
            make=_market,
            amount=30_000,
            quick=_fewer_runs,
        ),
        "paper-replicas": BuiltInCampaign(
            summary="the same where and on what the paper's campaign is, for outages of 2 and 16 s",
            campaign=_PAPER_REPLICAS,
            build=_bargain,
            make=_market,
            amount=5_000_000,
            quick=_shorter_market,
        ),
    },
    "logwatch": {
        "alerts": BuiltInCampaign(
            summary="lines lost, and which attacks are found all the same",
            campaign=Campaign(
                sink="Alerts",
                score=Overlap(("host", "first", "last", "attempts"), "f1"),
                offsets=(20_000, 60_000, 100_000, 140_000),
                tuples=(500, 2500, 12_500, 50_000),
                section=20_000,
                stretch="source",
            ),
            build=_logwatch,
            make=_log,
            amount=200_000,
            unit="lines",
            quick=_half,
        )
    },
    "wafer": {
        "model": BuiltInCampaign(
            summary="the model crashes and forgets, or comes back from a checkpoint",
            campaign=Campaign(
                sink="Sink",
                score=Mean("error"),
                offsets=(1000, 2000, 3000),
                seconds=(2.0, 5.0),
                rates={"average": 20.0},
                section=2,
                by="lot",
                key=("lot",),
                targets=(("Model",),),
                models={
                    "crash": Crash(protection=None),
                    "checkpoint": Crash(),
                    "loss": Loss(),
                },
                stretch="source",
            ),
            build=_wafer,
            make=_wafers,
            amount=5000,
            unit="wafers",
            quick=_half,
        )
    },
}
