"""Compile the source of loops with Numba, and hold the functions that the source calls.

Loading Numba takes longer than loading the rest of the package, so this module is imported when a loop first runs:
building a graph does not need it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
from numba.extending import intrinsic

from riprap.machine_code import compiled as kept
from riprap.machine_code import load

_LEAST, _MOST = np.int64(-(2**63)), np.int64(2**63 - 1)
_PAIR = numba.types.Tuple((numba.types.int64, numba.types.boolean))  # type: ignore[no-untyped-call]


def run_loop(source: str, arguments: Sequence[npt.NDArray[Any]]) -> tuple[int, int]:
    """Call the loop of some source, which is compiled once for each process."""
    types = tuple(numba.typeof(each) for each in arguments)  # type: ignore[no-untyped-call]
    return compiled(source, types)(*arguments)


@lru_cache(maxsize=256)
def compiled(source: str, types: tuple[numba.types.Type, ...]) -> Callable[..., tuple[int, int]]:
    """Compile a loop for arrays of certain types."""
    # Only then are they what compiled code can call.
    load()
    namespace: dict[str, Any] = {name: globals()[name] for name in _NAMES}
    exec(source, namespace)
    loop: Callable[..., tuple[int, int]] = numba.njit([types], error_model="numpy", nogil=True)(
        namespace["loop"]
    )
    return loop


def _wrapping(instruction: str) -> Callable[..., Any]:
    """Make an operation on int64 that returns the wrapped result, and whether it wrapped.

    Numba tells LLVM that its own + - * never overflow, so code that looks for it afterwards is optimised away.
    """

    def wrapping(typing, left, right):  # type: ignore[no-untyped-def]
        def emit(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
            pair = getattr(builder, instruction)(*arguments)
            parts = [builder.extract_value(pair, place) for place in (0, 1)]
            return context.make_tuple(builder, signature.return_type, parts)

        return _PAIR(numba.types.int64, numba.types.int64), emit

    wrapper: Callable[..., Any] = intrinsic(wrapping)
    return wrapper


added = _wrapping("sadd_with_overflow")
subtracted = _wrapping("ssub_with_overflow")
multiplied = _wrapping("smul_with_overflow")


@kept(error_model="numpy")
def quotient(left, right):  # type: ignore[no-untyped-def]
    """Divide towards zero; anything for a zero, or where it overflows."""
    if right == 0:
        return 0
    if right == -1:
        return subtracted(0, left)[0]
    floor = left // right
    return floor + 1 if floor < 0 and floor * right != left else floor


@kept(error_model="numpy")
def remainder(left, right):  # type: ignore[no-untyped-def]
    """Return the remainder with the sign of the dividend; anything for a zero."""
    if right == 0 or right == -1:
        return 0
    rest = left % right
    return rest - right if rest != 0 and (left ^ right) < 0 else rest


@kept(error_model="numpy")
def clipped(value):  # type: ignore[no-untyped-def]
    """Turn a double without a fraction into an int64, the nearest there is; anything for a NaN."""
    if -(2.0**63) <= value < 2.0**63:
        return np.int64(value)
    return _LEAST if value < 0 else _MOST


@kept(error_model="numpy")
def clipped_or_zero(value):  # type: ignore[no-untyped-def]
    """Turn a double without a fraction into an int64; zero for a NaN."""
    return clipped(value) if value == value else np.int64(0)


@kept(error_model="numpy")
def power(base, exponent):  # type: ignore[no-untyped-def]
    """Raise to a power as Java does: 1 to the NaN, and 1 or -1 to an infinity, are NaN."""
    if np.isnan(exponent) or (np.isinf(exponent) and abs(base) == 1.0):
        return np.nan
    return math.pow(base, exponent)


# What a loop may call.
_NAMES = (
    "np",
    "math",
    "added",
    "subtracted",
    "multiplied",
    "quotient",
    "remainder",
    "clipped",
    "clipped_or_zero",
    "power",
)
