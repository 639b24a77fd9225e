"""Writing a channel: every row comes back, in order, whatever the cuts; and what the writer refuses."""

from __future__ import annotations

import math
import shutil
import stat
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.channels.model import (
    SCHEMA,
    Model,
    Row,
    batch_of,
    fill,
    newest_first,
    open_writer,
    rows_of,
    simple,
    tag_fields,
    ticks,
)

from riprap.channels import ChannelReader, ChannelWriter
from riprap.errors import ChannelError, FormatError

KEYS: list[tuple[str, ...] | None] = [None, ("name",), ("price",), ("price", "name"), ("size",)]
NAMES = st.none() | st.text(st.characters(codec="utf-8"), max_size=2)
PRICES = st.none() | st.sampled_from([0.0, -0.0, math.nan, math.inf]) | st.floats()
SIZES = st.none() | st.integers(-(2**63), 2**63 - 1)


@st.composite
def channels(draw: st.DrawFn) -> Model:
    model = Model(
        tags=draw(st.integers(1, 3)), key=draw(st.sampled_from(KEYS)), buckets=draw(st.integers(1, 5))
    )
    before = draw(st.integers(-5, 5) | st.just(-(2**63) - 1) | st.just(2**63 - 13))
    for number in range(draw(st.integers(0, 4))):
        # The first frontier must be an int64, and stays so below.
        step = draw(st.integers(0 if number else 1, 3))
        frontier = before + step if number else max(before + step, -(2**63))
        tags = st.tuples(st.integers(before + 1, frontier), *[st.integers(-2, 2)] * (model.tags - 1))
        found = [sorted(draw(st.lists(tags, max_size=size))) if step else [] for size in (12, 3)]
        rows, marks = ([dict(zip(names(model), tag, strict=True)) for tag in part] for part in found)
        values: list[Row] = [
            {"name": draw(NAMES), "price": draw(PRICES), "size": draw(SIZES), **tag} for tag in rows
        ]
        model.batches.append((frontier, values, marks))
        before = frontier
    return model


def names(model: Model) -> list[str]:
    return [name for name, _ in tag_fields(model.tags)]


def write(model: Model, folder: Path, encode: bool = False) -> ChannelWriter:
    writer = open_writer(folder, tags=model.tags, key=model.key, buckets=model.buckets)
    for number, (frontier, rows, marks) in enumerate(model.batches):
        batch = batch_of(rows, model.tags)
        if encode:
            batch = batch.set_column(0, "name", batch.column(0).dictionary_encode())
        punctuations = batch_of(marks, model.tags, pa.schema([])) if marks or number % 2 else None
        writer.append(number, batch, punctuations, frontier=frontier, sources={})
    return writer


@settings(max_examples=300, deadline=None)
@given(model=channels(), encode=st.booleans(), data=st.data())
def test_rows_come_back_in_order(model: Model, encode: bool, data: st.DataObject) -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        writer = write(model, folder / "log", encode)
        reader = ChannelReader(folder / "log", "a")
        values = sorted({v for f, rows, _ in model.batches for v in (f, *(r["$0"] for r in rows))})
        after = data.draw(st.none() | st.sampled_from(values) if values else st.none())
        upto = data.draw(st.sampled_from(values)) if values else None
        buckets = 1 if model.key is None else model.buckets
        span = data.draw(
            st.none() | st.tuples(*[st.integers(0, buckets)] * 2).map(lambda s: (min(s), max(s)))
        )
        columns = data.draw(st.lists(st.sampled_from(SCHEMA.names), unique=True))
        limit = data.draw(st.integers(0, 30))

        assert reader.frontier == writer.frontier == model.frontier
        assert writer.batch == len(model.batches) - 1
        assert reader.next(after, limit) == model.next(after, limit)
        if upto is not None:
            tuples, punctuations = reader.read(after, upto, columns, span)
            # As text, for NaN is not equal to itself, and -0.0 is to 0.0.
            assert repr(rows_of(tuples)) == repr(model.tuples(after, upto, columns, span))
            assert rows_of(punctuations) == model.punctuations(after, upto)
            assert reader.count(after, upto) == len(model.all_between(after, upto))
            assert tuples.schema == pa.schema([*(SCHEMA.field(c) for c in columns), *tag_fields(model.tags)])
            assert punctuations.schema == pa.schema(tag_fields(model.tags))
    finally:
        shutil.rmtree(folder)


