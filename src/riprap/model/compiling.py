"""How the functions of the simulation are compiled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
import xxhash

Function = TypeVar("Function", bound=Callable[..., Any])

_options: dict[str, Any] = {"cache": True, "nogil": True}
_KERNEL = ("arrays.py", "compiling.py", "failing.py", "leaping.py", "simulating.py")
_digest = xxhash.xxh32(b"".join(Path(__file__).with_name(name).read_bytes() for name in _KERNEL)).hexdigest()


def _njit(function: Function, **options: Any) -> Any:
    # Numba looks at the file of a function to see whether what it kept is stale, and not at those of what it calls.
    function.__qualname__ += f"_{_digest}"
    compile_: Any = numba.njit
    return compile_(function, **options)


def bare(function: Function) -> Function:
    """Compile a function that allocates nothing: to count references would take most of its time."""
    return _njit(function, _nrt=False, **_options)  # type: ignore[no-any-return]


def inlined(function: Function) -> Function:
    """Compile such a function as a part of those that call it: a whole model takes long to hand over."""
    return _njit(function, _nrt=False, inline="always", **_options)  # type: ignore[no-any-return]


def compiled(function: Function) -> Function:
    """Compile a function that makes arrays."""
    return _njit(function, **_options)  # type: ignore[no-any-return]
