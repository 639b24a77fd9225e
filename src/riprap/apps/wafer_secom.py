"""Read real wafers: SECOM, 590 sensors of a semiconductor line in 2008, as one CSV file with a header.

SECOM says of a wafer whether it passed, not what its yield was. So a sensor stands in for the yield: the one that says
most about passing, or another that the caller names.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pc_csv

from riprap.apps.wafer_feed import WAFER_SCHEMA

# Of all sensors that have more than two values and few gaps, its correlation with pass or fail is largest.
STAND_IN = 103
SENSORS = 60
LOT = 25
_FEW_GAPS = 0.1
_SENSOR = re.compile(r"sensor_(\d+)")


def read_secom(path: Path, *, stand_in: int = STAND_IN, sensors: int = SENSORS, lot: int = LOT) -> pa.Table:
    """Read the file as a feed: ``sensors`` of its sensors, and ``stand_in`` as what was measured.

    The columns are ``timestamp``, ``label`` and ``sensor_0`` and so on; missing readings are empty. Sensors that never
    change or lack more than a tenth of their readings are passed over; of the others, every n-th is taken. Consecutive
    wafers make a lot. Raise ValueError, with the file, for anything else that does not fit.
    """
    table = _read(path)
    names = [n for n in table.column_names if _SENSOR.fullmatch(n)]
    target = f"sensor_{stand_in}"
    for name in ("timestamp", target):
        if name not in table.column_names:
            raise ValueError(f"{path}: there is no column {name}; it has {len(names)} sensors")
    readings = {n: _numbers(path, n, table.column(n)) for n in names}
    usable = [n for n in names if n != target and _usable(readings[n])]
    if len(usable) < sensors:
        raise ValueError(f"{path}: {sensors} sensors are asked for, and {len(usable)} can be used")
    picked = [usable[i * len(usable) // sensors] for i in range(sensors)]
    count = table.num_rows
    values = np.stack([readings[n] for n in picked], axis=1).ravel()
    offsets = pa.array(np.arange(0, (count + 1) * sensors, sensors), pa.int32())
    columns = [
        pa.array(np.arange(1, count + 1)),
        table.column("timestamp").cast(WAFER_SCHEMA.field("time").type).combine_chunks(),
        pa.array(np.arange(count) // lot + 1),
        pa.repeat("secom", count),
        pa.ListArray.from_arrays(offsets, pa.array(values, mask=np.isnan(values))),
        pa.array(readings[target], mask=np.isnan(readings[target])),
    ]
    return pa.Table.from_arrays(columns, schema=WAFER_SCHEMA)


def _read(path: Path) -> pa.Table:
    try:
        return pc_csv.read_csv(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise ValueError(f"{path}: cannot be read: {error}") from error


def _numbers(path: Path, name: str, column: pa.ChunkedArray) -> npt.NDArray[np.float64]:
    try:
        numbers: npt.NDArray[np.float64] = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ValueError(f"{path}: column {name} is not of numbers: {error}") from error
    return numbers


def _usable(readings: npt.NDArray[np.float64]) -> bool:
    present = readings[~np.isnan(readings)]
    return len(present) >= (1 - _FEW_GAPS) * len(readings) and len(np.unique(present)) > 1