def test_a_batch_that_is_in_the_log_changes_nothing(tmp_path: Path) -> None:
    writer = open_writer(tmp_path)
    fill(writer, 3)
    listing = sorted(tmp_path.iterdir())

    writer.append(1, simple(9), None, frontier=9, sources={})
    open_writer(tmp_path).append(2, simple(9), None, frontier=9, sources={})

    assert sorted(tmp_path.iterdir()) == listing
    assert ChannelReader(tmp_path, "a").frontier == 2


def test_a_writer_carries_on_where_the_one_before_ended(tmp_path: Path) -> None:
    first = open_writer(tmp_path)
    assert (first.batch, first.frontier) == (-1, None)
    first.append(0, simple(0), ticks((0, 1), (0, 2)), frontier=0, sources={})
    (tmp_path / ".0000000001.77.tmp").write_bytes(b"half of it")

    second = open_writer(tmp_path)

    assert (second.batch, second.frontier) == (0, 0)
    second.append(1, simple(1), ticks((1, 1)), frontier=1, sources={})
    blocks = newest_first(tmp_path)
    assert {(b.position, b.rows.num_rows) for b in blocks if b.kind == "punctuation"} == {(0, 2), (2, 1)}
    numbers = [n for b in blocks if b.kind == "data" for n in range(b.position, b.position + b.rows.num_rows)]
    assert sorted(numbers) == list(range(20))
    assert not list(tmp_path.glob(".*"))


def refused(tuples: pa.RecordBatch, marks: pa.RecordBatch | None = None, frontier: Any = 1) -> Any:
    return tuples, marks, frontier


@pytest.mark.parametrize(
    ("what", "said"),
    [
        (refused(simple(2)), r"\$0 from 2 to 2, .* beyond the frontier before \(0\) and up to its own \(1\)"),
        (refused(simple(0)), r"\$0 from 0 to 0"),
        (refused(simple(1), ticks((0, 3))), r"\$0 from 0 to 0"),
        (refused(simple(1).take(pa.array([1, 0]))), "not in the order of their tags"),
        (refused(simple(1, 0), frontier=-1), "frontier -1 falls behind 0"),
        (refused(simple(1), frontier=2**63), "or is no int64"),
        (refused(simple(1).drop_columns(["size"])), "columns are name, price"),
        (refused(simple(1), simple(1)), "columns are name, price"),
        (refused(simple(1).set_column(4, "$1", pa.array([None] * 10, pa.int64()))), "a tag has a null"),
        (
            refused(simple(1).set_column(2, "size", pa.array([1.0] * 10))),
            "column 'size' is double, not int64",
        ),
    ],
)
def test_what_would_spoil_the_log_is_refused(tmp_path: Path, what: Any, said: str) -> None:
    writer = open_writer(tmp_path)
    fill(writer, 1)
    tuples, marks, frontier = what

    with pytest.raises(ChannelError, match=said):
        writer.append(1, tuples, marks, frontier=frontier, sources={})

    fill(writer, 2)
    assert ChannelReader(tmp_path, "a").count(None, 1) == 20


@pytest.mark.parametrize("batch", [-1, 3, 9])
def test_a_gap_in_the_batches_is_an_error(tmp_path: Path, batch: int) -> None:
    writer = open_writer(tmp_path)
    fill(writer, 2)

    with pytest.raises(ChannelError, match=f"batch {batch} of stream 'trades' .* ends with batch 1"):
        writer.append(batch, simple(9), None, frontier=9, sources={})


