"""A processing element in the making, and what the compiler asks it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from riprap.compiler.membership import Membership
from riprap.graph.connectors import ReadBySpark
from riprap.graph.operator import Operator
from riprap.operators.source import Source

# For each column of a stream: the columns of entries that it is a plain copy of, by entry.
Lineage = Mapping[str, Mapping[str, str]]
Key = Mapping[str, tuple[str, ...]]


@dataclass(slots=True)
class Draft:
    """A processing element in the making: its operators, and the key of each stream that comes in (None: none yet)."""

    name: str
    level: int
    part: Membership
    placed: bool = False
    operators: list[Operator] = field(default_factory=list)
    entries: dict[str, pa.Schema] = field(default_factory=dict)
    key: Key | None = None
    lineage: dict[str, Lineage] = field(default_factory=dict)
    # The streams from outside that each stream derives from.
    origins: dict[str, frozenset[str]] = field(default_factory=dict)
    # The streams on which punctuations travel that one of its tasks alone knows of.
    private: set[str] = field(default_factory=set)

    @property
    def region(self) -> str | None:
        return self.part.region

    @property
    def group(self) -> str | None:
        return self.part.group

    @property
    def reads_sources(self) -> bool:
        return any(isinstance(o, Source) for o in self.operators)

    @property
    def ingests(self) -> bool:
        """Whether it is a source that Spark reads."""
        return any(reads_by_spark(o) for o in self.operators)

    @property
    def replays(self) -> bool:
        """Whether its input is kept until it is saved, for one of its operators."""
        return any(o.replays for o in self.operators)

    @property
    def records(self) -> bool:
        """Whether it is an operator that records its windows in its own output log, and nothing else."""
        return any(o.recording is not None for o in self.operators)

    @property
    def holds(self) -> bool:
        """Whether it is an operator of a region whose results may come out otherwise: nobody sees them before a cut."""
        return self.region is not None and any(o.differs for o in self.operators)

    @property
    def streams(self) -> set[str]:
        """The streams made here."""
        return {s for o in self.operators for s in o.outputs}


def reads_by_spark(operator: Operator) -> bool:
    """Say whether an operator is a source that Spark reads."""
    return isinstance(operator, Source) and isinstance(operator.connector, ReadBySpark)
