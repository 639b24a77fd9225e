"""Files as sources."""

from __future__ import annotations

import glob
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, Unpack

import pyarrow as pa
import pyarrow.parquet as pq

from riprap.errors import GraphError
from riprap.graph.connectors.checks import (
    MOST_RECORD_BYTES,
    OnBadRecord,
    pace,
    schema_of,
    schema_of_records,
    tuples_a_second,
    whole_number,
)
from riprap.graph.connectors.checks import on_bad_record as check_on_bad_record
from riprap.graph.connectors.columns import held
from riprap.graph.connectors.notation import PLAIN, Notation, ReadOptions, notation_of
from riprap.graph.connectors.promise import Promise

SourceFormat = Literal["parquet", "csv", "json", "text"]
FORMATS: Mapping[str, SourceFormat] = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".txt": "text",
    ".log": "text",
}
_TEXT = ("line", "file", "number")


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """Files, folders or patterns, read in the order of their names; new ones are picked up as they appear.

    With ``scan`` a batch ends with each file. ``last_line`` follows the last line of the last file of text.
    """

    PROMISE: ClassVar[Promise] = Promise(
        word="replays",
        call="rr.files(...), rr.folder_scan(...)",
        does="reads Parquet, CSV, JSON-lines or text files; a folder scan ends a batch with each file",
        after_failure="reads on after the last row it had; files must not change once they are seen",
    )

    patterns: tuple[str, ...]
    format: SourceFormat
    schema: pa.Schema
    rate: float | None = None
    scan: bool = False
    on_bad_record: OnBadRecord = "quarantine"
    max_record_bytes: int = MOST_RECORD_BYTES
    last_line: str | None = None
    notation: Notation = PLAIN

    def __str__(self) -> str:
        how = "scan of " if self.scan else ""
        return f"{how}{self.format} files {', '.join(self.patterns)}" + pace(self.rate)

    def listing(self) -> list[str]:
        """Return the files there are now, in reading order."""
        return list_files(self.patterns, self.format)


def files(
    path: str | Path | Sequence[str | Path],
    *,
    format: SourceFormat | None = None,
    schema: str | pa.Schema | None = None,
    rate: float | None = None,
    on_bad_record: OnBadRecord = "quarantine",
    max_record_bytes: int = MOST_RECORD_BYTES,
    last_line: str | None = None,
    **options: Unpack[ReadOptions],
) -> Files:
    """Read Parquet, CSV, JSON-lines or text files from a path, a folder, a pattern, or several of them.

    ``schema`` is needed for CSV and JSON; Parquet has its own, and a line of text is ``line string``, besides which
    ``file string`` and ``number bigint`` (its number in the file) can be asked for. ``rate`` replays the files as a
    live feed of so many tuples a second. ``**`` in a pattern matches folders at any depth. A record that cannot be
    read goes to the run's quarantine, or with ``on_bad_record="fail"`` ends the run. ``last_line`` is a line that tells
    operators of the end: in a run without a trigger it follows the last file of text. It has no file and no number.

    ``options`` are those of Spark's readers: for CSV ``sep``, ``header`` (there is one, unless it is False), ``quote``,
    ``escape`` (a quote is written twice, unless it is another character), ``comment``, ``nullValue`` (one text or
    several that mean null, besides nothing at all) and ``multiLine`` (quoted fields may hold line breaks), and
    ``encoding`` for all text.

    >>> print(rr.files("logs/*.csv", schema="host string, n bigint", sep=";", nullValue="NULL"))
    csv files logs/*.csv
    """
    return _files("files", path, format, schema, rate, on_bad_record, max_record_bytes, last_line, options)


def folder_scan(
    path: str | Path | Sequence[str | Path],
    *,
    format: SourceFormat | None = None,
    schema: str | pa.Schema | None = None,
    on_bad_record: OnBadRecord = "quarantine",
    max_record_bytes: int = MOST_RECORD_BYTES,
    last_line: str | None = None,
    **options: Unpack[ReadOptions],
) -> Files:
    """Read the files of a folder one by one: a batch ends with each. Otherwise as :func:`files`.

    >>> print(rr.folder_scan("inbox", format="text"))
    scan of text files inbox
    """
    return _files(
        "folder_scan",
        path,
        format,
        schema,
        None,
        on_bad_record,
        max_record_bytes,
        last_line,
        options,
        scan=True,
    )


