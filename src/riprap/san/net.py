"""Stochastic activity networks as values: places, activities with gates and cases, and the net they make.

Making one runs nothing and checks what can be known beforehand. The semantics are those of Sanders and Meyer:

- An activity is *enabled* when its arcs find their tokens and the conditions of its input gates hold.
- A timed activity that is enabled in a stable marking draws the time of its completion and keeps it while it stays
  enabled. It is aborted in a stable marking that disables it. Where ``reactivate`` holds after another activity's
  completion, it draws anew.
- On completion arcs take tokens and the functions of input gates run; then a case is chosen, by probabilities of the
  marking as it is then; then all arcs put tokens; then the functions of output gates run, the case's own last.
- Enabled instantaneous activities then complete, one by one, until none is: the marking is stable. Those of the highest
  ``priority`` come first, and among them one is chosen at random by ``weight``.
- Of timed activities that complete at the same time the one listed first comes first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace

from riprap.san.code import Code, text_of
from riprap.san.distributions import Distribution
from riprap.san.fixed import Fixed, fix


@dataclass(frozen=True, slots=True)
class Place:
    """A place and how many tokens it holds at first.

    >>> Place("waiting", 3)
    Place(name='waiting', initial=3)
    """

    name: str
    initial: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class InputGate:
    """A condition without which an activity is not enabled, and what happens to its input on completion."""

    when: Code = "True"
    then: str = ""

    def __post_init__(self) -> None:
        fix(self, when=text_of(self.when), then=text_of(self.then))


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputGate:
    """What happens to the output of an activity on completion."""

    then: str

    def __post_init__(self) -> None:
        fix(self, then=text_of(self.then))


@dataclass(frozen=True, slots=True)
class Case:
    """One of the ways in which an activity may end, and its probability."""

    probability: Code
    _: KW_ONLY
    puts: Mapping[str, int] = field(default_factory=dict)
    then: str = ""

    def __post_init__(self) -> None:
        fix(self, probability=text_of(self.probability), puts=Fixed(self.puts), then=text_of(self.then))


@dataclass(frozen=True, slots=True)
class Activity:
    """Something that happens after a time, or at once if it has none.

    >>> Activity("serve", time=None, takes={"waiting": 1}, puts={"served": 1}).timed
    False
    """

    name: str
    _: KW_ONLY
    time: Distribution | None
    takes: Mapping[str, int] = field(default_factory=dict)
    puts: Mapping[str, int] = field(default_factory=dict)
    gates: Sequence[InputGate | OutputGate] = ()
    cases: Sequence[Case] = ()
    reactivate: Code | None = None
    priority: int = 0
    weight: Code = 1

    def __post_init__(self) -> None:
        reactivate = None if self.reactivate is None else text_of(self.reactivate)
        fix(self, takes=Fixed(self.takes), puts=Fixed(self.puts), gates=tuple(self.gates))
        fix(self, cases=tuple(self.cases), reactivate=reactivate, weight=text_of(self.weight))

    @property
    def timed(self) -> bool:
        return self.time is not None

    @property
    def inputs(self) -> tuple[InputGate, ...]:
        return tuple(gate for gate in self.gates if isinstance(gate, InputGate))

    @property
    def outputs(self) -> tuple[OutputGate, ...]:
        return tuple(gate for gate in self.gates if isinstance(gate, OutputGate))


@dataclass(frozen=True, slots=True)
class Net:
    """A stochastic activity network. Parameters are numbers by name, which code may use.

    >>> from riprap.san import Exponential
    >>> fails = Activity("fail", time=Exponential("a"), takes={"up": 1}, puts={"down": 1})
    >>> repair = Activity("repair", time=Exponential("b"), takes={"down": 1}, puts={"up": 1})
    >>> machine = Net("machine", [Place("up", 1), Place("down")], [fails, repair], {"a": 0.1, "b": 2})
    >>> machine.with_parameters({"b": 4}).parameters["b"]
    4.0
    """

    name: str
    places: Sequence[Place]
    activities: Sequence[Activity]
    parameters: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        from riprap.san.checks import check_net

        fix(self, places=tuple(self.places), activities=tuple(self.activities))
        fix(self, parameters=Fixed({name: float(value) for name, value in self.parameters.items()}))
        check_net(self)

    def with_parameters(self, parameters: Mapping[str, float]) -> Net:
        """Return the same net with other values of some parameters; to compile it again takes no time."""
        return replace(self, parameters={**self.parameters, **parameters})

    def draw(self) -> str:
        """Draw the net as SVG: circles, ovals, bars and triangles, as is the custom."""
        from riprap.san.picture import draw_net

        return draw_net(self)
