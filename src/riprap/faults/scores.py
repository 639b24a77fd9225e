"""Output scores: one number for the tuples of a section of a sink's output.

A score is computed from the tuples in their order, always by the same steps: the same tuples have the same score, bit
by bit, whichever way they were come by.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riprap.errors import RunError
from riprap.operators.chunk import Ints

Floats = npt.NDArray[np.float64]
Columns = Mapping[str, pa.Array]


class Score(Protocol):
    """What makes numbers of tuples."""

    @property
    def name(self) -> str:
        """What it is called in tables."""

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns it reads."""

    def of(self, columns: Columns, starts: Ints) -> Floats:
        """Return the score of each section: section i has the tuples from ``starts[i]`` up to ``starts[i + 1]``."""


@dataclass(frozen=True, slots=True)
class Count:
    """How many tuples there are."""

    name: str = "count"

    @property
    def reads(self) -> tuple[str, ...]:
        return ()

    def of(self, columns: Columns, starts: Ints) -> Floats:
        return np.diff(starts).astype(np.float64)


@dataclass(frozen=True, slots=True)
class Sum:
    """The sum of a column."""

    column: str

    @property
    def name(self) -> str:
        return f"sum of {self.column}"

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.column,)

    def of(self, columns: Columns, starts: Ints) -> Floats:
        return _sums(_numbers(columns, self.column), starts)


@dataclass(frozen=True, slots=True)
class Mean:
    """The mean of a column; of no tuples it is 0."""

    column: str

    @property
    def name(self) -> str:
        return f"mean of {self.column}"

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.column,)

    def of(self, columns: Columns, starts: Ints) -> Floats:
        many = np.diff(starts)
        sums = _sums(_numbers(columns, self.column), starts)
        return np.divide(sums, many, out=np.zeros(len(many)), where=many > 0)


@dataclass(frozen=True, slots=True)
class Rmse:
    """The root of the mean square of the difference between a column and one that has the truth."""

    column: str
    reference: str

    @property
    def name(self) -> str:
        return f"RMSE of {self.column}"

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.column, self.reference)

    def of(self, columns: Columns, starts: Ints) -> Floats:
        many = np.diff(starts)
        off = _numbers(columns, self.column) - _numbers(columns, self.reference)
        return np.sqrt(np.divide(_sums(off * off, starts), many, out=np.zeros(len(many)), where=many > 0))


@dataclass(frozen=True, slots=True)
class Own:
    """A function of the user's over the tuples of a section."""

    function: Callable[[pa.Table], float]
    name: str = "score"

    @property
    def reads(self) -> tuple[str, ...]:
        return ()

    def of(self, columns: Columns, starts: Ints) -> Floats:
        table = pa.table(dict(columns))
        found = np.empty(len(starts) - 1)
        for section, (low, high) in enumerate(zip(starts[:-1], starts[1:], strict=True)):
            try:
                found[section] = self.function(table.slice(int(low), int(high - low)))
            except Exception as error:
                raise RunError(
                    f"the score '{self.name}' failed on the {high - low} tuples of a section: {type(error).__name__}: "
                    f"{error}. It must take any number of tuples, none included"
                ) from error
        return found


def _numbers(columns: Columns, name: str) -> Floats:
    values: Floats = columns[name].cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False)
    return values


def _sums(values: Floats, starts: Ints) -> Floats:
    """Sum runs of values, each from its first to its last."""
    sums = np.zeros(len(starts) - 1)
    filled = np.flatnonzero(np.diff(starts))
    if len(filled):
        # Pairs of numbers are added in an order that depends on the run alone.
        sums[filled] = [values[starts[i] : starts[i + 1]].sum() for i in filled]
    return sums
