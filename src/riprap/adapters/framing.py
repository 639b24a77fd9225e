"""Cut a stream of bytes into records: lines of text, or CSV records.

A CSV record is a line, which ends with ``\\n``, ``\\r\\n`` or ``\\r``; of a multiline notation it may hold line breaks
inside quotes. A quote opens a quoted part only as the first byte of a field, and is text elsewhere. Inside, two quotes
are one, and so is an escaped quote. What closes it is the end of the field: anything else after it makes the record
bad. Lines that are not CSV end with ``\\n`` or ``\\r\\n``.

A bad quote costs its own line. Where records have several, a quote that is never closed would make one record of the
rest of a file: so when a record is longer than the limit, the stream ends inside a quote, or text follows where the
quote closes, its first line is a bad record and framing starts again on the next line.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riprap.adapters import framing_loops
from riprap.adapters.bad_records import KEPT_BYTES
from riprap.adapters.framing_loops import GOES_ON, SEVERAL, UNCLOSED
from riprap.graph.connectors.notation import Notation

BLOCK_BYTES = 8 << 20
_BOM = b"\xef\xbb\xbf"

Bytes = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int64]


class ByteStream(Protocol):
    """Bytes that are read in order. No bytes are the end."""

    def read(self, size: int, /) -> bytes: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFlaw:
    """Why a record cannot be read at all, and its full length."""

    reason: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordBlock:
    """Whole records: record i is ``data[starts[i]:ends[i]]``, without its line break.

    ``first`` is the number of its first record in the stream, counted from 0, and ``byte`` the place in the stream of
    ``data[0]``. ``faults`` are the records not to be read, by their index; of one that did not fit into memory, the
    data has the beginning. Where ``multiline`` is false, no record holds a line break. Between records there may be
    empty lines, and where ``gaps`` is true comments.
    """

    data: Bytes
    starts: Places
    ends: Places
    first: int
    byte: int
    faults: Mapping[int, RecordFlaw]
    multiline: bool
    gaps: bool = False

    def __len__(self) -> int:
        return len(self.starts)

    def record(self, index: int) -> bytes:
        """Return the bytes of a record."""
        return self.data[self.starts[index] : self.ends[index]].tobytes()


def too_long(size: int, limit: int) -> RecordFlaw:
    """Return the fault of a record that is longer than the limit."""
    return RecordFlaw(
        reason=f"{size:,} bytes, more than the {limit:,} allowed: raise max_record_bytes=", size=size
    )


def frame(
    stream: ByteStream,
    *,
    limit: int,
    csv: Notation | None = None,
    blank: bool = False,
    block_bytes: int = BLOCK_BYTES,
) -> Generator[RecordBlock]:
    """Cut a stream into blocks of whole records: CSV in the notation given, otherwise lines.

    A line without bytes is a record only if ``blank``; if it is not, and outside of CSV, so is one of white space. No
    record longer than ``limit`` bytes is held in memory, but for what a block reads.
    """
    source, scratch = _Source(stream, block_bytes, breaks=b"\n\r" if csv else b"\n"), _Scratch(csv)
    comment = ord(csv.comment) if csv is not None and csv.comment is not None else -1
    first, ended = 0, False
    data = np.frombuffer(source.begin(), np.uint8)
    while not ended:
        data, ended = source.more(data)
        starts, ends, flags, used, multiline, gaps = scratch.cut(data, blank, limit, ended)
        faults = {
            int(i): _fault(int(flags[i]), int(ends[i] - starts[i]), limit, across=scratch.across)
            for i in np.flatnonzero(flags)
        }
        byte = source.byte - len(data)
        if len(data) - used > max(limit + 1, KEPT_BYTES) and not ended:
            # One line, its end not in sight.
            size, rest = source.skip_line(len(data) - used, int(data[-1]))
            if data[used] != comment:
                faults[len(starts)] = too_long(size, limit)
                starts, ends = np.append(starts, used), np.append(ends, used + KEPT_BYTES)
            data, following = data[: used + KEPT_BYTES], rest
        else:
            following = data[used:]
        if len(starts):
            yield RecordBlock(
                data=data,
                starts=starts,
                ends=ends,
                first=first,
                byte=byte,
                faults=faults,
                multiline=multiline,
                gaps=gaps,
            )
            first += len(starts)
        data = following


def count_fields(data: Bytes, starts: Places, ends: Places, csv: Notation) -> Places:
    """Count the fields of CSV records, unescaped ones; ``UNCLOSED``, ``SEVERAL`` or ``GOES_ON`` for what is not one."""
    sep, quote, _, _ = _bytes_of(csv)
    counts: Places = framing_loops.count_fields(data, starts, ends, sep, quote)
    return counts


def bad_quote(count: int) -> str:
    """Say what is wrong with what is not one record.

    >>> bad_quote(SEVERAL)
    'more than one record'
    """
    return {
        UNCLOSED: "a quote is opened and not closed",
        SEVERAL: "more than one record",
        GOES_ON: "text after a closing quote",
    }[count]


def unescape(block: RecordBlock, csv: Notation) -> RecordBlock:
    """Return a block with two quotes for each escaped one, and one escape for two, as is done inside of quotes only."""
    _, quote, escape, _ = _bytes_of(csv)
    if escape < 0 or not np.any(block.data == escape):
        return block
    data = np.empty(int((block.ends - block.starts).sum()) + len(block), np.uint8)
    starts, ends = np.empty_like(block.starts), np.empty_like(block.ends)
    framing_loops.unescape(
        block.data, block.starts, block.ends, _bytes_of(csv)[0], quote, escape, data, starts, ends
    )
    return replace(block, data=data, starts=starts, ends=ends, gaps=False)


class _Source:
    """A stream, read in blocks. ``byte`` is how far it was read."""

    def __init__(self, stream: ByteStream, block_bytes: int, *, breaks: bytes) -> None:
        self.byte = 0
        self._stream, self._block_bytes, self._breaks = stream, block_bytes, breaks
        # Spares a copy, where there is one.
        self._readinto = getattr(stream, "readinto", None)

    def begin(self) -> bytes:
        """Read past a byte order mark, and return what was read if there is none."""
        head = b""
        while (
            len(head) < len(_BOM) and _BOM.startswith(head) and (chunk := self._read(len(_BOM) - len(head)))
        ):
            head += chunk
        return b"" if head == _BOM else head

    def more(self, held: Bytes) -> tuple[Bytes, bool]:
        """Return what is held and the next block after it, and whether the stream has ended."""
        # Arrow's memory was used before, and so is there already.
        joined = np.frombuffer(pa.allocate_buffer(len(held) + self._block_bytes), np.uint8)
        joined[: len(held)] = held
        size = self._read_into(joined[len(held) :])
        return joined[: len(held) + size], size == 0

    def skip_line(self, size: int, last: int) -> tuple[int, Bytes]:
        """Read to the end of a line of which ``size`` bytes were read; return its size, and what follows."""
        while chunk := self._read(self._block_bytes):
            places = [place for b in self._breaks if (place := chunk.find(b)) >= 0]
            if places:
                end = min(places)
                before = chunk[end - 1] if end else last
                size += end - (before == ord("\r") and self._breaks == b"\n")
                return size, np.frombuffer(chunk, np.uint8)[end + 1 :]
            size, last = size + len(chunk), chunk[-1]
        return size, np.empty(0, np.uint8)

    def _read_into(self, place: Bytes) -> int:
        if self._readinto is not None:
            size = int(self._readinto(place.data) or 0)
        else:
            chunk = self._stream.read(len(place))
            size = len(chunk)
            place[:size] = np.frombuffer(chunk, np.uint8)
        self.byte += size
        return size

    def _read(self, size: int) -> bytes:
        chunk = self._stream.read(size)
        self.byte += len(chunk)
        return chunk


class _Scratch:
    """Room for the places of the records of a block, used again for the next: fresh memory costs more than cutting."""

    def __init__(self, csv: Notation | None) -> None:
        self._room = 0
        self._quoted, self.across = csv is not None, csv is not None and csv.multiline
        self._bytes = (-1, -1, -1, -1) if csv is None else _bytes_of(csv)

    def cut(
        self, data: Bytes, blank: bool, limit: int, final: bool
    ) -> tuple[Places, Places, Bytes, int, bool, bool]:
        """Find the records in some bytes.

        Return their starts, ends and flags, how many bytes they use up, whether one may hold a line break, and whether
        there are comments between them.
        """
        most = len(data) + 1 if blank else len(data) // 2 + 1
        if most > self._room:
            self._room = most
            self._starts, self._ends = np.empty(most, np.int64), np.empty(most, np.int64)
            self._flags = np.empty(most, np.uint8)
        words = data[: len(data) // 8 * 8].view(np.uint64)
        places = self._starts, self._ends, self._flags
        count, used, multiline, gaps = framing_loops.cut(
            data, words, self._quoted, self.across, *self._bytes, blank, limit, final, *places
        )
        return (
            self._starts[:count].copy(),
            self._ends[:count].copy(),
            self._flags[:count],
            used,
            multiline,
            gaps,
        )


def _bytes_of(csv: Notation) -> tuple[int, int, int, int]:
    """Return separator, quote, escape and comment as bytes, -1 for what there is not."""
    marks = (csv.sep, csv.quote, csv.escape, csv.comment)
    sep, quote, escape, comment = (-1 if mark is None else ord(mark) for mark in marks)
    return sep, quote, escape, comment


def _fault(flag: int, size: int, limit: int, *, across: bool) -> RecordFlaw:
    if flag == framing_loops.TOO_LONG:
        return too_long(size, limit)
    if flag == framing_loops.TEXT_AFTER:
        reason = bad_quote(GOES_ON)
    elif flag == framing_loops.TEXT_AFTER_LATER:
        reason = "a quote is opened and not closed: the next one, on another line, has text after it"
    elif across:
        reason = f"a quote is opened, and not closed within the {limit:,} bytes allowed"
    else:
        reason = "a quote is opened and not closed: line breaks inside quotes need multiLine=True"
    return RecordFlaw(reason=reason, size=size)
