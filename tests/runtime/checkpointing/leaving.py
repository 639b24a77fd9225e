"""Runs that are left as a crash would leave them, and hosts that are lost."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.runtime.harness import page_folder

import riprap as rr
from riprap.errors import RiprapError
from riprap.state.checkpoints.manifest import CheckpointManifest
from riprap.state.checkpoints.versions import Versions
from riprap.state.ledger import BatchRecord, Ledger
from riprap.state.pages import PageStore
from riprap.state.stores import open_store
from riprap.state.windows import restrict

Contents = dict[tuple[Any, ...], tuple[list[int], list[Any]]]


class LeftError(Exception):
    """Raised to leave a run without ending it."""


def still_running(run: rr.Run) -> bool:
    """Raise what stopped a run, if anything did."""
    if not run.running:
        run.wait()
        raise AssertionError("the run ended by itself")
    return True


def lose_host(run_folder: Path, *, some: bool = True) -> None:
    """Wipe what a run has in the host's memory; unless there is to be ``some``, there may be nothing."""
    for name in ("state", "results"):
        shutil.rmtree(page_folder(run_folder) / name, ignore_errors=not some)


def events(run_folder: Path, kind: str) -> list[dict[str, Any]]:
    """Return what a run told of some kind, oldest first."""
    return [e for e in lines_so_far(run_folder / "events.jsonl") if e["event"] == kind]


def lines_so_far(path: Path) -> list[dict[str, Any]]:
    """Read a file of JSON lines that is being written: a line that is not whole yet is left out."""
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def manifests(run_folder: Path, operator: str, store: str | None = None) -> list[CheckpointManifest]:
    """Return the manifests of an operator that can be read now, newest first."""
    identity = f"{run_folder.parent.name}-{run_folder.name}"
    if store is None and not (run_folder / "checkpoints").exists():
        # Made when the first element begins to be saved.
        return []
    opened = open_store(store or run_folder / "checkpoints", readonly=True)
    versions = Versions(opened, f"{identity}/{operator}")
    found = []
    try:
        for number in versions.numbers():
            try:
                found.append(versions.manifest(number))
            except RiprapError:
                # Collected since it was listed, or damaged.
                continue
    finally:
        opened.close()
    return found


def newest_record(run_folder: Path, element: str) -> BatchRecord:
    """Return the newest record of an element."""
    ledger = Ledger(str(run_folder / "elements" / element / "ledger"))
    return ledger.get(ledger.batches()[-1])


def contents_on_host(run_folder: Path, element: str, buckets: int) -> dict[str, Contents]:
    """Read what the newest record of an element names, slot by slot: counters and tuples of each key."""
    pages = PageStore(str(page_folder(run_folder) / "state" / element))
    found: dict[str, Contents] = {}
    for manifest in newest_record(run_folder, element).manifests:
        for slot, names in manifest.pages.items():
            listed = [restrict(pages.read(name), *manifest.buckets, buckets) for name in names]
            found.setdefault(slot, {}).update(contents_of(listed))
    return {slot: keys for slot, keys in found.items() if keys}


def contents_of(pages: Sequence[pa.RecordBatch]) -> Contents:
    """Read pages row by row, newest first; a key that has nothing is left out."""
    held: dict[tuple[Any, ...], int] = {}
    found: Contents = {}
    for row in _rows(pages):
        key = tuple(row["key"].values())
        held.setdefault(key, row["held"])
        _, tuples = found.setdefault(key, (row["counters"], []))
        missing = held[key] - len(tuples)
        if missing > 0:
            tuples[:0] = row["window"][-missing:]
    assert all(len(tuples) == held[key] for key, (_, tuples) in found.items())
    return {key: (counters, tuples) for key, (counters, tuples) in found.items() if tuples or any(counters)}


def _rows(pages: Sequence[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    for page in pages:
        yield from page.to_pylist()
