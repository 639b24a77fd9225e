"""Bytes are cut into the records that plain Python finds, wherever the blocks end."""

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.adapters import plain

from riprap.adapters.bad_records import KEPT_BYTES
from riprap.adapters.framing import GOES_ON, SEVERAL, UNCLOSED, RecordBlock, count_fields, frame
from riprap.graph.connectors.notation import PLAIN, Notation

PIECES = [
    b"a",
    b"bc",
    b",",
    b'"',
    b'""',
    b"\n",
    b"\r\n",
    b"\r",
    b" ",
    b"\xff",
    b"\xef\xbb\xbf",
    b"0123456789",
    b"\n\n",
]
BYTES = st.lists(st.sampled_from(PIECES), max_size=40).map(b"".join) | st.binary(max_size=60)
NOTATIONS = [
    PLAIN,
    Notation(multiline=True),
    Notation(sep=" ", comment="a"),
    Notation(multiline=True, escape="b", comment="c"),
    Notation(escape="b"),
    Notation(quote=None),
]
LIMITS = st.integers(1, 30)
SIZES = st.sampled_from([1, 2, 3, 7, 8, 9, 16, 1000])


class Trickle:
    """A stream without readinto, which gives less than it is asked for."""

    def __init__(self, data: bytes) -> None:
        self._file = io.BytesIO(data)

    def read(self, size: int, /) -> bytes:
        return self._file.read(max(1, size // 2))


def records(blocks: list[RecordBlock]) -> list[tuple[int, bytes, bool]]:
    found, number = [], 0
    for block in blocks:
        assert block.first == number
        for i in range(len(block)):
            found.append((block.byte + int(block.starts[i]), block.record(i), i not in block.faults))
            if i in block.faults:
                assert block.faults[i].size == len(block.record(i))
        number += len(block)
    return found


@settings(max_examples=600, deadline=None)
@given(data=BYTES, limit=LIMITS, size=SIZES, trickle=st.booleans(), csv=st.sampled_from(NOTATIONS))
def test_csv_records(data: bytes, limit: int, size: int, trickle: bool, csv: Notation) -> None:
    stream = Trickle(data) if trickle else io.BytesIO(data)
    blocks = list(frame(stream, csv=csv, limit=limit, block_bytes=size))
    assert records(blocks) == plain.csv_records(data, limit, csv)
    for block in blocks:
        inner = any(b"\n" in block.record(i) or b"\r" in block.record(i) for i in range(len(block)))
        assert block.multiline or not inner


@settings(max_examples=600, deadline=None)
@given(data=BYTES, limit=LIMITS, size=SIZES, trickle=st.booleans(), blank=st.booleans())
def test_lines(data: bytes, limit: int, size: int, trickle: bool, blank: bool) -> None:
    stream = Trickle(data) if trickle else io.BytesIO(data)
    blocks = list(frame(stream, limit=limit, blank=blank, block_bytes=size))
    assert records(blocks) == plain.lines(data, limit, blank=blank)


def test_a_long_line_is_not_held() -> None:
    """Of a line of 50 MB, read in blocks of 64 kB, the beginning is kept and the size is known."""
    held = []

    class Endless:
        left = 800

        def read(self, size: int, /) -> bytes:
            self.left -= 1
            return b"" if self.left < 0 else b"\nx,1\n" if self.left == 0 else b"y" * 65536

    for block in frame(Endless(), csv=PLAIN, limit=100_000, block_bytes=65536):
        held.append(len(block.data))
        if block.faults:
            assert block.faults[0].size == 799 * 65536
            assert block.record(0) == b"y" * KEPT_BYTES
            assert block.faults[0].reason == (
                "52,363,264 bytes, more than the 100,000 allowed: raise max_record_bytes="
            )
        else:
            assert (block.record(0), block.first, block.byte) == (b"x,1", 1, 799 * 65536 + 1)
    assert len(held) == 2
    assert max(held) < 300_000


@pytest.mark.parametrize("csv", [PLAIN, Notation(multiline=True)])
def test_a_bad_quote_costs_its_own_line(csv: Notation) -> None:
    """Opened and never closed; closed on a later line, with text after it; closed on its own, with text after it."""
    lines = [b"a,b", b'1,"x,2.5', b"2,y", b'3,"x', b'4,"y",5', b'6,"x"y', b'7,"x""y"', b"8,z"]
    data = b"\n".join(lines)
    found = records(list(frame(io.BytesIO(data), csv=csv, limit=1 << 20)))
    assert [record for _, record, _ in found] == lines
    assert [record for _, record, good in found if not good] == [lines[1], lines[3], lines[5]]


def test_fields_are_counted() -> None:
    texts = [
        b"a",
        b"a,b",
        b'"a,b",c',
        b'a"b,c"',
        b'"a"",b",',
        b'"a\n,b"',
        b'"a',
        b"a\nb",
        b'""",',
        b'"a"b"c,d',
    ]
    for text, count in zip(texts, [1, 2, 2, 2, 2, 1, UNCLOSED, SEVERAL, UNCLOSED, GOES_ON], strict=True):
        data = np.frombuffer(text, np.uint8).copy()
        assert count_fields(data, np.array([0]), np.array([len(text)]), PLAIN).tolist() == [count], text
