"""One crash of the model of wafer yield, and what came of it. It counts if a plain loop comes to the very same output.

Two ways lead to a trial: `wafer_crash` (many at once in one Spark session) and `wafer_kill` (processes are killed).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import riprap as rr
from riprap.apps.wafer import all_finite, finite
from riprap.errors import RunError
from riprap.graph.connectors import SourceConnector
from riprap.protection import Policy
from riprap_bench.wafer_outage import ModelOutage, YieldPrediction, predict, quality

Scenario = Literal["checkpoint", "none"]
SCENARIOS: tuple[Scenario, ...] = ("checkpoint", "none")
Way = Literal["session", "processes"]


class DisagreementError(RunError):
    """The application and the plain loop come to different outputs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A crash to be: after so many wafers, for so many seconds."""

    number: int
    crash: int
    down: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How fast wafers come, how often the model is saved, and how often elements look for input; in seconds."""

    rate: float
    every: float = 1.0
    trigger: float = 0.25
    last_trigger: float = 1.0

    def policy(self, scenario: Scenario) -> Policy | None:
        """Return the policy of the model."""
        return rr.checkpoint(every=self.every) if scenario == "checkpoint" else None


@dataclass(frozen=True, kw_only=True)
class Wafers:
    """A feed, as it is in files and as the plain loop takes it."""

    table: pa.Table

    @classmethod
    def of(cls, table: pa.Table) -> Wafers:
        """Leave out what the application would: then the model's input is the feed, wafer by wafer."""
        known = table.filter(pc.and_(pc.is_valid(table["product"]), pc.is_valid(table["sensors"])))
        clean = known.combine_chunks()
        sensors = all_finite(clean["sensors"].combine_chunks())
        measured = finite(clean["measured"].combine_chunks())
        for name, values in (("sensors", sensors), ("measured", measured)):
            clean = clean.set_column(clean.schema.get_field_index(name), name, values)
        return cls(table=clean)

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        return list(self.table.to_pylist())

    @cached_property
    def golden(self) -> dict[int, float]:
        """The quality of each lot if nothing crashes, but for the last, which the application does not tell."""
        return told(predict(self.rows))

    def connector(self, folder: Path, pace: Pace, point: Point | None = None) -> SourceConnector:
        """Write the feed, and replay it so that one of its batches ends where the crash is to come.

        Wafers that come once the model should be back are withheld until :func:`hand_out`: if it takes longer to be
        back than it should, it loses no more for it.
        """
        folder.mkdir(parents=True)
        back = min(point.crash + round(point.down * pace.rate), self.table.num_rows - 1) if point else 0
        ends = [0, *([point.crash, back] if point else []), self.table.num_rows]
        paths = [folder / f"part-{number}.parquet" for number in range(len(ends) - 1)]
        for path, (low, high) in zip(paths, pairwise(ends), strict=True):
            pq.write_table(self.table.slice(low, high - low), path)
        # A scan takes no two files into one batch.
        connector = replace(rr.files(paths, rate=pace.rate), scan=True)
        if point:
            paths[-1].rename(_withheld(folder))
        return connector


def hand_out(folder: Path) -> None:
    """Let the rest of a feed appear."""
    _withheld(folder).rename(folder / "part-2.parquet")


