"""The hash of a key is part of what a run leaves on disk: it may never change."""

from __future__ import annotations

import subprocess
import sys
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from riprap.state.hashing import buckets_of, first_hash, hash_arrays

UTC = pa.timestamp("us", "UTC")


def hash_of(value: Any, kind: pa.DataType) -> int:
    return int(hash_arrays([pa.array([value], kind)])[0])


GOLDEN = [
    (None, pa.int64(), 0x9AE16A3B2F90404F),
    (0, pa.int64(), 0x0000000000000000),
    (1, pa.int64(), 0x5692161D100B05E5),
    (-1, pa.int64(), 0xB4D055FCF2CBBD7B),
    (2**63 - 1, pa.int64(), 0x5A682AFE7965DEBD),
    (True, pa.bool_(), 0x5692161D100B05E5),
    (date(2024, 2, 29), pa.date32(), 0xB66D7F24F36F1DE0),
    (datetime(2024, 2, 29, 12, 0, 0, 1), pa.timestamp("us"), 0x2C23231AC1910633),
    (1.0, pa.float64(), 0x2A20CD80798DAE26),
    (float("nan"), pa.float64(), 0x469BF2DCC1AA179B),
    (float("-inf"), pa.float64(), 0xF35A23197F8FA277),
    ("", pa.string(), 0xF52A15E9A9B5E89B),
    ("IBM", pa.string(), 0x728FF789997DBFEB),
    ("é\0", pa.string(), 0x10BB1F0D3E06F4D7),
    (b"\xff", pa.binary(), 0x4F2DB50F124040CD),
    (Decimal("0"), pa.decimal128(10, 2), 0xD991E919042832C6),
    (Decimal("-1.50"), pa.decimal128(10, 2), 0xF20C3C234A464B07),
]


@pytest.mark.parametrize(("value", "kind", "hashed"), GOLDEN, ids=lambda v: str(v))
def test_the_hash_is_pinned(value: Any, kind: pa.DataType, hashed: int) -> None:
    assert hash_of(value, kind) == hashed


def test_the_hash_of_several_columns_is_pinned() -> None:
    columns = [pa.array(["IBM", None]), pa.array([1, 1], pa.int32()), pa.array([None, 2.5])]

    assert [int(h) for h in hash_arrays(columns)] == [0xE7574C1BDB1D2C8B, 0x2D0BD80448A10886]


def test_another_process_hashes_alike() -> None:
    program = (
        "import pyarrow as pa; from riprap.state.hashing import *; print(hash_arrays([pa.array(['IBM'])])[0])"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert int(found.stdout) == hash_of("IBM", pa.string())


@given(st.integers(-128, 127))
def test_integers_of_any_width_hash_alike(value: int) -> None:
    kinds = (pa.int8(), pa.int16(), pa.int32(), pa.int64())

    assert len({hash_of(value, kind) for kind in kinds}) == 1


@given(st.decimals(-(10**12), 10**12, places=4))
def test_decimals_of_any_scale_hash_alike(value: Decimal) -> None:
    kinds = [pa.decimal128(38, scale) for scale in (4, 5, 10, 20, 25)]

    assert len({hash_of(value, kind) for kind in kinds}) == 1


@pytest.mark.parametrize("digits", ["0", "0.0000001", "0.0000000001", "-0.0000010", "100", "120.00"])
def test_decimals_that_print_with_an_exponent_hash_as_their_value(digits: str) -> None:
    value = Decimal(digits)

    assert len({hash_of(value, pa.decimal128(38, scale)) for scale in range(10, 36)}) == 1


@given(st.lists(st.decimals(-(10**9), 10**9, places=10), min_size=2, max_size=20, unique=True))
def test_different_decimals_hash_differently(values: list[Decimal]) -> None:
    array = pa.array(values, pa.decimal128(30, 10))

    assert len(set(hash_arrays([array]).tolist())) == len(array.unique())


@given(st.floats(width=32))
def test_floats_and_doubles_hash_alike(value: float) -> None:
    assert hash_of(value, pa.float32()) == hash_of(value, pa.float64())


def test_every_nan_is_one_key_and_so_is_every_nought() -> None:
    nans = np.array([0x7FF8000000000000, 0xFFF8000000000001, 0x7FFFFFFFFFFFFFFF], np.uint64).view(np.float64)

    assert len(set(hash_arrays([pa.array(nans)]).tolist())) == 1
    assert hash_of(-0.0, pa.float64()) == hash_of(0.0, pa.float64()) == hash_of(-0.0, pa.float32())


def test_timestamps_hash_alike_whatever_their_unit_and_zone() -> None:
    moment = datetime(2024, 2, 29, 12, 30, 15)
    kinds = [pa.timestamp(unit, zone) for unit in ("s", "ms", "us", "ns") for zone in (None, "UTC")]

    assert len({hash_of(moment, kind) for kind in kinds}) == 1


def test_null_hashes_alike_in_every_type() -> None:
    kinds = [
        pa.int8(),
        pa.float64(),
        pa.string(),
        pa.binary(),
        pa.bool_(),
        pa.date32(),
        UTC,
        pa.decimal128(9, 3),
    ]

    assert len({hash_of(None, kind) for kind in kinds}) == 1


def test_text_hashes_alike_in_every_layout() -> None:
    words = ["b", "", None, "béta", "b"]
    plain = pa.array(words)
    layouts = [plain, plain.cast(pa.large_string()), plain.dictionary_encode(), pa.array(["x", *words])[1:]]

    assert len({tuple(hash_arrays([layout]).tolist()) for layout in layouts}) == 1


def test_slices_hash_as_their_rows() -> None:
    for array in (
        pa.array([Decimal(n) for n in range(9)], pa.decimal128(20, 3)),
        pa.array([None, *range(8)], pa.int64()),
        pa.array([b"ab"] * 3 + [None, b""], pa.binary()),
    ):
        assert hash_arrays([array[2:5]]).tolist() == hash_arrays([array]).tolist()[2:5]


def test_the_order_of_columns_matters() -> None:
    a, b = pa.array([1]), pa.array([2])

    assert hash_arrays([a, b])[0] != hash_arrays([b, a])[0]


@pytest.mark.parametrize(
    "keys",
    [
        pa.array(range(20_000)),
        pa.array([float(n) for n in range(20_000)]),
        pa.array([f"S{n:05d}" for n in range(20_000)]),
        pa.array([n * 60_000_000 for n in range(20_000)], pa.timestamp("us")),
        pa.array([Decimal(n).scaleb(-2) for n in range(20_000)], pa.decimal128(20, 2)),
    ],
    ids=["whole numbers", "doubles", "names", "minutes", "cents"],
)
@pytest.mark.parametrize("buckets", [2, 8, 100])
def test_buckets_are_roughly_even(keys: pa.Array, buckets: int) -> None:
    sizes = np.bincount(buckets_of(hash_arrays([keys]), buckets), minlength=buckets)

    # Within six standard deviations of a fair deal.
    fair = len(keys) / buckets
    assert np.all(np.abs(sizes - fair) < 6 * np.sqrt(fair))


@settings(max_examples=300)
@given(hashed=st.integers(0, 2**64 - 1), buckets=st.integers(1, 5000))
def test_a_bucket_is_a_range_of_hashes(hashed: int, buckets: int) -> None:
    (bucket,) = buckets_of(np.array([hashed], np.uint64), buckets).tolist()

    assert 0 <= bucket < buckets
    assert first_hash(bucket, buckets) <= hashed
    assert bucket + 1 == buckets or hashed < first_hash(bucket + 1, buckets)
