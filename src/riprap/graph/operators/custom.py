"""The custom operator: a class of the user's."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from riprap.expressions import type_name
from riprap.graph.operators.base import Needed, Operator, Traits
from riprap.graph.user_operator import CustomOperator, overrides


@dataclass(frozen=True, slots=True, kw_only=True)
class Custom(Operator):
    """Runs a class of the user's. Its state is one object, so all tuples go to one task, unless it has none.

    ``state`` is the dataclass of a declared state, and ``kinds`` are all dataclasses that may be in it.
    """

    TRAITS: ClassVar[Traits] = Traits(
        does="runs a class of yours",
        state=("what it saves",),
        pages="one object",
        key="none",
        stale="knows nothing of lost input",
        punctuation="calls on_punctuation, which passes it unless written otherwise",
    )

    made_by: type[CustomOperator]
    params: Mapping[str, Any]
    port_schemas: tuple[pa.Schema, ...]
    streams: tuple[str, ...]
    schemas: tuple[pa.Schema, ...]
    control_schema: pa.Schema | None = None
    stateless: bool = False
    state: type | None = None
    kinds: tuple[type, ...] = ()

    @property
    def holds_objects(self) -> bool:
        return True

    @property
    def outputs(self) -> tuple[str, ...]:
        return self.streams

    def schema_of(self, stream: str) -> pa.Schema:
        return self.schemas[self.streams.index(stream)]

    @property
    def traits(self) -> Traits:
        if not self.stateless:
            return self.TRAITS
        return dataclasses.replace(self.TRAITS, state=(), pages="", key="any", stale="")

    @property
    def slots(self) -> tuple[str, ...]:
        return () if self.stateless else ("0",)

    @property
    def key(self) -> tuple[str, ...] | None:
        return None if self.stateless else ()

    @property
    def depth(self) -> int:
        return 1

    @property
    def heeds(self) -> bool:
        return overrides(self.made_by, "on_punctuation")

    @property
    def punctuates(self) -> bool:
        return True

    def reads(self, needed: Needed) -> tuple[frozenset[str], ...]:
        return tuple(frozenset(schema.names) for schema in self.port_schemas)

    def layout(self, needed: Needed) -> str:
        if self.state is None:
            return "what checkpoint() returns"
        return "; ".join(f"{kind.__name__}: {_fields(kind)}" for kind in self.kinds)

    def summary(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.params.items())
        outputs = "; ".join(
            f"{stream.rpartition('.')[2]}: {', '.join(f'{f.name} {type_name(f.type)}' for f in schema)}"
            for stream, schema in zip(self.streams, self.schemas, strict=True)
        )
        return f"{self.made_by.__name__}({given}) -> {outputs}"


def _fields(kind: Any) -> str:
    return ", ".join(f"{f.name} {getattr(f.type, '__name__', f.type)}" for f in dataclasses.fields(kind))
