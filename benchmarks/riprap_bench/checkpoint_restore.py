"""How fast a large state comes back from a store, against reading the store's files and doing nothing with them."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from riprap.errors import RunError
from riprap.state.checkpoints.increments import Fresh, SlotState
from riprap.state.checkpoints.manifest import CheckpointManifest
from riprap.state.checkpoints.restoring import restore
from riprap.state.checkpoints.versions import Versions
from riprap.state.keys import encode_keys
from riprap.state.pages import PageStore, page_root
from riprap.state.stores import open_store
from riprap.state.windows import Contents, make_page
from riprap_bench.checkpoint_feeds import letters
from riprap_bench.checkpoint_plan import Plan, Track
from riprap_bench.checkpoint_ratios import median_of
from riprap_bench.checkpoint_sizes import TEXT_BYTES, WINDOW, keys_of
from riprap_bench.measuring import middle

LEAST = 0.5
_PARTS = 20
# Pages are written by so many threads, as `runtime.checkpointing.recovery` does.
_AT_ONCE = 4
_LAYOUT = "a benchmark's"
_ENTRY = "bench/Join"


def measure_restore(plan: Plan, folder: Path, track: Track) -> dict[str, Any]:
    """Save a state in several checkpoints; read its files and restore it, taking turns.

    Once with the files in the host's memory, and once without, as after a host was lost.
    """
    store, size = folder / "restored", plan.restore_mb
    tuples = _save(store, size, plan.seed)
    seconds: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    for turn in range(plan.restore_repetitions + 1):
        for cold, found in seconds.items():
            pair = _read(store, cold=cold), _restore(store, tuples, cold=cold)
            # The first turn compiles what is to be compiled.
            if turn:
                found.append(pair)
                state = "cold" if cold else "warm"
                track.report(f"{size} MB, {state}: read in {pair[0]:.2f} s, restored in {pair[1]:.2f} s")
        track.pass_(size / 50)
    return {
        "mb": size,
        "bytes": sum(file.stat().st_size for file in _files(store)),
        "lines": [_line("cold" if cold else "warm", found) for cold, found in seconds.items()],
    }


def _line(files: str, seconds: list[tuple[float, float]]) -> dict[str, Any]:
    speed = median_of([read / back for read, back in seconds])
    return {
        "files": files,
        "read_seconds": middle([read for read, _ in seconds]),
        "restore_seconds": middle([back for _, back in seconds]),
        "speed": speed,
        "least": LEAST,
        "met": {"speed": speed["median"] >= LEAST},
    }


def _save(store: Path, size: int, seed: int) -> int:
    """Save windows of so many MB, a part of the keys with every checkpoint; return how many tuples they hold."""
    opened = open_store(str(store))
    versions = Versions(opened, _ENTRY)
    state = SlotState((0, 1), None, [])
    tuples = 0

    def nothing(saved: Any) -> list[pa.RecordBatch]:
        raise RunError("nothing here is written anew")

    for number, page in enumerate(_pages(size, seed)):
        state, values = state.advance([Fresh(page, float(number), number + 1.0)], nothing)
        manifest = CheckpointManifest(
            operator="Join",
            layout=_LAYOUT,
            version=number + 1,
            time=number + 1.0,
            batch=number,
            buckets=1,
            rate=0.0,
            slots={"0": tuple(k.saved for k in state.kept)},
        )
        versions.put({"0": values})
        versions.commit(manifest)
        versions.collect(3)
        tuples += page.num_rows * WINDOW
    opened.close()
    return tuples


def _pages(size: int, seed: int) -> Iterator[pa.RecordBatch]:
    keys = keys_of(size)
    for part in np.array_split(np.arange(keys, dtype=np.int32), min(_PARTS, keys)):
        random = np.random.default_rng([seed, int(part[0])])
        table, _ = encode_keys([pa.array(part)], len(part))
        many = len(part) * WINDOW
        texts = letters(random, many, TEXT_BYTES, np.ones(many, bool))
        other = pa.array(random.integers(0, 1 << 31, many, np.int32))
        contents = Contents(
            np.arange(0, many + 1, WINDOW, dtype=np.int64),
            pa.StructArray.from_arrays([other, texts], ["other", "text"]),
            np.zeros((len(part), 1), np.int64),
        )
        yield make_page(table, contents)


def _files(store: Path) -> list[Path]:
    return sorted(file for file in store.rglob("*") if file.is_file())


def _forget(store: Path) -> None:
    """Let the host forget what it has of the files in memory."""
    for file in _files(store):
        with file.open("rb") as opened:
            os.fsync(opened.fileno())
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _read(store: Path, *, cold: bool) -> float:
    if cold:
        _forget(store)
    began = time.perf_counter()
    for file in _files(store):
        file.read_bytes()
    return time.perf_counter() - began


def _restore(store: Path, tuples: int, *, cold: bool) -> float:
    """Do what an element does that starts without its pages: find the version, read it, write pages."""
    if cold:
        _forget(store)
    warnings: list[str] = []
    root = page_root()
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root, prefix="bench-") as memory:
        host = PageStore(memory)
        began = time.perf_counter()
        opened = open_store(str(store), readonly=True)
        found = restore(
            Versions(opened, _ENTRY), layout=_LAYOUT, lost_until=None, slides=["0"], warn=warnings.append
        )
        if found is not None:
            pages = found.slots["0"]
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                list(pool.map(host.write, [f"restored.{n}" for n in range(len(pages))], pages))
        opened.close()
        seconds = time.perf_counter() - began
    if found is None or warnings or found.tuples != tuples:
        raise RunError(f"{tuples:,} tuples did not come back: {warnings}")
    return seconds
