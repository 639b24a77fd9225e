"""A program that writes to a store until it is killed: ``python -m riprap.testing.store_writer URL``.

It starts a writer for each line it reads, with that line as its first number, and says its process id. Writers are
forked, so that many can be killed in little time. They say what they have done:

    pid 4711       of the writer
    put 3          the values of number 3 are there
    deleted 3      what was old by then is not
    gone 4711
"""

from __future__ import annotations

import os
import random
import sys

from riprap.state.stores import Store, open_store

SIZES = (0, 1, 999, 20_000, 150_000)
KEPT = 3
ENTRY = "Sums"


def value_of(key: str) -> bytes:
    """Return the one right value of a key."""
    chance = random.Random(key)
    return chance.randbytes(chance.choice(SIZES))


def current_of(number: int) -> bytes:
    """Return what the key that is replaced by every put has after the put of this number."""
    return b"%08d" % number + value_of(f"current{number}")


def keys_of(number: int) -> list[str]:
    """Return the keys that a put of this number writes."""
    return [f"v{number}-{n}" for n in range(random.Random(number).randrange(1, 6))]


def old_keys(number: int) -> list[str]:
    """Return what is deleted after a put: the first one stays, so that each put leaves something for good."""
    return keys_of(number - KEPT)[1:]


def write(store: Store, number: int) -> None:
    """Put, and delete what is old, for ever; say what is done."""
    while True:
        store.put(ENTRY, {key: value_of(key) for key in keys_of(number)} | {"current": current_of(number)})
        say("put", number)
        store.delete(ENTRY, old_keys(number))
        say("deleted", number)
        number += 1


def say(*words: object) -> None:
    """Say a line, whole or not at all: whoever says it may be killed meanwhile."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def main(url: str) -> None:
    """Start a writer for each line."""
    for line in sys.stdin:
        if (child := os.fork()) == 0:
            write(open_store(url), int(line))
        say("pid", child)
        os.waitpid(child, 0)
        say("gone", child)


if __name__ == "__main__":
    main(*sys.argv[1:])
