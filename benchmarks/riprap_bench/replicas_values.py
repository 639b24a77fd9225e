"""Full replication as the dissertation has it: duplicates are found by value, in a table that punctuations clear.

    feed --> inner (process all_a) --.
                                      |--> Unseen --> Sink
    feed --> inner (process all_b) --'

Whoever reads both replicas puts out a tuple when it comes first, from either, and keeps its values in a table. What is
in the table is dropped. A punctuation, of which the first copy counts, clears the table. So, with the interval of
punctuations in tuples of the source:

- two tuples of one replica with the same values between two punctuations are taken for one: the second is *lost*;
- what the slower replica had still to put out when the table was cleared is *doubled*. One that comes back after a
  crash is slower by all that it missed.

Each replica is read as far as it has come, so the order of what comes out is that of the reader's own batches; that is
why each replica reads the feed by itself here, and why this is an experiment and no option of ``app.replicate_all``
(decision 24).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import riprap as rr
from riprap.apps.bargain import discover
from riprap.arrays import Ints
from riprap.expressions import type_name
from riprap.graph.builder import Builder
from riprap.graph.connectors import SinkConnector, SourceConnector
from riprap.graph.operator import Needed
from riprap.graph.stream import Stream
from riprap.operators import Given, Here, PassesOn, Result, Traits, gather
from riprap.state.keys import KeyTable, encode_keys, join_tables
from riprap.state.windows import Contents, keys_in, make_page
from riprap_bench.replicas_plan import INNER

COPIES = "ab"
_NO_TUPLE = pa.struct([])


@dataclass(frozen=True, slots=True, kw_only=True)
class Unseen(PassesOn):
    """Passes on a tuple of any of its streams unless one of the same values came since the last punctuation.

    State: by values the number of the table, from 1, in which they are; and in one row how many punctuations came by
    each stream. The newest table's number is one more than the most of these, so that to clear it is to count.
    """

    TRAITS: ClassVar[Traits] = Traits(
        does="drops tuples whose values came since the last punctuation",
        state=("the values that came since the last punctuation",),
        pages="blocks of keys",
        key="none",
        stale="does not know what came since, and may put it out again",
    )
    slots = ("seen", "count")

    @property
    def key(self) -> tuple[str, ...]:
        # Punctuations are counted in one place.
        return ()

    @property
    def heeds(self) -> bool:
        return True

    def reads(self, needed: Needed) -> tuple[frozenset[str], ...]:
        return (frozenset(self.schema.names),)

    def layout(self, needed: Needed) -> str:
        return f"table by {', '.join(f'{field.name} {field.type}' for field in self.schema)}"

    def run(self, given: Given) -> Result:
        """Drop what is in the table, and put what is not into it."""
        (chunk,), seen = given.inputs, given.pages.get("seen", ())
        streams = len(self.ports[0])
        whole, _ = encode_keys([], 0)
        before = gather(given.pages.get("count", ()), whole, _NO_TUPLE, counters=streams).counters[0]
        counts, clears = count_marks(before, chunk.marks.path[-1])
        number = (
            1 + int(before.max()) + np.searchsorted(chunk.marks.at[clears], np.arange(chunk.rows), "right")
        )
        keys, code = encode_keys([chunk.columns[name] for name in self.schema.names], chunk.rows)
        was = gather(seen, keys, _NO_TUPLE).counters[:, 0]
        passed, last = first_in_table(code.astype(np.int64), number, was)
        newest, pages = 1 + int(counts.max()), {}
        if len(chunk.marks):
            pages["count"] = _page(whole, counts.reshape(1, -1))
        if clears.any():
            # Its page takes the place of all others, and what holds nothing goes.
            table, places = join_tables([keys, *(keys_in(page) for page in seen)])
            numbers = gather(seen, table, _NO_TUPLE).counters
            numbers[places[0], 0] = last
            pages["seen"] = _page(table, np.where(numbers == newest, numbers, 0))
        elif passed.any():
            changed = np.flatnonzero(last != was)
            pages["seen"] = _page(keys.take(changed), last[changed].reshape(-1, 1))
        kept = {name: chunk.columns[name] for name in given.needed[self.name]}
        fresh = chunk.with_columns(kept).take(np.flatnonzero(passed))
        marks = fresh.marks.take(np.flatnonzero(clears))
        return Result(outputs=(replace(fresh, marks=marks),), pages=pages)


def unseen(app: Builder, name: str, *streams: Stream) -> Stream:
    """Add an operator that brings replicas of one stream together, by their values."""
    here = Here("Unseen", name, app, streams)
    inputs = here.port(streams)
    # Columns that make two tuples the same: one that cannot be a key is refused.
    here.keys(inputs.schema.names, inputs)
    return here.add(Unseen(**here.basics(inputs, protect=None), schema=inputs.schema))


def count_marks(before: Ints, stream: Ints) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Count the punctuations of each stream on from ``before``; say of each whether it is the first of its copies.

    >>> count_marks(np.array([1, 0]), np.array([1, 1, 0]))
    (array([2, 2]), array([False,  True, False]))
    """
    came = stream[:, np.newaxis] == np.arange(len(before))
    counts = before + np.cumsum(came, axis=0)
    number = counts[np.arange(len(stream)), stream]
    most = np.maximum.accumulate(np.concatenate([[before.max()], number]))
    return (counts[-1] if len(stream) else before), number > most[:-1]


def first_in_table(code: Ints, number: Ints, was: Ints) -> tuple[npt.NDArray[np.bool_], Ints]:
    """Say which tuples are not in the table that counts when they come, and in which each key is last.

    ``code`` numbers the values of each tuple, ``number`` the tables, never falling; ``was`` is in which each was.

    >>> first_in_table(np.array([0, 1, 0, 0]), np.array([3, 3, 3, 4]), np.array([0, 3]))
    (array([ True, False, False,  True]), array([4, 3]))
    """
    passed, last = np.zeros(len(code), bool), was.copy()
    if len(code):
        _, first = np.unique(code * (number[-1] - number[0] + 1) + number - number[0], return_index=True)
        passed[first] = number[first] != was[code[first]]
        # Of those that are assigned to one place the last stays.
        last[code] = number
    return passed, last


def bargain_twice(feed: SourceConnector, out: SinkConnector, *, every: int) -> rr.Application:
    """Describe Bargain Discovery with everything twice, a punctuation after every so many events."""
    app = rr.Application("bargain")
    copies = [app.composite(letter, _copy, letter, feed, every) for letter in COPIES]
    once = unseen(app, "Unseen", *copies)
    app.sink("Sink", once, out)
    return app


def _copy(place: rr.Application, letter: str, feed: SourceConnector, every: int) -> Stream:
    source = place.source("Source", feed, position="seq")
    marked = place.punctor("Marked", source, where=f"seq % {every} = 0")
    bargains = discover(place, marked)
    # A join passes no punctuation on: they go around it.
    nothing = ", ".join(f"cast(null as {kind}) as {name}" for name, kind in _kinds(bargains).items())
    around = place.functor("Around", marked, select=nothing, where="false")
    result = place.union("Result", bargains, around)
    place.place(f"source_{letter}", source)
    place.place(f"inner_{letter}", marked, around, *INNER, result, process=f"all_{letter}")
    return result


def _kinds(stream: Stream) -> dict[str, str]:
    return {field.name: type_name(field.type) for field in stream.schema}


def _page(keys: KeyTable, numbers: Ints) -> pa.RecordBatch:
    nothing = pa.Array.from_buffers(_NO_TUPLE, 0, [None])
    return make_page(keys, Contents(np.zeros(len(keys) + 1, np.int64), nothing, numbers))
