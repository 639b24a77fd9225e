"""Check a store against what every store promises."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from riprap.errors import RunError
from riprap.kernels.user_code import FAILURES
from riprap.state.stores import Store, open_store
from riprap.testing.promises import Promises, raises, same
from riprap.testing.store_writer import ENTRY, current_of, keys_of, old_keys, value_of

SIZES = (0, 1, 999, 1000, 1001, 2000, 5003, 300_000)

Content = dict[str, dict[str, bytes]]


def check_store(
    store: str | Path | Callable[[], Store], *, kills: int = 5, steps: int = 60, seed: int = 0
) -> list[str]:
    """Check a store that is empty against what every store promises, and return the promises it keeps.

    ``store`` is the URL that ``app.run(store=...)`` takes, or a function that opens the store, always the same one.
    Where other processes can open it, by its URL, writers are killed while they write: so many ``kills``, 0 for none.
    The store is opened again and again, and each time closed before.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     kept = rr.testing.check_store(folder, kills=0)
    >>> kept[0]
    'an empty store has nothing'

    Raise :class:`BrokenPromise` with all that it does not keep.
    """
    opened = _Reopened(store if callable(store) else lambda: open_store(store))
    promises = Promises(f"store {store if isinstance(store, str | Path) else opened().url}")
    chance = random.Random(seed)
    try:
        with promises.promise("an empty store has nothing"):
            _empty(opened())
        for words, check in _CHECKS.items():
            with promises.promise(words):
                check(opened, chance)
            _clear(opened())
        with promises.promise("a store is a dictionary that lasts: put, delete, drop, opened again"):
            _walk(opened, chance, steps)
        _clear(opened())
        if kills and isinstance(store, str | Path):
            opened.close()
            with promises.promise("a value is there whole or not at all, whenever its writer is killed"):
                _killed(str(store), opened, kills, chance)
            _clear(opened())
    finally:
        opened.close()
    return promises.report()


class _Reopened:
    """Opens a store, and closes it as it was opened before."""

    def __init__(self, make: Callable[[], Store]) -> None:
        self._make = make
        self._store: Store | None = None

    def __call__(self) -> Store:
        self.close()
        self._store = self._make()
        return self._store

    def close(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            store.close()


def _content(store: Store) -> Content:
    return {
        entry: {key: store.get(entry, key).to_pybytes() for key in store.keys(entry)}
        for entry in store.entries()
    }


def _clear(store: Store) -> None:
    for entry in store.entries():
        store.drop(entry)


def _empty(store: Store) -> None:
    same(store.entries(), [], "entries()")
    same(store.keys("Sums"), [], "keys() of an entry that does not exist")
    raises(KeyError, lambda: store.get("Sums", "a"), "get() of a key that is not there")
    store.delete("Sums", ["a"])
    store.drop("Sums")
    store.put("Sums", {})
    same(store.entries(), [], "entries() after nothing was put, and nothing removed")


def _sizes(opened: _Reopened, chance: random.Random) -> None:
    values = {f"v.{size}_{n}-x": chance.randbytes(size) for n, size in enumerate(SIZES)}
    store = opened()
    store.put("App.0/Sums", values)
    for when in ("", " after it was opened again"):
        store = opened() if when else store
        for key, value in values.items():
            got = store.get("App.0/Sums", key).to_pybytes()
            same(got, value, f"get() of a value of {len(value):,} bytes{when}")
        same(store.keys("App.0/Sums"), sorted(values), f"keys(){when}")


def _buffers(opened: _Reopened, chance: random.Random) -> None:
    numbers = pa.array(range(2000), pa.int64()).buffers()[1]
    values: dict[str, Any] = {
        "bytes": b"abc",
        "view": memoryview(b"xabcx")[1:4],
        "wide": memoryview(numbers).cast("B").cast("q"),
        "arrow": numbers,
    }
    store = opened()
    store.put("Sums", values)
    for name, value in values.items():
        same(store.get("Sums", name).to_pybytes(), bytes(memoryview(value)), f"what was put as {name}")


def _outlives(opened: _Reopened, chance: random.Random) -> None:
    store, first = opened(), chance.randbytes(3000)
    store.put("Sums", {"a": first})
    read = store.get("Sums", "a")
    store.put("Sums", {"a": b"other"})
    store.drop("Sums")
    opened.close()
    same(
        read.to_pybytes(), first, "a value that was read before it was replaced, dropped and the store closed"
    )


def _deleted(opened: _Reopened, chance: random.Random) -> None:
    store = opened()
    store.put("Sums", {"a": b"1", "b": b"1"})
    store.put("Sums", {"a": b"2"})
    same(_content(store), {"Sums": {"a": b"2", "b": b"1"}}, "a key that was put twice")
    store.delete("Sums", ["a"])
    for when in ("", " and the store opened again"):
        store = opened() if when else store
        same(
            _content(store),
            {"Sums": {"b": b"1"}},
            f"what is left after a key was put twice and deleted{when}",
        )


def _apart(opened: _Reopened, chance: random.Random) -> None:
    store, entries = opened(), ("A", "AA", ".A", "A/A")
    for entry in entries:
        store.put(entry, {"k": entry.encode()})
    same(store.entries(), sorted(entries), "entries()")
    store.drop("A")
    same(
        _content(store),
        {e: {"k": e.encode()} for e in sorted(entries[1:])},
        "what is left after entry A was dropped",
    )


def _threads(opened: _Reopened, chance: random.Random) -> None:
    store = opened()
    store.put("Sums", {"fixed": b"f" * 3000})
    failures: list[BaseException] = []

    def write(name: str) -> None:
        try:
            for n in range(8):
                store.put("Sums", {f"{name}{n}": name.encode() * n, "shared": name.encode() * 2500})
                same(store.get("Sums", "fixed").size, 3000, "the size of a value that nobody writes")
                shared = store.get("Sums", "shared").to_pybytes()
                same((len(shared), len(set(shared))), (2500, 1), "size and letters of what all write")
                store.delete("Sums", [f"{name}{n - 1}"] if n % 2 else [])
        except FAILURES as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    left = {"fixed", "shared", *(f"{name}{n}" for name in "abc" for n in range(1, 8, 2))}
    same(store.keys("Sums"), sorted(left), "keys() after three threads had put and deleted")


_CHECKS: dict[str, Callable[[_Reopened, random.Random], None]] = {
    "values of all sizes come back": _sizes,
    "every kind of buffer can be put": _buffers,
    "a value that was read outlives its key": _outlives,
    "a deleted key does not bring an older value to light": _deleted,
    "entries are apart": _apart,
    "threads may share a store": _threads,
}


def _walk(opened: _Reopened, chance: random.Random, steps: int) -> None:
    """Take random steps with the store and with a dictionary, and compare the two after each."""
    store, model = opened(), dict[str, dict[str, bytes]]()
    for number in range(steps):
        what, entry = chance.choice(["put", "put", "delete", "drop", "reopen"]), chance.choice("AB")
        keys = chance.sample([f"k{n}" for n in range(6)], chance.randrange(5))
        if what == "put":
            values = {
                key: bytes([chance.randrange(256)]) * chance.choice([0, 1, 50, 1000, 3001]) for key in keys
            }
            store.put(entry, values)
            model.setdefault(entry, {}).update(values)
        elif what == "delete":
            store.delete(entry, keys)
            model[entry] = {key: value for key, value in model.get(entry, {}).items() if key not in keys}
        elif what == "drop":
            store.drop(entry)
            model.pop(entry, None)
        else:
            store = opened()
        wanted = {name: values for name, values in sorted(model.items()) if values}
        same(_content(store), wanted, f"what is there after step {number}, {what} of {keys} in {entry}")


def _killed(url: str, opened: _Reopened, kills: int, chance: random.Random) -> None:
    """Let a process put and delete, kill it, and look at what there is: what it had said is done, and no halves."""
    sure, current = set[str](), -1
    command = [sys.executable, "-m", "riprap.testing.store_writer", url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        try:
            for _ in range(kills):
                done = _write_and_die(program, current + 1, chance.randrange(8), chance.random() / 50)
                # What was begun last may have happened, though nobody says so.
                maybe = set(keys_of(current + 1))
                for what, number in done:
                    if what == "put":
                        current, maybe = number, set(old_keys(number))
                        sure |= set(keys_of(number))
                    else:
                        sure -= set(old_keys(number))
                        maybe = set(keys_of(number + 1))
                store = opened()
                there = {key: store.get(ENTRY, key).to_pybytes() for key in store.keys(ENTRY)}
                opened.close()
                newest = there.pop("current", b"")
                torn = [key for key, value in there.items() if value != value_of(key)]
                same(torn, [], "keys whose values are not what was put")
                same(
                    sorted(sure - maybe - there.keys()), [], "keys that put() had returned for, and are gone"
                )
                same(sorted(there.keys() - sure - maybe), [], "keys that were deleted, and are there")
                if newest:
                    number = int(newest[:8])
                    same(newest, current_of(number), "the value that every put() replaces")
                    same(
                        number in (current, current + 1),
                        True,
                        f"that value is of put {number}, after {current}",
                    )
                    current = number
                sure = set(there)
        finally:
            program.kill()


def _write_and_die(
    program: subprocess.Popen[str], first: int, steps: int, moment: float
) -> list[tuple[str, int]]:
    """Let a writer begin with a number, kill it a moment after some steps, and return all it has done."""
    assert program.stdin is not None
    print(first, file=program.stdin, flush=True)
    writer, done = 0, list[tuple[str, int]]()
    while not writer or len(done) < steps:
        what, number = _hear(program)
        if what == "pid":
            writer = number
        elif what == "gone":
            raise RunError("the process that writes ended by itself: see what it printed")
        else:
            done.append((what, number))
    time.sleep(moment)
    os.kill(writer, signal.SIGKILL)
    while (line := _hear(program))[0] != "gone":
        done.append(line)
    return done


def _hear(program: subprocess.Popen[str]) -> tuple[str, int]:
    assert program.stdout is not None
    line = program.stdout.readline()
    if not line:
        raise RunError(f"the process that writes ended with {program.wait()}: see what it printed")
    what, _, number = line.strip().partition(" ")
    return what, int(number)
