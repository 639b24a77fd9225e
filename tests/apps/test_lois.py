"""LOIS: what is put out is what a plain loop with a transform from the textbook says, and the waves are found."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.stages import run_batches

import riprap as rr
from riprap.apps.catalogue import CATALOGUE
from riprap.apps.lois import lois, spin_of
from riprap.apps.lois_feed import (
    ANTENNAS,
    BLOCK_SCHEMA,
    MOMENTS,
    RATE,
    SAMPLES,
    make_blocks,
    waves,
    write_blocks,
)

Row = dict[str, Any]
VALUES = ("power", "usual", "turning", "x", "y", "z")
A_BAND = RATE / 128 * 4
# exp(-i w t) of every channel at every sample of a frame, and the taper of Blackman.
_TIMES = np.arange(128)
WAVES = np.exp(-2j * np.pi * np.outer(np.arange(1, 65), _TIMES) / 128)
TAPER = 0.42 - 0.5 * np.cos(2 * np.pi * _TIMES / 127) + 0.08 * np.cos(4 * np.pi * _TIMES / 127)


def bands_of(block: Row) -> list[tuple[float, np.ndarray[Any, Any]]]:
    """Return the power and the spin of each band of a block, by sums over frames and samples."""
    dipoles = [np.array(block[name], float) for name in "xyz"]
    power, spin = np.zeros(64), np.zeros((64, 3))
    for start in range(0, SAMPLES - 128 + 1, 32):
        x, y, z = (WAVES @ (TAPER * samples[start : start + 128]) for samples in dipoles)
        power += np.abs(x) ** 2 + np.abs(y) ** 2 + np.abs(z) ** 2
        crossed = [y * z.conj(), z * x.conj(), x * y.conj()]
        spin += np.stack([2 * c.imag for c in crossed], axis=1)
    scale = 2 / (128 * 29 * np.sum(TAPER**2))
    return [(scale * power[n : n + 4].sum(), scale * spin[n : n + 4].sum(axis=0)) for n in range(0, 64, 4)]


def loop(blocks: Sequence[Row], factor: float = 2.0, newest: int = 64) -> list[Row]:
    """Compare each band of each block with the mean of the antenna's newest blocks."""
    recent: dict[tuple[int, int], deque[float]] = {}
    found = []
    for block in blocks:
        for band, (power, spin) in enumerate(bands_of(block), 1):
            powers = recent.setdefault((block["antenna"], band), deque(maxlen=newest))
            powers.append(power)
            usual = math.fsum(powers) / len(powers)
            if power > factor * usual:
                length = float(np.linalg.norm(spin))
                x, y, z = (spin / length).tolist()
                known = {name: block[name] for name in ("block", "time", "antenna")}
                values = (power, usual, length / power, x, y, z)
                found.append({**known, "band": band, **dict(zip(VALUES, values, strict=True))})
    return found


def signals(feed: pa.Table, ends: Sequence[int] = (), **options: Any) -> list[Row]:
    """Return what LOIS puts out for a feed that comes in batches."""
    settings = {name: options.pop(name) for name in ("factor", "blocks") if name in options}
    bounds = [0, *ends, feed.num_rows]
    batches = [{"Source": feed.slice(low, high - low)} for low, high in pairwise(bounds)]
    return run_batches(lois(rr.rows(feed), rr.memory(), **settings), batches, sink="Sink", **options)


def the_same(found: Sequence[Row], expected: Sequence[Row]) -> None:
    def split(rows: Sequence[Row]) -> tuple[list[Row], list[list[float]]]:
        named = [{k: v for k, v in row.items() if k not in VALUES} for row in rows]
        return named, [[row[name] for name in VALUES] for row in rows]

    (rows, values), (expected_rows, expected_values) = split(found), split(expected)
    assert rows == expected_rows
    np.testing.assert_allclose(values, expected_values, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("ends", "tasks"), [((), 1), ((1, 300, 411), 2)])
def test_the_application_is_a_loop(ends: Sequence[int], tasks: int) -> None:
    feed = make_blocks(512, seed=5)
    expected = loop(feed.to_pylist())
    assert len(expected) > 20
    the_same(signals(feed, ends, buckets=4, tasks=[tasks] * (len(ends) + 1)), expected)


