"""Keep the records that cannot be read: where each was, what is wrong with it, and its bytes.

A quarantine is a folder with a file for each segment of a source that had bad records. The name says how many:

    <segment>-<count>.jsonl       00000012-3.jsonl

and the file holds an object a line, the bytes as ``base64`` where they are not UTF-8:

    {"format": "riprap-quarantine/1"}
    {"position": {"file": "a.csv", "record": 17, "byte": 1234}, "reason": "3 fields, not 4", "size": 5, "text": "1,2,3"}
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from riprap.errors import FormatError
from riprap.state.durable_files import checking, put_in_place

if TYPE_CHECKING:
    # Not to be loaded by those who look into a run's folder alone, such as the agent.
    from riprap.graph.connectors import BadRecord

FORMAT = "riprap-quarantine/1"
_REMEDY = "Remove it, and the other records of the quarantine can be read"
# Of a record that is too long, so much is kept.
KEPT_BYTES = 4096
_NAME = re.compile(r"(\d{8,})-(\d+)\.jsonl")


def kept(record: bytes, limit: int) -> bytes:
    """Return what is kept of a record: all of it, or the beginning of one that is longer than the limit."""
    return record if len(record) <= limit else record[:KEPT_BYTES]


def write_quarantine(folder: Path, number: int, bad: Sequence[BadRecord]) -> None:
    """Write the bad records of a segment, in place of those an earlier try at the segment left."""
    if folder.exists():
        for path in folder.glob(f"{number:08d}-*.jsonl"):
            path.unlink()
    if not bad:
        return
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f".{number:08d}.tmp"
    with temporary.open("w", encoding="utf-8") as file:
        file.write(json.dumps({"format": FORMAT}) + "\n")
        for each in bad:
            line = {"position": dict(each.position), "reason": each.reason, "size": each.size}
            file.write(json.dumps(line | _written(each.record)) + "\n")
    put_in_place(temporary, folder / f"{number:08d}-{len(bad)}.jsonl")


def count_quarantined(folder: Path) -> int:
    """Add up the bad records of a quarantine, by the names of its files."""
    return sum(count for _, _, count in _files(folder))


def read_quarantine(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a quarantine, in the order of the segments."""
    for path, _, _ in _files(folder):
        with path.open(encoding="utf-8") as file:
            with checking(path, _REMEDY):
                if json.loads(next(file, "null")) != {"format": FORMAT}:
                    raise FormatError(f"{path} is not of format {FORMAT}. {_REMEDY}")
            for text in file:
                with checking(path, _REMEDY):
                    line: dict[str, Any] = dict(json.loads(text))
                yield line


def _written(record: bytes) -> dict[str, str]:
    try:
        return {"text": record.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(record).decode()}


def _files(folder: Path) -> list[tuple[Path, int, int]]:
    """List the files of a quarantine with their segments and counts."""
    if not folder.exists():
        return []
    named = [(path, _NAME.fullmatch(path.name)) for path in folder.iterdir()]
    files = [(path, int(match[1]), int(match[2])) for path, match in named if match is not None]
    return sorted(files, key=lambda each: each[1])
