"""The compiled loops of :mod:`riprap.adapters.framing`: find records, count their fields, undo escapes.

Separator, quote, escape and comment are bytes, or -1 where there is none.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from riprap.machine_code import compiled

# What is wrong with a record, if anything.
FINE, TOO_LONG, OPEN_QUOTE, TEXT_AFTER, TEXT_AFTER_LATER = range(5)
# In the place of a number of fields.
UNCLOSED, SEVERAL, GOES_ON = -1, -2, -3

_LF, _CR, _X, _ZERO = ord("\n"), ord("\r"), ord("x"), ord("0")
_SEVENS, _ONES = np.uint64(0x7F7F7F7F7F7F7F7F), np.uint64(0x0101010101010101)
_LFS, _CRS = (np.uint64(0x0101010101010101 * c) for c in (_LF, _CR))
_XS, _CASE = (np.uint64(0x0101010101010101 * c) for c in (_X, 32))
_NUMBERS = np.uint64(0x0001020304050607)
_ONE, _SEVEN, _TOP = np.uint64(1), np.uint64(7), np.uint64(56)


@compiled(inline="always")
def _equal(word, pattern):  # type: ignore[no-untyped-def]
    """Set the top bit of each byte of a word that is the byte of the pattern."""
    other = word ^ pattern
    return ~(((other & _SEVENS) + _SEVENS) | other | _SEVENS)


@compiled
def _is_space(data, start, end):  # type: ignore[no-untyped-def]
    while start < end and (data[start] == 32 or data[start] == 9 or data[start] == _CR):
        start += 1
    return start == end


@compiled(inline="always")
def _escaped(data, place, start, escape):  # type: ignore[no-untyped-def]
    """Say whether there is an odd number of escapes right before a place."""
    first = place
    while first > start and data[first - 1] == escape:
        first -= 1
    return (place - first) % 2 == 1


@compiled(inline="always")
def _flag(long, opened, spoiled):  # type: ignore[no-untyped-def]
    if long:
        return TOO_LONG
    if opened:
        return OPEN_QUOTE
    return TEXT_AFTER if spoiled else FINE


@compiled(nogil=True)
def cut(  # type: ignore[no-untyped-def]
    data, words, quoted, across, sep, quote, escape, comment, blank, limit, final, starts, ends, flags
):
    """Find records; return how many, where the bytes begin that are left, if there are inner breaks, and comments.

    Eight bytes are looked at together, and only line breaks and quotes one by one.
    """
    size, whole = len(data), len(words)
    quotes = _ONES * np.uint64(max(quote, 0))
    count = start = resume = word_number = 0
    # Inside quotes, and since where; the last closing quote; the first break inside quotes; text after a closing quote.
    opened, opening, closed, broken, spoiled = False, 0, -2, -1, False
    multiline = gaps = False
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
                marks |= _equal(word, _CRS)
                if quote >= 0:
                    marks |= _equal(word, quotes)
            while marks:
                lowest = marks & (~marks + _ONE)
                marks ^= lowest
                place = word_number * 8 + int(((lowest >> _SEVEN) * _NUMBERS) >> _TOP)
                if place < resume:
                    continue
                byte = data[place]
                if byte == quote and quoted:
                    if spoiled or data[start] == comment:
                        continue
                    if not opened:
                        # Right after a closing quote it is the second of two, which stand for one.
                        opened = place == start or data[place - 1] == sep or closed == place - 1
                        if opened and closed != place - 1:
                            opening = place
                    elif escape < 0 or not _escaped(data, place, opening + 1, escape):
                        opened, closed = False, place
                        if place + 1 < size:
                            after = data[place + 1]
                            spoiled = after not in (sep, quote, _LF, _CR)
                            failed = spoiled and broken >= 0
                    failed = failed or (place - start > limit and broken >= 0)
                elif opened and across:
                    if broken < 0:
                        broken, multiline = place, True
                    failed = place - start > limit
                else:
                    end = place
                    if not quoted and end > start and data[end - 1] == _CR:
                        end -= 1
                    failed = end - start > limit and broken >= 0
                    if not failed:
                        if end > start and data[start] == comment:
                            gaps = True
                        elif (
                            end - start > limit
                            or blank
                            or (
                                end > start
                                and (quoted or data[start] > 32 or not _is_space(data, start, end))
                            )
                        ):
                            starts[count], ends[count] = start, end
                            flags[count] = _flag(end - start > limit, opened, spoiled)
                            count += 1
                        start, broken, opened, closed, spoiled = place + 1, -1, False, -2, False
                if failed:
                    break
            word_number += 1
        left = size - start
        if failed or (broken >= 0 and (left > limit + 1 or (final and (opened or left > limit)))):
            starts[count], ends[count] = start, broken
            flags[count] = (
                TOO_LONG if broken - start > limit else (TEXT_AFTER_LATER if spoiled else OPEN_QUOTE)
            )
            count += 1
            start = resume = broken + 1
            word_number = resume >> 3
            opened, closed, broken, spoiled = False, -2, -1, False
        else:
            break
    if final and start < size:
        if data[start] == comment:
            gaps = True
        elif left > limit or opened or blank or quoted or not _is_space(data, start, size):
            starts[count], ends[count] = start, size
            flags[count] = _flag(left > limit, opened, spoiled)
            count += 1
        start = size
    return count, start, multiline, gaps


@compiled(nogil=True)
def count_fields(data, starts, ends, sep, quote):  # type: ignore[no-untyped-def]
    counts = np.empty(len(starts), np.int64)
    for record in range(len(starts)):
        fields, begins, opened, closed = 1, True, False, False
        place, end = starts[record], ends[record]
        while place < end:
            byte = data[place]
            if opened:
                if byte == quote:
                    if place + 1 < end and data[place + 1] == quote:
                        place += 1
                    else:
                        opened, closed = False, True
            elif byte == sep:
                fields += 1
                begins, closed = True, False
                place += 1
                continue
            elif byte in (_LF, _CR):
                fields = SEVERAL
                break
            elif closed:
                fields = GOES_ON
                break
            elif byte == quote and begins:
                opened = True
            begins = False
            place += 1
        counts[record] = UNCLOSED if opened else fields
    return counts


@compiled(nogil=True)
def unescape(data, starts, ends, sep, quote, escape, unescaped, unescaped_starts, unescaped_ends):  # type: ignore[no-untyped-def]
    to = 0
    for record in range(len(starts)):
        unescaped_starts[record] = to
        opened, begins, closed = False, True, -2
        place, end = starts[record], ends[record]
        while place < end:
            byte = data[place]
            after = data[place + 1] if place + 1 < end else 0
            if opened and byte == escape and (after in (quote, escape)):
                if after == quote:
                    unescaped[to] = quote
                    to += 1
                byte = after
                place += 1
            elif byte == quote:
                if opened:
                    closed = place
                opened = not opened and (begins or closed == place - 1)
            unescaped[to] = byte
            to += 1
            begins = byte == sep and not opened
            place += 1
        unescaped_ends[record] = to
        unescaped[to] = _LF
        to += 1


def has_hexadecimal(data: npt.NDArray[np.uint8]) -> bool:
    """Say whether 0x or 0X is anywhere in some bytes."""
    return bool(_has_hexadecimal(data, data[: len(data) // 8 * 8].view(np.uint64)))


@compiled(nogil=True)
def _has_hexadecimal(data, words):  # type: ignore[no-untyped-def]
    size = len(data)
    for number in range(len(words) + 1):
        # The letters x and X differ in one bit.
        if number == len(words) or _equal(words[number] | _CASE, _XS):
            for place in range(max(number * 8, 1), min(number * 8 + 8, size)):
                if (data[place] | 32) == _X and data[place - 1] == _ZERO:
                    return True
    return False
