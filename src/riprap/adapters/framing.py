"""Cut a stream of bytes into records: lines of text, or CSV records with the line breaks inside their quotes.

The end of a CSV record is where Arrow's reader puts it. A quote opens a quoted part only as the first byte of a field;
inside it, two quotes are one and line breaks are text; after it, the field goes on unquoted. ``\\n``, ``\\r\\n`` and
``\\r`` end a record outside of quotes. Lines that are not CSV end with ``\\n`` or ``\\r\\n``.

A quote that is never closed would make one record of the rest of a file. So when a record is longer than the limit,
or the stream ends inside a quote, its first line is a bad record and framing starts again on the next line.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numba
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riprap.adapters.bad_records import KEPT_BYTES

BLOCK_BYTES = 8 << 20
UNCLOSED, SEVERAL = -1, -2
_BOM = b"\xef\xbb\xbf"
_FINE, _TOO_LONG, _OPEN = 0, 1, 2

Bytes = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int64]


class Stream(Protocol):
    """Bytes that are read in order. No bytes are the end."""

    def read(self, size: int, /) -> bytes: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Why a record cannot be read at all, and its full length."""

    reason: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Whole records: record i is ``data[starts[i]:ends[i]]``, without its line break.

    ``first`` is the number of its first record in the stream, counted from 0, and ``byte`` the place in the stream of
    ``data[0]``. ``faults`` are the records not to be read, by their index; of one that did not fit into memory, the
    data has the beginning. Where ``multiline`` is false, no record holds a line break.
    """

    data: Bytes
    starts: Places
    ends: Places
    first: int
    byte: int
    faults: Mapping[int, Fault]
    multiline: bool

    def __len__(self) -> int:
        return len(self.starts)

    def record(self, index: int) -> bytes:
        """Return the bytes of a record."""
        return self.data[self.starts[index] : self.ends[index]].tobytes()


def too_long(size: int, limit: int) -> Fault:
    """Return the fault of a record that is longer than the limit."""
    return Fault(
        reason=f"{size:,} bytes, more than the {limit:,} allowed: raise max_record_bytes=", size=size
    )


def frame(
    stream: Stream, *, quoted: bool, limit: int, blank: bool = False, block_bytes: int = BLOCK_BYTES
) -> Generator[Block]:
    """Cut a stream into blocks of whole records.

    ``quoted`` is for CSV. A line without bytes is a record only if ``blank``; if it is not, and outside of CSV, so is
    one of white space. No record longer than ``limit`` bytes is held in memory, but for what a block reads.
    """
    source, scratch = _Source(stream, block_bytes, breaks=b"\n\r" if quoted else b"\n"), _Scratch()
    first, ended = 0, False
    data = np.frombuffer(source.begin(), np.uint8)
    while not ended:
        data, ended = source.more(data)
        starts, ends, flags, used, multiline = scratch.cut(data, quoted, blank, limit, ended)
        faults = {
            int(i): _fault(int(flags[i]), int(ends[i] - starts[i]), limit) for i in np.flatnonzero(flags)
        }
        byte = source.byte - len(data)
        if len(data) - used > max(limit + 1, KEPT_BYTES) and not ended:
            # One line, its end not in sight.
            size, rest = source.skip_line(len(data) - used, int(data[-1]))
            faults[len(starts)] = too_long(size, limit)
            starts, ends = np.append(starts, used), np.append(ends, used + KEPT_BYTES)
            data, following = data[: used + KEPT_BYTES], rest
        else:
            following = data[used:]
        if len(starts):
            yield Block(
                data=data,
                starts=starts,
                ends=ends,
                first=first,
                byte=byte,
                faults=faults,
                multiline=multiline,
            )
            first += len(starts)
        data = following


def count_fields(data: Bytes, starts: Places, ends: Places) -> Places:
    """Count the fields of CSV records; ``UNCLOSED`` or ``SEVERAL`` for what is not one record."""
    counts: Places = _count_fields(data, starts, ends)
    return counts


class _Source:
    """A stream, read in blocks. ``byte`` is how far it was read."""

    def __init__(self, stream: Stream, block_bytes: int, *, breaks: bytes) -> None:
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
            found = [place for b in self._breaks if (place := chunk.find(b)) >= 0]
            if found:
                end = min(found)
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

    def __init__(self) -> None:
        self._room = 0

    def cut(
        self, data: Bytes, quoted: bool, blank: bool, limit: int, final: bool
    ) -> tuple[Places, Places, Bytes, int, bool]:
        """Find the records in some bytes.

        Return their starts, ends and flags, how many bytes they use up, and whether one may hold a line break.
        """
        most = len(data) + 1 if blank else len(data) // 2 + 1
        if most > self._room:
            self._room = most
            self._starts, self._ends = np.empty(most, np.int64), np.empty(most, np.int64)
            self._flags = np.empty(most, np.uint8)
        words = data[: len(data) // 8 * 8].view(np.uint64)
        count, used, multiline = _cut(
            data, words, quoted, blank, limit, final, self._starts, self._ends, self._flags
        )
        return self._starts[:count].copy(), self._ends[:count].copy(), self._flags[:count], used, multiline


def _fault(flag: int, size: int, limit: int) -> Fault:
    if flag == _TOO_LONG:
        return too_long(size, limit)
    return Fault(reason=f"a quote is opened, and not closed within the {limit:,} bytes allowed", size=size)


_QUOTE, _COMMA, _LF, _CR = ord('"'), ord(","), ord("\n"), ord("\r")
_SEVENS = np.uint64(0x7F7F7F7F7F7F7F7F)
_LFS, _CRS, _QUOTES = (np.uint64(0x0101010101010101 * c) for c in (_LF, _CR, _QUOTE))
_NUMBERS = np.uint64(0x0001020304050607)
_ONE, _SEVEN, _TOP = np.uint64(1), np.uint64(7), np.uint64(56)


@numba.njit(cache=True, inline="always")
def _equal(word, pattern):  # type: ignore[no-untyped-def]
    """Set the top bit of each byte of a word that is the byte of the pattern."""
    other = word ^ pattern
    return ~(((other & _SEVENS) + _SEVENS) | other | _SEVENS)


@numba.njit(cache=True)
def _is_space(data, start, end):  # type: ignore[no-untyped-def]
    while start < end and (data[start] == 32 or data[start] == 9 or data[start] == _CR):
        start += 1
    return start == end


@numba.njit(cache=True, nogil=True)
def _cut(data, words, quoted, blank, limit, final, starts, ends, flags):  # type: ignore[no-untyped-def]
    """Find records; return how many there are, where the bytes begin that are left, and if there are inner breaks.

    Eight bytes are looked at together, and only line breaks and quotes one by one.
    """
    size, whole = len(data), len(words)
    count = start = resume = word_number = 0
    opened, closed, broken = (
        False,
        -2,
        -1,
    )  # inside quotes; the last closing quote; the first break inside quotes
    multiline = False
    while True:
        failed = False
        while word_number <= whole and not failed:
            if word_number < whole:
                word = words[word_number]
            else:
                word = np.uint64(0)
                for place in range(size - 1, whole * 8 - 1, -1):
                    word = (word << np.uint64(8)) | np.uint64(data[place])
            marks = _equal(word, _LFS)
            if quoted:
                marks |= _equal(word, _CRS) | _equal(word, _QUOTES)
            while marks:
                lowest = marks & (~marks + _ONE)
                marks ^= lowest
                place = word_number * 8 + int(((lowest >> _SEVEN) * _NUMBERS) >> _TOP)
                if place < resume:
                    continue
                byte = data[place]
                if opened:
                    if byte == _QUOTE:
                        opened, closed = False, place
                    elif broken < 0:
                        broken, multiline = place, True
                    failed = place - start > limit and broken >= 0
                elif byte == _QUOTE:
                    # Right after a closing quote it is the second of two, which stand for one.
                    opened = place == start or data[place - 1] == _COMMA or closed == place - 1
                else:
                    end = place
                    if not quoted and end > start and data[end - 1] == _CR:
                        end -= 1
                    failed = end - start > limit and broken >= 0
                    if not failed:
                        if (
                            end - start > limit
                            or blank
                            or (
                                end > start
                                and (quoted or data[start] > 32 or not _is_space(data, start, end))
                            )
                        ):
                            starts[count], ends[count] = start, end
                            flags[count] = _TOO_LONG if end - start > limit else _FINE
                            count += 1
                        start, broken = place + 1, -1
                if failed:
                    break
            word_number += 1
        left = size - start
        if failed or (broken >= 0 and (left > limit + 1 or (final and (opened or left > limit)))):
            starts[count], ends[count] = start, broken
            flags[count] = _TOO_LONG if broken - start > limit else _OPEN
            count += 1
            start = resume = broken + 1
            word_number = resume >> 3
            opened, closed, broken = False, -2, -1
        else:
            break
    if final and start < size:
        if left > limit or opened or blank or quoted or not _is_space(data, start, size):
            starts[count], ends[count] = start, size
            flags[count] = _TOO_LONG if left > limit else (_OPEN if opened else _FINE)
            count += 1
        start = size
    return count, start, multiline


@numba.njit(cache=True, nogil=True)
def _count_fields(data, starts, ends):  # type: ignore[no-untyped-def]
    counts = np.empty(len(starts), np.int64)
    for record in range(len(starts)):
        fields, begins, opened = 1, True, False
        place, end = starts[record], ends[record]
        while place < end:
            byte = data[place]
            if opened:
                if byte == _QUOTE:
                    if place + 1 < end and data[place + 1] == _QUOTE:
                        place += 1
                    else:
                        opened = False
            elif byte == _COMMA:
                fields += 1
                begins = True
                place += 1
                continue
            elif byte == _QUOTE and begins:
                opened = True
            elif byte in (_LF, _CR):
                fields = SEVERAL
                break
            begins = False
            place += 1
        counts[record] = UNCLOSED if opened else fields
    return counts
