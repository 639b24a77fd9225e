"""Compile the text of a net once: the machine code is kept on disk, under the hash of all it was made from.

<cache>/nets-<user>/<hash>.py     and Numba's files beside it, in __pycache__

The folder is the user's alone, for what is in it will be run; if that cannot be had, nothing is kept and every process
compiles for itself.
"""

from __future__ import annotations

import hashlib
import importlib.util
import linecache
import os
import sys
import tempfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from threading import Lock
from types import ModuleType
from typing import Any

import numba

from riprap.cache import private_folder
from riprap.errors import OwnershipError
from riprap.san import draws, kernel, workspace

_LOADING = Lock()


def module_text(functions: str) -> str:
    """Return the whole module of a net: the simulator's loop and the net's own functions."""
    return f"{Path(kernel.__file__).read_text(encoding='utf-8')}\n\n{functions}"


def load(functions: str) -> ModuleType:
    """Return the module of a net; Numba compiles its `run` when it is called, or takes it from disk."""
    with _LOADING:
        return _load(functions)


@lru_cache(maxsize=64)
def _load(functions: str) -> ModuleType:
    text = module_text(functions)
    # Numba looks only at the file itself, so whatever else the machine code depends on is in its name.
    others = (Path(str(module.__file__)).read_text(encoding="utf-8") for module in (draws, workspace))
    parts = (text, *others, numba.__version__)
    name = "net_" + hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
    try:
        file = private_folder("nets") / f"{name}.py"
        return _from_file(name, file, text.replace("CACHED = False", "CACHED = True"))
    except (OSError, RuntimeError, OwnershipError):
        return _from_text(name, text)  # full, read-only, or somebody else's: go on without


def _from_file(name: str, path: Path, text: str) -> ModuleType:
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        # Whole or not at all: another process may be reading it.
        handle, unfinished = tempfile.mkstemp(dir=path.parent, suffix=".part")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(unfinished).replace(path)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _from_text(name: str, text: str) -> ModuleType:
    module = ModuleType(name)
    module.__file__ = f"<{name}>"
    linecache.cache[module.__file__] = (len(text), None, text.splitlines(keepends=True), module.__file__)
    sys.modules[name] = module
    exec(compile(text, module.__file__, "exec"), module.__dict__)
    return module


@lru_cache(maxsize=64)
def interpreted(functions: str) -> dict[str, Callable[..., Any]]:
    """Return the functions of a net for the interpreter, which starts at once and is slow."""
    plain = dict(vars(kernel))
    plain["inner"] = lambda function: function  # as it is
    plain["whole"] = kernel.whole.py_func
    exec(compile(functions, "<net>", "exec"), plain)
    return plain