def _withheld(folder: Path) -> Path:
    return folder / "_withheld.parquet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a run left: every prediction, the row of every lot, what happened, and what its batches did."""

    predictions: pa.Table
    lots: pa.Table
    events: Sequence[Mapping[str, Any]]
    metrics: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A crash that was, and the quality of each lot in its run.

    ``seconds`` is how long the model was down, ``age`` how old its newest checkpoint was when it crashed.
    """

    point: Point
    scenario: Scenario
    way: Way
    outage: ModelOutage
    seconds: float
    age: float | None
    lots: Mapping[int, float]

    @property
    def lost(self) -> int:
        """How many wafers passed while the model was down."""
        return self.outage.back - self.outage.crash


def told(predictions: Iterable[YieldPrediction]) -> dict[int, float]:
    """Return the quality of the lots that the application tells: all but the last."""
    return dict(list(quality(predictions).items())[:-1])


def judge(
    wafers: Wafers,
    seen: Seen,
    point: Point,
    *,
    scenario: Scenario,
    way: Way,
    crashed: float,
    seconds: float,
) -> Trial:
    """Find out what a run that crashed at a time went through, and raise unless the loop agrees with its output."""
    what = f"crash {point.number + 1} ({scenario}, {way})"
    crash, back = gap(wafers, seen.predictions)
    if crash == back:
        raise DisagreementError(f"{what}: no wafer was lost, so the model cannot have been down")
    if back == len(wafers.rows):
        # Nothing to compare, and no fault of the application: the machine was too slow for the pace.
        raise RunError(f"{what}: the model was not back before the last wafer; give a lower --rate")
    passed = sum(e["tuples"] for e in seen.events if e["event"] == "passed over" and e["element"] == "model")
    if passed != back - crash:
        raise DisagreementError(
            f"{what}: {passed} wafers were counted as passed over, and {back - crash} are missing"
        )
    restored = [e for e in seen.events if e["event"] == "restored" and e["operator"] == "Model"]
    lost = [e for e in seen.events if e["event"] == "state lost" and e["operator"] == "Model"]
    if not restored and not lost:
        raise DisagreementError(f"{what}: its state was neither restored nor lost")
    if len(restored) + len(lost) > 1:
        raise RunError(f"{what}: it was started more than once, as Spark was too slow to show that it lives")
    if restored and scenario == "none":
        raise DisagreementError(f"{what}: it came back with state that nobody had saved")
    saved = taken_until(seen.metrics, restored[0]["batch"], crash) if restored else None
    try:
        outage = ModelOutage(crash=crash, back=back, saved=saved)
    except ValueError as error:
        raise DisagreementError(f"{what}: {error}") from error
    lots = agree(what, wafers, seen, outage)
    age = crashed - (restored[0]["time"] - restored[0]["age"]) if restored else None
    return Trial(
        point=point, scenario=scenario, way=way, outage=outage, seconds=seconds, age=age, lots=lots
    )  # fmt: skip


def gap(wafers: Wafers, predictions: pa.Table) -> tuple[int, int]:
    """Return how many wafers came before those that are missing, and how many before the next that is there."""
    numbers, found = wafers.table["wafer"].to_pylist(), predictions["wafer"].to_pylist()
    pairs = enumerate(zip(numbers, found, strict=False))
    crash = next((at for at, (number, seen) in pairs if number != seen), len(found))
    return crash, crash + len(numbers) - len(found)


def taken_until(metrics: Iterable[Mapping[str, Any]], batch: int, crash: int) -> int:
    """Return how many wafers the model had taken with a batch; all, if the crash came before the batch was told of."""
    took = {
        line["batch"]: int(line["operators"]["Model"]["in"])
        for line in metrics
        if line["element"] == "model" and "Model" in line["operators"] and line["batch"] <= batch
    }
    return sum(took.values()) if batch in took else crash


def agree(what: str, wafers: Wafers, seen: Seen, outage: ModelOutage | None) -> dict[int, float]:
    """Compare a run's output with that of the loop, bit by bit; return the quality of each lot."""
    expected = predict(wafers.rows, outage)
    columns = [seen.predictions[name].to_pylist() for name in ("wafer", "lot", "measured", "predicted")]
    found = [YieldPrediction(*values) for values in zip(*columns, strict=True)]
    if found != expected:
        at = next((n for n, (a, b) in enumerate(zip(found, expected, strict=False)) if a != b), None)
        first = f"{found[at]}, not {expected[at]}" if at is not None else "one goes on"
        raise DisagreementError(
            f"{what}: with {outage} there are {len(found)} predictions, and a loop makes {len(expected)}; the first "
            f"difference: {first}"
        )
    lots = dict(zip(seen.lots["lot"].to_pylist(), seen.lots["error"].to_pylist(), strict=True))
    if lots != told(expected):
        other = sorted(dict(lots.items() ^ told(expected).items()))
        raise DisagreementError(f"{what}: with {outage} the error of lots {other[:5]} is not that of a loop")
    return lots
