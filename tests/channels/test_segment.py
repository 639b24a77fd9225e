"""The format of a segment: any damage is found, names sort, and kinds of block from later versions are no hindrance."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.channels.model import batch_of, fill, newest_first, open_writer, rows_of, simple, ticks

from riprap.channels import ChannelReader
from riprap.channels.segment import NewBlock, SegmentFile, SegmentName, parse_name, write_segment
from riprap.errors import ChannelError, FormatError

SECOND = SegmentName(batch=1, position=10, rows=12, frontier=1)
NUMBERS = st.integers(0, 10**9)
NAMES = st.builds(SegmentName, NUMBERS, NUMBERS, NUMBERS, st.integers(-(2**63), 2**63 - 1))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log of two segments; the second has several blocks, of both kinds."""
    writer = open_writer(tmp_path, buckets=3)
    fill(writer, 1)
    writer.append(1, simple(1, 12), ticks((1, 1), (1, 2)), frontier=1, sources={"feed": [10, 13]})
    return tmp_path


def second(log: Path) -> Path:
    return log / SECOND.file


def replace(path: Path, data: bytes) -> None:
    """Put another file in a file's place: to change the one that is mapped would change what was read before."""
    path.with_suffix(".new").write_bytes(data)
    path.with_suffix(".new").rename(path)


@given(name=NAMES)
def test_a_name_reads_as_it_was_written(name: SegmentName) -> None:
    assert parse_name(name.file) == name


@given(frontiers=st.lists(st.integers(-(2**63), 2**63 - 1), min_size=2, max_size=2))
def test_names_sort_by_batch_and_by_frontier(frontiers: list[int]) -> None:
    low, high = sorted(frontiers)
    assert SegmentName(3, 5, 0, low).file <= SegmentName(3, 5, 0, high).file
    assert SegmentName(3, 5, 0, high).file < SegmentName(4, 5, 0, low).file


@pytest.mark.parametrize("file", ["", "channel.json", ".0000000001.7.tmp", "1-2-3-4.segment", "x.segment"])
def test_other_names_are_no_segments(file: str, log: Path) -> None:
    assert parse_name(file) is None
    if file:
        (log / file).touch()
    assert ChannelReader(log, "a").frontier == 1


def test_a_flipped_bit_anywhere_is_found(log: Path) -> None:
    reader, path = ChannelReader(log, "a"), second(log)
    tuples, punctuations = reader.read(None, 1, ["name", "price", "size"])
    whole = path.read_bytes()
    blocks = SegmentFile(log, SECOND).footer.blocks
    used = {n for b in blocks for n in range(b.offset, b.offset + b.length)}
    footer_at = whole.rindex(b'{"format"')
    unnoticed = set()

    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        replace(path, damaged)
        try:
            assert reader.read(None, 1, ["name", "price", "size"]) == (tuples, punctuations)
            unnoticed.add(place)
        except ChannelError as error:
            assert path.name in str(error)  # noqa: PT017

    assert unnoticed == set(range(footer_at)) - used
    assert len(unnoticed) < 64 * len(blocks)


def test_a_file_cut_short_is_found(log: Path) -> None:
    path = second(log)
    whole = path.read_bytes()

    for length in [*range(0, len(whole), 13), len(whole) - 1]:
        replace(path, whole[:length])
        with pytest.raises(ChannelError, match=f"{path.name} is damaged"):
            ChannelReader(log, "a").read(None, 1, ["name"])
        with pytest.raises(ChannelError, match=f"{path.name} is damaged"):
            open_writer(log, buckets=3)


