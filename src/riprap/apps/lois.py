"""LOIS: find waves in the noise of antennas for radio astronomy, and where they come from (see docs/lois.md)."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import riprap as rr
from riprap.apps.lois_feed import SAMPLES
from riprap.arrays import Floats
from riprap.graph.connectors import SinkConnector, SourceConnector

FRAME, STEP = 128, 32  # samples
FRAMES = (SAMPLES - FRAME) // STEP + 1
CHANNELS = FRAME // 2
BANDS = 16

BAND_SCHEMA = pa.schema(
    [
        ("block", pa.int64()),
        ("time", pa.timestamp("us", tz="UTC")),
        ("antenna", pa.int64()),
        ("band", pa.int64()),
        *((name, pa.float64()) for name in ("power", "spin_x", "spin_y", "spin_z")),
    ]
)

_TAPER = np.blackman(FRAME)
# So that the powers of all bands add up to the mean square of what was received, but for what does not change.
_SCALE = 2 / (FRAME * FRAMES * np.sum(_TAPER**2))
# Blocks whose spectra are computed at once: what comes of so many stays in the processor's cache.
_AT_ONCE = 8


def spin_of(field: Floats) -> Floats:
    """Return power and spin of each band, by block, quantity and band; ``field`` is by block, dipole and sample.

    The spin is a vector: how much of the power turns about which axis. A wave that is circularly polarised has as much
    spin as power, noise and waves that are linearly polarised have none.
    """
    frames = np.lib.stride_tricks.sliding_window_view(field, FRAME, axis=-1)[:, :, ::STEP]
    # The channel of frequency 0 is what does not change.
    spectra = np.fft.rfft(frames * _TAPER)[..., 1:]
    (xr, yr, zr), (xi, yi, zi) = np.moveaxis(spectra.real, 1, 0), np.moveaxis(spectra.imag, 1, 0)
    power = xr * xr + xi * xi + yr * yr + yi * yi + zr * zr + zi * zi
    spin = [2 * (q * r - p * s) for p, q, r, s in ((yr, yi, zr, zi), (zr, zi, xr, xi), (xr, xi, yr, yi))]
    channels = np.stack([power, *spin], axis=1).sum(axis=2)
    bands: Floats = _SCALE * channels.reshape(-1, 4, BANDS, CHANNELS // BANDS).sum(axis=3)
    return bands


class Spectra(rr.CustomOperator):
    """Put out a tuple for each band of each block. It takes a good part of a millisecond for a block."""

    def process(self, port: int | str, batch: pa.RecordBatch) -> None:
        for first in range(0, batch.num_rows, _AT_ONCE):
            blocks = batch.slice(first, _AT_ONCE)
            count = blocks.num_rows
            field = np.stack([_samples(blocks.column(dipole)) for dipole in "xyz"], axis=1)
            rows = np.repeat(np.arange(count), BANDS)
            columns = [blocks.column(name).take(pa.array(rows)) for name in ("block", "time", "antenna")]
            columns += [pa.array(np.tile(np.arange(1, BANDS + 1), count))]
            columns += [pa.array(values.ravel()) for values in np.moveaxis(spin_of(field), 1, 0)]
            self.submit(pa.table(columns, schema=BAND_SCHEMA), rows=(first + rows).tolist())


def _samples(lists: pa.Array) -> Floats:
    # A sample that is missing counts as silence.
    values = pc.fill_null(lists.flatten().cast(pa.float64()), 0.0)
    samples: Floats = values.to_numpy(zero_copy_only=False).reshape(len(lists), SAMPLES)
    return samples


def lois(
    feed: str | Path | SourceConnector, out: SinkConnector, *, factor: float = 2.0, blocks: int = 64
) -> rr.Application:
    """Describe LOIS: a row for each band of a block in which an antenna receives more than usual.

    That is ``factor`` times the mean power of the band in the antenna's newest ``blocks`` blocks.
    """
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 1 < factor < math.inf:
        raise rr.GraphError(f"factor= takes a number above 1, got {factor!r}")
    app = rr.Application("lois")
    connector = rr.files(feed) if isinstance(feed, str | Path) else feed
    source = app.source("Source", connector, position="block")
    whole = app.functor(
        "Whole", source, where=" and ".join(f"size({dipole}) = {SAMPLES}" for dipole in "xyz"),
        select="block, time, antenna, x, y, z",
    )  # fmt: skip
    bands = app.custom("Spectra", Spectra, whole, schema=BAND_SCHEMA, stateless=True)
    assert isinstance(bands, rr.Stream)
    usual = app.aggregate(
        "Usual", bands, by=["antenna", "band"], window=rr.sliding(tuples=blocks), emit=rr.every(tuples=1),
        select="avg(power) as usual, last(block) as block, last(time) as time, last(power) as power, "
        "last(spin_x) as spin_x, last(spin_y) as spin_y, last(spin_z) as spin_z",
    )  # fmt: skip
    signals = app.functor(
        "Signals", usual, where=f"power > cast({float(factor)!r} as double) * usual",
        select="block, time, antenna, band, power, usual, "
        "sqrt(spin_x * spin_x + spin_y * spin_y + spin_z * spin_z) as spin, spin_x, spin_y, spin_z",
    )  # fmt: skip
    directions = app.functor(
        "Directions", signals, select="block, time, antenna, band, power, usual, spin / power as turning, "
        "spin_x / nullif(spin, 0) as x, spin_y / nullif(spin, 0) as y, spin_z / nullif(spin, 0) as z",
    )  # fmt: skip
    app.sink("Sink", directions, out)
    return app
