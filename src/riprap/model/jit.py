"""How the functions of the simulation are compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from riprap import machine_code

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function, **options: Any) -> Function:
    """Compile a function that makes arrays."""
    return machine_code.compiled(function, nogil=True, **options)  # type: ignore[no-any-return]


def bare(function: Function) -> Function:
    """Compile a function that allocates nothing: to count references would take most of its time."""
    return compiled(function, _nrt=False)


def inlined(function: Function) -> Function:
    """Compile such a function as a part of those that call it: a whole model takes long to hand over."""
    return compiled(function, _nrt=False, inline="always")
