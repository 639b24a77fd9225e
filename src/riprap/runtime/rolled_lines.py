"""Files of a JSON object a line, which several processes add to and others follow; a large one is put aside.

    events.jsonl            is being written; its number is one more than the greatest that is there
    events-0000000007.jsonl     was full; the newest few of these stay, older ones are removed

A line is written by one call, to the end of the file: lines of several processes do not mix. A line that comes while
the file is put aside may be the last of the old one; so what follows them looks at all files, each from where it was.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from riprap.state.durable_files import parse_line

_FULL = 16 << 20
_KEEP = 4
# No line is as long.
_LONGEST = 1 << 20

JsonLine = dict[str, Any]


class RolledLines:
    """The files of one name in a folder. One is put aside from ``full`` bytes on, and ``keep`` of those stay."""

    def __init__(self, folder: Path, name: str, *, full: int = _FULL, keep: int = _KEEP) -> None:
        self._folder = folder
        self._name = name
        self._full = full
        self._keep = keep
        self._path = folder / f"{name}.jsonl"
        self._aside = re.compile(re.escape(name) + r"-(\d{10})\.jsonl")

    def append(self, line: Mapping[str, Any]) -> None:
        """Add a line."""
        with self._path.open("ab") as file:
            file.write((json.dumps(line) + "\n").encode())
            file.flush()
            size = file.tell()
        if size >= self._full:
            self._put_aside()

    def read(self) -> Iterator[JsonLine]:
        """Yield the lines there are, oldest first; one that is being written, or was cut short, is left out."""
        with contextlib.ExitStack() as opened:
            for _, file in self._open(opened):
                yield from _lines(file.read())

    def backwards(self) -> Iterator[JsonLine]:
        """Yield the lines there are, newest first."""
        with contextlib.ExitStack() as opened:
            for _, file in reversed(self._open(opened)):
                for line in reversed(file.read().splitlines(keepends=True)):
                    yield from _lines(line)

    def follow(self, *, all_of_it: bool = False) -> Following:
        """Return what gives the lines from now on, or from the first."""
        following = Following(self)
        if not all_of_it:
            following.skip()
        return following

    def _open(self, opened: contextlib.ExitStack) -> list[tuple[int, IO[bytes]]]:
        """Open the files there are, oldest first, with their numbers."""
        # First the one that is being written: if it is put aside meanwhile, it is among the others.
        with contextlib.suppress(FileNotFoundError):
            newest = opened.enter_context(self._path.open("rb"))
            same = os.fstat(newest.fileno()).st_ino
            files = self._others(opened)
            if all(os.fstat(file.fileno()).st_ino != same for _, file in files):
                files.append((files[-1][0] + 1 if files else 1, newest))
            return files
        return self._others(opened)

    def _others(self, opened: contextlib.ExitStack) -> list[tuple[int, IO[bytes]]]:
        files: list[tuple[int, IO[bytes]]] = []
        for number, path in self._put_by():
            # Others may remove it.
            with contextlib.suppress(FileNotFoundError):
                files.append((number, opened.enter_context(path.open("rb"))))
        return files

    def _put_by(self) -> list[tuple[int, Path]]:
        named = ((self._aside.fullmatch(path.name), path) for path in self._folder.glob(f"{self._name}-*"))
        return sorted((int(match[1]), path) for match, path in named if match)

    def _put_aside(self) -> None:
        with (self._folder / f".{self._name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            # Another process may have seen it too.
            if not self._path.exists() or self._path.stat().st_size < self._full:
                return
            others = self._put_by()
            number = others[-1][0] + 1 if others else 1
            self._path.rename(self._folder / f"{self._name}-{number:010d}.jsonl")
            for _, path in others[: max(0, len(others) + 1 - self._keep)]:
                path.unlink(missing_ok=True)


class Following:
    """Gives lines as they come, each once."""

    def __init__(self, lines: RolledLines) -> None:
        self._lines = lines
        self._read: dict[int, int] = {}

    def skip(self) -> None:
        """Pass over what is there, up to the last line that is whole."""
        with contextlib.ExitStack() as opened:
            for number, file in self._lines._open(opened):
                start = max(0, file.seek(0, os.SEEK_END) - _LONGEST)
                file.seek(start)
                whole = file.read().rpartition(b"\n")
                self._read[number] = start + len(whole[0]) + len(whole[1])

    def new(self) -> list[JsonLine]:
        """Return the lines that came since the last time."""
        lines: list[JsonLine] = []
        with contextlib.ExitStack() as opened:
            files = self._lines._open(opened)
            for number, file in files:
                file.seek(self._read.get(number, 0))
                whole = file.read().rpartition(b"\n")
                data = whole[0] + whole[1]
                self._read[number] = self._read.get(number, 0) + len(data)
                lines += _lines(data)
            self._read = {number: self._read[number] for number, _ in files}
        return lines


def _lines(data: bytes) -> Iterator[JsonLine]:
    for line in data.splitlines(keepends=True):
        # One that a full disk has cut short has another behind it; a power cut may leave zeros.
        if line.endswith(b"\n") and (parsed := parse_line(line)) is not None:
            yield parsed
