"""Replica groups: connected operators that run several times at once, so that another takes over when one dies.

                     .-- hot~a: sums -- vwap --.
    trades (once) ---|                         |--- bargains (once)        group 'hot': sums, vwap
                     '-- hot~b: sums -- vwap --'

Each replica reads the same streams and puts out a log of its own. ``failover`` says which of the logs those behind the
group read:

    "exact"   the active replica's; after a switch on in the other's from where they were, so nothing is lost
    "plain"   the active replica's; after a switch the other's from where that one is, so what is between is lost
    "ahead"   of every operator, inside the group too, whichever is ahead: nothing is ever switched
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from string import ascii_lowercase
from typing import TYPE_CHECKING, Literal, get_args

from riprap.durations import Duration, seconds
from riprap.errors import GraphError
from riprap.graph.checks import NAME
from riprap.graph.location import Location

if TYPE_CHECKING:
    from riprap.graph.builder import Builder
    from riprap.graph.graph import Graph
    from riprap.graph.stream import Stream

Failover = Literal["exact", "plain", "ahead"]
WayBack = Literal["peer", "own", "empty"]
FAILOVERS: Mapping[Failover, str] = {
    "exact": "the others go on in the log of another replica from where they were: nothing is lost",
    "plain": "the others go on in the log of another replica from where that is: what is between is lost",
    "ahead": "the others read whichever replica is ahead: nothing is switched, and nothing lost",
}
WAYS_BACK: Mapping[WayBack, str] = {
    "peer": "from the state of a replica that is ahead",
    "own": "from its own state, as any element does; from another's if its own is gone",
    "empty": "with empty state",
}
_LETTERS = ascii_lowercase
# The replica that is active at first.
FIRST = "a"
# In names of copies of elements and of processes, which users cannot have in theirs.
_SEPARATOR = "~"


def copy_name(name: str, letter: str) -> str:
    """Name a replica's copy of an element, or its process.

    >>> copy_name("hot", "a")
    'hot~a'
    """
    return f"{name}{_SEPARATOR}{letter}"


def split_copy_name(name: str) -> tuple[str, str | None]:
    """Say of which element, or group, a name is, and of which replica: None if it is no copy's.

    >>> split_copy_name("hot~a"), split_copy_name("main")
    (('hot', 'a'), ('main', None))
    """
    whole, separator, letter = name.partition(_SEPARATOR)
    return whole, letter if separator else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaGroup:
    """Operators that run as several replicas, as :meth:`riprap.Application.replicate` describes them.

    ``detect`` is after how many seconds of silence, or of being behind, an active replica is taken for lost.
    """

    name: str
    operators: tuple[str, ...]
    location: Location
    replicas: int = 2
    failover: Failover = "exact"
    detect: float = 1.0
    back: WayBack = "peer"
    hosts: tuple[str, ...] = ()

    @property
    def letters(self) -> tuple[str, ...]:
        """The replicas by name: a, b, and so on."""
        return tuple(_LETTERS[: self.replicas])

    @property
    def compared(self) -> bool:
        """Whether its replicas must put out the same."""
        return self.failover != "plain"

    def describe_crash(self, seconds: float | None = None) -> str:
        """Say in a few words what the crash of a replica costs, until another takes over or at most."""
        upto = f"up to {self.detect:g} s" if seconds is None else f"{seconds:g} s"
        return {
            "exact": f"costs {upto} and no tuple",
            "plain": f"loses what the group puts out in {upto}",
            "ahead": "costs nothing",
        }[self.failover]

    def process(self, letter: str) -> str:
        """Name the process of a replica."""
        return copy_name(self.name, letter)

    def describe(self) -> str:
        """Say in a few words what it is."""
        found = "" if self.failover == "ahead" else f", a loss found within {self.detect:g} s"
        return f"{self.replicas} replicas, {self.failover}: {FAILOVERS[self.failover]}{found}"

    def __str__(self) -> str:
        return f"replica group '{self.name}' ({self.location})"


def make_group(
    name: str,
    operators: Iterable[str],
    location: Location,
    *,
    prefix: str = "",
    replicas: int,
    failover: Failover,
    detect: Duration,
    back: WayBack,
    hosts: Iterable[str],
) -> ReplicaGroup:
    """Check what users say of a group; what depends on the graph is checked with the graph.

    ``prefix`` is that of the composite it is described in.
    """
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise GraphError(
            f"replica group at {location}: a name is letters, digits and '_', got {name!r}: replicate(name, stream, "
            "...)"
        )
    name = prefix + name
    where = f"replica group '{name}' ({location})"
    if not isinstance(replicas, int) or isinstance(replicas, bool) or not 2 <= replicas <= len(_LETTERS):
        raise GraphError(f"{where}: replicas= is a whole number from 2 to {len(_LETTERS)}, got {replicas!r}")
    for what, given, known in (
        ("failover", failover, get_args(Failover)),
        ("back", back, get_args(WayBack)),
    ):
        if given not in known:
            raise GraphError(f"{where}: {what}= is one of {', '.join(map(repr, known))}, got {given!r}")
    if back == "empty" and failover != "plain":
        raise GraphError(
            f"{where}: back='empty' lets a replica come back that puts out something else until its state is full "
            f"again, and failover={failover!r} takes it for a copy. Write failover='plain', or back='peer'"
        )
    named = tuple(hosts)
    if named and (isinstance(hosts, str) or len(named) != replicas):
        raise GraphError(
            f"{where}: hosts= has {1 if isinstance(hosts, str) else len(named)} Spark masters for {replicas} replicas: "
            "give one for each, such as 'spark://host:7077'"
        )
    return ReplicaGroup(
        name=name,
        operators=tuple(operators),
        location=location,
        replicas=replicas,
        failover=failover,
        detect=seconds(f"{where}: detect=", detect),
        back=back,
        hosts=named,
    )


def replicate(
    app: Builder,
    group: str,
    *operators: Stream | str,
    replicas: int = 2,
    failover: Failover = "exact",
    detect: Duration = "1s",
    back: WayBack = "peer",
    hosts: Iterable[str] = (),
) -> None:
    """Run connected operators several times at once, so that another replica takes over when one is lost.

    Name operators by their streams, or others by name; in a composite the group is called ``composite.group``. Each
    replica has a process of its own; what it reads is read
    once and kept for all. With ``failover="exact"`` those behind the group go on in another replica's results from
    where they were, and nothing is lost; with ``"plain"`` from where that replica is, as others do it, and what is
    between is lost; with ``"ahead"`` they read whichever is ahead. ``detect`` is how long an active replica may be
    silent, or behind another, before that takes over; one that dies is replaced at once. ``back`` says what a lost
    replica comes back with: the state of a ``"peer"``, its ``"own"``, or ``"empty"``. ``hosts`` are Spark masters,
    one for each replica. That is for ``riprap run``: ``app.run()`` has everything in its own process, once.

    >>> app = rr.Application("demo")
    >>> words = app.source("words", rr.rows([], "word string"))
    >>> counts = app.aggregate("counts", words, by="word", window=rr.sliding(tuples=10), select="count(*) as n")
    >>> app.replicate("hot", counts, detect="500ms")
    >>> app.sink("out", counts, rr.memory())
    >>> app.graph().groups[0].describe().partition(":")[0]
    '2 replicas, exact'
    """
    location = Location.of_caller()
    where = f"replica group '{app.prefix}{group}' ({location})"
    if not operators:
        raise GraphError(f"{where}: it names no operator")
    # One that puts out several streams may be named by each.
    names = dict.fromkeys(operator.name for operator in app.named(where, operators))
    made = make_group(
        group,
        names,
        location,
        prefix=app.prefix,
        replicas=replicas,
        failover=failover,
        detect=detect,
        back=back,
        hosts=hosts,
    )
    app.add_group(made)


def replicate_all(
    app: Builder,
    *,
    replicas: int = 2,
    detect: Duration = "1s",
    back: WayBack = "peer",
    hosts: Iterable[str] = (),
) -> None:
    """Run every operator but sources and sinks several times at once; every one reads whichever results are ahead.

    So nothing is lost, doubled or held up by any single crash, and nothing has to be switched. Every operator must
    put out the same each time. Options are those of :meth:`replicate`; the group is called ``all``.

    >>> app = rr.Application("demo")
    >>> words = app.source("words", rr.rows([], "word string"))
    >>> app.sink("out", app.functor("long", words, where="length(word) > 3"), rr.memory())
    >>> app.replicate_all()
    >>> app.graph().groups[0].operators
    ('long',)
    """
    app.add_group(
        make_group(
            "all",
            (),
            Location.of_caller(),
            replicas=replicas,
            failover="ahead",
            detect=detect,
            back=back,
            hosts=hosts,
        )
    )


def group_by_operator(graph: Graph) -> dict[str, ReplicaGroup]:
    """Return the group of each operator that is in one."""
    return {name: group for group in graph.groups for name in group.operators}


def describe_groups(graph: Graph) -> Iterator[str]:
    """Say in a line for each group what it is and what it has."""
    for group in graph.groups:
        yield (
            f"{group.name}: {', '.join(group.operators)}; {group.describe()}; a replica comes back "
            f"{WAYS_BACK[group.back]}"
        )
