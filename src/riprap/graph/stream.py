"""What an operator puts out, as the value that other operators are given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from riprap.expressions import type_name

if TYPE_CHECKING:
    from riprap.graph.builder import Builder


@dataclass(frozen=True, slots=True)
class Stream:
    """What an operator puts out: its name and schema. Give it to the operators that read it.

    >>> print(rr.Application("demo").source("words", rr.rows([], "word string")))
    stream 'words' (word string)
    """

    name: str
    schema: pa.Schema
    application: Builder
    ticks: bool = False

    @property
    def label(self) -> str:
        """Its name without that of the composite it was made in: what expressions call it."""
        return self.name.rpartition(".")[2]

    def __str__(self) -> str:
        return f"stream '{self.name}' ({', '.join(f'{f.name} {type_name(f.type)}' for f in self.schema)})"
