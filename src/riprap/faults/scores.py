"""Output scores: one number for the tuples of a section of a sink's output.

A score is computed from the tuples in their order, always by the same steps: the same tuples have the same score, bit
by bit, whichever way they were come by.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol, get_args

import numpy as np
import pyarrow as pa

from riprap.arrays import Floats, Ints
from riprap.errors import GraphError, RunError
from riprap.expressions.tree import Columns
from riprap.state.hashing import Hashes, hash_arrays

OverlapMeasure = Literal["precision", "recall", "f1", "jaccard"]


@dataclass(frozen=True, slots=True)
class Cut:
    """Tuples cut into sections: section i has those from ``starts[i]`` up to ``starts[i + 1]``."""

    columns: Columns
    starts: Ints

    @property
    def counts(self) -> Ints:
        """How many tuples each section has."""
        return np.diff(self.starts)

    def numbers(self, name: str) -> Floats:
        """Return a column as numbers; null counts as 0."""
        values: Floats = self.columns[name].cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False)
        return values

    def sums(self, values: Floats) -> Floats:
        """Sum the values of each section."""
        sums = np.zeros(len(self.starts) - 1)
        # One after the other, so that a sum depends on its own values alone.
        for section in np.flatnonzero(self.counts):
            sums[section] = values[self.starts[section] : self.starts[section + 1]].sum()
        return sums

    def means(self, values: Floats) -> Floats:
        """Return the mean of each section; of no tuples it is 0."""
        many = self.counts
        return np.divide(self.sums(values), many, out=np.zeros(len(many)), where=many > 0)


class Score(Protocol):
    """What makes numbers of tuples."""

    @property
    def name(self) -> str:
        """What it is called in tables."""

    @property
    def reads(self) -> tuple[str, ...] | None:
        """The columns it reads; None is all."""

    def of(self, cut: Cut, right: Cut) -> Floats:
        """Return the score of each section, given also what a golden run put out there."""


@dataclass(frozen=True, slots=True)
class Count:
    """How many tuples there are."""

    name: str = "count"
    reads: tuple[str, ...] | None = ()

    def of(self, cut: Cut, right: Cut) -> Floats:
        return cut.counts.astype(np.float64)


@dataclass(frozen=True, slots=True)
class Sum:
    """The sum of a column."""

    column: str

    @property
    def name(self) -> str:
        return f"sum of {self.column}"

    @property
    def reads(self) -> tuple[str, ...] | None:
        return (self.column,)

    def of(self, cut: Cut, right: Cut) -> Floats:
        return cut.sums(cut.numbers(self.column))


@dataclass(frozen=True, slots=True)
class Mean:
    """The mean of a column; of no tuples it is 0."""

    column: str

    @property
    def name(self) -> str:
        return f"mean of {self.column}"

    @property
    def reads(self) -> tuple[str, ...] | None:
        return (self.column,)

    def of(self, cut: Cut, right: Cut) -> Floats:
        return cut.means(cut.numbers(self.column))


@dataclass(frozen=True, slots=True)
class Rmse:
    """The root of the mean square of the difference between a column and one that has the truth."""

    column: str
    reference: str

    @property
    def name(self) -> str:
        return f"RMSE of {self.column}"

    @property
    def reads(self) -> tuple[str, ...] | None:
        return (self.column, self.reference)

    def of(self, cut: Cut, right: Cut) -> Floats:
        off = cut.numbers(self.column) - cut.numbers(self.reference)
        return np.sqrt(cut.means(off * off))


@dataclass(frozen=True, slots=True)
class Overlap:
    """How far the tuples, as told apart by some columns, are those of the golden run: for alerts, and other sets.

    Of two empty sets it is 1; of an empty one and another it is 0.
    """

    compares: ClassVar[bool] = True

    columns: tuple[str, ...]
    measure: OverlapMeasure = "f1"

    def __post_init__(self) -> None:
        if self.measure not in get_args(OverlapMeasure):
            raise GraphError(
                f"a score by overlap is one of {', '.join(get_args(OverlapMeasure))}, not '{self.measure}'"
            )

    @property
    def name(self) -> str:
        return f"{self.measure} of {', '.join(self.columns)}"

    @property
    def reads(self) -> tuple[str, ...] | None:
        return self.columns

    def of(self, cut: Cut, right: Cut) -> Floats:
        identities = [self._hashes(each) for each in (cut, right)]
        scores = np.empty(len(cut.starts) - 1)
        for section in range(len(scores)):
            own, theirs = (
                np.unique(hashes[each.starts[section] : each.starts[section + 1]])
                for hashes, each in zip(identities, (cut, right), strict=True)
            )
            scores[section] = self._score(len(own), len(theirs), len(np.intersect1d(own, theirs)))
        return scores

    def _hashes(self, cut: Cut) -> Hashes:
        return (
            hash_arrays([cut.columns[n] for n in self.columns]) if cut.starts[-1] else np.empty(0, np.uint64)
        )

    def _score(self, own: int, theirs: int, both: int) -> float:
        if not own and not theirs:
            return 1.0
        out_of = {
            "precision": own,
            "recall": theirs,
            "f1": (own + theirs) / 2,
            "jaccard": own + theirs - both,
        }[self.measure]
        return both / out_of if out_of else 0.0


@dataclass(frozen=True, slots=True)
class Own:
    """A function of the user's over the tuples of a section: an Arrow table, which may be empty."""

    function: Callable[[pa.Table], float]
    name: str = "score"
    reads: tuple[str, ...] | None = None

    def of(self, cut: Cut, right: Cut) -> Floats:
        table = pa.table(dict(cut.columns))
        scores = np.empty(len(cut.starts) - 1)
        for section, (low, high) in enumerate(zip(cut.starts[:-1], cut.starts[1:], strict=True)):
            try:
                scores[section] = self.function(table.slice(int(low), int(high - low)))
            except Exception as error:
                raise RunError(
                    f"the score '{self.name}' failed on a section of {high - low} tuples: {type(error).__name__}: "
                    f"{error}. It must take any number of tuples, none included"
                ) from error
        return scores
