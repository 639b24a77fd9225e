"""Files that are written whole, outlive a power cut, and are read with checks.

A file that is only renamed is whole for every process of the host. After a power cut it may be there with its name
and without its contents. So what others rely on is synced before it is renamed, and its folder after that.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from types import UnionType
from typing import Any

from riprap.errors import DamagedFileError, FormatError

FieldType = type | UnionType
COPY_OR_NEW = "Put it back from a copy, or start a new run"


def save_json(path: Path, data: Mapping[str, Any], *, indent: int | None = None, synced: bool = True) -> None:
    """Write a JSON file, or replace it: whoever reads it, or dies writing it, leaves one that is whole.

    What is not ``synced`` may be gone, or empty, after a power cut.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_text(json.dumps(data, indent=indent, default=fields_of) + "\n")
    if synced:
        put_in_place(temporary, path)
    else:
        temporary.rename(path)


def fields_of(value: Any) -> dict[str, Any]:
    """Return a dataclass as JSON has it. What is in its fields is not copied, which ``asdict`` takes long for."""
    return {each.name: getattr(value, each.name) for each in fields(value)}


def save_private(path: Path, data: bytes) -> None:
    """Write a file that nobody else can read, or replace it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(data)
    put_in_place(temporary, path)


def put_in_place(temporary: Path, path: Path) -> None:
    """Give a file that is written its name, once its contents are on the disk, and see that the name is too."""
    sync_file(temporary)
    temporary.rename(path)
    sync_file(path.parent)


def sync_in_place(path: Path) -> None:
    """Wait until a file that has its name already is on the disk, contents and name."""
    sync_file(path)
    sync_file(path.parent)


def sync_file(path: Path) -> None:
    """Wait until a file's contents, or a folder's names, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def load_json(
    path: Path, form: str | None, entries: Mapping[str, FieldType], *, remedy: str = COPY_OR_NEW
) -> dict[str, Any] | None:
    """Read an object of a format and check its entries; None if there is no such file.

    ``form`` None is a file without one. Whatever is wrong with it is an error that says what can be done.
    """
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    if not text.strip():
        raise damage(path, "it is empty, as after a power cut", remedy)
    try:
        data = json.loads(text)
    except ValueError as error:
        raise damage(path, f"it is not JSON: {error}", remedy) from error
    if not isinstance(data, dict):
        raise damage(path, f"it holds a {type(data).__name__}, not an object", remedy)
    if form is not None and data.get("format") != form:
        raise FormatError(
            f"{path} is not of format {form}, the one this version reads: it says {data.get('format')!r}. {remedy}"
        )
    for name, kind in entries.items():
        if name not in data:
            raise damage(path, f"it lacks '{name}'", remedy)
        if not isinstance(data[name], kind):
            wanted = kind.__name__ if isinstance(kind, type) else str(kind)
            raise damage(path, f"its '{name}' is {str(data[name])[:100]!r}, not of type {wanted}", remedy)
    return data


def parse_line(line: bytes) -> dict[str, Any] | None:
    """Read a line of a log that nothing relies on, None if it is not whole.

    Where a log is not synced, a power cut may leave zeros in place of its newest lines, and the next comes right after.

    >>> parse_line(b'\\0\\0{"event": "resumed"}')
    {'event': 'resumed'}
    """
    try:
        data = json.loads(line.lstrip(b"\0"))
    except ValueError:
        return None
    return data if isinstance(data, dict) else None


def damage(path: Path, what: str, remedy: str = COPY_OR_NEW) -> DamagedFileError:
    """Say that a file is damaged, and what can be done."""
    return DamagedFileError(f"{path} is damaged: {what}. {remedy}")


@contextlib.contextmanager
def checking(path: Path, remedy: str = COPY_OR_NEW) -> Iterator[None]:
    """Say of contents that cannot be made sense of which file they are from."""
    try:
        yield
    except FormatError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise damage(path, repr(error), remedy) from error
