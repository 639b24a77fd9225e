"""An application that is cut after each file of a folder, and what it puts out, worked out row by row."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from itertools import accumulate
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import riprap as rr

SCHEMA = "seq bigint, k string, v bigint"
# Files of less than a batch, of several, of none, and of a batch to the row.
FILES: Mapping[str, int] = {
    "a": 30,
    "b": 0,
    "c": 430,
    "d": 1,
    "e": 200,
    "f": 0,
    "g": 260,
    "h": 120,
    "i": 90,
    "j": 310,
}
BATCH = 100


def file_ends(files: Iterable[int] = FILES.values()) -> set[int]:
    """Return after how many rows a file ends."""
    return set(accumulate(files)) - {0}


def write_files(folder: Path, files: Mapping[str, int] = FILES, *, after: int = 0) -> None:
    """Write files whose rows are numbered on from some; each appears whole."""
    folder.mkdir(exist_ok=True)
    for name, rows in files.items():
        lines = [f"{n},k{n % 7},{n * 3 % 101}\n" for n in range(after, after + rows)]
        (folder / f"_{name}").write_text("seq,k,v\n" + "".join(lines))
        (folder / f"_{name}").rename(folder / f"{name}.csv")
        after += rows


def scanned(folder: Path, out: Path, protect: rr.Policy | None) -> rr.Application:
    """Sum by one key, and count by another: two processing elements, with a sink each."""
    app = rr.Application("scanned")
    read = app.source("read", rr.files(folder, format="csv", schema=SCHEMA), protect=protect)
    total = app.aggregate(
        "total", read, by="k", window=rr.sliding(tuples=5), emit=rr.every(tuples=1),
        select="sum(v) as t, last(seq) as seq",
    )  # fmt: skip
    times = app.aggregate(
        "times", total, by="t", window=rr.sliding(tuples=3), emit=rr.every(tuples=1),
        select="max(k) as k, last(seq) as seq",
    )  # fmt: skip
    app.sink("totals", total, rr.parquet(out / "totals", roll=0))
    app.sink("largest", times, rr.parquet(out / "largest", roll=0))
    return app


def expected(rows: int) -> dict[str, list[tuple[object, ...]]]:
    """Work out what comes of so many rows."""
    windows: defaultdict[str, deque[int]] = defaultdict(lambda: deque(maxlen=5))
    keys: defaultdict[int, deque[str]] = defaultdict(lambda: deque(maxlen=3))
    totals: list[tuple[object, ...]] = []
    largest: list[tuple[object, ...]] = []
    for n in range(rows):
        k = f"k{n % 7}"
        windows[k].append(n * 3 % 101)
        total = sum(windows[k])
        totals.append((k, total, n))
        keys[total].append(k)
        largest.append((total, max(keys[total]), n))
    return {"totals": totals, "largest": largest}


def put_out(out: Path) -> dict[str, list[tuple[object, ...]]]:
    """Read what the sinks have, in the order of its numbers; each comes once."""
    return {
        sink: sorted(
            (
                tuple(row.values())
                for file in (out / sink).glob("*.parquet")
                for row in pa.Table.to_pylist(pq.read_table(file))
            ),
            key=lambda row: row[-1],
        )
        for sink in ("totals", "largest")
    }
