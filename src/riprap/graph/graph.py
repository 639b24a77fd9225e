"""The graph: operators in an order in which every one comes after its inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

import pyarrow as pa

from riprap.errors import GraphError
from riprap.graph.operator import Operator
from riprap.graph.regions import reach_of, regions_of
from riprap.graph.replica_checks import check_groups
from riprap.graph.replicas import ReplicaGroup

Restart = Literal["resume", "live"]
Folded = TypeVar("Folded")
AnyOperator = TypeVar("AnyOperator", bound=Operator)


@dataclass(frozen=True, slots=True)
class Graph:
    """A checked dataflow graph. Make one with :meth:`of`, which validates and orders the operators.

    ``places`` says in which processing element the user wants an operator, where the user said so, and ``restarts``
    where such an element goes on reading after a restart. ``processes`` names the process an element was given; those
    that are not in it run in the main one. ``groups`` are operators that run as several replicas.

    >>> app = rr.Application("demo")
    >>> app.sink("out", app.source("words", rr.rows([], "word string")), rr.memory())
    >>> [operator.name for operator in app.graph()]
    ['words', 'out']
    """

    name: str
    operators: tuple[Operator, ...]
    places: Mapping[str, str] = field(default_factory=dict)
    restarts: Mapping[str, Restart] = field(default_factory=dict)
    processes: Mapping[str, str] = field(default_factory=dict)
    groups: tuple[ReplicaGroup, ...] = ()

    @classmethod
    def of(
        cls,
        name: str,
        operators: Iterable[Operator],
        places: Mapping[str, str] | None = None,
        restarts: Mapping[str, Restart] | None = None,
        processes: Mapping[str, str] | None = None,
        groups: Iterable[ReplicaGroup] = (),
    ) -> Graph:
        """Check the operators as a whole and put them in order."""
        by_name: dict[str, Operator] = {}
        streams: dict[str, Operator] = {}
        for operator in operators:
            for taken in (by_name.get(operator.name), *(streams.get(s) for s in operator.outputs)):
                if taken is not None:
                    raise GraphError(
                        f"{operator}: the name is taken by {taken.kind} at {taken.location}. "
                        "Names are the checkpoint's key: give each its own"
                    )
            by_name[operator.name] = operator
            streams.update(dict.fromkeys(operator.outputs, operator))
        for operator in by_name.values():
            for stream in (*operator.inputs, *operator.control):
                if stream not in streams:
                    raise GraphError(
                        f"{operator}: reads stream '{stream}', which does not exist. "
                        f"There are: {', '.join(streams) or 'none'}"
                    )
        graph = cls(
            name,
            tuple(_in_order(by_name, streams)),
            dict(places or {}),
            dict(restarts or {}),
            dict(processes or {}),
            tuple(groups),
        )
        graph._check_ends()
        # They are found anew by whoever asks; here it is for what cannot be in one.
        regions_of(graph)
        check_groups(graph)
        return graph

    @property
    def without_replicas(self) -> Graph:
        """The same graph in which everything runs once."""
        return replace(self, groups=())

    def __iter__(self) -> Iterator[Operator]:
        return iter(self.operators)

    def __getitem__(self, name: str) -> Operator:
        for operator in self.operators:
            if operator.name == name:
                return operator
        raise KeyError(f"no operator '{name}'; there are: {', '.join(o.name for o in self.operators)}")

    def of_kind(self, kind: type[AnyOperator]) -> tuple[AnyOperator, ...]:
        """Return the operators of one class, in order."""
        return tuple(o for o in self.operators if isinstance(o, kind))

    def producer(self, stream: str) -> Operator:
        """Return the operator that puts out a stream."""
        for operator in self.operators:
            if stream in operator.outputs:
                return operator
        raise KeyError(f"no stream '{stream}'; there are: {', '.join(s for o in self for s in o.outputs)}")

    def schema_of(self, stream: str) -> pa.Schema:
        """Return the schema of a stream."""
        return self.producer(stream).schema_of(stream)

    def after(self, operator: Operator) -> tuple[Operator, ...]:
        """Return the operators that read an output of another, control ports included."""
        outputs = set(operator.outputs)
        return tuple(o for o in self.operators if outputs & {*o.inputs, *o.control})

    def before(self, operator: Operator) -> tuple[Operator, ...]:
        """Return the operators that another reads from, one for each stream; control ports not included."""
        return tuple(self.producer(stream) for stream in operator.inputs)

    def reached_from(self, name: str) -> tuple[str, ...]:
        """Name the operators of a consistent region that starts at one, in order."""
        return reach_of(self, name)

    def fold(
        self, visit: Callable[[Operator, list[Folded]], Folded], *, upward: bool = False
    ) -> dict[str, Folded]:
        """Walk the graph once, giving each operator what its neighbours came to.

        Downstream (the default) ``visit`` gets the results of the producers of its inputs, stream by stream; ``upward``
        it gets those of the consumers. This is the one traversal everything else uses.
        """
        results: dict[str, Folded] = {}
        for operator in reversed(self.operators) if upward else self.operators:
            near = self.after(operator) if upward else self.before(operator)
            results[operator.name] = visit(operator, [results[o.name] for o in near if o.name in results])
        return results

    def _check_ends(self) -> None:
        if all(o.ports for o in self.operators):
            raise GraphError(f"application '{self.name}' has no source: add one with app.source(...)")
        if all(o.outputs for o in self.operators):
            raise GraphError(
                f"application '{self.name}' has no sink: end it with app.sink(name, stream, ...)"
            )
        steering = {stream for o in self.operators for stream in o.control}
        reaches = self.fold(
            lambda o, after: not o.outputs or bool(steering & set(o.outputs)) or any(after), upward=True
        )
        for operator in self.operators:
            if not reaches[operator.name]:
                raise GraphError(
                    f"{operator}: its stream reaches no sink. Connect it to one with app.sink(...), or remove it"
                )


def _in_order(by_name: Mapping[str, Operator], streams: Mapping[str, Operator]) -> Iterator[Operator]:
    done: set[str] = set()
    open_: list[str] = []

    def visit(operator: Operator) -> Iterator[Operator]:
        if operator.name in done:
            return
        if operator.name in open_:
            circle = [operator.name, *reversed(open_[open_.index(operator.name) :])]
            raise GraphError(
                f"{operator}: the streams run in a circle: {' -> '.join(circle)}. Only a control port may close one"
            )
        open_.append(operator.name)
        for stream in operator.inputs:
            yield from visit(streams[stream])
        open_.pop()
        done.add(operator.name)
        yield operator

    for operator in by_name.values():
        yield from visit(operator)
