"""Save the state of a user's operator as one object, and bring it back.

    "riprap-object/1" | seal, 32 bytes | pickle

To load a pickle is to run it. So an object has a seal, made with the key of the run (``riprap.state.seals``) for the
operator of that name, and without the right one it is not loaded, wherever it comes from: a page, or a checkpoint.
"""

from __future__ import annotations

import dataclasses
import io
import pickle
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from riprap.errors import SealError
from riprap.operators.custom.user_operator import CustomOperator
from riprap.state.seals import SIZE, fits, seal

if TYPE_CHECKING:
    from riprap.operators.custom import Custom

FORMAT = b"riprap-object/1"
_HEAD = len(FORMAT) + SIZE


def save(operator: Custom, user: CustomOperator, key: bytes) -> bytes:
    """Write down the state of an instance, field by field where it is declared, and seal it."""
    pickled = _dumps(operator, _state(operator, user))
    return b"".join((FORMAT, _seal(operator, pickled, key), pickled))


def _state(operator: Custom, user: CustomOperator) -> object:
    if operator.state is None:
        return user.checkpoint()
    state = user.state  # type: ignore[attr-defined]
    if not isinstance(state, operator.state):
        raise TypeError(
            f"self.state is declared as {operator.state.__name__}, and is now a {type(state).__name__}"
        )
    return {f.name: getattr(state, f.name) for f in dataclasses.fields(operator.state)}


def restore_state(operator: Custom, saved: bytes | None, key: bytes) -> Any:
    """Make the declared state, as it was saved or as it begins."""
    assert operator.state is not None
    state = operator.state()
    for name, value in (loads(operator, saved, key) if saved is not None else {}).items():
        # Not by assignment, which a frozen dataclass refuses.
        object.__setattr__(state, name, value)
    return state


def _seal(operator: Custom, pickled: bytes | memoryview, key: bytes) -> bytes:
    return seal(key, "object", operator.name.encode(), pickled)


def _dumps(operator: Custom, value: object) -> memoryview:
    """Pickle a value. The operator's dataclasses are named, not found by import: in a worker a program's own main
    module cannot be imported."""
    names = {kind: _name(kind) for kind in operator.kinds}
    buffer = io.BytesIO()
    pickler = _Pickler(buffer, lambda each: names.get(each) if isinstance(each, type) else None)
    try:
        pickler.dump(value)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise TypeError(_cannot_be_saved(operator, value, error)) from error
    return buffer.getbuffer()


def _cannot_be_saved(operator: Custom, value: object, error: Exception) -> str:
    """Name the field of the state that cannot be pickled, where it has fields."""
    what = "self.state" if operator.state is not None else "what checkpoint() returned"
    for name, part in value.items() if isinstance(value, dict) else ():
        try:
            pickle.dumps(part)
        except (pickle.PicklingError, TypeError, AttributeError) as cause:
            what, error = (
                (f"self.state.{name}" if operator.state is not None else f"{what}, [{name!r}],"),
                cause,
            )
            break
    return (
        f"{what} cannot be saved: {error}. Keep values that can be pickled; make locks, threads, connections and open "
        "files in prepare() and keep them outside of the state"
    )


def loads(operator: Custom, saved: bytes, key: bytes) -> Any:
    """Read back what was saved, if it has the seal."""
    pickled = memoryview(saved)[_HEAD:]
    if not saved.startswith(FORMAT):
        why = f"has no seal: it is not of format {FORMAT.decode()}, as if written by an earlier version"
    elif not fits(saved[len(FORMAT) : _HEAD], _seal(operator, pickled, key)):
        why = "does not have the seal of the run's key"
    else:
        kinds = {_name(kind): kind for kind in operator.kinds}
        return _Unpickler(io.BytesIO(pickled), kinds.__getitem__).load()
    raise SealError(
        f"Custom '{operator.name}' ({operator.location}): its saved state {why}, and is not loaded: to load a pickle "
        "is to run it. Start from an older checkpoint ('riprap state restore'), or let this state go "
        f"(--ignore-state {operator.name})"
    )


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, name: Callable[[object], str | None]) -> None:
        super().__init__(file, protocol=5)
        self._name = name

    def persistent_id(self, obj: object) -> str | None:
        return self._name(obj)


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, find: Callable[[str], type]) -> None:
        super().__init__(file)
        self._find = find

    def persistent_load(self, pid: str) -> type:
        return self._find(pid)
