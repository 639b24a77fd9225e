"""What a policy is asked: by the builder, the compiler, the runtime, fault injection, the models and ``explain``.

Each question is one method, with an answer that is right for a policy that has nothing to say to it. Most follow from
:meth:`Policy.saving`: one that only saves otherwise than ours need not say more.

>>> @dataclass(frozen=True, kw_only=True)
... class Nightly(Policy):
...     "Save the state once a day, and keep a week."
...     def saving(self, operator):
...         return Saving(every=86_400.0, keep=7)
>>> Nightly().describe()
'Nightly()'
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol, get_args

from riprap.errors import GraphError, ModelError
from riprap.protection.window_terms import WindowTerms

Restore = Literal["scratch", "checkpoint", "whole"]
Holds = Literal["kept", "older", "empty"]
Trigger = Literal["periodic", "operator"]
# What may be lost, from the least to the most: who survives one survives those before it.
Losable = Literal["process", "host", "power"]
LOSSES: Mapping[Losable, str] = {"process": "a process", "host": "a host's memory", "power": "the power"}


class Protectable(Protocol):
    """What a policy may know of an operator: the class of the graph has it all, and more.

    ``pairs`` is whether it brings tuples together by their number, so that all go wrong after one that is lost.
    ``unrepeatable`` says why its results cannot count exactly once, and what to do; None if they can. ``undivided``
    says why its state cannot be recorded key by key, and what to do; None if it can.
    """

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def ports(self) -> tuple[tuple[str, ...], ...]: ...
    @property
    def stateful(self) -> bool: ...
    @property
    def pairs(self) -> bool: ...
    @property
    def unrepeatable(self) -> tuple[str, str] | None: ...
    @property
    def undivided(self) -> tuple[str, str] | None: ...


class Surroundings(Protocol):
    """What a policy may know of the graph an operator is in."""

    def reached_from(self, name: str) -> tuple[str, ...]:
        """Name the operators of a consistent region that starts at one, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """That the state of an operator is saved, and how: every so many seconds, of which the newest versions are kept.

    Where ``every`` is None it is saved when the start of its region says so. A group of at most ``group`` tuples of a
    window is saved, and can be lost, as one; None cuts them by size and rate.
    """

    every: float | None
    keep: int = 3
    group: int | None = None

    def __post_init__(self) -> None:
        timed = self.every is None or 0 < self.every < float("inf")
        if not timed or self.keep < 1 or (self.group is not None and self.group < 1):
            raise GraphError(f"{self}: give seconds above zero, and whole numbers of at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionTerms:
    """How a consistent region is run.

    A cut is made every ``period`` seconds, or where ``trigger`` is "operator" when the operator it starts at says so.
    One that is not complete after ``drain_timeout`` seconds is told; recovering may take ``reset_timeout``. After so
    many attempts that failed in a row the region halts. ``durable`` says what it survives the loss of.
    """

    trigger: Trigger
    period: float | None
    drain_timeout: float
    reset_timeout: float
    max_consecutive_reset_attempts: int
    durable: Losable

    def __post_init__(self) -> None:
        for name, given, known in (
            ("trigger", self.trigger, get_args(Trigger)),
            ("durable", self.durable, get_args(Losable)),
        ):
            if given not in known:
                raise GraphError(f"{name}= of a region is one of {', '.join(known)}, got {given!r}")
        if self.trigger == "operator" and self.period is not None:
            raise GraphError(
                "a region with trigger='operator' is cut where its start says so: leave out period=, or write "
                "trigger='periodic'"
            )
        timed = () if self.trigger == "operator" else (("period", self.period),)
        for what, value in (
            *timed,
            ("drain_timeout", self.drain_timeout),
            ("reset_timeout", self.reset_timeout),
        ):
            if value is None or not 0 < value < float("inf"):
                raise GraphError(f"{what}= of a region takes seconds above zero, got {value!r}")
        attempts = self.max_consecutive_reset_attempts
        if not isinstance(attempts, int) or isinstance(attempts, bool) or attempts < 1:
            raise GraphError(
                "max_consecutive_reset_attempts= of a region takes a whole number of at least 1, "
                f"got {attempts!r}"
            )

    @property
    def saving(self) -> Saving | None:
        """How state in it is saved, None where it need not be.

        The cut before the newest stays: the newest may still be waiting for sinks, or be damaged.
        """
        return Saving(every=self.period, keep=2) if self.survives("host") else None

    @property
    def marks(self) -> bool:
        """Whether cuts are made of the batches that its start marks, and of no others."""
        return self.trigger == "operator" and self.survives("host")

    def joined(self, other: RegionTerms) -> RegionTerms:
        """Return the terms of a region that two with the same trigger merge into: of each the stricter."""
        both = (self, other)
        return RegionTerms(
            trigger=self.trigger,
            period=min((t.period for t in both if t.period is not None), default=None),
            drain_timeout=min(t.drain_timeout for t in both),
            reset_timeout=min(t.reset_timeout for t in both),
            max_consecutive_reset_attempts=min(t.max_consecutive_reset_attempts for t in both),
            durable=max((t.durable for t in both), key=list(LOSSES).index),
        )

    def survives(self, loss: Losable) -> bool:
        """Say whether the region survives a loss."""
        return list(LOSSES).index(loss) <= list(LOSSES).index(self.durable)

    def described(self, when: str = "") -> str:
        """Say in a few words how it is run; ``when`` is when its start says that a cut is to be made."""
        said = f"when its start says so{': ' if when else ''}{when}"
        how = said if self.period is None else f"every {self.period:g} s"
        return f"cut {how}, survives the loss of {LOSSES[self.durable]}"

    def __str__(self) -> str:
        return self.described()


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorOutage:
    """What happens to an operator that fails.

    ``misses`` is whether its input meanwhile is lost, as where its element goes on with what is newest. ``memory`` says
    what becomes of its host's. ``age`` is how many seconds ago it was saved; where that is not told, the failure falls
    by ``chance``, from 0 up to 1, into the interval between two saves.
    """

    misses: bool
    memory: Literal["lost", "kept"]
    age: float | None = None
    chance: float = 0.0


@dataclass(frozen=True, slots=True)
class Aftermath:
    """How an operator comes back: whether it has missed its input meanwhile, and what it holds.

    ``age`` is how many seconds before the failure an older state was saved, ``every`` how many there are between saves.
    """

    misses: bool
    holds: Holds
    age: float = 0.0
    every: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Protection:
    """What one operator of a model has.

    ``restore`` is what comes back after a crash: nothing, a checkpoint between ``age[0]`` and ``age[1]`` seconds old,
    or all of it. ``kept`` says that what comes in meanwhile waits instead of being lost. ``group`` names the
    high-availability group it is in, whose other replica takes over after ``failover`` seconds; of a group that is
    ``kept`` also what it puts out until then waits, and a replica of which an operator is down does nothing. ``peer``
    says that a replica comes back with the state of the other, if that is whole. ``copies`` are those that all take
    part, their results deduplicated. ``every`` is how often it is saved, for the cost.
    """

    restore: Restore = "scratch"
    age: tuple[float, float] = (0.0, 0.0)
    kept: bool = False
    group: str | None = None
    failover: float = 0.0
    peer: bool = False
    copies: int = 1
    every: float = 0.0

    def __post_init__(self) -> None:
        for name, value in (("age", self.age[0]), ("failover", self.failover), ("every", self.every)):
            if not 0 <= value < float("inf"):
                raise ModelError(f"{name} of a protection is {value!r}: give seconds of at least zero")
        if not self.age[0] <= self.age[1] < float("inf"):
            raise ModelError(f"age of a protection is {self.age!r}: give the least and the greatest")


@dataclass(frozen=True)
class Policy:
    """How an operator is to survive failures. Derive from it, as a frozen dataclass, for a policy of your own."""

    # Whether this version carries it out. What it does not is checked, injected and modelled, and refused by a run.
    CARRIED_OUT: ClassVar[bool] = True

    def objection(self, operator: Protectable) -> tuple[str, str] | None:
        """Say what stands against an operator that is being added: what is wrong, and what to do; None if nothing."""
        return None

    def saving(self, operator: Protectable) -> Saving | None:
        """Say how an operator's state is saved; None: not at all, and after the loss of its host it starts afresh."""
        return None

    def records(self, operator: Protectable) -> WindowTerms | None:
        """Say how an operator's open windows are recorded in its own output log; None: they are not."""
        return None

    def keeps_input(self, operator: Protectable) -> bool:
        """Say whether input is kept upstream until the state it went into is saved, and computed again after a loss.

        It is not where nothing is saved or recorded, whatever is said here.
        """
        return False

    def stands_alone(self, operator: Protectable) -> bool:
        """Say whether an operator is a processing element of its own, unless the user places it."""
        return self.keeps_input(operator)

    def begins(self, operator: Protectable) -> RegionTerms | None:
        """Say how the consistent region is run that starts at an operator; None: none does."""
        return None

    def leaves(self, operator: Protectable) -> bool:
        """Say whether an operator, and what only it reaches, is outside of consistent regions."""
        return False

    def after(self, operator: Protectable, outage: OperatorOutage) -> Aftermath:
        """Say how an operator comes back from an outage, for fault injection."""
        saving = self.saving(operator)
        if saving is not None and self.keeps_input(operator):
            return Aftermath(misses=False, holds="kept")
        if outage.memory == "kept":
            return Aftermath(outage.misses, "kept")
        if saving is None:
            return Aftermath(outage.misses, "empty")
        every = saving.every or 0.0
        age = outage.chance * every if outage.age is None else outage.age
        return Aftermath(outage.misses, "older", age, every)

    def modelled(self, operator: Protectable, graph: Surroundings) -> Mapping[str, Protection]:
        """Say what operators of a model have for it, and so what it costs: the operator, or also those it reaches."""
        saving = self.saving(operator)
        if saving is None:
            return {}
        every = saving.every or 0.0
        return {operator.name: Protection(restore="checkpoint", age=(0.0, every), every=every)}

    def describe(self) -> str:
        """Say in a few words what it does, for those who look at the graph."""
        return repr(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled(Policy):
    """What a policy has said of one operator, for tasks, which need not know its class."""

    saved: Saving | None
    kept: bool
    recorded: WindowTerms | None = None

    def saving(self, operator: Protectable) -> Saving | None:
        return self.saved

    def records(self, operator: Protectable) -> WindowTerms | None:
        return self.recorded

    def keeps_input(self, operator: Protectable) -> bool:
        return self.kept

    def after(self, operator: Protectable, outage: OperatorOutage) -> Aftermath:
        # Of a region also what has no state: it is sent again what it had not finished.
        return Aftermath(misses=False, holds="kept") if self.kept else Policy.after(self, operator, outage)


def objection_to(policy: object, operator: Protectable) -> tuple[str, str] | None:
    """Say what stands against an operator's policy: what is wrong, and what to do; None if nothing does."""
    if policy is None:
        return None
    if not isinstance(policy, Policy):
        return f"protect={policy!r} is not a policy", "Write rr.checkpoint(every='10s') or another"
    return policy.objection(operator)


def lacks_state(name: str, operator: Protectable) -> tuple[str, str] | None:
    """Say that a policy which saves state has none to save, if that is so."""
    if operator.stateful:
        return None
    return (
        f"protect=rr.{name}(...) saves state, and a {operator.kind.lower()} has none",
        "Move the policy to a stateful operator, or leave it out",
    )
