"""Make large nets of small ones: join different ones, or replicate one, with places in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from riprap.san.code import rename
from riprap.san.distributions import with_codes
from riprap.san.errors import NetError, UnknownNameError
from riprap.san.net import Activity, InputGate, Net, OutputGate, Place


def join(name: str, nets: Mapping[str, Net], shared: Mapping[str, Sequence[str]] | None = None) -> Net:
    """Put nets side by side; what they hold is named after them, and ``shared`` makes one place of several.

    >>> pump = Net("pump", [Place("tank"), Place("on")], [])
    >>> both = join("works", {"a": pump, "b": pump}, shared={"tank": ["a.tank", "b.tank"]})
    >>> [place.name for place in both.places]
    ['tank', 'a.on', 'b.on']
    """
    merged = {inner: outer for outer, inners in (shared or {}).items() for inner in inners}
    initial = {f"{label}.{place.name}": place.initial for label, net in nets.items() for place in net.places}
    for inner, outer in merged.items():
        if inner not in initial:
            raise UnknownNameError(
                f"net '{name}': the shared place '{outer}' is to be '{inner}', which is not there. "
                f"There are: {', '.join(initial)}"
            )
    tokens: dict[str, int] = {}
    for inner, count in initial.items():
        outer = merged.get(inner, inner)
        if tokens.setdefault(outer, count) != count:
            raise NetError(
                f"net '{name}': places that are one, '{outer}', begin with {tokens[outer]} and {count} tokens"
            )
    activities = []
    parameters: dict[str, float] = {}
    for label, net in nets.items():

        def outside(inside: str, label: str = label) -> str:
            return merged.get(f"{label}.{inside}", f"{label}.{inside}")

        activities += [_renamed(activity, f"{label}.{activity.name}", outside) for activity in net.activities]
        parameters |= {f"{label}.{parameter}": value for parameter, value in net.parameters.items()}
    return Net(name, [Place(place, count) for place, count in tokens.items()], activities, parameters)


def replicate(name: str, net: Net, count: int, shared: Sequence[str] = ()) -> Net:
    """Put copies of a net side by side, labelled with its name and a number; they have ``shared`` places in common.

    >>> pump = Net("pump", [Place("tank"), Place("on")], [])
    >>> [place.name for place in replicate("works", pump, 2, shared=["tank"]).places]
    ['tank', 'pump1.on', 'pump2.on']
    """
    labels = [f"{net.name}{number}" for number in range(1, count + 1)]
    return join(
        name,
        dict.fromkeys(labels, net),
        {place: [f"{label}.{place}" for label in labels] for place in shared},
    )


def _renamed(activity: Activity, name: str, names: Callable[[str], str]) -> Activity:
    def arcs(each: Mapping[str, int]) -> dict[str, int]:
        renamed: dict[str, int] = {}
        for place, tokens in each.items():
            # Two places of one net may have become the same one.
            renamed[names(place)] = renamed.get(names(place), 0) + tokens
        return renamed

    def code(text: object) -> str:
        return rename(str(text), names)

    time = activity.time
    gates: list[InputGate | OutputGate] = [
        InputGate(when=code(gate.when), then=code(gate.then))
        if isinstance(gate, InputGate)
        else OutputGate(then=code(gate.then))
        for gate in activity.gates
    ]
    return replace(
        activity,
        name=name,
        time=time and with_codes(time, {key: code(text) for key, text in time.codes.items()}),
        takes=arcs(activity.takes),
        puts=arcs(activity.puts),
        gates=gates,
        cases=[
            replace(case, probability=code(case.probability), puts=arcs(case.puts), then=code(case.then))
            for case in activity.cases
        ],
        reactivate=None if activity.reactivate is None else code(activity.reactivate),
        weight=code(activity.weight),
    )
