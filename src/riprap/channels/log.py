"""Writing a channel: the producer's driver appends a segment a batch, and removes those all readers are done with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riprap.channels.folder import FINISHED, HELD, Channel, list_segments, make_private, scan, sweep
from riprap.channels.log_index import LogIndex
from riprap.channels.notes import COMPARED, Notes
from riprap.channels.segment import (
    BEGIN,
    CONTROL,
    DATA,
    EVERY_BUCKET,
    PUNCTUATION,
    Footer,
    NewBlock,
    SegmentFile,
    SegmentName,
    write_segment,
)
from riprap.channels.tags import ROW
from riprap.errors import ChannelError
from riprap.state.durable_files import sync_file
from riprap.state.hashing import buckets_of
from riprap.state.keys import encode_keys


def _everybody(reader: str) -> bool:
    return True


class ChannelWriter:
    """The one writer of a channel.

    Tuples have the columns of ``schema`` and ``tags`` int64 columns ``$0``, ``$1``, ...: the tag, by which the stream
    is ordered. They are laid down by the bucket of their key; without a key there is one bucket. What every one of
    ``readers`` has acknowledged may be trimmed; those who do not count for now, as ``counts`` says, have no say in it.
    With ``holds``, segments are held in a folder that no reader looks into until they are released, and can be taken
    back. ``notes`` is the folder in which readers note how far they are, where that is another. One that ``mends`` sets
    newest segments aside that are damaged: their batches come again.
    """

    def __init__(
        self,
        folder: Path,
        *,
        stream: str,
        schema: pa.Schema,
        tags: int,
        key: tuple[str, ...] | None,
        buckets: int,
        readers: Sequence[str],
        holds: bool = False,
        notes: Path | None = None,
        counts: Callable[[str], bool] = _everybody,
        mends: bool = False,
    ) -> None:
        self._folder = folder
        self._notes = notes or folder
        self._counts = counts
        self._channel = Channel(stream=stream, key=key, buckets=buckets, tags=tags, schema=schema)
        self._readers = tuple(readers)
        self._channel.make(folder)
        sweep(folder)
        self._held = folder / HELD if holds else None
        if self._held is not None:
            make_private(self._held)
            sweep(self._held)
        elif kept := scan(folder / HELD):
            raise ChannelError(
                f"{folder / HELD} has {len(kept)} batches of stream '{stream}', which may come out otherwise and were "
                "not to be seen yet. Take the run up with deterministic=False as it was, stop it in good order, and "
                "then change that"
            )
        if mends:
            self._set_damaged_aside()
        self._index = LogIndex(folder)
        self._newest = self._find_newest()

    @property
    def newest(self) -> Footer | None:
        """What the newest segment says of itself, None if there is none."""
        return self._newest

    @property
    def batch(self) -> int:
        """The newest batch in the log, -1 if there is none."""
        return -1 if self._newest is None else self._newest.batch

    @property
    def frontier(self) -> int | None:
        """The newest frontier in the log, None if there is none."""
        return None if self._newest is None else self._newest.frontier

    def append(
        self,
        batch: int,
        tuples: pa.RecordBatch,
        punctuations: pa.RecordBatch | None,
        *,
        frontier: int,
        sources: Mapping[str, Sequence[Any]],
        controls: Sequence[pa.RecordBatch] = (),
        windows: Mapping[str, int] | None = None,
    ) -> None:
        """Add a batch, in the order of its tags; one that is in the log already changes nothing.

        Every tag begins with a number beyond the frontier before and up to ``frontier``. ``sources`` says which
        positions [start, end) of each source the batch covers; ends never fall. ``controls`` are records of open
        ``windows``, which no reader of the stream sees.
        """
        if 0 <= batch <= self.batch:
            return
        if batch != self.batch + 1:
            raise self._error(batch, f"the batch before it is missing: the log ends with batch {self.batch}")
        if (self._folder / FINISHED).exists():
            raise self._error(batch, "the channel is finished, and its readers may have ended")
        channel, frontier = self._channel, int(frontier)
        rows = self._conform(batch, tuples, channel.fields(channel.schema.names))
        marks = self._conform(batch, punctuations, channel.fields([])) if punctuations is not None else None
        self._check_order(batch, frontier, rows, marks)
        blocks = self._cut(tuples, rows) if rows.num_rows else []
        if marks is not None and marks.num_rows:
            blocks.append(NewBlock(PUNCTUATION, EVERY_BUCKET, marks))
        blocks += [NewBlock(CONTROL, EVERY_BUCKET, control) for control in controls if control.num_rows]
        self._newest = write_segment(
            self._held or self._folder,
            blocks,
            stream=channel.stream,
            schema=channel.columns,
            batch=batch,
            frontier=frontier,
            previous=self.frontier,
            sources=sources,
            ends=self._newest.ends if self._newest else {DATA: 0, PUNCTUATION: 0},
            windows=windows,
        )
        if self._held is None:
            self._index.add(self._newest.name)

    @property
    def released(self) -> int:
        """The newest batch that readers can see, -1 if there is none."""
        newest = self._index.newest
        return -1 if newest is None else newest.batch

    def release(self, batch: int) -> None:
        """Let readers see what is held, up to a batch."""
        going = [name for name in self._list_held() if name.batch <= batch]
        for name in going:
            # Oldest first: readers find no hole. What was synced is still on the disk under its other name.
            (self._folder / HELD / name.file).rename(self._folder / name.file)
            self._index.add(name)
        if going:
            sync_file(self._folder)

    def take_back(self, batch: int) -> None:
        """Remove what is held beyond a batch."""
        for name in reversed(self._list_held()):
            if name.batch > batch:
                (self._folder / HELD / name.file).unlink()
        self._newest = self._find_newest()

    def _list_held(self) -> list[SegmentName]:
        return list_segments(self._held) if self._held is not None else []

    def _set_damaged_aside(self) -> None:
        """Set the newest segment aside if it cannot be read; one of another version is not damaged."""
        for name in list_segments(self._folder)[-1:]:
            try:
                SegmentFile(self._folder, name)
            except ChannelError:
                (self._folder / name.file).rename(self._folder / f"{name.file}.damaged")

    def _find_newest(self) -> Footer | None:
        for folder in (self._held, self._folder):
            listed = list_segments(folder) if folder is not None else []
            if folder is not None and listed:
                return SegmentFile(folder, listed[-1]).footer
        return None

    def finish(self) -> None:
        """Let readers know that nothing more comes."""
        (self._folder / FINISHED).touch(mode=0o600)
        # Readers go by it, and put on record how far they went.
        sync_file(self._folder)

    def reopen(self) -> None:
        """Take back that nothing more comes: a run that had used up its input is taken up again."""
        (self._folder / FINISHED).unlink(missing_ok=True)

    @property
    def acknowledged(self) -> int | None:
        """The frontier up to which all readers that count are done, None if one of them has not begun."""
        # In this order: one that counts from now on needs no more than those that count have let go of by now.
        noted = {reader: Notes.find(self._notes, reader).acknowledged for reader in self._readers}
        done = [acknowledged for reader, acknowledged in noted.items() if self._counts(reader)]
        if None in done:
            return None
        return min((frontier for frontier in done if frontier is not None), default=self.frontier)

    def trim(self, *, wanted: int | None = None) -> int:
        """Remove the segments that every reader has acknowledged, but never the newest; return how many.

        Of a log among those of replicas, what waits to be compared stays, within bounds; and so do the batches from
        ``wanted`` on, whose records of windows are still to be read back.
        """
        done = self.acknowledged
        if done is None:
            return 0
        apart = self._notes != self._folder
        compared = Notes.find(self._notes, COMPARED).acknowledged if apart else None
        return self._index.trim(done, compared, wanted=wanted)

    def begin_at(self, batch: int, frontier: int, sources: Mapping[str, Sequence[Any]]) -> None:
        """Begin a log with the batch after one whose frontier another log has reached: what lies before is there."""
        channel = self._channel
        self._newest = write_segment(
            self._folder,
            [],
            stream=channel.stream,
            schema=channel.columns,
            batch=batch,
            frontier=frontier,
            previous=frontier,
            sources=sources,
            ends={DATA: 0, PUNCTUATION: 0},
        )
        self._index.add(self._newest.name)

    def _cut(self, tuples: pa.RecordBatch, rows: pa.RecordBatch) -> list[NewBlock]:
        """Cut tuples up by bucket, each with its place in the batch."""
        key, buckets = self._channel.key, self._channel.buckets
        if key is None or buckets == 1:
            order: npt.NDArray[np.int64] = np.arange(rows.num_rows)
            counts = np.array([rows.num_rows])
        else:
            keys, codes = encode_keys([tuples.column(name) for name in key], rows.num_rows)
            # Numbers of 8 or 16 bits are sorted by radix.
            bucket = buckets_of(keys.hashes, buckets).astype(np.min_scalar_type(buckets))[codes]
            order = np.argsort(bucket, kind="stable")
            counts = np.bincount(bucket, minlength=buckets)
            rows = rows.take(pa.array(order))
        rows = rows.append_column(ROW, pa.array(order.astype(np.int32)))
        starts = np.cumsum(counts) - counts
        return [
            NewBlock(DATA, int(b), rows.slice(int(starts[b]), int(counts[b]))) for b in np.flatnonzero(counts)
        ]

    def _conform(self, batch: int, rows: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
        """Bring columns into the channel's order; text may come dictionary-encoded and is kept plain."""
        if sorted(rows.schema.names) != sorted(wanted.names):
            raise self._error(
                batch, f"its columns are {', '.join(rows.schema.names)}, not {', '.join(wanted.names)}"
            )
        columns = []
        for field in wanted:
            column = rows.column(field.name)
            if pa.types.is_dictionary(column.type) and column.type != field.type:
                column = column.dictionary_decode()
            if column.type != field.type:
                raise self._error(batch, f"its column '{field.name}' is {column.type}, not {field.type}")
            columns.append(column)
        return pa.RecordBatch.from_arrays(columns, schema=wanted)

    def _check_order(self, batch: int, frontier: int, *parts: pa.RecordBatch | None) -> None:
        before = BEGIN if self.frontier is None else self.frontier
        if not max(before, -(2**63)) <= frontier < 2**63:
            raise self._error(batch, f"its frontier {frontier} falls behind {self.frontier}, or is no int64")
        for rows in parts:
            if rows is None or not rows.num_rows:
                continue
            columns = [rows.column(name) for name in self._channel.tag]
            if any(column.null_count for column in columns):
                raise self._error(batch, "a tag has a null")
            tag = [column.to_numpy() for column in columns]
            if _falls(tag):
                raise self._error(batch, "its rows are not in the order of their tags")
            first, last = int(tag[0][0]), int(tag[0][-1])
            if first <= before or last > frontier:
                raise self._error(
                    batch,
                    f"its rows have $0 from {first} to {last}, which is not beyond the frontier before "
                    f"({self.frontier}) and up to its own ({frontier})",
                )

    def _error(self, batch: int, what: str) -> ChannelError:
        return ChannelError(
            f"batch {batch} of stream '{self._channel.stream}' cannot go into {self._folder}: {what}. The log is "
            "whole; it is the producer that went wrong, or the run folder is of another run"
        )


def _falls(tag: Sequence[npt.NDArray[np.int64]]) -> bool:
    """Say whether any tag is less than the one before."""
    falls = np.zeros(len(tag[0]) - 1, bool)
    for values in reversed(tag):
        earlier, later = values[:-1], values[1:]
        falls = (later < earlier) | ((later == earlier) & falls)
    return bool(falls.any())
