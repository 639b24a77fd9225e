"""What an operator of the user's takes in during a batch, and what it submits.

Its tuples and punctuations of all ports are one line of events. Each thing it submits derives from an event, and takes
its place in the order from that and from its number among all that derive from it, whatever the output.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from riprap.arrays import Ints
from riprap.expressions import ExpressionError, check_type, normalise, type_name
from riprap.kernels.chunk import EVERY, Chunk, Marks, PathNumbers, concatenate_arrays
from riprap.kernels.events import Events
from riprap.kernels.given import Given, index_among, same_order
from riprap.operators.custom.user_operator import Tuples
from riprap.state.keys import Codes

if TYPE_CHECKING:
    from riprap.operators.custom import Custom


@dataclass(frozen=True, slots=True)
class EventRun:
    """Events that reach the operator together: tuples ``row`` and on of a port, or one punctuation (``row`` is -1)."""

    port: int
    event: int
    row: int
    length: int


@dataclass(frozen=True, slots=True)
class Line:
    """The events of all ports in the order they arrive; ``row`` is the tuple's in its port, -1 for a punctuation."""

    port: Ints
    row: Ints
    rank: Ints
    path: PathNumbers
    code: Codes

    @classmethod
    def of(cls, given: Given) -> Line:
        """Line up what came in; the lower port first where the order is the same."""
        parts = [Events.of(given, port) for port in range(len(given.inputs))]
        rows = []
        for part in parts:
            row = np.full(len(part.rank), -1, np.int64)
            row[part.row_event] = np.arange(len(part.row_event))
            rows.append(row)
        port = np.repeat(np.arange(len(parts)), [len(row) for row in rows])
        row, rank = np.concatenate(rows), np.concatenate([p.rank for p in parts])
        path = tuple(np.concatenate(same) for same in zip(*(p.path for p in parts), strict=True))
        code = np.concatenate([p.code for p in parts])
        if len(parts) == 1:
            return cls(port, row, rank, path, code)
        order = np.lexsort((*reversed(path), rank))
        return cls(port[order], row[order], rank[order], tuple(p[order] for p in path), code[order])

    def __len__(self) -> int:
        return len(self.rank)

    @property
    def last_tuple(self) -> int | None:
        """The event of the last tuple, None if there are only punctuations."""
        tuples = np.flatnonzero(self.row >= 0)
        return int(tuples[-1]) if len(tuples) else None

    def runs(self) -> Iterator[EventRun]:
        """Cut the line where the port changes, and around punctuations."""
        mark = self.row < 0
        new = np.ones(len(self), bool)
        new[1:] = (self.port[1:] != self.port[:-1]) | mark[1:] | mark[:-1]
        starts = np.flatnonzero(new)
        for start, length in zip(starts.tolist(), np.diff([*starts, len(self)]).tolist(), strict=True):
            yield EventRun(int(self.port[start]), start, int(self.row[start]), length)


