"""Machine code is kept once for all environments, is never stale, and can be done without."""

import ast
import fcntl
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
from tests.runtime.harness import wait_until

from riprap.machine_code.keeping import source_key

SOURCE = Path(__file__).parents[1] / "src"
# Hashes a text, which is compiled code, and says how often it was compiled and how often found.
HASH = """\
import pyarrow as pa
from riprap.state import hashing
print(hashing.hash_arrays([pa.array(["a", "b"])]).tolist())
print(sum(hashing._fnv.stats.cache_misses.values()), sum(hashing._fnv.stats.cache_hits.values()))
"""
AHEAD = """\
from riprap.state import hashing
from riprap.machine_code.keeping import compile_known, uncompiled
print(uncompiled())
compile_known(lambda: True)
print(uncompiled())
"""
# Says how often the text's hash was compiled and how often found, and goes on until it is told to end.
STAY = f"{HASH}import sys\nsys.stdout.flush()\nsys.stdin.read()\n"
# Fails to compile, and goes on all the same.
FAIL = """\
import sys
from numba.core import types
from numba.core.errors import TypingError
from riprap import machine_code
from riprap.state import hashing
machine_code.load()
try:
    hashing._fnv.compile((types.unicode_type,) * 2)
except TypingError:
    print("failed", flush=True)
sys.stdin.read()
"""


def start(program: str, source: Path, cache: Path) -> subprocess.Popen[str]:
    """Start a program with Riprap from some folder."""
    environ = {**os.environ, "PYTHONPATH": str(source), "RIPRAP_CACHE": str(cache)}
    return subprocess.Popen(
        [sys.executable, "-c", program],
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=source,
    )


def run(program: str, source: Path, cache: Path) -> list[str]:
    """Run a program with Riprap from some folder; return what it prints."""
    started = start(program, source, cache)
    printed = started.communicate()[0].splitlines()
    assert started.returncode == 0
    return printed


def test_another_environment_finds_the_code_and_another_source_does_not(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    before, after = run(AHEAD, SOURCE, cache)
    hashes, first = run(HASH, SOURCE, cache)
    other = tmp_path / "site-packages"
    shutil.copytree(SOURCE / "riprap", other / "riprap", ignore=shutil.ignore_patterns("__pycache__"))

    assert (before, after, first) == ("1", "0", "0 1")
    assert run(HASH, other, cache) == [hashes, "0 1"]

    # A function of another file may call this one.
    file = other / "riprap" / "state" / "windows.py"
    file.write_text(f"{file.read_text()}\n_MORE = 1\n")
    both = [start(HASH, other, cache) for _ in range(2)]
    printed = sorted(each.communicate()[0] for each in both)
    assert printed == [f"{hashes}\n0 1\n", f"{hashes}\n1 0\n"], "one compiles, the other waits for it"


def test_who_waited_for_code_and_found_it_keeps_nobody_waiting(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    hashes, _ = run(HASH, SOURCE, cache)
    (index,) = cache.glob("code-*/*/state/hashing._fnv-*.nbi")
    lock, hidden = index.with_name(f"{index.name}.lock"), tmp_path / "index"
    index.rename(hidden)
    with lock.open("wb") as compiling:
        fcntl.flock(compiling, fcntl.LOCK_EX)
        with start(STAY, SOURCE, cache) as waiting:
            wait_until(lambda: str(lock) in [file.path for file in psutil.Process(waiting.pid).open_files()])
            hidden.rename(index)
            compiling.close()
            assert waiting.stdout is not None
            assert [waiting.stdout.readline() for _ in range(2)] == [f"{hashes}\n", "0 1\n"]
            free = is_free(lock)
            waiting.communicate()
    assert free, "it has what it waited for"


def test_who_fails_to_compile_keeps_nobody_waiting(tmp_path: Path) -> None:
    with start(FAIL, SOURCE, tmp_path) as failing:
        assert failing.stdout is not None
        said = failing.stdout.readline()
        (lock,) = tmp_path.glob("code-*/*/state/hashing._fnv-*.lock")
        free = is_free(lock)
        failing.communicate()
    assert (said, free) == ("failed\n", True)


def is_free(lock: Path) -> bool:
    """Say whether no process has a lock."""
    with lock.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def test_without_a_cache_it_works(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    hashes = run(HASH, SOURCE, tmp_path / "file")[0]
    say = "from riprap.machine_code.keeping import code_folder\nprint(type(code_folder()).__name__)"

    assert hashes == run(HASH, SOURCE, tmp_path / "cache")[0]
    assert run(say, SOURCE, tmp_path / "file") == ["FileExistsError"]


def test_what_compiled_functions_have_in_them_is_in_the_key(tmp_path: Path) -> None:
    package = SOURCE / "riprap"
    for file in sorted(package.rglob("*.py")):
        for module in used_in_compiled(ast.parse(file.read_text())):
            imported = package.parent / f"{module.replace('.', '/')}.py"
            assert re.search(rb"riprap\.(machine_code|model\.jit)", imported.read_bytes()), (
                f"{file} has compiled functions that use names of {imported}, which is not in the key of the code: "
                "mention riprap.machine_code in its docstring"
            )
    (tmp_path / "a.py").write_text("from riprap.machine_code import compiled")
    key = source_key(tmp_path)
    (tmp_path / "b.py").write_text("unrelated")
    assert source_key(tmp_path) == key
    (tmp_path / "b.py").write_text("from riprap.model.jit import bare")
    assert source_key(tmp_path) != key


def used_in_compiled(tree: ast.Module) -> Iterator[str]:
    """Yield the modules of Riprap of which compiled functions use names."""
    modules = {
        alias.asname or alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("riprap")
        for alias in node.names
    }
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        if not any(
            m == "riprap.machine_code" or m == "riprap.model.jit" for m in decorators(function, modules)
        ):
            continue
        for statement in function.body:
            for node in ast.walk(statement):
                if isinstance(node, ast.Name) and node.id in modules:
                    yield str(modules[node.id])


def decorators(function: ast.FunctionDef, modules: dict[str, str | None]) -> Iterator[str | None]:
    """Yield the modules that the decorators of a function come from."""
    for decorator in function.decorator_list:
        name = decorator.func if isinstance(decorator, ast.Call) else decorator
        if isinstance(name, ast.Name):
            yield modules.get(name.id)
