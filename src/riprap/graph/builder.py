"""What every part of building an application shares: the operators so far, and adding one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from riprap.errors import GraphError
from riprap.expressions import UserAggregate, UserFunction
from riprap.graph.graph import Restart
from riprap.graph.operator import Operator
from riprap.graph.replicas import ReplicaGroup
from riprap.graph.stream import Stream


class Builder:
    """The operators, functions and placements described so far.

    A composite is built by a builder of its own that shares them, and puts its name before those of its operators.
    """

    def __init__(self, name: str, within: Builder | None = None) -> None:
        self.name = name
        self.root: Builder = within.root if within is not None else self
        self.prefix: str = f"{within.prefix}{name}." if within is not None else ""
        self._operators: dict[str, Operator] = within._operators if within else {}
        self.functions: dict[str, UserFunction] = within.functions if within else {}
        self.aggregate_functions: dict[str, UserAggregate] = within.aggregate_functions if within else {}
        self._places: dict[str, str] = within._places if within else {}
        self._restarts: dict[str, Restart] = within._restarts if within else {}
        self._processes: dict[str, str] = within._processes if within else {}
        self._groups: dict[str, ReplicaGroup] = within._groups if within else {}
        # Streams given out before they are made, to close a loop with; None until they are.
        self._loops: dict[str, str | None] = within._loops if within else {}

    @property
    def operators(self) -> Collection[Operator]:
        """The operators there are."""
        return self._operators.values()

    @property
    def streams(self) -> list[str]:
        """The streams there are."""
        return [stream for operator in self._operators.values() for stream in operator.outputs]

    def taken(self, name: str) -> Operator | None:
        """Return the operator that has a name, or puts out a stream of that name."""
        for operator in self._operators.values():
            if name == operator.name or name in operator.outputs:
                return operator
        return None

    def add(self, operator: Operator) -> Stream:
        """Add an operator, and return its stream."""
        self._operators[operator.name] = operator
        return Stream(operator.name, operator.schema, self.root)

    def add_group(self, group: ReplicaGroup) -> None:
        """Add a replica group."""
        if group.name in self._groups:
            raise GraphError(f"{group}: {self._groups[group.name]} has that name already. Give each its own")
        self._groups[group.name] = group

    def named(self, where: str, operators: Iterable[Stream | str]) -> Iterator[Operator]:
        """Find operators by their streams, or by name."""
        for each in operators:
            name = each.name if isinstance(each, Stream) else self.prefix + each
            operator = self.taken(name)
            if operator is None:
                names = ", ".join(self._operators) or "none yet"
                raise GraphError(f"{where}: no operator '{name}'. There are: {names}")
            yield operator
