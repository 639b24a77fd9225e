"""Segments that are held: no reader sees them until they are released, and they can be taken back and made anew."""

from __future__ import annotations

import random
import stat
from pathlib import Path

import pytest
from tests.channels.model import SCHEMA, fill, open_writer, rows_of, simple

from riprap.channels import ChannelReader, ChannelWriter
from riprap.errors import ChannelError


def seen(folder: Path, columns: list[str] = SCHEMA.names) -> list[int]:
    """Return the sizes of all that a reader can see."""
    reader = ChannelReader(folder, "a")
    upto = reader.next(None, 10**9)
    return [] if upto is None else [row["size"] for row in rows_of(reader.read(None, upto, columns)[0])]


def sizes(batches: int, of: int = 10) -> list[int]:
    return [batch * 100 + n for batch in range(batches) for n in range(of)]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def held(folder: Path) -> ChannelWriter:
    return open_writer(folder, holds=True)


def test_what_is_held_is_seen_once_it_is_released(log: Path) -> None:
    writer = held(log)
    fill(writer, 5)
    assert (writer.batch, writer.released, seen(log)) == (4, -1, [])
    assert stat.S_IMODE((log / "held").stat().st_mode) == 0o700
    writer.release(2)
    assert (writer.batch, writer.released, seen(log)) == (4, 2, sizes(3))
    writer.release(1)
    writer.release(9)
    assert (writer.released, seen(log)) == (4, sizes(5))


def test_what_is_held_can_be_made_anew_and_what_was_seen_cannot(log: Path) -> None:
    writer = held(log)
    fill(writer, 5)
    writer.release(1)
    writer.take_back(2)
    assert writer.batch == 2
    writer.append(3, simple(3, 4), None, frontier=3, sources={})
    writer.release(3)
    assert seen(log) == [*sizes(3), 300, 301, 302, 303]
    writer.take_back(-1)
    assert (writer.batch, writer.released, seen(log)) == (3, 3, [*sizes(3), 300, 301, 302, 303])


def test_another_process_goes_on_with_what_is_held(log: Path) -> None:
    fill(held(log), 3)
    again = held(log)
    assert (again.batch, again.released) == (2, -1)
    fill(again, 4)
    again.release(3)
    assert (held(log).batch, seen(log)) == (3, sizes(4))


def test_positions_of_sources_go_on_after_what_is_taken_back(log: Path) -> None:
    writer = held(log)
    fill(writer, 4)
    newest = writer.newest
    writer.take_back(1)
    fill(writer, 4)
    assert writer.newest == newest


@pytest.mark.parametrize("seed", range(20))
def test_as_a_list_would(log: Path, seed: int) -> None:
    chance, written, released = random.Random(seed), list[int](), -1
    writer = held(log)
    for _ in range(40):
        batch = chance.randrange(-1, len(written) + 2)
        match chance.choice(["append", "append", "release", "take back", "another"]):
            case "append":
                written.append(chance.randrange(1, 8))
                number = len(written) - 1
                writer.append(number, simple(number, written[-1]), None, frontier=number, sources={})
            case "release":
                writer.release(batch)
                released = max(released, min(batch, len(written) - 1))
            case "take back":
                writer.take_back(batch)
                del written[max(batch, released) + 1 :]
            case _:
                writer = held(log)
        assert (writer.batch, writer.released) == (len(written) - 1, released)
        assert seen(log) == [b * 100 + n for b in range(released + 1) for n in range(written[b])]


def test_what_is_held_is_not_passed_over(log: Path) -> None:
    writer = held(log)
    fill(writer, 3)
    writer.release(1)
    with pytest.raises(ChannelError, match=r"has 1 batches of stream .* not to be seen yet"):
        open_writer(log)
    writer.release(2)
    assert open_writer(log).batch == 2