def test_columns_may_come_in_any_order(tmp_path: Path) -> None:
    writer = open_writer(tmp_path)

    writer.append(0, simple(0).select(["$1", "size", "$0", "name", "price"]), None, frontier=0, sources={})

    assert (
        ChannelReader(tmp_path, "a").read(None, 0, SCHEMA.names)[0].equals(pa.Table.from_batches([simple(0)]))
    )


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"stream": "quotes"}, "stream 'trades', not 'quotes'"),
        ({"key": None}, r"key \['name'\], not None"),
        ({"buckets": 8}, "buckets 4, not 8"),
        ({"tags": 3}, "tags 2, not 3"),
        ({"schema": SCHEMA.remove(1)}, "schema 'name string, price double, size int64', not"),
    ],
)
def test_a_channel_is_not_reopened_as_another(tmp_path: Path, other: dict[str, Any], said: str) -> None:
    open_writer(tmp_path)

    with pytest.raises(ChannelError, match=said):
        open_writer(tmp_path, **other)
    open_writer(tmp_path, readers=("b", "c"))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"tags": 0}, "0 tag columns"),
        ({"buckets": 0}, "0 buckets"),
        ({"key": ("nome",)}, "key names nome, which its schema lacks: name string"),
        ({"schema": SCHEMA.append(pa.field("$1", pa.int64()))}, r"schema has \$1"),
    ],
)
def test_a_channel_that_makes_no_sense_is_not_made(tmp_path: Path, wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ChannelError, match=f"'trades' cannot be made: .*{said}"):
        open_writer(tmp_path / "log", **wrong)
    assert not (tmp_path / "log").exists()


def test_only_the_owner_may_look_inside(tmp_path: Path) -> None:
    folder = tmp_path / "channels" / "trades"
    fill(open_writer(folder), 1)
    ChannelReader(folder, "a").acknowledge(0)

    for made in (folder, folder / "readers"):
        assert stat.S_IMODE(made.stat().st_mode) == 0o700


@pytest.mark.parametrize("text", ["", "{", "null", '{"format": "riprap-channel/2"}'])
def test_a_channel_file_that_is_unknown_or_damaged(tmp_path: Path, text: str) -> None:
    open_writer(tmp_path)
    (tmp_path / "channel.json").write_text(text)

    with pytest.raises((ChannelError, FormatError), match=r"channel\.json"):
        open_writer(tmp_path)
    with pytest.raises((ChannelError, FormatError), match=r"channel\.json"):
        _ = ChannelReader(tmp_path, "a").channel


def test_segments_without_a_channel_file_are_not_taken_over(tmp_path: Path) -> None:
    fill(open_writer(tmp_path), 1)
    (tmp_path / "channel.json").unlink()

    with pytest.raises(ChannelError, match=r"segments but no channel\.json"):
        open_writer(tmp_path)


def test_nothing_comes_after_the_end(tmp_path: Path) -> None:
    writer = open_writer(tmp_path)
    reader = ChannelReader(tmp_path, "a")
    fill(writer, 2)
    assert not reader.ended

    writer.finish()
    writer.finish()

    assert reader.ended
    writer.append(1, simple(1), None, frontier=1, sources={})
    with pytest.raises(ChannelError, match="the channel is finished"):
        fill(writer, 3)


def test_a_folder_that_cannot_be_written_is_said_so(tmp_path: Path) -> None:
    writer = open_writer(tmp_path / "log")
    fill(writer, 1)
    (tmp_path / "log").rename(tmp_path / "gone")

    with pytest.raises(ChannelError, match="batch 1 of stream 'trades' cannot be written"):
        fill(writer, 2)

    (tmp_path / "gone").rename(tmp_path / "log")
    fill(writer, 2)
    assert ChannelReader(tmp_path / "log", "a").count(None, 1) == 20
