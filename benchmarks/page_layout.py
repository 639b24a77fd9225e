"""Compare ways to cut keyed state into immutable pages, when keys are updated at random.

    python benchmarks/page_layout.py [--json]

*whole*: every batch rewrites the bucket's state. *blocks*: state is cut into blocks of keys, and every block a batch
touches is rewritten. *runs*: a batch writes a page of what it touched, and pages of like size are merged (what Riprap
does). The state is one double a key; the answer (the last value of every key) is checked against a plain dictionary.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from riprap.state.keys import KeyTable, encode_keys
from riprap.state.pages import PageStore
from riprap.state.windows import Contents, add_page, gather, make_page

BATCHES = 10
BLOCK = 256
LAYOUT = pa.struct([("v", pa.float64())])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    as_json = parser.parse_args().json
    results = []
    for keys in (62_500, 250_000, 1_000_000):
        for touched in (1_000, 10_000, 100_000):
            if touched <= keys:
                results.extend(measure(keys, touched))
    if as_json:
        print(json.dumps(results))
        return
    print(f"{'keys':>10} {'touched':>8} {'layout':>7} {'ms/batch':>9} {'bytes/batch':>13} {'files':>6}")
    for r in results:
        print(f"{r['keys']:>10,} {r['touched']:>8,} {r['layout']:>7}", end=" ")
        print(f"{r['ms']:>9.1f} {r['bytes']:>13,.0f} {r['files']:>6.1f}")


def measure(keys: int, touched: int) -> list[dict[str, float | int | str]]:
    """Run the three layouts over the same updates."""
    table, _ = encode_keys([pa.array(np.arange(keys))], keys)
    rng = np.random.default_rng(1)
    updates = [
        (np.sort(rng.choice(keys, touched, replace=False)), rng.random(touched)) for _ in range(BATCHES)
    ]
    expected = np.zeros(keys)
    for rows, values in updates:
        expected[rows] = values
    results = []
    for name, layout in (("whole", whole), ("blocks", blocks), ("runs", runs)):
        with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
            store = Counting(folder)
            began = time.process_time()
            final = layout(table, updates, store)
            seconds = time.process_time() - began
        assert np.array_equal(final, expected), f"{name} lost an update"
        results.append(
            {
                "keys": keys,
                "touched": touched,
                "layout": name,
                "ms": 1e3 * seconds / BATCHES,
                "bytes": store.bytes / BATCHES,
                "files": store.files / BATCHES,
            }
        )
    return results


class Uncounted(PageStore):
    """A page store that does not add up its files at every write, which thousands of blocks would pay for."""

    def _check_limit(self, folder: int, name: str, size: int) -> None:
        pass


class Counting:
    """A page store that counts what is written."""

    def __init__(self, folder: str) -> None:
        self._store = Uncounted(folder)
        self.bytes = self.files = 0

    def write(self, name: str, page: pa.RecordBatch) -> str:
        self._store.write(name, page)
        self.bytes += self._store.size(name)
        self.files += 1
        return name

    def read(self, name: str) -> pa.RecordBatch:
        return self._store.read(name)


Updates = list[tuple[np.ndarray, np.ndarray]]
Layout = Callable[[KeyTable, Updates, Counting], np.ndarray]


def page_of(keys: KeyTable, values: np.ndarray) -> pa.RecordBatch:
    tuples = pa.StructArray.from_arrays([pa.array(values)], ["v"])
    return make_page(keys, Contents(np.ones(len(keys), np.int64), np.arange(len(keys) + 1), tuples))


def values_of(page: pa.RecordBatch) -> np.ndarray:
    return page.column("window").values.field(0).to_numpy()


def whole(keys: KeyTable, updates: Updates, store: Counting) -> np.ndarray:
    name = store.write("0", page_of(keys, np.zeros(len(keys))))
    for number, (rows, values) in enumerate(updates):
        state = values_of(store.read(name)).copy()
        state[rows] = values
        name = store.write(f"{number + 1}", page_of(keys, state))
    return values_of(store.read(name))


def blocks(keys: KeyTable, updates: Updates, store: Counting) -> np.ndarray:
    starts = range(0, len(keys), BLOCK)
    names = [
        store.write(f"0-{s}", page_of(keys.slice(s, s + BLOCK), np.zeros(min(BLOCK, len(keys) - s))))
        for s in starts
    ]
    for number, (rows, values) in enumerate(updates):
        places = rows // BLOCK
        cuts = np.flatnonzero(np.diff(places)) + 1
        for part, new in zip(np.split(rows, cuts), np.split(values, cuts), strict=True):
            block = int(part[0]) // BLOCK
            state = values_of(store.read(names[block])).copy()
            state[part - block * BLOCK] = new
            mine = keys.slice(block * BLOCK, block * BLOCK + len(state))
            names[block] = store.write(f"{number + 1}-{block}", page_of(mine, state))
    return np.concatenate([values_of(store.read(n)) for n in names])


def runs(keys: KeyTable, updates: Updates, store: Counting) -> np.ndarray:
    names = [store.write("0", page_of(keys, np.zeros(len(keys))))]
    for number, (rows, values) in enumerate(updates):
        pages = [store.read(n) for n in names]
        touched = keys.take(rows)
        gather(pages, touched, LAYOUT)
        page, replaced = add_page(page_of(touched, values), pages)
        names = [store.write(f"{number + 1}", page), *names[replaced:]]
    contents = gather([store.read(n) for n in names], keys, LAYOUT)
    return contents.tuples.field(0).to_numpy()


if __name__ == "__main__":
    main()
