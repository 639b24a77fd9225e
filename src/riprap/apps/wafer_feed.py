"""Make a feed of wafers: what the sensors of the tools measured at each, and the yield it turned out to have.

    >>> batch = next(generate(120, seed=7))
    >>> batch.num_rows, batch.schema == WAFER_SCHEMA
    (120, True)

No fab publishes its yields. The sensors imitate those of SECOM, real ones whose wafers have no yield but pass or fail
(`wafer_secom`): groups that go together, missing readings, wild ones, slow drift. How the yield depends on them is made
up. `docs/wafer-yield.md` has both side by side. The content depends on the seed alone: a shorter feed is the beginning
of a longer one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from riprap.arrays import Floats, Ints

WAFER_SCHEMA = pa.schema(
    [
        pa.field("wafer", pa.int64(), nullable=False),  # from 1, in the order of measurement
        pa.field("time", pa.timestamp("us", tz="UTC")),
        pa.field("lot", pa.int64()),  # from 1: wafers that go through the fab together
        pa.field("product", pa.string()),  # one for all wafers of a lot
        pa.field("sensors", pa.list_(pa.float64())),  # as many for all; null where there is no reading
        pa.field("measured", pa.float64()),  # the yield in percent; null if it was not measured
    ]
)

LOT = 50
SENSORS, GROUPS = 60, 12
PRODUCTS = {"A": 0.35, "B": 0.25, "C": 0.16, "D": 0.12, "E": 0.08, "F": 0.04}  # of the lots
START = np.datetime64("2008-07-19T12:00:00", "us")
A_WAFER = np.timedelta64(60, "s")

# Points of yield: what one standard deviation of all groups together makes, of one group's own curve, and chance.
EFFECT, CURVE, CHANCE = 8.0, 1.5, 3.0
READING_NOISE = 0.5  # of a sensor, where its group varies by 1
LOT_SHARE = 0.3  # of a group's variance that is between lots
SENSOR_DRIFT, EFFECT_DRIFT = 0.3, 0.25  # standard deviations over a long time; effects relative to their size
DRIFT_MEMORY = 0.99  # from lot to lot
MISSING, MISSING_LOTS = 0.004, 0.004  # single readings, and whole lots of a sensor
RARE_SENSORS, RARE_MISSING = 3, 0.6  # sensors that measure few lots
WILD = 0.008  # readings that are ten standard deviations off or more
UNMEASURED = 0.02  # wafers

_LOTS_AT_ONCE = 100


def generate(wafers: int, *, seed: int = 0) -> Iterator[pa.RecordBatch]:
    """Yield so many wafers, in batches of a hundred lots."""
    if wafers < 0:
        raise ValueError(f"a feed needs wafers >= 0, got {wafers}")
    fab = _Fab(seed)
    for first in range(0, wafers, _LOTS_AT_ONCE * LOT):
        yield fab.next_lots().slice(0, wafers - first)


def make_wafers(wafers: int, *, seed: int = 0) -> pa.Table:
    """Make so many wafers as one table."""
    return pa.Table.from_batches(generate(wafers, seed=seed), WAFER_SCHEMA)


def write_wafers(
    folder: Path, wafers: int, *, seed: int = 0, progress: Callable[[int], None] | None = None
) -> None:
    """Write a feed as ``folder``/part-00000.parquet and so on; ``progress`` hears how many wafers are written."""
    folder.mkdir(parents=True, exist_ok=True)
    if stale := sorted(folder.glob("part-*.parquet")):
        raise FileExistsError(f"{folder} already holds a feed ({stale[0].name}); write to an empty folder")
    done = 0
    for number, batch in enumerate(generate(wafers, seed=seed)):
        pq.write_table(pa.Table.from_batches([batch]), folder / f"part-{number:05d}.parquet")
        done += batch.num_rows
        if progress is not None:
            progress(done)


class _Fab:
    """Carry one feed from lot to lot. Each concern draws from a random stream of its own."""

    def __init__(self, seed: int) -> None:
        streams = [np.random.Generator(np.random.PCG64(s)) for s in np.random.SeedSequence(seed).spawn(7)]
        design, self._lots, self._wafers, self._noise, self._drift, self._gaps, self._tests = streams
        self._lot = 0
        products = len(PRODUCTS)
        # A sensor follows its own group, and the others a little.
        self._loadings = 0.15 * design.standard_normal((GROUPS, SENSORS))
        own = np.repeat(np.arange(GROUPS), SENSORS // GROUPS)
        signs = design.choice([-1.0, 1.0], SENSORS)
        self._loadings[own, np.arange(SENSORS)] = signs * design.uniform(0.7, 1.0, SENSORS)
        # Units are whatever they are: millivolts, degrees, counts.
        self._level = np.exp(design.normal(3.0, 2.0, SENSORS))
        self._unit = self._level * np.exp(design.normal(-3.0, 0.7, SENSORS))
        self._recipe = design.standard_normal((products, SENSORS))
        self._usual = design.uniform(78.0, 90.0, products)
        common, special = design.standard_normal(GROUPS), design.standard_normal((products, GROUPS))
        effects = 0.6 * common + 0.8 * special
        self._effects = EFFECT * effects / np.linalg.norm(effects, axis=1, keepdims=True)
        curves = design.random(GROUPS)
        self._curves = CURVE * curves / np.linalg.norm(curves)
        self._missing_lots = np.full(SENSORS, MISSING_LOTS)
        self._missing_lots[design.choice(SENSORS, RARE_SENSORS, replace=False)] = RARE_MISSING
        self._sensor_drift, self._effect_drift = np.zeros(SENSORS), np.zeros(GROUPS)

    def next_lots(self) -> pa.RecordBatch:
        """Make the next hundred lots."""
        lots = _LOTS_AT_ONCE
        product = self._lots.choice(len(PRODUCTS), lots, p=list(PRODUCTS.values()))
        between = np.sqrt(LOT_SHARE) * self._lots.standard_normal((lots, GROUPS))
        within = np.sqrt(1 - LOT_SHARE) * self._wafers.standard_normal((lots, LOT, GROUPS))
        groups: Floats = between[:, None, :] + within
        sensor_drift, effect_drift = self._drifted(lots)
        readings = groups @ self._loadings + (self._recipe[product] + sensor_drift)[:, None, :]
        readings += READING_NOISE * self._noise.standard_normal(readings.shape)
        wild = self._gaps.random(readings.shape) < WILD
        size = 10 * np.exp(np.abs(self._gaps.standard_normal(readings.shape)))
        readings += np.where(wild, size * self._gaps.choice([-1.0, 1.0], readings.shape), 0.0)
        missing = self._gaps.random(readings.shape) < MISSING
        missing |= (self._gaps.random((lots, SENSORS)) < self._missing_lots)[:, None, :]
        effects = self._effects[product] * (1 + effect_drift)
        measured = self._usual[product][:, None] + np.einsum("lwg,lg->lw", groups, effects)
        measured -= (groups**2 - 1) @ self._curves
        measured += CHANCE * self._tests.standard_normal(measured.shape)
        untested = self._tests.random(measured.shape) < UNMEASURED
        return self._batch(product, self._level + self._unit * readings, missing, measured, untested)

    def _drifted(self, lots: int) -> tuple[Floats, Floats]:
        """Let sensors and effects wander for so many lots; they are pulled back, so the feed can be of any length."""
        steps = np.sqrt(1 - DRIFT_MEMORY**2) * self._drift.standard_normal((lots, SENSORS + GROUPS))
        sensors, effects = np.empty((lots, SENSORS)), np.empty((lots, GROUPS))
        for lot, step in enumerate(steps):
            self._sensor_drift = DRIFT_MEMORY * self._sensor_drift + SENSOR_DRIFT * step[:SENSORS]
            self._effect_drift = DRIFT_MEMORY * self._effect_drift + EFFECT_DRIFT * step[SENSORS:]
            sensors[lot], effects[lot] = self._sensor_drift, self._effect_drift
        return sensors, effects

    def _batch(
        self,
        product: Ints,
        readings: Floats,
        missing: npt.NDArray[np.bool_],
        measured: Floats,
        untested: npt.NDArray[np.bool_],
    ) -> pa.RecordBatch:
        lots, count = len(product), measured.size
        wafer = np.arange(self._lot * LOT + 1, self._lot * LOT + count + 1)
        values = pa.array(readings.round(4).ravel(), mask=missing.ravel())
        names = pa.array(list(PRODUCTS)).take(pa.array(np.repeat(product, LOT)))
        columns = [
            pa.array(wafer),
            pa.array(START + wafer * A_WAFER).cast(WAFER_SCHEMA.field("time").type),
            pa.array(np.repeat(np.arange(self._lot + 1, self._lot + lots + 1), LOT)),
            names,
            pa.ListArray.from_arrays(
                pa.array(np.arange(0, (count + 1) * SENSORS, SENSORS), pa.int32()), values
            ),
            pa.array(np.clip(measured, 0.0, 100.0).round(2).ravel(), mask=untested.ravel()),
        ]
        self._lot += lots
        return pa.RecordBatch.from_arrays(columns, schema=WAFER_SCHEMA)
