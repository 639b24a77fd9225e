"""What every operator has, what it tells others about itself, and what it does with a batch.

Whoever wants to know something of an operator asks it: every question is a method here, with the answer of an operator
that has nothing to say to it. So an operator, one of the user's too, is a class that answers some of them otherwise, in
one file with the function that adds it to an application.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import pyarrow as pa

from riprap.expressions import Named, differing_in
from riprap.expressions.tree import Column
from riprap.graph.connectors.promise import Word
from riprap.graph.location import Location
from riprap.kernels.given import Given, Result
from riprap.protection import Policy, Saving, WindowTerms
from riprap.windows import Window

Needed = Mapping[str, frozenset[str]]
Copies = Mapping[str, frozenset[tuple[int, str]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What protection has to know of a kind of operator.

    ``state`` says what it keeps, port by port (empty: nothing). ``pages`` is how that is cut up; ``key`` what it is
    kept by. ``stale`` says how restored state is out of date where input was lost (empty: it is not). ``holds`` is
    whether tuples wait inside it, to be lost with it. ``why_not`` says why it cannot be in a consistent region (empty:
    it can).
    ``punctuation`` is what becomes of a punctuation that reaches it.
    """

    does: str
    state: tuple[str, ...] = ()
    pages: Literal["", "window groups", "blocks of keys", "one object"] = ""
    key: str = "any"
    stale: str = ""
    holds: bool = False
    why_not: str = ""
    punctuation: str = "passes in place"

    @property
    def consistent(self) -> bool:
        """Whether the operator can be in a consistent region."""
        return not self.why_not


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """A named operator: the user's line, the streams on each input port, and the schema of its output.

    ``clock`` is the clock whose ticks it hears, ``control`` the streams on its control port, whose tuples change its
    state and make no output.
    """

    TRAITS: ClassVar[Traits]
    # What it is besides, by the name under which it is listed.
    VARIANTS: ClassVar[Mapping[str, Traits]] = {}
    REMEDY: ClassVar[str] = "Keep it out of regions with protect=rr.autonomous()"
    # Whether it brings tuples together by their number, so that all go wrong after one that is lost.
    pairs: ClassVar[bool] = False
    # Whether its state is objects of the user's, which are pickled.
    holds_objects: ClassVar[bool] = False
    # Whether it makes punctuations of its own.
    punctuates: ClassVar[bool] = False
    # Whether it reads a table beside its streams, of which there is only the version of now.
    looks_up: ClassVar[bool] = False
    # Whether what becomes of a tuple depends on those of its key alone, however they are cut into batches.
    by_key_alone: ClassVar[bool] = True
    # Whether all it keeps for a key stands under that key in its pages, so that each key can be recorded by itself.
    kept_by_key: ClassVar[bool] = False
    # Whether tuples with a null in their key are remembered as others are.
    keeps_null_keys: ClassVar[bool] = True

    name: str
    location: Location
    ports: tuple[tuple[str, ...], ...]
    schema: pa.Schema
    protect: Policy | None = None
    clock: str | None = None
    control: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        return type(self).__name__

    @property
    def inputs(self) -> tuple[str, ...]:
        """The streams it reads on any port but the control port."""
        streams = (s for port in self.ports for s in port)
        return tuple(dict.fromkeys((*streams, *((self.clock,) if self.clock else ()))))

    @property
    def outputs(self) -> tuple[str, ...]:
        """The streams it puts out."""
        return (self.name,)

    def schema_of(self, stream: str) -> pa.Schema:
        """Return the schema of one of its outputs."""
        return self.schema

    @property
    def traits(self) -> Traits:
        """What protection has to know of it."""
        return self.TRAITS

    @property
    def stateful(self) -> bool:
        return bool(self.slots)

    @property
    def slots(self) -> tuple[str, ...]:
        """The names under which it keeps state, mostly one a port."""
        return ()

    @property
    def remedy(self) -> str:
        """What to do where it cannot be in a consistent region."""
        return self.REMEDY

    @property
    def unrepeatable(self) -> tuple[str, str] | None:
        """Why its results cannot count exactly once, and what to do; None if they can."""
        return (self.traits.why_not, self.remedy) if self.traits.why_not else None

    @property
    def differs(self) -> str:
        """Why it may put out something else when it computes the same input again; empty if it does not."""
        return " and ".join(
            f"{name}() says deterministic=False" for name in dict.fromkeys(differing_in(self))
        )

    @property
    def marks(self) -> str:
        """When it says, as the start of a region, that a cut is to be made; empty if it never does."""
        return ""

    @property
    def replays(self) -> bool:
        """Whether its input is kept upstream until it is saved, and computed again after a loss."""
        # What is never saved would be kept for ever.
        saved = self.saving is not None or self.recording is not None
        return self.protect is not None and saved and self.protect.keeps_input(self)

    @property
    def saving(self) -> Saving | None:
        """How its state is saved, None if it is not."""
        return self.protect.saving(self) if self.protect is not None and self.stateful else None

    @property
    def recording(self) -> WindowTerms | None:
        """How its open windows are recorded in its own output log, None if they are not."""
        return self.protect.records(self) if self.protect is not None and self.stateful else None

    @property
    def undivided(self) -> tuple[str, str] | None:
        """Why its state cannot be recorded key by key, and what to do; None if it can."""
        if self.kept_by_key and not self.differs:
            return None
        why = f"a {self.kind.lower()} keeps more than windows, each under its key"
        if self.differs:
            why = f"it may put out something else when it computes again: {self.differs}"
        return (
            f"protect=rr.eventual(...) records windows one by one, and {why}",
            "Write rr.checkpoint(every=...)",
        )

    @property
    def reopens(self) -> bool:
        """Whether its windows close and others open in their place, so that nothing of them is left."""
        return False

    @property
    def slides(self) -> frozenset[str]:
        """The slots that hold the newest so many tuples of each key, so that tuples that come push old ones out."""
        return frozenset()

    @property
    def key(self) -> tuple[str, ...] | None:
        """The columns its state is kept by: () for one state in all, None where any task may have any tuple."""
        return None

    @property
    def depth(self) -> int:
        """How many numbers it adds to the order of a tuple, to tell apart what one input tuple made.

        1 is the place among those; 2 is the key and the place, for an operator that a tick or a punctuation makes put
        out for many keys at once.
        """
        return 0

    @property
    def heeds(self) -> bool:
        """Whether punctuations on its input change what it does, beyond passing."""
        return False

    def reads(self, needed: Needed) -> tuple[frozenset[str], ...]:
        """Return the columns it reads on each port when these columns of its outputs are needed."""
        raise NotImplementedError

    def copies(self) -> Copies:
        """Return, for each output column that is an input column unchanged, the (port, column) pairs it equals."""
        return {}

    def run(self, given: Given) -> Result:
        """Take a batch: put out what comes of it, and the pages of state that changed."""
        raise NotImplementedError

    def steer(self, given: Given) -> Result:
        """Take the tuples on its control port, once the rest of the batch is done."""
        raise NotImplementedError

    def bare(self) -> Self:
        """Return it without what only the driver uses: it travels to every task."""
        return self

    @property
    def tick(self) -> str | None:
        """The column that holds the time of each tick, if it is a clock."""
        return None

    @property
    def promise(self) -> Word | None:
        """What holds of it after a failure, in a word, if it deals with a system outside."""
        return None

    @property
    def unflushable(self) -> tuple[str, str] | None:
        """Why what it holds cannot be put out at the end of the input, and what to do; None if it can."""
        return None

    @property
    def written_by(self) -> type | None:
        """The class of the user's that says what it does, None if it is one of ours."""
        return None if type(self).__module__.startswith("riprap.") else type(self)

    @property
    def period(self) -> int | None:
        """Every how many microseconds it puts out, if time alone makes it do so."""
        return None

    def window_of(self, port: int) -> Window | None:
        """Return the window that a port's tuples are held in, if there is one."""
        return None

    def brings_about(self, port: int) -> bool:
        """Say whether a port's tuples can bring results about."""
        return True

    def unmeasured(self, *, marked: bool) -> Iterator[str]:
        """Say what a run does not tell of what it puts out; ``marked`` if punctuations came in."""
        return iter(())

    def layout(self, needed: Needed) -> str:
        """Describe its state: what one version wrote another reads only if both say the same here."""
        return ""

    def kept_columns(self, needed: Needed) -> Mapping[str, str]:
        """Name the fields of kept tuples that are numbered in pages."""
        return {}

    def summary(self) -> str:
        """Say in a line what the operator does."""
        return ""

    def __str__(self) -> str:
        return f"operator '{self.name}' ({self.location})"