def test_results_do_not_depend_on_batches_to_the_last_bit() -> None:
    feed = make_blocks(600, seed=6)
    whole = signals(feed)
    assert whole
    assert signals(feed, (1, 2, 77, 80, 433), buckets=4, tasks=[3] * 6) == whole


def test_settings_say_what_is_more_than_usual() -> None:
    feed = make_blocks(512, seed=5)
    more = loop(feed.to_pylist(), 1.2, 10)
    the_same(signals(feed, factor=1.2, blocks=10), more)
    assert len(more) > len(signals(feed)) > 0
    with pytest.raises(rr.GraphError, match=r"factor= takes a number above 1, got 0\.5"):
        lois(rr.rows(BLOCK_SCHEMA.empty_table()), rr.memory(), factor=0.5)


def test_every_wave_is_found_where_it_came_from() -> None:
    seconds = 6
    found = signals(make_blocks(seconds * MOMENTS * ANTENNAS, seed=7))
    sent = [wave for second in range(seconds) for wave in waves(second, seed=7)]
    assert len(sent) > 8
    for wave in sent:
        band = int((wave.frequency / (RATE / 128) - 0.5) // 4) + 1
        seen = [
            r for r in found if wave.first <= (r["block"] - 1) // ANTENNAS < wave.end and r["band"] == band
        ]
        assert {r["antenna"] for r in seen} == set(range(1, ANTENNAS + 1))
        strongest = max(seen, key=lambda row: row["power"])
        axis = np.array([strongest[name] for name in "xyz"])
        # The feed turns about the axis as a right hand has it, and the spectrum tells which way.
        assert axis @ np.array(wave.axis) > 0.98
        assert strongest["turning"] > 0.8
    # Nothing else is: two moments in which no wave is sent are silent.
    busy = {moment for wave in sent for moment in range(wave.first, wave.end)}
    assert {(r["block"] - 1) // ANTENNAS for r in found} <= busy


def test_a_wave_has_all_its_power_in_spin_and_a_line_none() -> None:
    time = np.arange(SAMPLES) / RATE
    angle = 2 * np.pi * 4.5 * A_BAND * time
    zero = np.zeros(SAMPLES)
    circle = np.stack([zero, 300 * np.cos(angle), 300 * np.sin(angle)])
    line = np.stack([zero, 300 * np.cos(angle), 300 * np.cos(angle)])
    (turning, straight) = spin_of(np.stack([circle, line])).sum(axis=2)
    # The mean square of each is 300 squared.
    np.testing.assert_allclose(turning, [90_000, 90_000, 0, 0], rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(straight, [90_000, 0, 0, 0], rtol=1e-3, atol=1e-6)


def test_blocks_that_lack_samples_are_left_out_and_lines_have_no_axis() -> None:
    feed = make_blocks(80, seed=5).to_pylist()
    feed[3]["y"], feed[4]["z"] = None, feed[4]["z"][:-1]
    loud = [1000, -1000] * (SAMPLES // 2)
    feed[72] = {**feed[72], "x": loud, "y": loud, "z": loud}
    found = signals(pa.Table.from_pylist(feed, BLOCK_SCHEMA))
    (loudest,) = (row for row in found if row["block"] == 73 and row["band"] == 16)
    assert (loudest["turning"], loudest["x"], loudest["y"], loudest["z"]) == (0.0, None, None, None)


def test_a_feed_is_the_beginning_of_a_longer_one(tmp_path: Path) -> None:
    long = make_blocks(1_100, seed=3)
    assert make_blocks(777, seed=3) == long.slice(0, 777)
    assert make_blocks(777, seed=4) != long.slice(0, 777)
    assert make_blocks(0) == BLOCK_SCHEMA.empty_table()
    heard: list[int] = []
    write_blocks(tmp_path, 1_100, seed=3, progress=heard.append)
    assert heard == [512, 1_024, 1_100]
    assert pq.read_table(sorted(tmp_path.iterdir())) == long
    with pytest.raises(FileExistsError):
        write_blocks(tmp_path, 1)
    with pytest.raises(ValueError, match="blocks >= 0"):
        make_blocks(-1)


def test_a_feed_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    feed = make_blocks(8)
    pq.write_table(feed.drop_columns("z"), tmp_path / "lacks.parquet")
    with pytest.raises(rr.GraphError, match=r"lacks z array<smallint>.*docs/lois.md"):
        CATALOGUE["lois"].make(tmp_path / "lacks.parquet", rr.memory())
