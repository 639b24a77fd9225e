"""What a campaign found: the metrics of every operator, how sure they are, and what they mean in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from riprap.faults.campaign import Campaign, Outage, Targets
from riprap.faults.metrics import (
    Anova,
    Line,
    data_dependency,
    fit_line,
    interval_of,
    local_errors,
    notices,
    outage_impact,
    quality_scores,
    recover,
    repeated_quality,
)
from riprap.faults.scores import Floats
from riprap.faults.scoring import GoldenScored, Scored, place_id

Verdict = Literal["protect", "restart is enough", "no effect", "unknown"]
Interval = tuple[float, float]


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
class Criticality:
    """The metrics of a target under a model of faults, as equations 1 to 8 define them.

    ``lengths`` are the outages in tuples; ``quality`` and its ``intervals`` are by offset and outage, ``lines`` by
    offset.
    """

    model: str
    targets: Targets
    C: float
    C_interval: Interval
    correlations: tuple[float, ...]
    D: float
    anova: Anova
    R: int
    R_interval: Interval
    I: float  # noqa: E741  (the paper's name)
    I_interval: Interval
    lengths: tuple[float, ...]
    quality: Floats
    intervals: Floats
    lines: tuple[Line | None, ...]
    spans: tuple[Span, ...]
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
            "anova_p": self.anova.p,
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
        }


def number(value: float) -> float | None:
    """Return a number that JSON can have; unknown is null."""
    return None if math.isnan(value) or math.isinf(value) else float(value)


def evaluate(
    campaign: Campaign, trials: Sequence[Scored], golden: Sequence[GoldenScored]
) -> tuple[Criticality, ...]:
    """Make the metrics of every target under every model, those of the greatest impact first."""
    known = {trial.id: trial for trial in trials}
    runs = {run.seed: run for run in golden}
    found = [
        _evaluate(campaign, model, targets, known, runs)
        for model in campaign.models
        for targets in campaign.targets
    ]
    order = {model: n for n, model in enumerate(campaign.models)}
    return tuple(sorted(found, key=lambda c: (order[c.model], -c.I, -c.R)))


def _evaluate(
    campaign: Campaign,
    model: str,
    targets: Targets,
    known: Mapping[str, Scored],
    runs: Mapping[int, GoldenScored],
) -> Criticality:
    cells = {
        (offset, outage): [
            known.get(f"{place_id(model, targets, offset)}/{outage}/{k}") for k in range(campaign.repetitions)
        ]
        for offset in campaign.offsets
        for outage in campaign.outages
    }
    sound = {cell: [t for t in trials if t is not None and not t.error] for cell, trials in cells.items()}
    # A repetition that failed somewhere is left out everywhere, so that all that are compared have the same.
    bad = {k for trials in cells.values() for k, t in enumerate(trials) if t is None or t.error}
    used = [k for k in range(campaign.repetitions) if k not in bad]
    unknown = sum(t is None or bool(t.error) for trials in cells.values() for t in trials)
    places = [place_id(model, targets, offset) for offset in campaign.offsets]
    reference = np.array([[run.affected[place] for run in runs.values()] for place in places])
    shape = (len(campaign.offsets), len(campaign.outages))
    lengths = tuple(
        _length(outage, [t for o in campaign.offsets for t in sound[o, outage]])
        for outage in campaign.outages
    )
    if not used:
        nothing = np.full(shape, math.nan)
        return Criticality(
            model=model, targets=targets, C=math.nan, C_interval=(math.nan, math.nan), correlations=(), D=math.nan,
            anova=Anova("constant"), R=0, R_interval=(math.nan, math.nan), I=math.nan, I_interval=(math.nan, math.nan),
            lengths=lengths, quality=nothing, intervals=np.stack([nothing, nothing], axis=-1), lines=(), spans=(),
            notices=False, unknown=unknown, varies=False,
        )  # fmt: skip
    faulty = np.array(
        [
            [[_sound(cells[offset, outage][k]).affected for k in used] for outage in campaign.outages]
            for offset in campaign.offsets
        ]
    )
    each = repeated_quality(faulty, reference)
    quality = quality_scores(faulty, reference)
    C, correlations = outage_impact(lengths, quality)
    dependency = data_dependency(faulty[:, -1], reference)
    spans, by_repetition, sensitive = [], [], False
    right = np.array([run.local for run in runs.values()])
    for offset in campaign.offsets:
        longest = [_sound(cells[offset, campaign.outages[-1]][k]) for k in used]
        begin = longest[0].begins
        wrong = np.array([t.over(np.asarray(runs[k].local)) for k, t in zip(used, longest, strict=True)])[
            :, begin:
        ]
        errors = local_errors(wrong, right[:, begin:], signed=True)
        recovery, impact = _recover(campaign, errors)
        spans.append(
            Span(
                offset=offset,
                begins=begin,
                lasts=longest[0].ends - begin + 1,
                errors=errors if campaign.signed else np.abs(errors),
                recovery=recovery,
                impact=impact,
            )
        )
        by_repetition.append(
            [_recover(campaign, local_errors(one[np.newaxis], right[:, begin:])) for one in wrong]
        )
        changed = np.array(sorted({t for trial in longest for t in trial.sections if t >= begin}), int)
        sensitive = sensitive or notices(wrong[:, changed - begin], right[:, changed])
    worst = np.array(by_repetition, float).max(axis=0)
    return Criticality(
        model=model,
        targets=targets,
        C=C,
        C_interval=interval_of(np.array([c for c in correlations if not math.isnan(c)] or [math.nan])),
        correlations=correlations,
        D=dependency.deviation,
        anova=dependency.anova,
        R=max(span.recovery for span in spans),
        R_interval=interval_of(worst[:, 0]),
        I=max(span.impact for span in spans),
        I_interval=interval_of(worst[:, 1]),
        lengths=lengths,
        quality=quality,
        intervals=np.array([[interval_of(cell) for cell in row] for row in each]),
        lines=tuple(fit_line(lengths, row) for row in quality),
        spans=tuple(spans),
        notices=sensitive,
        unknown=unknown,
        varies=bool((np.ptp(faulty, axis=-1) > 0).any()) or len(used) < 2,
    )


def _sound(trial: Scored | None) -> Scored:
    assert trial is not None
    return trial


def _length(outage: Outage, trials: Sequence[Scored]) -> float:
    """Return how long an outage is in tuples: of the source where one can say so, else those that targets lost."""
    if outage.tuples is not None:
        return float(outage.tuples)
    if outage.positions is not None:
        return outage.positions
    return float(np.mean([t.lost for t in trials])) if trials else math.nan


def _recover(campaign: Campaign, errors: Floats) -> tuple[int, float]:
    return recover(errors, threshold=campaign.threshold, covered=campaign.covered)
