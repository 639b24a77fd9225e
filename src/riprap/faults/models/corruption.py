"""Values that are changed on the way: silent data corruption."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Self

import numpy as np
import pyarrow as pa

from riprap.arrays import Words
from riprap.graph.faults import ColumnChange, Exposed, FaultModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Corruption(FaultModel):
    """Values of some columns are changed: a random bit of each, or as a function says."""

    columns: tuple[str, ...]
    change: ColumnChange | Literal["bits"] = "bits"

    @property
    def drawn(self) -> bool:
        return self.change == "bits"

    @property
    def changes(self) -> tuple[str, ...]:
        return self.columns

    def why_not(self, column: pa.Field) -> str | None:
        if self.change != "bits" or can_flip(column.type):
            return None
        return f"no bits of {column.name}, which is {column.type}, can be flipped: give change="

    def describe(self, where: str) -> str:
        return f"corrupts {', '.join(self.columns)} {where}"

    @classmethod
    def from_entries(cls, entries: Mapping[str, Any], find: Callable[[str], Callable[..., Any]]) -> Self:
        columns, change = entries.get("columns", ()), entries.get("change", "bits")
        return cls(
            columns=(columns,) if isinstance(columns, str) else tuple(columns),
            change=change if change == "bits" else find(change),
        )

    def apply(self, tuples: Exposed) -> Exposed:
        if not tuples.hit.any():
            return tuples
        for number, name in enumerate(self.columns):
            if self.change == "bits":
                # Numbered whichever of them are read: what is drawn for one does not depend on the others.
                tuples = tuples.change(name, partial(flip_bits, word=tuples.words(number)[tuples.hit]))
            else:
                tuples = tuples.change(name, self.change)
        return tuples


def can_flip(kind: pa.DataType) -> bool:
    """Say whether bits of values of a type can be flipped."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    tests = ("boolean", "floating", "integer", "string", "timestamp", "date32")
    return any(getattr(pa.types, f"is_{test}")(kind) for test in tests)


def flip_bits(values: pa.Array, word: Words) -> pa.Array:
    """Flip a bit of every value, chosen by a random word; null stays null."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    kind = values.type
    if pa.types.is_boolean(kind):
        return pa.compute.invert(values)
    if pa.types.is_timestamp(kind) or pa.types.is_date32(kind):
        whole = pa.int32() if pa.types.is_date32(kind) else pa.int64()
        return flip_bits(values.cast(whole), word).cast(kind)
    if pa.types.is_floating(kind) or pa.types.is_integer(kind):
        plain = values.fill_null(0).to_numpy(zero_copy_only=False)
        bits = plain.view(f"u{plain.dtype.itemsize}")
        width = np.uint64(8 * plain.dtype.itemsize)
        flipped = (bits ^ (np.uint64(1) << (word % width)).astype(bits.dtype)).view(plain.dtype)
        return pa.array(flipped, kind, mask=values.is_null().to_numpy(zero_copy_only=False))
    if pa.types.is_string(kind):
        return pa.array([_flip_text(v, int(w)) for v, w in zip(values.to_pylist(), word, strict=True)], kind)
    raise TypeError(f"no bits of {kind} can be flipped: give a function")


def _flip_text(text: str | None, word: int) -> str | None:
    """Flip one of the lower six bits of an ASCII letter, so that it stays text."""
    if not text:
        return text
    at = word % len(text)
    letter = chr((ord(text[at]) ^ (1 << (word >> 32) % 6)) or 1)
    return text[:at] + letter + text[at + 1 :]
