"""Make what antennas for radio astronomy receive: noise, and now and then a wave from somewhere in the sky.

    >>> blocks = next(generate(80, seed=7))
    >>> blocks.num_rows, blocks.schema == BLOCK_SCHEMA
    (80, True)

An antenna has three dipoles at right angles, as those of the LOIS project, so it knows the whole electric field and not
its projection. All of it is made up. A second of the feed depends on its number and the seed alone: a shorter feed is
the beginning of a longer one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from riprap.arrays import Floats, Numbers

ANTENNAS = 8
SAMPLES = 1024  # of each dipole in a block
MOMENTS = 64  # blocks of an antenna in a second
RATE = SAMPLES * MOMENTS  # samples a second

BLOCK_SCHEMA = pa.schema(
    [
        pa.field(
            "block", pa.int64(), nullable=False
        ),  # from 1: the antennas of a moment, then those of the next
        pa.field("time", pa.timestamp("us", tz="UTC")),  # of the first sample
        pa.field("antenna", pa.int64()),  # from 1
        *(pa.field(dipole, pa.list_(pa.int16())) for dipole in ("x", "y", "z")),
    ]
)

_START = np.datetime64("2015-06-01T00:00:00", "us")
_NOISE = 200.0  # of a sample, one standard deviation
_WAVES = 2.0  # a second, on average
_AMPLITUDE = (250.0, 1000.0)
_LENGTH = (4, 16)  # moments
_FREQUENCY = (1_000.0, 31_000.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wave:
    """A circularly polarised wave: the moments it lasts, ``first`` to before ``end``, its hertz, how strong it is, and
    the direction about which its field turns, a vector of length 1."""

    first: int
    end: int
    frequency: float
    amplitude: float
    axis: tuple[float, float, float]


def generate(blocks: int, *, seed: int = 0) -> Iterator[pa.RecordBatch]:
    """Yield so many blocks, in batches of a second."""
    if blocks < 0:
        raise ValueError(f"a feed needs blocks >= 0, got {blocks}")
    a_second = MOMENTS * ANTENNAS
    for second, first in enumerate(range(0, blocks, a_second)):
        yield _second(second, seed).slice(0, blocks - first)


def make_blocks(blocks: int, *, seed: int = 0) -> pa.Table:
    """Make so many blocks as one table."""
    return pa.Table.from_batches(generate(blocks, seed=seed), BLOCK_SCHEMA)


def write_blocks(
    folder: Path, blocks: int, *, seed: int = 0, progress: Callable[[int], None] | None = None
) -> None:
    """Write a feed as ``folder``/part-00000.parquet and so on, one a second; ``progress`` hears how many blocks are
    written."""
    folder.mkdir(parents=True, exist_ok=True)
    if stale := sorted(folder.glob("part-*.parquet")):
        raise FileExistsError(f"{folder} already holds a feed ({stale[0].name}); write to an empty folder")
    done = 0
    for number, batch in enumerate(generate(blocks, seed=seed)):
        pq.write_table(pa.Table.from_batches([batch]), folder / f"part-{number:05d}.parquet")
        done += batch.num_rows
        if progress is not None:
            progress(done)


def waves(second: int, *, seed: int = 0) -> list[Wave]:
    """List the waves of a second. None goes on into the next."""
    draw = np.random.default_rng([seed, second, 0])
    return [_wave(second, draw) for _ in range(int(draw.poisson(_WAVES)))]


def _wave(second: int, draw: np.random.Generator) -> Wave:
    length = int(draw.integers(*_LENGTH, endpoint=True))
    first = second * MOMENTS + int(draw.integers(0, MOMENTS - length, endpoint=True))
    axis = draw.standard_normal(3)
    x, y, z = (axis / np.linalg.norm(axis)).tolist()
    return Wave(
        first=first,
        end=first + length,
        frequency=float(draw.uniform(*_FREQUENCY)),
        amplitude=float(np.exp(draw.uniform(*np.log(_AMPLITUDE)))),
        axis=(x, y, z),
    )


def _second(second: int, seed: int) -> pa.RecordBatch:
    draw = np.random.default_rng([seed, second, 1])
    field = _NOISE * draw.standard_normal((MOMENTS, ANTENNAS, 3, SAMPLES))
    for wave in waves(second, seed=seed):
        begin, end = wave.first - second * MOMENTS, wave.end - second * MOMENTS
        # The antennas are so far apart that a wave reaches each with a phase of its own.
        field[begin:end] += _received(wave, draw.uniform(0, 2 * np.pi, ANTENNAS))
    samples = np.clip(np.rint(field), -32768, 32767).astype(np.int16)
    return _batch(second, samples.reshape(-1, 3, SAMPLES))


def _received(wave: Wave, phases: Floats) -> Floats:
    """Return the field of a wave, by moment, antenna, dipole and sample."""
    axis = np.array(wave.axis)
    across = np.cross(axis, np.eye(3)[np.argmin(np.abs(axis))])
    across /= np.linalg.norm(across)
    time = np.arange((wave.end - wave.first) * SAMPLES).reshape(-1, 1, SAMPLES) / RATE
    angle = 2 * np.pi * wave.frequency * time + phases[:, None]
    turning = np.cos(angle)[:, :, None] * across[:, None]
    turning += np.sin(angle)[:, :, None] * np.cross(axis, across)[:, None]
    field: Floats = wave.amplitude * turning
    return field


def _batch(second: int, samples: Numbers) -> pa.RecordBatch:
    count = len(samples)
    block = np.arange(second * count, (second + 1) * count)
    time = _START + (block // ANTENNAS * (1_000_000 // MOMENTS)).astype("timedelta64[us]")
    ends = pa.array(np.arange(0, (count + 1) * SAMPLES, SAMPLES), pa.int32())
    columns = [
        pa.array(block + 1),
        pa.array(time).cast(BLOCK_SCHEMA.field("time").type),
        pa.array(block % ANTENNAS + 1),
        *(pa.ListArray.from_arrays(ends, samples[:, dipole].ravel()) for dipole in range(3)),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=BLOCK_SCHEMA)
