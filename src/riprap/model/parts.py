"""The parts of a model: each operator of an application with its ports, what it does to tuples, and where they go.

Whatever makes an operator put out tuples is a port, as in appendix A of the dissertation: streams, the ticks of time,
and punctuations, which travel on streams of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from riprap.errors import ModelError
from riprap.graph.graph import Graph
from riprap.graph.operator import Operator
from riprap.model.profile import OperatorProfile, Port, Profile
from riprap.operators.sink import Sink
from riprap.operators.source import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class PartPort:
    """A port of a part: the streams it reads, or the rate at which tuples come from outside.

    ``shares`` are the tuples of each output that one tuple makes.
    """

    streams: tuple[str, ...] = ()
    rate: float = 0.0
    shares: tuple[float, ...]
    port: Port


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """An operator as the model has it."""

    name: str
    entries: tuple[PartPort, ...]
    outputs: tuple[str, ...]
    profile: OperatorProfile
    sink: bool = False
    source: bool = False

    @property
    def stateful(self) -> bool:
        return any(e.port.state > 0 for e in self.entries)


def parts_of(graph: Graph, profile: Profile) -> tuple[Part, ...]:
    """Put an application and its profile together, in the graph's order."""
    operators = [o for o in graph if o.tick is None]
    _check_names(graph, operators, profile)
    punctuated: set[str] = set()
    parts = []
    for operator in operators:
        parts.append(_part(operator, profile, punctuated))
        punctuated.update(o for o in parts[-1].outputs if o.endswith(_PUNCTUATION))
    return tuple(parts)


_PUNCTUATION = " punctuation"


def _part(operator: Operator, profile: Profile, punctuated: set[str]) -> Part:
    own = profile.operators[operator.name]
    streams = operator.outputs
    read = dict.fromkeys(s + _PUNCTUATION for port in operator.ports for s in port)
    marks = [s for s in read if s in punctuated]
    passes = bool(marks) and operator.traits.punctuation.startswith("passes")
    marked = own.punctuated > 0 or passes
    outputs = (*streams, *((s + _PUNCTUATION for s in streams) if marked else ()))
    return Part(
        name=operator.name,
        entries=tuple(_entries(operator, own, profile, marks, passes, marked)),
        outputs=outputs,
        profile=own,
        sink=isinstance(operator, Sink),
        source=isinstance(operator, Source),
    )


def _entries(
    operator: Operator, own: OperatorProfile, profile: Profile, marks: list[str], passes: bool, marked: bool
) -> Iterator[PartPort]:
    streams = operator.outputs

    def shares(port: Port) -> tuple[float, ...]:
        of_tuples = tuple(port.share(s) for s in streams)
        return of_tuples + ((own.punctuated,) * len(streams) if marked else ())

    if isinstance(operator, Source):
        yield PartPort(rate=profile.rates[operator.name], shares=shares(own.ports[0]), port=own.ports[0])
    else:
        for port, reads in zip(own.ports, operator.ports, strict=True):
            yield PartPort(streams=reads, shares=shares(port), port=port)
    if own.tick is not None:
        ticks = (own.ticked,) * len(streams) + ((0.0,) * len(streams) if marked else ())
        yield PartPort(rate=1.0 / own.tick, shares=ticks, port=Port())
    if marks:
        answers = (own.on_punctuation,) * len(streams)
        passed = ((1.0 if passes else 0.0,) * len(streams)) if marked else ()
        yield PartPort(streams=tuple(marks), shares=answers + passed, port=Port())


def _check_names(graph: Graph, operators: list[Operator], profile: Profile) -> None:
    names = {o.name for o in graph}
    for name in (*profile.operators, *profile.rates, *profile.called.values()):
        if name not in names:
            raise ModelError(
                f"the profile speaks of '{name}', which '{graph.name}' does not have. "
                f"There are: {', '.join(o.name for o in graph)}"
            )
    missing = [o.name for o in operators if o.name not in profile.operators]
    if missing:
        raise ModelError(
            f"the profile says nothing of {', '.join(missing)}: add an entry for each under 'operators', "
            "or measure them with `riprap profile`"
        )
    for operator in operators:
        ports = profile.operators[operator.name].ports
        if isinstance(operator, Source) and operator.name not in profile.rates:
            raise ModelError(f"the profile has no rate for source '{operator.name}': add one under 'rates'")
        needs = 1 if isinstance(operator, Source) else len(operator.ports)
        if needs != len(ports):
            raise ModelError(
                f"operator '{operator.name}' has {needs} ports, its profile {len(ports)}: describe each under 'ports'"
            )
        for port in ports:
            _check_streams(operator, port)


def _check_streams(operator: Operator, port: Port) -> None:
    if not isinstance(port.selectivity, Mapping):
        return
    names = ", ".join(operator.outputs)
    for stream in port.selectivity:
        if stream not in operator.outputs:
            raise ModelError(
                f"operator '{operator.name}' has no stream '{stream}' to be selective about; there are: {names}"
            )
    for stream in operator.outputs:
        if stream not in port.selectivity:
            raise ModelError(
                f"operator '{operator.name}': its selectivity says nothing of stream '{stream}': say 0 if nothing "
                "comes out"
            )