def test_the_error_says_where_the_damage_is_and_what_to_do(log: Path) -> None:
    path = second(log)
    data = bytearray(path.read_bytes())
    footer = SegmentFile(log, SECOND).footer
    victim = footer.blocks[1]
    data[victim.offset + victim.length // 2] ^= 1
    replace(path, data)
    reader = ChannelReader(log, "a")

    with pytest.raises(ChannelError) as caught:
        reader.read(None, 1, ["name"])

    message = str(caught.value)
    assert f"{path} is damaged: block 1 (data, bucket {victim.bucket}, " in message
    assert "let its readers skip the segment, whose frontier is 1, and lose its 12 tuples" in message
    # Other buckets are whole, and so is the rest of the log for who skips the segment.
    reader.read(None, 1, ["name"], (footer.blocks[0].bucket, footer.blocks[0].bucket + 1))
    assert reader.skip(0, 1) == 12
    assert reader.read(None, 1, ["name"])[0].num_rows == 10


@pytest.mark.parametrize("place", [70, -3])
def test_a_damaged_segment_can_be_skipped(log: Path, place: int) -> None:
    reader, path = ChannelReader(log, "a"), second(log)
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    writer = open_writer(log, buckets=3)
    fill(writer, 3)
    reader.acknowledge(0)
    assert writer.trim() == 1
    replace(path, data)

    with pytest.raises(ChannelError, match="is damaged"):
        reader.read(0, 2, ["name"])

    assert reader.skip(0, 1) == 12
    assert reader.next(0, 5) == 1
    assert reader.next(1, 5) == 2
    assert reader.read(0, 2, ["size"])[0].column("size").to_pylist() == list(range(200, 210))


def test_a_segment_under_another_name_is_found(log: Path) -> None:
    second(log).rename(log / SegmentName(1, 10, 13, 1).file)

    with pytest.raises(ChannelError, match="its name is not its own"):
        ChannelReader(log, "a").read(None, 1, [])


def test_a_segment_of_another_channel_is_found(log: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other")
    schema = pa.schema([("name", pa.string())])
    rows = [{"name": "n", "$0": 0, "$1": n} for n in range(10)]
    open_writer(other, schema=schema).append(0, batch_of(rows, 2, schema), None, frontier=0, sources={})
    name = next(other.glob("*.segment")).name
    (other / name).rename(log / name)

    with pytest.raises(ChannelError, match="has columns name string, and the channel name string, price"):
        ChannelReader(log, "a").read(None, 1, ["name"])


def test_an_unknown_format_is_said_so(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as later:
        later.setattr("riprap.channels.segment.FORMAT", "riprap-channel/2")
        later.setattr("riprap.channels.folder.FORMAT", "riprap-channel/1")
        append_blocks(log, [NewBlock("data", 0, simple(2))])

    with pytest.raises(FormatError, match="not of format riprap-channel/1"):
        ChannelReader(log, "a").read(1, 2, ["name"])


def append_blocks(log: Path, blocks: list[NewBlock]) -> None:
    """Write a third segment block by block, as a later version may."""
    before = json.loads((log / "channel.json").read_text())
    write_segment(
        log,
        blocks,
        stream=before["stream"],
        schema=before["schema"],
        batch=2,
        frontier=2,
        previous=1,
        sources={},
        ends={"data": 22, "punctuation": 2},
    )


def test_an_unknown_kind_is_passed_over_but_there(log: Path) -> None:
    rows = simple(2).append_column("$row", pa.array(range(10), pa.int32()))
    strange = pa.record_batch({"page": [b"\0\1", None]})
    append_blocks(
        log, [NewBlock("state", 1, strange), NewBlock("data", 0, rows), NewBlock("state", -1, strange)]
    )
    reader = ChannelReader(log, "a")

    tuples, punctuations = reader.read(1, 2, ["size"])
    newest = [b for b in newest_first(log) if b.segment.batch == 2]

    assert tuples.column("size").to_pylist() == list(range(200, 210))
    assert punctuations.num_rows == 0
    assert reader.count(None, 2) == 32
    assert [(b.kind, b.bucket, b.position) for b in newest] == [
        ("state", -1, 2),
        ("data", 0, 22),
        ("state", 1, 0),
    ]
    assert rows_of(newest[0].rows) == [{"page": b"\0\1"}, {"page": None}]
    # Numbers go on, of this kind too.
    writer = open_writer(log, buckets=3)
    writer.append(3, simple(3), None, frontier=3, sources={})
    assert SegmentFile(log, SegmentName(3, 32, 10, 3)).footer.ends == {
        "data": 42,
        "punctuation": 2,
        "state": 4,
    }


def test_a_block_is_read_only_by_those_who_want_its_bucket(log: Path) -> None:
    path = second(log)
    footer = SegmentFile(log, SECOND).footer
    data = bytearray(path.read_bytes())
    spoiled = [b for b in footer.blocks if b.kind == "data"][-1]
    data[spoiled.offset + 8] ^= 255
    replace(path, data)

    ChannelReader(log, "a").read(None, 1, ["name"], (0, spoiled.bucket))
    with pytest.raises(ChannelError):
        ChannelReader(log, "a").read(None, 1, ["name"], (spoiled.bucket, 3))
