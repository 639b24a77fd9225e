"""Parse files of records piece by piece: the rows of the good records, and the bad records with their places."""

from __future__ import annotations

import gzip
import json
import os
import re
import zlib
from bisect import bisect_left
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from riprap.adapters.bad_records import KEPT_BYTES
from riprap.adapters.csv_records import header_fields
from riprap.adapters.decoding import Decoded, decode
from riprap.adapters.framing import BLOCK_BYTES, ByteStream, RecordBlock, frame
from riprap.adapters.recoding import recoded
from riprap.errors import RunError
from riprap.expressions.cells import shown
from riprap.graph.connectors import BadRecord
from riprap.graph.connectors.notation import PLAIN, Notation

ROWS = 250_000
# A piece ends early when its bad records take so much memory.
_BAD_BYTES, _BAD_OVERHEAD = 64 << 20, 256
# What a line is that is no JSON.
_NONE = object()
_OPENED = re.compile(r"\s*[\[{]")
_OBJECTS = re.compile(r"\s*\[\s*\{")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """Some consecutive records of a file: the rows of the good ones, and the bad ones."""

    table: pa.Table
    bad: Sequence[BadRecord]


def parse_file(
    path: str | Path,
    format: str,
    schema: pa.Schema,
    *,
    max_record_bytes: int,
    notation: Notation = PLAIN,
    rows: int = ROWS,
    block_bytes: int = BLOCK_BYTES,
    threads: bool = True,
) -> Iterator[Parsed]:
    """Parse a file ("csv", "json" or "text"), plain or compressed with gzip.

    A piece has about ``rows`` rows. The same file gives the same pieces. A file that ends too early or is damaged
    gives all whole records before that, and then a RunError.
    """
    file, held = str(path), _Held(schema, rows)
    headed = format == "csv" and notation.header
    names: Sequence[str] | None = None
    try:
        with _open(file) as stream:
            framed = frame(
                recoded(stream, notation.encoding, file),
                csv=notation if format == "csv" else None,
                blank=format == "text",
                limit=max_record_bytes,
                block_bytes=block_bytes,
            )
            # A thread costs more than a small file.
            small = os.path.getsize(file) <= block_bytes and not file.endswith(".gz")
            with closing(framed if small else _ahead(framed)) as blocks:
                for block in blocks:
                    if format == "json" and not block.first:
                        _check_lines(block, file)
                    if headed and names is None:
                        names, block = _header(block, file, schema, notation), _rest(block)
                    if len(block):
                        decoded = decode(
                            block, format, schema, notation=notation, header=names, file=file, threads=threads
                        )
                        # The header of a CSV file is its record 0.
                        yield from held.add(decoded, block, file, counted_from=int(not headed))
    except (EOFError, OSError, zlib.error) as error:
        yield from held.flush()
        raise RunError(f"{format} file {file} cannot be read to its end: {error}") from error
    yield from held.flush()


class _Held:
    """What was decoded and makes no whole piece yet."""

    def __init__(self, schema: pa.Schema, rows: int) -> None:
        self._schema, self._wanted = schema, rows
        self._clear()

    def add(self, decoded: Decoded, block: RecordBlock, file: str, *, counted_from: int) -> Iterator[Parsed]:
        """Take in the records of a block; yield the pieces that are whole."""
        bad = list(decoded.bad)
        done = 0
        for start in range(0, max(decoded.table.num_rows, 1), self._wanted):
            rows = decoded.table.slice(start, self._wanted)
            last = start + rows.num_rows >= decoded.table.num_rows
            upto = len(bad) if last else bisect_left(bad, (int(decoded.good[start + self._wanted]),))
            self._tables.append(rows)
            self._rows += rows.num_rows
            for index, reason in bad[done:upto]:
                record = block.record(index)
                fault = block.faults.get(index)
                self._bytes += len(record) + _BAD_OVERHEAD
                self._bad.append(
                    BadRecord(
                        position={
                            "file": file,
                            "record": block.first + index + counted_from,
                            "byte": block.byte + int(block.starts[index]),
                        },
                        reason=reason,
                        record=record if fault is None else record[:KEPT_BYTES],
                        size=len(record) if fault is None else fault.size,
                    )
                )
            done = upto
            if self._rows >= self._wanted or self._bytes >= _BAD_BYTES:
                yield from self.flush()

    def flush(self) -> Iterator[Parsed]:
        """Yield what is held, if there is anything."""
        if self._rows or self._bad:
            yield Parsed(table=pa.concat_tables([self._schema.empty_table(), *self._tables]), bad=self._bad)
        self._clear()

    def _clear(self) -> None:
        self._tables: list[pa.Table] = []
        self._bad: list[BadRecord] = []
        self._rows = self._bytes = 0


