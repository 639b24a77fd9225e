"""How much of the experiments with replicas to run, how long that takes, and what is replicated in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import riprap as rr
from riprap.graph.options import RunOptions

Part = Literal["switch", "hang", "ahead", "cost", "quality", "values", "model"]
PARTS: tuple[Part, ...] = get_args(Part)
Variant = Literal["single", "placed", "group", "placed all", "all"]
VARIANTS: tuple[Variant, ...] = get_args(Variant)
Case = Literal["unprotected", "plain", "plain, hung", "exact", "all"]
CASES: tuple[Case, ...] = get_args(Case)

GROUP, MEMBERS = "hot", ("TradeFilter", "Aggregator", "VWAP")
INNER = ("TradeQuote", *MEMBERS, "QuoteFilter", "BargainIndex")
# The element with the source; and those that read a group's results, in which the sink is, too.
FIRST = "bargain"
READERS: Mapping[str, str] = {GROUP: "BargainIndex", "all": "Sink"}
SEED = 20051227
REAL = Path(__file__).parents[3] / "shared" / "data" / "taq_ibm_streams" / "TradesAndQuotes.csv.gz"

# Of one kill, with the time until a spare is warm again; of one hang; of one run's start and end.
_KILL_SECONDS, _HANG_SECONDS, _RUN_SECONDS = 25.0, 10.0, 30.0
# Of a model's point, in both techniques.
_POINT_SECONDS = 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A feed at a pace: the process is killed after ``offset`` events, mid in a section of the output."""

    name: str
    events: int
    rate: float
    section: int
    offset: int
    source: Path | None = None

    @property
    def seconds(self) -> float:
        return self.events / self.rate


MADE = Stretch(name="generated", events=300_000, rate=2_200.0, section=5_000, offset=62_500)
# As riprap.apps.campaigns has them: 29,537 events that have a price and a size.
SLICE = Stretch(name="real", events=29_537, rate=456.0, section=500, offset=10_250, source=REAL)

DOUBLES = Stretch(name="generated", events=100_000, rate=1_000.0, section=1_000, offset=40_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to run: how many kills and hangs, rounds over how many events, which cases on which feeds."""

    only: tuple[Part, ...] = PARTS
    kills: int = 40
    hangs: int = 10
    rate: float = 2_000.0
    rounds: int = 3
    events: int = 12_000_000
    batch_rows: int = 100_000
    variants: tuple[Variant, ...] = VARIANTS
    cases: tuple[Case, ...] = CASES
    stretches: tuple[Stretch, ...] = (MADE, SLICE)
    outage: float = 16.0
    doubles: Stretch = DOUBLES
    # Of punctuations, in events.
    intervals: tuple[int, ...] = (20_000, 2_000)
    replications: int = 1_000
    seed: int = SEED

    def times(self, part: Part) -> int:
        """Say how often a part strikes a replica."""
        return self.kills if part == "switch" else self.hangs

    def case_seconds(self, stretch: Stretch) -> float:
        """Say about how long a run over a feed at its pace takes."""
        return stretch.seconds + _RUN_SECONDS

    def estimate(self) -> dict[str, float]:
        """Say about how many seconds each part takes."""
        around = 60.0
        found: dict[str, float] = {
            "switch": around + self.kills * _KILL_SECONDS,
            "hang": around + self.hangs * _HANG_SECONDS,
            "ahead": around + self.hangs * _KILL_SECONDS,
            "cost": around + self.rounds * len(self.variants) * (_RUN_SECONDS + self.events / 400_000),
            "quality": sum(len(self.cases) * self.case_seconds(stretch) for stretch in self.stretches),
            "values": 2 * (1 + len(self.intervals)) * self.case_seconds(self.doubles),
            "model": around + 11 * _POINT_SECONDS * self.replications / 1_000,
        }
        return {part: found[part] for part in self.only}


def options(runs: Path, *, strikes: int = 0, batch_rows: int | None = None) -> RunOptions:
    """Return how runs are made; Spark counts the failures of a task that stays for as long as it does."""
    return RunOptions(
        master=f"local[2,{strikes + 4}]",
        config={"spark.log.level": "OFF"},
        batch_rows="auto" if batch_rows is None else batch_rows,
        runs=runs,
    )


def _placed_all(app: rr.Application) -> None:
    """Have what replicating all has: a process between source and sink, and channels on both sides."""
    app.place("inner", *INNER, process="inner")
    app.place("results", "Sink")


DESCRIBE: Mapping[Variant | Case, Callable[[rr.Application], None]] = {
    "single": lambda app: None,
    "placed": lambda app: app.place(GROUP, *MEMBERS, process=GROUP),
    "group": lambda app: app.replicate(GROUP, *MEMBERS, detect="1s"),
    "placed all": _placed_all,
    "all": lambda app: app.replicate_all(),
    "unprotected": lambda app: app.place(GROUP, *MEMBERS, process=GROUP, restart="live"),
    "plain": lambda app: app.replicate(GROUP, *MEMBERS, failover="plain", detect="2s"),
    "plain, hung": lambda app: app.replicate(GROUP, *MEMBERS, failover="plain", detect="2s"),
    "exact": lambda app: app.replicate(GROUP, *MEMBERS, detect="2s"),
}
