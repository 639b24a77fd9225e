"""Say what an outage of the model does to the predictions, in plain Python: the yardstick of runs that crash.

>>> outage_at(100, down=2.0, rate=10.0, every=1.0)
ModelOutage(crash=100, back=120, saved=100)
"""

from __future__ import annotations

import math
import pickle
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from riprap.apps.wafer_model import Learned

Wafer = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOutage:
    """A crash of the model, by wafers of its input.

    It had taken ``crash`` of them, the first that it takes again has ``back`` before it, and it goes on with what it
    had learned of the first ``saved``, or knows nothing (None). Those between ``crash`` and ``back`` are lost.
    """

    crash: int
    back: int
    saved: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= (self.saved or 0) <= self.crash <= self.back:
            raise ValueError(f"an outage has 0 <= saved <= crash <= back, got {self}")


@dataclass(frozen=True, slots=True)
class YieldPrediction:
    """A wafer that came through, and what was predicted for it."""

    wafer: int
    lot: int
    measured: float | None
    predicted: float | None


def outage_at(
    crash: int, *, down: float, rate: float, every: float | None = None, phase: float = 0.0
) -> ModelOutage:
    """Describe a crash after so many wafers that come at a rate, ``down`` seconds long.

    Checkpoints are taken ``every`` so many seconds, the first of them ``phase`` seconds after the first wafer. Without,
    nothing is saved. A crash before the first checkpoint finds nothing either.
    """
    back = crash + round(down * rate)
    if every is None or crash < phase * rate:
        return ModelOutage(crash=crash, back=back)
    taken = math.floor((crash / rate - phase) / every)
    return ModelOutage(crash=crash, back=back, saved=min(crash, round((phase + taken * every) * rate)))


def crash_points(
    count: int,
    *,
    wafers: int,
    rate: float,
    every: float = 1.0,
    down: tuple[float, float] = (2.0, 5.0),
    seed: int = 0,
) -> list[tuple[ModelOutage, ModelOutage]]:
    """Draw crashes, each twice: with a checkpoint ``every`` so many seconds and without, at the same wafer.

    The model is back before the last wafer.
    """
    last = wafers - math.ceil(down[1] * rate)
    if last < 2:
        raise ValueError(f"{wafers} wafers at {rate} a second are over before an outage of {down[1]} s is")
    draw = np.random.default_rng(seed)
    pairs = []
    for _ in range(count):
        crash, phase, out = int(draw.integers(1, last)), draw.uniform(0.0, every), draw.uniform(*down)
        saved = outage_at(crash, down=out, rate=rate, every=every, phase=phase)
        pairs.append((saved, outage_at(crash, down=out, rate=rate)))
    return pairs


def predict(wafers: Iterable[Wafer], outage: ModelOutage | None = None) -> list[YieldPrediction]:
    """Predict, then learn, wafer after wafer, and come through an outage as the operator must."""
    learned, copy = Learned(), pickle.dumps(Learned())
    found = []
    for taken, wafer in enumerate(wafers):
        if outage is not None:
            if taken == outage.saved:
                copy = pickle.dumps(learned)
            if taken == outage.crash:
                learned = pickle.loads(copy)
            if outage.crash <= taken < outage.back:
                continue
        predicted = learned.take(wafer["product"], wafer["sensors"], wafer["measured"])
        found.append(YieldPrediction(wafer["wafer"], wafer["lot"], wafer["measured"], predicted))
    return found


def quality(predictions: Iterable[YieldPrediction]) -> dict[int, float]:
    """Return the quality metric of each lot: the root of the mean squared error, in points of yield.

    The application tells of a lot once the next one begins; the last is here too.
    """
    squares: dict[int, list[float]] = defaultdict(list)
    for p in predictions:
        if p.measured is not None and p.predicted is not None:
            error = p.predicted - p.measured
            # Not error ** 2: the power of the C library may be another in the last bit.
            squares[p.lot].append(error * error)
    return {lot: math.sqrt(math.fsum(errors) / len(errors)) for lot, errors in squares.items()}


def deviations(golden: Mapping[int, float], crashed: Mapping[int, float], first: int) -> dict[int, float]:
    """Return by how much the quality of each lot is off, from lot ``first`` on, in lots that both runs have."""
    return {lot: crashed[lot] - golden[lot] for lot in golden if lot >= first and lot in crashed}


def root_mean_square(errors: Sequence[float]) -> float:
    """Return the RMSE of deviations; 0 if there are none."""
    return math.sqrt(math.fsum(e * e for e in errors) / len(errors)) if errors else 0.0
