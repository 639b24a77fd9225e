"""Keep the machine code of compiled functions in the user's cache, for all environments.

<cache>/code-<user>/<key>/<package>/<module>.<function>-<line>.py311.nbi, .1.nbc       as Numba writes them

Numba would keep it beside the source, so that every environment compiles anew; and it looks at the file of a function
to see whether what it kept is stale, and not at those of the functions it calls. Here the key is the hash of every file
of Riprap that has compiled functions, and of the versions of what compiles them. Python's version and the processor are
Numba's own care. Where nothing can be kept in the cache, Numba does as it would without us.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import pickle
import re
import shutil
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

import llvmlite  # type: ignore[import-untyped]
import numba
import numpy as np
from numba.core.caching import (
    CacheImpl,
    CompileResultCacheImpl,
    FunctionCache,
    UserProvidedCacheLocator,
)
from numba.core.sigutils import normalize_signature

from riprap.cache import private_folder
from riprap.errors import OwnershipError
from riprap.machine_code import known

_PACKAGE = Path(__file__).parents[1]
_KIND = "code"
# Compiled functions, and what is in them as a constant: they mention this module, or that of the models.
_HAS_CODE = re.compile(rb"\briprap\.(machine_code|model\.jit)\b")
# To compile one takes up to a few seconds.
_PATIENCE_SECONDS = 60.0
_LOOK_SECONDS = 0.02
# Of so many versions of the source the code is kept, some 3 MB each: checkouts that are worked on need one an edit.
_KEPT = 32


def dispatcher(function: Callable[..., Any], options: dict[str, Any]) -> Any:
    """Let Numba have a function, to be compiled when it is called, or found among what was kept."""
    made: Any = numba.njit(**options)(function)
    with contextlib.suppress(RuntimeError):  # there is nowhere to keep it
        made._cache = _Cache(function)  # type: ignore[no-untyped-call]
        made._compiler.compile = made._cache.ending_turn(made._compiler.compile)
    return made


def signature(types: str) -> Any:
    """Return types, as Numba writes them, as what code is kept under; Numba would keep it under the text."""
    return normalize_signature(f"({types})")[0]  # type: ignore[no-untyped-call]


def _is_kept(made: Any) -> bool | None:
    """Say whether there is code of a function already; None if it cannot be kept."""
    return made._cache.has_code if isinstance(made._cache, _Cache) else None


def uncompiled() -> int:
    """Count the functions whose types are known and of which there is no code yet."""
    return len({function for function, _ in known() if _is_kept(function) is False})


def compile_known(wanted: Callable[[], bool]) -> None:
    """Compile the functions whose types are known, for as long as it is wanted."""
    for function, types in known():
        if not wanted():
            return
        if _is_kept(function) is False:
            function.compile(types)


def load_known() -> None:
    """Load the code of functions whose types are known, where there is some: processes forked from here have it."""
    for function, types in known():
        if _is_kept(function):
            function.compile(types)


class _Locator(UserProvidedCacheLocator):
    """Where the code of a function of Riprap's is kept, unless ``NUMBA_CACHE_DIR`` says otherwise."""

    def __init__(self, function: Callable[..., Any], file: str, folder: Path) -> None:
        super().__init__(function, file)  # type: ignore[no-untyped-call]
        self._cache_path = str(folder / Path(file).parent.relative_to(_PACKAGE))

    @classmethod
    def from_function(cls, function: Callable[..., Any], file: str) -> _Locator | None:
        folder = code_folder()
        elsewhere = "NUMBA_CACHE_DIR" in os.environ or not Path(file).is_relative_to(_PACKAGE)
        if elsewhere or isinstance(folder, Exception):
            return None
        return cls(function, file, folder)


class _Impl(CompileResultCacheImpl):
    _locator_classes: list[Any] = [_Locator, *CacheImpl._locator_classes]  # noqa: RUF012


class _Cache(FunctionCache):
    """The code of one function. Of several processes that want it at once one compiles, and the others wait for it."""

    _impl_class = _Impl
    _turn: IO[bytes] | None = None

    @property
    def has_code(self) -> bool:
        return os.path.exists(self._cache_file._index_path)

    def load_overload(self, signature: Any, context: Any) -> Any:
        """Return the code for some types, None if it is to be compiled."""
        code = self._load(signature, context)
        if code is None and self._take_turn():
            code = self._load(signature, context)
            if code is not None:
                # Another process has compiled it meanwhile, so there is nothing to save.
                self._end_turn()
        return code

    def save_overload(self, signature: Any, code: Any) -> None:
        """Keep the code for some types, if there is room."""
        try:
            with contextlib.suppress(OSError):
                super().save_overload(signature, code)  # type: ignore[no-untyped-call]
        finally:
            self._end_turn()

    def ending_turn(self, compiling: Callable[..., Any]) -> Callable[..., Any]:
        """Have the turn end with what compiles, too, where that fails or is interrupted: then nothing is saved."""

        def compiled(*args: Any) -> Any:
            try:
                return compiling(*args)
            except BaseException:
                self._end_turn()
                raise

        return compiled

    def _load(self, signature: Any, context: Any) -> Any:
        with contextlib.suppress(OSError, EOFError, pickle.UnpicklingError):
            return super().load_overload(signature, context)  # type: ignore[no-untyped-call]

    def _take_turn(self) -> bool:
        """Lock the function until its code is saved; say whether to look again, for another process had the lock.

        One that waits too long goes on without: what both save is the same.
        """
        self._end_turn()
        with contextlib.suppress(OSError):
            os.makedirs(self._cache_path, exist_ok=True)
            self._turn = open(f"{self._cache_file._index_path}.lock", "wb")  # noqa: SIM115
            deadline = time.monotonic() + _PATIENCE_SECONDS
            while time.monotonic() < deadline:
                try:
                    fcntl.flock(self._turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    time.sleep(_LOOK_SECONDS)
                else:
                    return True
        return False

    def _end_turn(self) -> None:
        if self._turn is not None:
            self._turn.close()
            self._turn = None


@lru_cache(maxsize=1)
def code_folder() -> Path | Exception:
    """Return the folder for the code of this source, or what stands in the way of it."""
    try:
        whole = private_folder(_KIND)
        folder = whole / source_key(_PACKAGE)
        if not folder.exists():
            _make_room(whole)
            folder.mkdir(exist_ok=True)
        os.utime(folder)
    except (OSError, RuntimeError, OwnershipError) as error:
        return error
    return folder


def source_key(package: Path) -> str:
    """Return a name for all that machine code of a package depends on."""
    digest = hashlib.sha256()
    for file in sorted(package.rglob("*.py")):
        text = file.read_bytes()
        if _HAS_CODE.search(text):
            digest.update(f"{file.relative_to(package)} {len(text)}\n".encode() + text)
    for library in (numba, llvmlite, np):
        digest.update(f"{library.__name__} {library.__version__}\n".encode())
    return digest.hexdigest()[:32]


def _make_room(whole: Path) -> None:
    """Remove what was not used for longest. A process that still uses it compiles for itself."""
    by_use = sorted(whole.iterdir(), key=lambda folder: folder.stat().st_mtime, reverse=True)
    for folder in by_use[_KEPT - 1 :]:
        shutil.rmtree(folder, ignore_errors=True)
