"""A sink's output as scores need it: in order, cut into sections, each tuple told from others in every run alike.

What a fault changes is scored section by section where anything changed; the other sections have their golden score.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from riprap.arrays import Floats, Ints
from riprap.errors import RunError
from riprap.expressions.tree import Columns
from riprap.faults.replay import StreamPiece, concatenate
from riprap.faults.scores import Cut, Score
from riprap.faults.trial import Difference, pairs
from riprap.kernels.chunk import order_numbers
from riprap.stage.arrival import Tags
from riprap.state.hashing import Hashes, hash_arrays
from riprap.state.windows import ranges

# Where a tuple is that has no number.
NOWHERE = np.iinfo(np.int64).min


def places(piece: StreamPiece, by: str) -> Ints:
    """Return the number of each tuple in a column."""
    return order_numbers(piece.columns[by])


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """How the output of a sink is read: the columns that are needed, those it is known by, and where a tuple is.

    That is its number in column ``by``, or the position in its source, which stands in tag ``origin`` + 1. Sections are
    ``length`` long from ``first`` on. What is before the first belongs to it; what is behind the last belongs to none,
    and has the number ``count``. ``rest`` is how long a section that the stream does not reach the end of would be.
    """

    columns: tuple[str, ...]
    key: tuple[str, ...]
    by: str | None
    origin: int
    length: int
    first: int
    count: int
    rest: int = 0

    def read(self, pieces: Sequence[StreamPiece]) -> SinkOutput:
        """Put pieces of output together."""
        if not pieces:
            raise ValueError("no piece, not even an empty one")
        whole = concatenate(pieces)
        columns = {name: whole.columns[name] for name in self.columns}
        place = places(whole, self.by) if self.by else whole.tags[self.origin + 1]
        identifying = (
            [whole.columns[n] for n in self.key]
            if self.key
            else [pa.array(t) for t in whole.tags[self.origin :]]
        )
        identity = hash_arrays(identifying) if whole.rows else np.empty(0, np.uint64)
        return SinkOutput(columns, whole.tags, self.section(place), identity)

    def section(self, place: Ints) -> Ints:
        """Return the section of each place."""
        number: Ints = (np.maximum(place, self.first) - self.first) // self.length
        return np.minimum(number, self.count)


@dataclass(frozen=True, slots=True)
class SinkOutput:
    """Tuples that reached a sink: the section each is in, and a number by which it is known."""

    columns: Columns
    tags: Tags
    section: Ints
    identity: Hashes

    def __len__(self) -> int:
        return len(self.section)

    def take(self, rows: Ints) -> SinkOutput:
        """Return some of the tuples."""
        index = pa.array(rows)
        return SinkOutput(
            {name: column.take(index) for name, column in self.columns.items()},
            tuple(numbers[rows] for numbers in self.tags),
            self.section[rows],
            self.identity[rows],
        )

    def in_order(self, *, by_section: bool) -> SinkOutput:
        """Return the tuples in their order; section after section, where a section is scored at a time."""
        keys = (*self.tags[::-1], self.section) if by_section else self.tags[::-1]
        order = np.lexsort(keys)
        return self if bool((order == np.arange(len(order))).all()) else self.take(order)

    def changed(self, missing: SinkOutput, more: SinkOutput) -> SinkOutput:
        """Return it without some tuples, and with some more."""
        gone, _ = pairs(self.tags, missing.tags)
        left = np.ones(len(self), bool)
        left[gone] = False
        kept = self.take(np.flatnonzero(left))
        return SinkOutput(
            {n: pa.concat_arrays([c, more.columns[n].cast(c.type)]) for n, c in kept.columns.items()},
            tuple(np.concatenate(both) for both in zip(kept.tags, more.tags, strict=True)),
            np.concatenate([kept.section, more.section]),
            np.concatenate([kept.identity, more.identity]),
        )


@dataclass(frozen=True, slots=True)
class Right:
    """The output of a golden run in the order of its sections, with its score in each."""

    form: Form
    score: Score
    output: SinkOutput
    starts: Ints
    local: Floats
    # Its rows in the order of their identities, and those.
    rows: Ints
    identities: Hashes
    # What scores compare with: the output of the first golden run.
    reference: Right | None = None

    @classmethod
    def of(
        cls, form: Form, score: Score, pieces: Sequence[StreamPiece], reference: Right | None = None
    ) -> Right:
        """Read the output of a golden run."""
        output = form.read(pieces).in_order(by_section=True)
        rows = np.argsort(output.identity, kind="stable")
        identities = output.identity[rows]
        if form.key and bool((identities[1:] == identities[:-1]).any()):
            raise RunError(
                f"key={', '.join(form.key)}: two tuples of the output have the same. Name columns that tell them apart"
            )
        starts = np.searchsorted(output.section, np.arange(form.count + 1))
        bare = cls(form, score, output, starts, np.empty(0), rows, identities, reference)
        return replace(bare, local=bare._scored(output, np.arange(form.count)))

    def scores(self, differences: Sequence[Difference]) -> Floats:
        """Return the score of every section of an output that differs from this one."""
        if not differences:
            return self.local
        missing, more = self._sides(differences)
        touched = np.unique(np.concatenate([missing.section, more.section]))
        touched = touched[touched < self.form.count]
        rows = ranges(self.starts[touched], self.starts[touched + 1] - self.starts[touched])
        changed = self.output.take(rows).changed(missing, more).in_order(by_section=True)
        local = self.local.copy()
        local[touched] = self._scored(changed, touched)
        return local

    def affected(self, differences: Sequence[Difference]) -> Hashes:
        """Return the tuples that are missing, others, or more in an output that differs from this one."""
        if not differences:
            return np.empty(0, np.uint64)
        missing, more = self._sides(differences)
        return np.union1d(missing.identity, more.identity)

    def score_of(self, identities: Hashes, differences: Sequence[Difference] = ()) -> float:
        """Return the score of some tuples, as far as they are there, in this output or one that differs from it."""
        output = self._of(identities)
        if differences:
            sides = [
                s.take(np.flatnonzero(np.isin(s.identity, identities))) for s in self._sides(differences)
            ]
            output = output.changed(*sides)
        output = output.in_order(by_section=False)
        right = (self.reference or self)._of(identities).in_order(by_section=False)
        cuts = [Cut(each.columns, np.array([0, len(each)])) for each in (output, right)]
        return float(self.score.of(*cuts)[0])

    def _of(self, identities: Hashes) -> SinkOutput:
        """Return the tuples that are known by some numbers."""
        low, high = (np.searchsorted(self.identities, identities, side) for side in ("left", "right"))
        return self.output.take(self.rows[ranges(low, high - low)])

    def _sides(self, differences: Sequence[Difference]) -> tuple[SinkOutput, SinkOutput]:
        missing, more = (
            self.form.read([getattr(d, side) for d in differences]) for side in ("missing", "more")
        )
        return missing, more

    def _scored(self, output: SinkOutput, sections: Ints) -> Floats:
        """Score some sections of an output that has no others."""
        right = self.reference or self
        low, high = right.starts[sections], right.starts[sections + 1]
        theirs = right.output.take(ranges(low, high - low))
        cuts = []
        for each in (output, theirs):
            starts = np.searchsorted(each.section, np.append(sections, self.form.count))
            cuts.append(Cut(each.columns, starts))
        return self.score.of(*cuts)
