"""A program that reads a store beside the tests: ``python -m tests.state.stores.worker URL``.

It reads all there is, again and again, until it finds an end, and says when it has read enough.
"""

from __future__ import annotations

import sys

from riprap.state.stores import Store, files, open_store
from riprap.testing.store_writer import ENTRY, current_of, say, value_of

# So many values are to be read while another process writes.
ENOUGH = 150


def read(store: Store) -> None:
    """Check all values that are there until the end is; say how many were checked."""
    checked = 0
    say("reading")
    while "end" not in store.keys(ENTRY):
        for key in store.keys(ENTRY):
            try:
                data = store.get(ENTRY, key).to_pybytes()
            except KeyError:
                continue
            assert data == (current_of(int(data[:8])) if key == "current" else value_of(key)), key
            checked += 1
            if checked == ENOUGH:
                say("enough")
    say("checked", checked)


def main(url: str) -> None:
    files._WORTH_REWRITING = 50_000
    store = open_store(url, readonly=True)
    read(store)
    store.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
