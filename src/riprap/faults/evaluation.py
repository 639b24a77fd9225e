"""What a campaign found: the metrics of every operator, how sure they are, and what they mean in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any, Literal

import numpy as np

from riprap.arrays import Floats
from riprap.faults.campaign import Campaign, Outage, Targets
from riprap.faults.metrics import (
    Anova,
    QualityLine,
    data_dependency,
    fit_line,
    local_errors,
    notices,
    outage_impact,
    recover,
    repeated_quality,
)
from riprap.faults.scored_trials import GoldenScored, Scored, place_id
from riprap.intervals import bootstrap, interval_of

Verdict = Literal["protect", "restart is enough", "no effect", "unknown"]
Interval = tuple[float, float]
_UNKNOWN: Interval = (math.nan, math.nan)


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """What followed a fault at one offset, at the longest outage: errors section by section, from where it began.

    ``lasts`` is how many sections the outage itself is long, ``recovery`` and ``impact`` are R and I of the offset.
    """

    offset: int
    begins: int
    lasts: int
    errors: Floats
    recovery: int
    impact: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AtOutage:
    """R and I of outages of one length, offset by offset; None where trials failed.

    Those of the whole campaign are the worst at the longest outage.
    """

    outage: str
    R: tuple[int | None, ...]
    I: tuple[float | None, ...]  # noqa: E741  (the paper's name)

    @property
    def worst(self) -> tuple[int | None, float | None]:
        """The worst R and the worst I of any offset."""
        return max((r for r in self.R if r is not None), default=None), max(
            (i for i in self.I if i is not None), default=None
        )

    def to_json(self) -> dict[str, Any]:
        worst = self.worst
        return {
            "outage": self.outage,
            "R": worst[0],
            "I": worst[1],
            "R_at": list(self.R),
            "I_at": list(self.I),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Criticality:
    """The metrics of a target under a model of faults, as equations 1 to 8 define them.

    ``lengths`` are the outages in tuples; ``quality`` and its ``intervals`` are by offset and outage, ``lines`` by
    offset, ``by_outage`` has R and I of every outage and offset.
    """

    model: str
    targets: Targets
    C: float
    C_interval: Interval
    correlations: tuple[float, ...]
    D: float
    anova: Anova
    R: int | None
    R_interval: Interval
    I: float  # noqa: E741  (the paper's name)
    I_interval: Interval
    lengths: tuple[float, ...]
    quality: Floats
    intervals: Floats
    lines: tuple[QualityLine | None, ...]
    spans: tuple[Span, ...]
    by_outage: tuple[AtOutage, ...]
    notices: bool
    unknown: int
    varies: bool

    @property
    def name(self) -> str:
        return "+".join(self.targets)

    @property
    def verdict(self) -> Verdict:
        """What to do about it: what is right again as soon as the outage is over needs no more than a restart."""
        if not self.spans:
            return "unknown"
        if self.R == 0:
            return "no effect"
        # A fault that ends inside a section may spoil the one after.
        short = all(span.recovery <= span.lasts + 1 for span in self.spans)
        return "restart is enough" if short else "protect"

    @property
    def unpredictable(self) -> bool:
        """Whether how bad it gets depends on the data that are hit."""
        return self.anova.outcome == "reject"

    @property
    def words(self) -> str:
        """Say in a sentence what to do and why."""
        worst = max(self.spans, key=lambda span: span.impact, default=None)
        if worst is None:
            return "unknown: its trials failed"
        if self.verdict == "no effect":
            return "no effect: the output is right within the threshold"
        longest = max(self.spans, key=lambda span: span.recovery)
        wrong = f"wrong for {longest.recovery} sections after an outage of {longest.lasts}"
        how = ", unpredictable (how much depends on the data hit)" if self.unpredictable else ""
        return f"{self.verdict}{how}: {wrong}, impact {self.I:.2f}"

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "model": self.model,
            "targets": list(self.targets),
            "C": number(self.C),
            "C_interval": [number(v) for v in self.C_interval],
            "D": number(self.D),
            "anova": self.anova.outcome,
            "anova_p": None if self.anova.p is None else number(self.anova.p),
            "R": self.R,
            "R_interval": [number(v) for v in self.R_interval],
            "I": number(self.I),
            "I_interval": [number(v) for v in self.I_interval],
            "verdict": self.verdict,
            "unpredictable": self.unpredictable,
            "words": self.words,
            "score_notices": self.notices,
            "repetitions_vary": self.varies,
            "unknown_trials": self.unknown,
            "correlations": [number(c) for c in self.correlations],
            "outages": [number(v) for v in self.lengths],
            "quality": [[number(v) for v in row] for row in self.quality],
            "quality_intervals": [[[number(v) for v in cell] for cell in row] for row in self.intervals],
            "lines": [None if line is None else str(line) for line in self.lines],
            "fits": [None if line is None else asdict(line) for line in self.lines],
            "offsets": [
                {
                    "offset": span.offset,
                    "begins": span.begins,
                    "lasts": span.lasts,
                    "R": span.recovery,
                    "I": number(span.impact),
                    "errors": [number(e) for e in span.errors],
                }
                for span in self.spans
            ],
            "by_outage": [each.to_json() for each in self.by_outage],
        }


def number(value: float) -> float | None:
    """Return a number that JSON can have; unknown is null."""
    return None if math.isnan(value) or math.isinf(value) else float(value)


def evaluate(
    campaign: Campaign, trials: Sequence[Scored], golden: Sequence[GoldenScored]
) -> tuple[Criticality, ...]:
    """Make the metrics of every target under every model, those of the greatest impact first."""
    by_id = {trial.id: trial for trial in trials}
    runs = {run.seed: run for run in sorted(golden, key=lambda run: run.seed) if not run.error}
    criticalities = [
        _evaluate(campaign, model, targets, by_id, runs)
        for model in campaign.models
        for targets in campaign.placed[model]
    ]
    order = {model: n for n, model in enumerate(campaign.models)}
    return tuple(sorted(criticalities, key=lambda c: (order[c.model], math.isnan(c.I), -c.I, -(c.R or 0))))


def _evaluate(
    campaign: Campaign,
    model: str,
    targets: Targets,
    by_id: Mapping[str, Scored],
    runs: Mapping[int, GoldenScored],
) -> Criticality:
    cells: dict[tuple[int, Outage], list[tuple[int, Scored]]] = {}
    for offset, outage in product(campaign.offsets, campaign.outages):
        cells[offset, outage] = trials = []
        for repetition in range(campaign.repetitions):
            trial = by_id.get(f"{place_id(model, targets, offset)}/{outage}/{repetition}")
            seed = repetition if campaign.interleave is not None else 0
            if trial is not None and not trial.error and seed in runs:
                trials.append((seed, trial))
    wanted = len(cells) * campaign.repetitions
    places = [place_id(model, targets, offset) for offset in campaign.offsets]
    reference = [
        np.array([run.affected[place] for run in runs.values() if place in run.affected]) for place in places
    ]
    each = [
        [
            repeated_quality(np.array([t.affected for _, t in cells[offset, outage]]), reference[i])
            for outage in campaign.outages
        ]
        for i, offset in enumerate(campaign.offsets)
    ]
    quality = np.array([[_mean(cell) for cell in row] for row in each])
    lengths = tuple(
        _length(outage, [t for o in campaign.offsets for _, t in cells[o, outage]])
        for outage in campaign.outages
    )
    C, correlations = outage_impact(lengths, quality)
    dependency = data_dependency([row[-1] for row in each])
    spans, sensitive, worst = _spans(campaign, cells, runs)
    sure = [c for c in correlations if not math.isnan(c)]
    return Criticality(
        model=model,
        targets=targets,
        C=C,
        C_interval=bootstrap(np.array(sure)) if sure else _UNKNOWN,
        correlations=correlations,
        D=dependency.deviation,
        anova=dependency.anova,
        R=max((span.recovery for span in spans), default=None),
        R_interval=bootstrap(worst[:, 0]) if len(worst) else _UNKNOWN,
        I=max((span.impact for span in spans), default=math.nan),
        I_interval=bootstrap(worst[:, 1]) if len(worst) else _UNKNOWN,
        lengths=lengths,
        quality=quality,
        intervals=np.array([[interval_of(cell) if len(cell) else _UNKNOWN for cell in row] for row in each]),
        lines=tuple(fit_line(lengths, row) for row in quality),
        spans=tuple(spans),
        by_outage=tuple(_at_outage(campaign, outage, cells, runs) for outage in campaign.outages),
        notices=sensitive,
        unknown=wanted - sum(map(len, cells.values())),
        varies=campaign.repetitions < 2 or any(len(c) > 1 and np.ptp(c) > 0 for row in each for c in row),
    )


def _spans(
    campaign: Campaign,
    cells: Mapping[tuple[int, Outage], Sequence[tuple[int, Scored]]],
    runs: Mapping[int, GoldenScored],
) -> tuple[list[Span], bool, Floats]:
    """Follow the longest outage at every offset; say whether the score notices, and R and I of every repetition."""
    right = np.array([run.local for run in runs.values()])
    spans: list[Span] = []
    sensitive = False
    repeated: dict[int, list[tuple[int, float]]] = {}
    for offset in campaign.offsets:
        longest = cells[offset, campaign.outages[-1]]
        if not longest:
            continue
        begin, wrong = _after_fault(longest, runs)
        errors = local_errors(wrong, right[:, begin:], signed=True)
        recovery, impact = _recover(campaign, errors)
        spans.append(
            Span(
                offset=offset,
                begins=begin,
                lasts=longest[0][1].ends - begin + 1,
                errors=errors if campaign.signed else np.abs(errors),
                recovery=recovery,
                impact=impact,
            )
        )
        for number, one in enumerate(wrong):
            recovered = _recover(campaign, local_errors(one[np.newaxis], right[:, begin:]))
            repeated.setdefault(number, []).append(recovered)
        changed = np.array(sorted({t for _, trial in longest for t in trial.sections if t >= begin}), int)
        sensitive = sensitive or notices(wrong[:, changed - begin], right[:, changed])
    worst = np.array([np.max(np.array(recovered, float), axis=0) for recovered in repeated.values()])
    return spans, sensitive, worst


def _at_outage(
    campaign: Campaign,
    outage: Outage,
    cells: Mapping[tuple[int, Outage], Sequence[tuple[int, Scored]]],
    runs: Mapping[int, GoldenScored],
) -> AtOutage:
    right = np.array([run.local for run in runs.values()])
    spans: list[tuple[int | None, float | None]] = []
    for offset in campaign.offsets:
        if not cells[offset, outage]:
            spans.append((None, None))
            continue
        begin, wrong = _after_fault(cells[offset, outage], runs)
        spans.append(_recover(campaign, local_errors(wrong, right[:, begin:])))
    return AtOutage(outage=str(outage), R=tuple(r for r, _ in spans), I=tuple(i for _, i in spans))


def _after_fault(
    repeated: Sequence[tuple[int, Scored]], runs: Mapping[int, GoldenScored]
) -> tuple[int, Floats]:
    """Return the section in which a fault begins, and the scores of its repetitions from there on."""
    begin = repeated[0][1].begins
    return begin, np.array([trial.over(np.asarray(runs[seed].local)) for seed, trial in repeated])[:, begin:]


def _mean(values: Floats) -> float:
    return float(values.mean()) if len(values) else math.nan


def _length(outage: Outage, trials: Sequence[Scored]) -> float:
    """Return how long an outage is in tuples: of the source where one can say so, else those that targets lost."""
    if outage.tuples is not None:
        return float(outage.tuples)
    if outage.positions is not None:
        return outage.positions
    return float(np.mean([t.lost for t in trials])) if trials else math.nan


def _recover(campaign: Campaign, errors: Floats) -> tuple[int, float]:
    return recover(errors, threshold=campaign.threshold, covered=campaign.covered)
