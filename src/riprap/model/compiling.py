"""How the functions of the simulation are compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba

Function = TypeVar("Function", bound=Callable[..., Any])

_options: dict[str, Any] = {"cache": True, "nogil": True}
_njit: Any = numba.njit


def bare(function: Function) -> Function:
    """Compile a function that allocates nothing: to count references would take most of its time."""
    return _njit(function, _nrt=False, **_options)  # type: ignore[no-any-return]


def inlined(function: Function) -> Function:
    """Compile such a function as a part of those that call it: a whole model takes long to hand over."""
    return _njit(function, _nrt=False, inline="always", **_options)  # type: ignore[no-any-return]


def compiled(function: Function) -> Function:
    """Compile a function that makes arrays."""
    return _njit(function, **_options)  # type: ignore[no-any-return]
