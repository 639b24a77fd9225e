"""What is compiled ahead is what is called, and the run says that it takes time."""

import queue
import threading
from typing import Any

import pyarrow as pa
import pytest
from tests.stages import run_batches

import riprap as rr
from riprap.cli.followed_run import _notice
from riprap.machine_code import known
from riprap.machine_code.keeping import code_folder
from riprap.runtime import precompilation
from riprap.runtime.precompilation import Precompilation

# What windows and joins by a text call; other operators have one or two functions of their own.
CALLED = "_fnv _scatter _find double_sums whole_sums _ranges align _play _expand"


def test_types_that_are_known_do_come() -> None:
    app = rr.Application("both")
    made = app.source("source", rr.rows([], "key string, n bigint, x double"))
    sums = app.aggregate(
        "sums", made, by="key", window=rr.sliding(tuples=4), select="sum(x) as s, sum(n) as m"
    )
    windows = (rr.sliding(tuples=1), rr.sliding(tuples=0))
    both = app.join("both", sums, made, by="key", windows=windows, select="n, s, m")
    app.sink("out", both, rr.memory())
    table = pa.table({"key": ["a", "b", "a"], "n": [1, 2, 3], "x": [0.5, 1.5, 2.5]})

    assert run_batches(app, [{"source": table}] * 3)

    functions = {dispatcher.__name__: (dispatcher, types) for dispatcher, types in known()}
    for name in CALLED.split():
        dispatcher, types = functions[name]
        assert types in dispatcher.signatures, f"{name}: {dispatcher.signatures}"


def test_a_run_says_that_it_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    events: queue.Queue[dict[str, Any]] = queue.Queue()
    left = iter([3, 0])
    monkeypatch.setattr(precompilation, "uncompiled", lambda: next(left))

    Precompilation().tell(lambda kind, **details: events.put({"event": kind, **details}))

    told, done = events.get(timeout=60), events.get(timeout=60)
    assert _notice(told) == (
        "the first run of this version here: 3 functions are compiled, which takes some 20 s, and kept in "
        f"{code_folder()}"
    )
    assert (done["event"], done["functions"], done["seconds"] > 0) == ("compiled", 3, True)


def test_a_run_that_is_over_and_gone_is_told_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    failed: list[object] = []

    def gone(kind: str, **details: Any) -> None:
        asked.append(kind)
        if kind == "compiled":
            raise FileNotFoundError("the run's folder")

    monkeypatch.setattr(threading, "excepthook", failed.append)
    monkeypatch.setattr(precompilation, "uncompiled", lambda: 3)
    before = set(threading.enumerate())

    Precompilation().tell(gone)

    for thread in set(threading.enumerate()) - before:
        thread.join(60)
    assert asked == ["compiling", "compiled"]
    assert not failed


def test_a_run_says_that_nothing_can_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[dict[str, Any]] = []
    monkeypatch.setattr(precompilation, "uncompiled", lambda: 0)
    monkeypatch.setattr(
        precompilation, "code_folder", lambda: NotADirectoryError(20, "Not a directory", "/cache")
    )

    Precompilation().tell(lambda kind, **details: events.append({"event": kind, **details}))

    (event,) = events
    assert "[Errno 20] Not a directory: '/cache'" in str(_notice(event))
    assert "set RIPRAP_CACHE" in str(_notice(event))