def _header(block: RecordBlock, file: str, schema: pa.Schema, notation: Notation) -> list[str]:
    """Return the names of the columns of a CSV file, which must have all that are wanted, once.

    Where no name is the very same, that of a column may differ in case, and have blanks around it.
    """
    try:
        if 0 in block.faults:
            raise RunError(f"csv file {file} has no header: {block.faults[0].reason}")
        names = header_fields(block.record(0), notation)
    except pa.ArrowInvalid as error:
        raise RunError(f"csv file {file} has no header that can be read: {error}") from error
    plain = [name.strip().casefold() for name in names]
    header = list(names)
    for name in schema.names:
        places = [i for i, each in enumerate(names) if each == name]
        places = places or [i for i, each in enumerate(plain) if each == name.strip().casefold()]
        if len(places) != 1:
            problem = f"more than one column '{name}'" if places else f"no column '{name}'"
            raise RunError(
                f"csv file {file} has {problem}: its header is {', '.join(names)}."
                + (
                    ""
                    if places
                    else " A file without a header is read with header=False, another separator with sep="
                )
            )
        header[places[0]] = name
    return header


def _check_lines(block: RecordBlock, file: str) -> None:
    """Refuse a JSON document that takes several lines, of which each would be a bad record, or is an array of objects.

    One broken line at the beginning of good ones is a bad record as any other.
    """
    if block.faults.keys() & {0, 1}:
        return
    lines = [block.record(i).decode(errors="replace") for i in range(min(len(block), 2))]
    several = len(lines) == 2 and _OPENED.match(lines[0]) is not None and _value(lines[0]) is _NONE
    array = _OBJECTS.match(lines[0]) is not None
    if (several or array) and not isinstance(_value(lines[-1]), dict):
        raise RunError(
            f"json file {file} begins with {shown(lines[0].strip())} and is one document, such as an array: "
            "format='json' reads an object a line. To make such lines: jq -c '.[]' FILE for an array, jq -c . FILE for "
            "objects that take several lines"
        )


def _value(line: str) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return _NONE


def _rest(block: RecordBlock) -> RecordBlock:
    """Return a block without its first record."""
    faults = {i - 1: fault for i, fault in block.faults.items() if i}
    return replace(block, starts=block.starts[1:], ends=block.ends[1:], first=block.first + 1, faults=faults)


def _ahead(blocks: Iterator[RecordBlock]) -> Generator[RecordBlock]:
    """Read and cut the next block while the one before is decoded."""
    with ThreadPoolExecutor(1) as pool:
        following = pool.submit(next, blocks, None)
        while (block := following.result()) is not None:
            following = pool.submit(next, blocks, None)
            yield block


def _open(file: str) -> AbstractContextManager[ByteStream]:
    # Arrow's own reader of gzip gives nothing of the part in which it finds damage.
    return closing(_Gunzip(file)) if file.endswith(".gz") else pa.input_stream(file, compression="detect")


class _Gunzip:
    """A gzip file that gives all there is before it says that it is damaged."""

    def __init__(self, file: str) -> None:
        self._file = gzip.open(file)  # noqa: SIM115
        self._damage: Exception | None = None

    def read(self, size: int, /) -> bytes:
        if self._damage is not None:
            raise self._damage
        parts: list[bytes] = []
        while size > 0:
            try:
                part = self._file.read1(size)
            except (EOFError, OSError, zlib.error) as error:
                self._damage = error
                if not parts:
                    raise
                break
            if not part:
                break
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def close(self) -> None:
        self._file.close()