class PassesOn(Operator):
    """An operator that puts out its input tuples as they are."""

    __slots__ = ()

    def run(self, given: Given) -> Result:
        return Result(outputs=given.inputs)

    def reads(self, needed: Needed) -> tuple[frozenset[str], ...]:
        return (passed_on(self, needed),)

    def copies(self) -> Copies:
        return {name: frozenset({(0, name)}) for name in self.schema.names}


def passed_on(operator: Operator, needed: Needed) -> frozenset[str]:
    """Return the columns anyone needs of any of an operator's outputs."""
    return frozenset().union(*(needed.get(stream, frozenset()) for stream in operator.outputs))


def read_by(select: Iterable[Named]) -> frozenset[str]:
    """Return the columns that some expressions read."""
    return frozenset(c for n in select for c in n.expression.columns)


def schema_of(select: Sequence[Named]) -> pa.Schema:
    """Return the schema of what some named expressions make."""
    return pa.schema([pa.field(n.name, n.expression.type) for n in select])


def plain_copies(select: Iterable[Named]) -> dict[str, str]:
    """Return the names that are bare columns, and which."""
    return {n.name: n.expression.key for n in select if isinstance(n.expression, Column)}


def typed(schema: pa.Schema, columns: Iterable[str]) -> str:
    """Write columns with their types, in order of name."""
    return ", ".join(f"{c} {schema.field(c).type}" for c in sorted(columns))


def named(item: Named) -> str:
    """Write a named expression as a user would."""
    return (
        item.name if item.expression.sql.strip("`") == item.name else f"{item.expression.sql} as {item.name}"
    )


def by_columns(by: tuple[str, ...]) -> str:
    """Write what an operator's state is kept by, if there is a key."""
    return f" by {', '.join(by)}" if by else ""
