"""Quality over time: how far each section of the output was off, for outages of every length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from riprap.faults.campaign import Campaign
from riprap.faults.evaluation import Criticality, number
from riprap.faults.metrics import local_errors, recover
from riprap.faults.scored_trials import GoldenScored, Scored, place_id

# Sections before the fault that are shown too.
_BEFORE = 5


def over_time(
    campaign: Campaign,
    criticalities: Sequence[Criticality],
    trials: Sequence[Scored],
    golden: Sequence[GoldenScored],
) -> list[dict[str, Any]]:
    """Return for each target, at the offset of its greatest impact, the errors after an outage of every length."""
    by_id = {trial.id: trial for trial in trials if not trial.error}
    runs = {run.seed: np.asarray(run.local) for run in golden if not run.error}
    right = np.array(list(runs.values()))
    curves = []
    for criticality in criticalities:
        if not criticality.spans:
            continue
        worst = max(criticality.spans, key=lambda span: span.impact)
        lines = []
        for outage in campaign.outages:
            place = place_id(criticality.model, criticality.targets, worst.offset)
            repeated = [
                (k if campaign.interleave is not None else 0, by_id.get(f"{place}/{outage}/{k}"))
                for k in range(campaign.repetitions)
            ]
            wrong = [trial.over(runs[seed]) for seed, trial in repeated if trial is not None and seed in runs]
            if not wrong:
                continue
            errors = local_errors(np.array(wrong), right, signed=True)
            after = errors[worst.begins :]
            recovery, impact = recover(after, threshold=campaign.threshold, covered=campaign.covered)
            first = max(0, worst.begins - _BEFORE)
            lines.append(
                {
                    "outage": str(outage),
                    "first": first,
                    "errors": [number(e) for e in errors[first:]],
                    "R": recovery,
                    "I": number(impact),
                }
            )
        curves.append(
            {
                "model": criticality.model,
                "targets": list(criticality.targets),
                "offset": worst.offset,
                "begins": worst.begins,
                "outages": lines,
            }
        )
    return curves
