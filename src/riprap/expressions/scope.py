"""Resolve column names against the schemas an expression may read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from riprap.expressions.errors import Misuse, near
from riprap.expressions.types import check_type


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeColumn:
    """One column an expression may read; `source` is empty in an unqualified scope."""

    source: str
    name: str
    type: pa.DataType

    @property
    def key(self) -> str:
        return f"{self.source}.{self.name}" if self.source else self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope(Mapping[str, pa.DataType]):
    """The columns an expression may read, in order, as a mapping from key to type.

    >>> dict(Scope.of(pa.schema({"a": pa.int64()})))
    {'a': DataType(int64)}

    A name is matched exactly, else without regard to case as Spark does. In a qualified scope a bare name
    must be in one source only, unless it is `shared` (a join key): then it is the first source's.
    """

    entries: tuple[ScopeColumn, ...]
    shared: frozenset[str] = frozenset()

    @classmethod
    def of(cls, schema: pa.Schema) -> Scope:
        """Make a scope of one schema, whose columns are named without a qualifier."""
        return cls(entries=tuple(_entries("", schema)))

    @classmethod
    def qualified(cls, schemas: Mapping[str, pa.Schema], shared: Iterable[str] = ()) -> Scope:
        """Make a scope of several schemas, whose columns are named `source.column`."""
        entries = tuple(entry for source, schema in schemas.items() for entry in _entries(source, schema))
        return cls(entries=entries, shared=frozenset(shared))

    def __getitem__(self, key: str) -> pa.DataType:
        for entry in self.entries:
            if entry.key == key:
                return entry.type
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return (entry.key for entry in self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def sources(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(entry.source for entry in self.entries if entry.source))

    def star(self, source: str = "") -> tuple[ScopeColumn, ...]:
        """List what `*` or `source.*` stands for; shared names appear once."""
        if source and source not in self.sources:
            raise Misuse(f"no source {source!r} for {source}.*", near(source, self.sources))
        chosen = [entry for entry in self.entries if not source or entry.source == source]
        if source:
            return tuple(chosen)
        first = chosen[0].source if chosen else ""
        return tuple(entry for entry in chosen if entry.source == first or entry.name not in self.shared)

    def resolve(self, name: str, source: str = "") -> ScopeColumn:
        """Find a column, or raise Misuse that lists what exists."""
        if source and not self.sources:
            raise Misuse(
                f"no source {source!r}: columns are named without a qualifier here", near(name, self)
            )
        if source and source.lower() not in (each.lower() for each in self.sources):
            raise Misuse(f"no source {source!r}", near(source, self.sources))
        pool = [entry for entry in self.entries if not source or entry.source.lower() == source.lower()]
        exact = [entry for entry in pool if entry.name == name]
        matches = exact or [entry for entry in pool if entry.name.lower() == name.lower()]
        if len(matches) == 1 or (matches and {entry.name for entry in matches} <= self.shared):
            return matches[0]
        if matches:
            keys = " or ".join(entry.key for entry in matches)
            raise Misuse(f"column {name!r} is ambiguous", f"Write {keys}")
        names = [entry.name for entry in pool] if source or not self.sources else list(self)
        raise Misuse(f"no column {name!r}" + (f" in {source}" if source else ""), near(name, names))


def _entries(source: str, schema: pa.Schema) -> Iterator[ScopeColumn]:
    for field in schema:
        where = f"column {source}.{field.name}" if source else f"column {field.name}"
        yield ScopeColumn(source=source, name=field.name, type=check_type(field.type, where))
