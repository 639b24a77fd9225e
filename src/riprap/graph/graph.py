"""The graph: operators in an order in which every one comes after its inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from riprap.errors import GraphError
from riprap.graph.operators import Operator, Sink, Source

Value = TypeVar("Value")
Kind = TypeVar("Kind", bound=Operator)


@dataclass(frozen=True, slots=True)
class Graph:
    """A checked dataflow graph. Make one with :meth:`of`, which validates and orders the operators."""

    name: str
    operators: tuple[Operator, ...]

    @classmethod
    def of(cls, name: str, operators: Iterable[Operator]) -> Graph:
        """Check the operators as a whole and put them in order."""
        by_name: dict[str, Operator] = {}
        for operator in operators:
            if operator.name in by_name:
                raise GraphError(
                    f"{operator}: the name is taken by {by_name[operator.name].kind} at "
                    f"{by_name[operator.name].location}. Names are the checkpoint's key: give each its own"
                )
            by_name[operator.name] = operator
        for operator in by_name.values():
            for stream in operator.inputs:
                if stream not in by_name:
                    raise GraphError(
                        f"{operator}: reads stream '{stream}', which does not exist. "
                        f"There are: {', '.join(by_name) or 'none'}"
                    )
        graph = cls(name, tuple(_in_order(by_name)))
        graph._check_ends()
        return graph

    def __iter__(self) -> Iterator[Operator]:
        return iter(self.operators)

    def __getitem__(self, name: str) -> Operator:
        for operator in self.operators:
            if operator.name == name:
                return operator
        raise KeyError(f"no operator '{name}'; there are: {', '.join(o.name for o in self.operators)}")

    def of_kind(self, kind: type[Kind]) -> tuple[Kind, ...]:
        """Return the operators of one class, in order."""
        return tuple(o for o in self.operators if isinstance(o, kind))

    def consumers(self, name: str) -> tuple[Operator, ...]:
        """Return the operators that read a stream, in order."""
        return tuple(o for o in self.operators if name in o.inputs)

    def fold(
        self, visit: Callable[[Operator, list[Value]], Value], *, upward: bool = False
    ) -> dict[str, Value]:
        """Walk the graph once, giving each operator what its neighbours came to.

        Downstream (the default) ``visit`` gets the results of the inputs, port by port; ``upward`` it gets
        those of the consumers. This is the one traversal everything else uses.
        """
        results: dict[str, Value] = {}
        for operator in reversed(self.operators) if upward else self.operators:
            near = [o.name for o in self.consumers(operator.name)] if upward else operator.inputs
            results[operator.name] = visit(operator, [results[n] for n in near])
        return results

    def _check_ends(self) -> None:
        if not self.of_kind(Source):
            raise GraphError(f"application '{self.name}' has no source: add one with app.source(...)")
        if not self.of_kind(Sink):
            raise GraphError(
                f"application '{self.name}' has no sink: end it with app.sink(name, stream, ...)"
            )
        reaches = self.fold(lambda o, after: isinstance(o, Sink) or any(after), upward=True)
        for operator in self.operators:
            if not reaches[operator.name]:
                raise GraphError(
                    f"{operator}: its stream reaches no sink. Connect it to one with app.sink(...), or remove it"
                )


def _in_order(by_name: dict[str, Operator]) -> Iterator[Operator]:
    done: set[str] = set()
    open_: list[str] = []

    def visit(operator: Operator) -> Iterator[Operator]:
        if operator.name in done:
            return
        if operator.name in open_:
            circle = [operator.name, *reversed(open_[open_.index(operator.name) :])]
            raise GraphError(
                f"{operator}: the streams run in a circle: {' -> '.join(circle)}. Cut it somewhere"
            )
        open_.append(operator.name)
        for stream in operator.inputs:
            yield from visit(by_name[stream])
        open_.pop()
        done.add(operator.name)
        yield operator

    for operator in by_name.values():
        yield from visit(operator)