class Submissions:
    """What is submitted during a batch. Threads may submit at the same time."""

    def __init__(self, operator: Custom) -> None:
        self._labels = [stream.rpartition(".")[2] for stream in operator.streams]
        self._schemas = operator.schemas
        self._names = [tuple(schema.names) for schema in operator.schemas]
        self._lists = [[pa.types.is_list(f.type) for f in schema] for schema in operator.schemas]
        self._lock = threading.Lock()
        # By output: whole batches, and after those single tuples.
        self._batches: list[list[pa.RecordBatch]] = [[] for _ in self._labels]
        self._singles: list[list[tuple[Any, ...]]] = [[] for _ in self._labels]
        # In the order of submission, for each tuple or punctuation: its output (-1 less the output for a
        # punctuation) and its event; whole arrays of them, and after those single ones.
        self._parts: list[tuple[Ints, Ints]] = []
        self._outputs: list[int] = []
        self._events: list[int] = []

    def number(self, output: int | str) -> int:
        """Find an output by number or name."""
        if isinstance(output, str) and output in self._labels:
            return self._labels.index(output)
        if isinstance(output, int) and not isinstance(output, bool) and 0 <= output < len(self._labels):
            return output
        numbered = ", ".join(f"{n} '{label}'" for n, label in enumerate(self._labels))
        raise ValueError(f"there is no output {output!r}; there are: {numbered}")

    def add(self, tuples: Tuples, output: int | str, event: int | Ints) -> None:
        """Take tuples that derive from one event, or each from its own."""
        number = self.number(output)
        if isinstance(tuples, Mapping):
            values = self._values(tuples, number)
            with self._lock:
                self._singles[number].append(values)
                self._outputs.append(number)
                self._events.append(event if isinstance(event, int) else int(event[0]))
            return
        batch = self._checked(tuples, number)
        with self._lock:
            self._close_singles(number)
            self._batches[number].append(batch)
            self._close_order()
            self._parts.append((np.full(batch.num_rows, number), np.broadcast_to(event, batch.num_rows)))

    def punctuate(self, output: int | str | None, event: int) -> None:
        """Take a punctuation that derives from an event, for an output or all."""
        numbers = range(len(self._labels)) if output is None else (self.number(output),)
        with self._lock:
            self._outputs += [-1 - number for number in numbers]
            self._events += [event] * len(numbers)

    def chunks(
        self, line: Line, needed: Mapping[str, frozenset[str]], streams: Sequence[str]
    ) -> tuple[Chunk, ...]:
        """Return what was submitted to each output, in order."""
        self._close_order()
        outputs = np.concatenate([o for o, _ in self._parts])
        events = np.concatenate([e for _, e in self._parts])
        order = np.arange(len(events))
        if np.any(events[1:] < events[:-1]):
            order = np.argsort(events, kind="stable")
            outputs, events = outputs[order], events[order]
        among = index_among(same_order(line.rank, line.path)[events])
        return tuple(
            self._chunk(number, needed[stream], line, outputs, events, order, among)
            for number, stream in enumerate(streams)
        )

    def _chunk(
        self,
        number: int,
        needed: frozenset[str],
        line: Line,
        outputs: Ints,
        events: Ints,
        order: Ints,
        among: Ints,
    ) -> Chunk:
        mine, marks = np.flatnonzero(outputs == number), np.flatnonzero(outputs == -1 - number)
        self._close_singles(number)
        batches, names = self._batches[number], self._names[number]
        columns = {
            n: concatenate_arrays([b.column(n) for b in batches]) if batches else pa.array([], f.type)
            for n, f in zip(names, self._schemas[number], strict=True)
            if n in needed
        }
        if np.any(order[mine][1:] < order[mine][:-1]):
            submitted = pa.array(np.argsort(np.argsort(order[mine])))
            columns = {n: c.take(submitted) for n, c in columns.items()}
        event, mark = events[mine], events[marks]
        # A punctuation may be for every key; a tuple made by it is for the only one there is.
        code = np.where(line.code[event] == EVERY, 0, line.code[event]).astype(np.int32)
        placed = Marks(
            np.searchsorted(mine, marks),
            line.rank[mark],
            line.code[mark],
            (*(p[mark] for p in line.path), among[marks]),
        )
        return Chunk(columns, line.rank[event], code, (*(p[event] for p in line.path), among[mine]), placed)

    def _values(self, row: Mapping[str, Any], number: int) -> tuple[Any, ...]:
        """Take the values out of a tuple: the operator may use the mapping, and lists in it, again."""
        names = self._names[number]
        if len(row) != len(names) or any(name not in row for name in names):
            raise self._wrong_columns(row, number)
        return tuple(
            list(row[name]) if is_list and row[name] is not None else row[name]
            for name, is_list in zip(names, self._lists[number], strict=True)
        )

    def _checked(self, tuples: pa.RecordBatch | pa.Table, number: int) -> pa.RecordBatch:
        if not isinstance(tuples, pa.RecordBatch | pa.Table):
            raise TypeError(
                f"submitted to output '{self._labels[number]}': a {type(tuples).__name__}, not a mapping, a "
                "pyarrow.RecordBatch or a pyarrow.Table"
            )
        names = self._names[number]
        if sorted(tuples.schema.names) != sorted(names):
            raise self._wrong_columns(tuples.schema.names, number)
        columns = []
        for field in self._schemas[number]:
            column = tuples.column(field.name)
            if not _is(column.type, field.type):
                raise TypeError(
                    f"submitted to output '{self._labels[number]}': column '{field.name}' is {type_name(field.type)}, "
                    f"and what came is {type_name(column.type)}. Cast it"
                )
            columns.append(normalise(column))
        return pa.RecordBatch.from_arrays(columns, list(names))

    def _wrong_columns(self, came: Mapping[str, Any] | Sequence[str], number: int) -> ValueError:
        names = self._names[number]
        lacking, strange = [n for n in names if n not in came], [n for n in came if n not in names]
        problems = [f"'{lacking[0]}' is missing"] if lacking else []
        problems += [f"there is no column '{strange[0]}'"] if strange else []
        return ValueError(
            f"submitted to output '{self._labels[number]}': {' and '.join(problems) or 'a column is there twice'}. "
            f"Submit the columns {', '.join(names)}; what came has {', '.join(map(str, came)) or 'none'}"
        )

    def _close_singles(self, number: int) -> None:
        """Make a batch of the single tuples so far."""
        if not self._singles[number]:
            return
        columns = []
        for field, values in zip(
            self._schemas[number], zip(*self._singles[number], strict=True), strict=True
        ):
            try:
                columns.append(pa.array(values, field.type))
            except (pa.ArrowException, TypeError, ValueError, OverflowError):
                raise self._misfit(field, values, number) from None
        self._batches[number].append(pa.RecordBatch.from_arrays(columns, list(self._names[number])))
        self._singles[number] = []

    def _misfit(self, field: pa.Field, values: Sequence[Any], number: int) -> TypeError:
        for value in values:
            try:
                pa.array([value], field.type)
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                return TypeError(
                    f"submitted to output '{self._labels[number]}': column '{field.name}' is {type_name(field.type)}, "
                    f"and {value!r} is not ({error})"
                )
        raise AssertionError("values fit one by one and not together")

    def _close_order(self) -> None:
        if self._outputs or not self._parts:
            self._parts.append((np.array(self._outputs, np.int64), np.array(self._events, np.int64)))
            self._outputs, self._events = [], []


def _is(kind: pa.DataType, wanted: pa.DataType) -> bool:
    """Say whether a type is another, or a layout of it such as a dictionary."""
    try:
        return bool(kind == wanted or check_type(kind) == wanted)
    except ExpressionError:
        return False
