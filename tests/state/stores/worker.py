"""Programs that use a store beside the tests: ``python -m tests.state.stores.worker write|read URL``.

``write`` starts a writer for each line it reads, with that line as its first number, and says its process id. Writers
are forked, so many can be killed in little time. ``read`` reads all there is, again and again, until it finds an end;
it says when it has read enough.
"""

from __future__ import annotations

import os
import random
import sys

from riprap.state.stores import Store, files, open_store

SIZES = (0, 1, 999, 20_000, 150_000)
KEPT = 3
ENTRY = "Sums"
# So many values are to be read while another process writes.
ENOUGH = 150


def say(*words: object) -> None:
    """Say a line, whole or not at all: whoever says it may be killed meanwhile."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def value_of(key: str) -> bytes:
    """Return the one right value of a key."""
    chance = random.Random(key)
    return chance.randbytes(chance.choice(SIZES))


def current_of(number: int) -> bytes:
    """Return what the key that is replaced by every put has after the put of this number."""
    return b"%08d" % number + value_of(f"current{number}")


def keys_of(number: int) -> list[str]:
    return [f"v{number}-{n}" for n in range(random.Random(number).randrange(1, 6))]


def old_keys(number: int) -> list[str]:
    """Return what is deleted after a put: the first one stays, so packs are left in which little is wanted."""
    return keys_of(number - KEPT)[1:]


def write(store: Store, number: int) -> None:
    """Put, and delete what is old, for ever; say what is done."""
    while True:
        store.put(ENTRY, {key: value_of(key) for key in keys_of(number)} | {"current": current_of(number)})
        say("put", number)
        store.delete(ENTRY, old_keys(number))
        say("deleted", number)
        number += 1


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


def main(what: str, url: str) -> None:
    files._WORTH_REWRITING = 50_000
    if what == "read":
        store = open_store(url, readonly=True)
        read(store)
        store.close()
        return
    for line in sys.stdin:
        if (child := os.fork()) == 0:
            write(open_store(url), int(line))
        say("pid", child)
        os.waitpid(child, 0)
        say("gone", child)


if __name__ == "__main__":
    main(*sys.argv[1:])
