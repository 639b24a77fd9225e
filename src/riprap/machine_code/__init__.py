"""Compile functions with Numba: when one is first called, and not before Numba is needed.

To load Numba takes longer than all the rest, and whoever describes an application does without. So a function stands in
for itself until the first of all is called. Then Numba is loaded, and takes the place of every function that stands in
somewhere in Riprap: from there on a call costs what Numba's own does, and compiled functions find each other.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial, update_wrapper
from typing import Any

_waiting: list[StandIn] = []
_known: list[tuple[Any, Any]] = []
_lock = threading.RLock()
_loaded = False


class StandIn:
    """A function that is to be compiled, until Numba is loaded."""

    def __init__(self, function: Callable[..., Any], types: tuple[str, ...], options: dict[str, Any]) -> None:
        update_wrapper(self, function)
        self.function, self.types, self.options = function, types, options
        self._made: Any = None

    def __call__(self, *args: Any) -> Any:
        """Load Numba if nobody has yet, and call what it makes of the function."""
        load()
        return self.made()(*args)

    def made(self) -> Any:
        """Return what Numba makes of the function; by then it is loaded."""
        if self._made is None:
            from riprap.machine_code.keeping import dispatcher, signature

            self._made = dispatcher(self.function, self.options)
            _known.extend((self._made, signature(types)) for types in self.types)
        return self._made


def compiled(
    function: Callable[..., Any] | None = None, /, *, types: tuple[str, ...] = (), **options: Any
) -> Any:
    """Compile a function when it is called, for the types it is called with.

    ``types`` are those that are known to come, as Numba writes them: ``compile_known`` compiles for them ahead of the
    first call. ``options`` go to ``numba.njit``.
    """
    if function is None:
        return partial(compiled, types=types, **options)
    stand_in = StandIn(function, types, options)
    with _lock:
        if not _loaded:
            _waiting.append(stand_in)
            return stand_in
    return stand_in.made()


def load() -> None:
    """Load Numba, and put what it makes of functions where they stand in for themselves."""
    global _loaded
    if _loaded:
        return
    with _lock:
        if _loaded:
            return
        made = {id(each): each.made() for each in _waiting}
        spaces = [each.function.__globals__ for each in _waiting]
        spaces += [vars(module) for name, module in list(sys.modules.items()) if name.startswith("riprap.")]
        for space in spaces:
            for name, value in list(space.items()):
                if isinstance(value, StandIn):
                    space[name] = made[id(value)]
        _waiting.clear()
        _loaded = True


def known() -> Sequence[tuple[Any, Any]]:
    """List functions with types that are known to come: those of the modules that have been loaded."""
    load()
    return _known
