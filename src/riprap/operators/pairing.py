"""What operators share that bring tuples of several ports together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from riprap.expressions import Named
from riprap.graph.checks import Here, Streams
from riprap.graph.operator import Copies, Needed, plain_copies, read_by
from riprap.graph.stream import Stream
from riprap.operators.keyed import Keyed


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairing(Keyed):
    """What a join and a barrier share: ports with a common key, and expressions that call each by a name.

    ``names`` are what expressions call the ports, ``schemas`` their schemas.
    """

    names: tuple[str, ...]
    schemas: tuple[pa.Schema, ...]
    select: tuple[Named, ...]

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


def names_of_ports(here: Here, ports: Sequence[Streams], otherwise: Sequence[str]) -> tuple[str, ...]:
    """Return what expressions call the ports: by its stream, or otherwise where there are several."""
    names = []
    for port, other in zip(ports, otherwise, strict=True):
        streams = (port,) if isinstance(port, Stream) else tuple(port)
        name = streams[0].label if len(streams) == 1 else other
        if name in names:
            raise here.error(
                f"{'both' if len(ports) == 2 else 'two'} ports read stream '{name}'",
                "Give one side another name with a functor select='*'",
            )
        names.append(name)
    return tuple(names)
