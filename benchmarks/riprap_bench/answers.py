"""Compare what two programs made of the same feed.

Plain sums of five doubles may differ from exactly rounded ones in the last bit. So two answers are the same if
they name the same quotes and agree on average and gain within a relative `TOLERANCE`; a quote that only one of
them calls a bargain is allowed where average and price are that close: there the choice is one of rounding.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

TOLERANCE = 1e-12
MEANING = (
    f"the same quotes, with the average equal within {TOLERANCE:g} and the gain within {TOLERANCE:g} of average "
    f"times size; a quote that only one side found must have an average within {TOLERANCE:g} of its price"
)

_COLUMNS = ["seq", "ticker", "vwap", "price", "size", "gain"]


def read_answer(folder: Path, *, until: int | None = None) -> pa.Table:
    """Read the bargains of a run in order; with ``until``, those up to that sequence number."""
    table = pq.read_table(folder, columns=_COLUMNS)
    return first_of(table.sort_by("seq"), until)


def first_of(answer: pa.Table, until: int | None) -> pa.Table:
    """Return an answer's beginning, up to a sequence number."""
    return answer if until is None else answer.filter(pc.less_equal(answer.column("seq"), until))


def difference(left: pa.Table, right: pa.Table) -> str | None:
    """Say how two answers, each in order, differ; None if they are the same."""
    for table in (left, right):
        seq = _numbers(table, "seq")
        if np.any(seq[1:] == seq[:-1]):
            return f"quote {int(seq[1:][seq[1:] == seq[:-1]][0])} is reported twice"
    _, here, there = np.intersect1d(_numbers(left, "seq"), _numbers(right, "seq"), True, True)
    for table, matched in ((left, here), (right, there)):
        alone = table.take(pa.array(np.setdiff1d(np.arange(table.num_rows), matched)))
        vwap, price = _numbers(alone, "vwap"), _numbers(alone, "price")
        wrong = np.flatnonzero(np.abs(vwap - price) > TOLERANCE * np.abs(price))
        if len(wrong):
            quote = alone.slice(int(wrong[0]), 1).to_pylist()[0]
            return f"{len(wrong)} quotes are in one answer only, the first {quote}"
    left, right = left.take(pa.array(here)), right.take(pa.array(there))
    for name in _COLUMNS:
        wrong = np.flatnonzero(~_alike(left, right, name))
        if len(wrong):
            values = [t.slice(int(wrong[0]), 1).to_pylist()[0] for t in (left, right)]
            return f"{len(wrong)} quotes differ in {name}, the first {values[0]} and {values[1]}"
    return None


def _alike(left: pa.Table, right: pa.Table, name: str) -> npt.NDArray[np.bool_]:
    if name not in ("vwap", "gain"):
        same: npt.NDArray[np.bool_] = pc.equal(left.column(name), right.column(name)).to_numpy()
        return same
    a, b = _numbers(left, name), _numbers(right, name)
    # The gain is size * (average - price): its rounding is relative to the average, not to the difference.
    scale = np.abs(a) if name == "vwap" else np.abs(_numbers(left, "vwap") * _numbers(left, "size"))
    return np.abs(a - b) <= TOLERANCE * scale


def _numbers(table: pa.Table, name: str) -> npt.NDArray[np.float64]:
    numbers: npt.NDArray[np.float64] = table.column(name).to_numpy()
    return numbers