def _files(
    what: str,
    path: str | Path | Sequence[str | Path],
    format: SourceFormat | None,
    schema: str | pa.Schema | None,
    rate: float | None,
    on_bad_record: OnBadRecord,
    max_record_bytes: int,
    last_line: str | None,
    options: ReadOptions,
    *,
    scan: bool = False,
) -> Files:
    patterns = tuple(str(p) for p in ([path] if isinstance(path, str | Path) else path))
    if not patterns:
        raise GraphError(f"{what}(...) needs at least one path")
    chosen = format or _guess_format(patterns)
    if chosen not in ("parquet", "csv", "json", "text"):
        raise GraphError(f"{what}(format=...) is 'parquet', 'csv', 'json' or 'text', got {chosen!r}")
    if chosen != "parquet":
        columns = schema_of_records(what, chosen, schema, text=_TEXT)
    else:
        columns = schema_of(schema) if schema is not None else _schema_of_parquet(patterns)
    if last_line is not None and (
        chosen != "text" or "line" not in columns.names or not isinstance(last_line, str)
    ):
        raise GraphError(
            f"{what}(last_line=...) takes a text, for files of text with a column 'line'; got {last_line!r} for "
            f"{chosen} files with {', '.join(columns.names)}"
        )
    return Files(
        patterns=patterns,
        format=chosen,
        schema=columns,
        rate=tuples_a_second(rate),
        scan=scan,
        on_bad_record=check_on_bad_record(what, on_bad_record),
        max_record_bytes=whole_number(f"{what}(max_record_bytes=...)", max_record_bytes),
        last_line=last_line,
        notation=notation_of(what, chosen, dict(options)),
    )


def list_files(patterns: Sequence[str], format: SourceFormat) -> list[str]:
    """Expand paths, folders and patterns to files of a format, each pattern's in order of name."""
    # Text files are named in any way.
    endings = tuple(e for e, f in FORMATS.items() if f == format) if format != "text" else ("",)
    paths: dict[str, None] = {}
    for pattern in patterns:
        if Path(pattern).is_dir():
            names = [n for n in _in_folder(pattern) if _plain_ending(n).endswith(endings)]
        else:
            # Only a pattern that spells a hidden name out means it.
            # A file of that very name is meant, whatever else its brackets could mean.
            matches = [pattern] if Path(pattern).is_file() else glob.glob(pattern, recursive=True)
            names = [n for n in matches if n == pattern or not _is_hidden(Path(n).name)]
        paths.update(dict.fromkeys(sorted(n for n in names if Path(n).is_file())))
    return list(paths)


def _in_folder(folder: str) -> Iterable[str]:
    for path in Path(folder).rglob("*"):
        if not any(_is_hidden(part) for part in path.relative_to(folder).parts):
            yield str(path)


def _is_hidden(name: str) -> bool:
    # As for Spark and Arrow: half-written and bookkeeping files.
    return name.startswith(("_", "."))


def _plain_ending(name: str) -> str:
    return name.removesuffix(".gz")


def _guess_format(patterns: Sequence[str]) -> SourceFormat:
    names = (_plain_ending(p) for p in patterns)
    for name in itertools.chain(names, *(_folder_names(p) for p in patterns)):
        for ending, format in FORMATS.items():
            if name.endswith(ending):
                return format
    raise GraphError(
        f"cannot tell the format of {', '.join(patterns)}: say format='parquet', 'csv', 'json' or 'text'"
    )


def _folder_names(pattern: str) -> Iterable[str]:
    return map(_plain_ending, sorted(_in_folder(pattern))) if Path(pattern).is_dir() else ()


def _schema_of_parquet(patterns: Sequence[str]) -> pa.Schema:
    paths = list_files(patterns, "parquet")
    if not paths:
        raise GraphError(f"no Parquet file matches {', '.join(patterns)}: check the path, or give schema=")
    try:
        schema = pq.read_schema(paths[0]).remove_metadata()
    except (pa.ArrowInvalid, OSError) as error:
        raise GraphError(f"cannot read the schema of {paths[0]}: {error}") from error
    # Of no rows, everything fits that can be held at all.
    held(schema.empty_table(), paths[0])
    return schema
