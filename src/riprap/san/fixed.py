"""A mapping that never changes, so that a net which holds one can be compared, hashed and pickled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

V = TypeVar("V")


class Fixed(Mapping[str, V]):
    """A mapping that never changes.

    >>> Fixed({"a": 1}) == Fixed({"a": 1}), hash(Fixed({"a": 1})) == hash(Fixed({"a": 1}))
    (True, True)
    """

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[str, V]) -> None:
        self._items = dict(items)

    def __getitem__(self, key: str) -> V:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(frozenset(self._items.items()))

    def __repr__(self) -> str:
        return repr(self._items)


def fix(owner: object, **fields: object) -> None:
    """Put fields of a frozen value in their normal form; only to be called while it is made."""
    for name, value in fields.items():
        object.__setattr__(owner, name, value)
