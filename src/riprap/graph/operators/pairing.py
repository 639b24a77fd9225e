"""Operators that bring tuples of several ports together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import pyarrow as pa

from riprap.expressions import Expression, Named
from riprap.graph.operators.base import Copies, Needed, Operator, Traits, plain_copies, read_by, typed
from riprap.graph.windows import Window

Outer = Literal["inner", "left", "full"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairing(Operator):
    """What a join and a barrier share: ports with a common key, and expressions that call each by a name.

    ``names`` are what expressions call the ports, ``schemas`` their schemas.
    """

    by: tuple[str, ...]
    names: tuple[str, ...]
    schemas: tuple[pa.Schema, ...]
    select: tuple[Named, ...]

    @property
    def key(self) -> tuple[str, ...] | None:
        return self.by

    @property
    def columns_read(self) -> frozenset[str]:
        """The columns that its expressions read, as ``port.column``."""
        return read_by(self.select)

    def columns_of_port(self, port: int) -> frozenset[str]:
        """Return the columns of a port that its expressions read."""
        prefix = self.names[port] + "."
        return frozenset(c.removeprefix(prefix) for c in self.columns_read if c.startswith(prefix))

    def kept_of_port(self, port: int) -> tuple[str, ...]:
        """Return the columns of a port that are kept with each tuple.

        The key is known without them, but for a floating one: 0.0 and -0.0 are one key, and a tuple shows what it had.
        """
        kinds = {f.name: f.type for f in self.schemas[port]}
        read = sorted(self.columns_of_port(port))
        return tuple(c for c in read if c not in self.by or pa.types.is_floating(kinds[c]))

    def reads(self, needed: Needed) -> tuple[frozenset[str], ...]:
        return tuple(self.columns_of_port(port) | frozenset(self.by) for port in range(len(self.ports)))

    def copies(self) -> Copies:
        return {name: self._same_as(*column) for name, column in self._plain().items()}

    def _plain(self) -> dict[str, tuple[int, str]]:
        """Return the outputs that are a port's column as it is, and which."""
        plain = plain_copies(self.select).items()
        return {
            name: (port, column.removeprefix(prefix + "."))
            for name, column in plain
            for port, prefix in enumerate(self.names)
            if column.startswith(prefix + ".")
        }

    def _same_as(self, port: int, column: str) -> frozenset[tuple[int, str]]:
        ports: Iterable[int] = range(len(self.ports)) if column in self.by else (port,)
        return frozenset((each, column) for each in ports)


@dataclass(frozen=True, slots=True, kw_only=True)
class Join(Pairing):
    """Matches each tuple of a port with the other port's window of the same key."""

    TRAITS: ClassVar[Traits] = Traits(
        does="matches tuples of two ports",
        state=("the window's tuples", "the window's tuples"),
        pages="window groups",
        key="by",
        stale="holds tuples that lost input would have pushed out",
        punctuation="ends here",
    )

    windows: tuple[Window, Window]
    where: Expression | None
    outer: Outer = "inner"

    @property
    def slots(self) -> tuple[str, ...]:
        return tuple(str(port) for port in (0, 1) if not self.windows[port].empty)

    @property
    def slides(self) -> frozenset[str]:
        return frozenset(slot for slot in self.slots if self.windows[int(slot)].counted)

    @property
    def depth(self) -> int:
        return 2 if self.clock is not None else 1

    @property
    def columns_read(self) -> frozenset[str]:
        return read_by(self.select) | (self.where.columns if self.where is not None else frozenset())

    def puts_out_unmatched(self, port: int) -> bool:
        """Say whether a tuple of a port that leaves without having matched is put out."""
        return self.outer == "full" or (self.outer == "left" and port == 0)

    def keeps_time(self, port: int) -> bool:
        """Say whether each tuple of a port is kept with its time."""
        return bool(self.windows[port].time)

    def time_column(self, port: int) -> str | None:
        """Return the column that tells the time of a port's tuples, if one does."""
        timed = self.clock is None and (self.keeps_time(0) or self.keeps_time(1))
        return self.windows[port].on if timed else None

    def reads(self, needed: Needed) -> tuple[frozenset[str], ...]:
        times = [self.time_column(port) for port in (0, 1)]
        return tuple(
            self.columns_of_port(port) | {*self.by, *((time,) if time is not None else ())}
            for port, time in enumerate(times)
        )

    def copies(self) -> Copies:
        found = {}
        for name, (port, column) in self._plain().items():
            # A side that is missing is null, but for the left one's key.
            missing = self.outer == "full" or (self.outer == "left" and port == 1)
            if not missing or (port == 0 and column in self.by):
                found[name] = self._same_as(port, column)
        return found

    def layout(self, needed: Needed) -> str:
        ports = []
        for port in (0, 1):
            extra = ["time"] if self.keeps_time(port) else []
            extra += ["matched"] if self.puts_out_unmatched(port) else []
            kept = [typed(self.schemas[port], self.kept_of_port(port)), *extra]
            ports.append(f"{self.windows[port]} of {', '.join(k for k in kept if k) or 'nothing'}")
        clock = " by a clock" if self.clock is not None else ""
        return f"{self.outer} by {', '.join(self.by)}{clock}: {'; '.join(ports)}"

    def summary(self) -> str:
        left, right = self.windows
        condition = f" where {self.where.sql}" if self.where else ""
        kind = "" if self.outer == "inner" else f"{self.outer} outer "
        return f"{kind}by {', '.join(self.by)}, {left} x {right}{condition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Barrier(Pairing):
    """Brings together the first tuples of every port, then the second ones, and so on, key by key."""

    TRAITS: ClassVar[Traits] = Traits(
        does="waits for a tuple of every port",
        state=("the tuples that wait",),
        pages="blocks of keys",
        key="by, or none",
        holds=True,
        punctuation="ends here",
    )

    @property
    def traits(self) -> Traits:
        return replace(self.TRAITS, state=self.TRAITS.state * len(self.ports))

    @property
    def pairs(self) -> bool:
        # If tuples of one port were lost, all that come after them would be brought together with the wrong ones.
        return True

    @property
    def slots(self) -> tuple[str, ...]:
        return tuple(str(port) for port in range(len(self.ports)))

    def layout(self, needed: Needed) -> str:
        ports = (typed(s, self.kept_of_port(port)) or "nothing" for port, s in enumerate(self.schemas))
        return f"by {', '.join(self.by)}: {'; '.join(ports)}"

    def summary(self) -> str:
        by = f" by {', '.join(self.by)}" if self.by else ""
        return f"{', '.join(self.names)}{by}"
