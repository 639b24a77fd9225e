"""Compile functions with Numba, and keep the machine code in the user's cache, for all environments.

<cache>/code-<user>/<key>/<package>/<module>.<function>-<line>.py311.nbi, .1.nbc       as Numba writes them

Numba would keep it beside the source, so that every environment compiles anew; and it looks at the file of a function
to see whether what it kept is stale, and not at those of the functions it calls. Here the key is the hash of every file
of Riprap that has compiled functions, and of the versions of what compiles them. Python's version and the processor are
Numba's own care. Where nothing can be kept in the cache, Numba does as it would without us.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import re
import shutil
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import llvmlite  # type: ignore[import-untyped]
import numba
import numpy as np
from numba.core.caching import (
    CacheImpl,
    CompileResultCacheImpl,
    FunctionCache,
    UserProvidedCacheLocator,
)

from riprap.cache import private_folder
from riprap.errors import OwnershipError

_PACKAGE = Path(__file__).parent
_KIND = "code"
# Compiled functions, and what is in them as a constant: they mention this module, or that of the models.
_HAS_CODE = re.compile(rb"\briprap\.(machine_code|model\.compiling)\b")
# Of so many versions of the source the code is kept: of those in use, and of those one goes back to.
_KEPT = 4


def compiled(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Compile a function when it is called, for the types it is called with; ``options`` go to ``numba.njit``."""
    if function is None:
        return partial(compiled, **options)
    dispatcher: Any = numba.njit(**options)(function)
    with contextlib.suppress(RuntimeError):  # there is nowhere to keep it
        dispatcher._cache = _Cache(function)  # type: ignore[no-untyped-call]
    return dispatcher


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
    _impl_class = _Impl

    def load_overload(self, signature: Any, context: Any) -> Any:
        """Return the code for some types, None if there is none that can be read."""
        with contextlib.suppress(OSError, EOFError, pickle.UnpicklingError):
            return super().load_overload(signature, context)  # type: ignore[no-untyped-call]

    def save_overload(self, signature: Any, code: Any) -> None:
        """Keep the code for some types, if there is room."""
        with contextlib.suppress(OSError):
            super().save_overload(signature, code)  # type: ignore[no-untyped-call]


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
