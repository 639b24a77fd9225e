"""Consistent regions: which operators are in one, and what cannot be."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import riprap as rr
from riprap.errors import RiprapError
from riprap.graph.regions import describe_regions, regions_of, why_autonomous
from riprap.protection import Protectable, RegionTerms

Build = Callable[[rr.Application], object]
# Of a region: starts, operators, ends, and ports that are autonomous.
Row = tuple[str, str, str, dict[str, tuple[int, ...]]]
OUT = rr.autonomous()
BY_FILE = rr.consistent(trigger="operator")
SCHEMA = "k int, v int"


def start(**terms: Any) -> rr.Policy:
    return rr.consistent(**({"period": "2s"} | terms))


def rows() -> Any:
    return rr.rows([], SCHEMA)


def both(app: rr.Application, name: str, one: rr.Stream, other: rr.Stream, **more: Any) -> rr.Stream:
    return app.barrier(name, one, other, select=f"{one.label}.k as k, {one.label}.v as v", **more)


def straight(app: rr.Application, name: str, stream: rr.Stream, **more: Any) -> rr.Stream:
    return app.functor(name, stream, select="*", **more)


class Follows(rr.CustomOperator):
    """Puts out what it gets, and remembers what its control port says."""

    best = 0

    def on_tuple(self, port: Any, tuple: dict[str, Any]) -> None:
        if port != "control":
            self.submit(tuple)

    def checkpoint(self) -> int:
        return self.best

    def reset(self, saved: int) -> None:
        self.best = saved


def one_start(app: rr.Application) -> None:
    """Describe figure 1 (a) of the paper: one start and two ends."""
    op1 = app.source("op1", rows(), protect=start())
    op4 = both(app, "op4", straight(app, "op2", op1), straight(app, "op3", op1))
    app.sink("op5", op4, rr.memory())
    app.sink("op6", op4, rr.memory())


def two_starts(app: rr.Application) -> None:
    """Describe figure 1 (b): both reach op5."""
    op1 = app.source("op1", rows(), protect=start(period="4s", durable="power"))
    op3 = app.source("op3", rows(), protect=start(reset_timeout="1s", max_consecutive_reset_attempts=2))
    op5 = both(app, "op5", straight(app, "op2", op1), straight(app, "op4", op3))
    app.sink("op6", op5, rr.memory())


def two_kinds(app: rr.Application) -> None:
    """Describe figure 1 (c): op5 has a port of each kind, and op7 is cut off."""
    op2 = straight(app, "op2", app.source("op1", rows(), protect=start()))
    op4 = straight(app, "op4", app.source("op3", rows()))
    app.sink("op6", both(app, "op5", op2, op4), rr.memory())
    app.sink("op7", op2, rr.memory(), protect=OUT)


def won_back(app: rr.Application) -> None:
    """Describe an operator that an autonomous one and a consistent one reach, by ports of their own."""
    a = app.source("a", rows(), protect=start())
    late = straight(app, "late", straight(app, "cut", a, protect=OUT))
    app.sink("out", both(app, "won", late, a), rr.memory())
    app.sink("shown", late, rr.memory())


def in_the_middle(app: rr.Application) -> None:
    a = app.source("a", rows())
    app.sink("out", straight(app, "middle", straight(app, "b", a), protect=start()), rr.memory())


def several_regions(app: rr.Application) -> None:
    """Describe two regions, of which the second begins behind an autonomous operator of the first."""
    a = app.source("a", rows(), protect=start())
    app.sink("first", a, rr.memory())
    cut = straight(app, "cut", a, protect=OUT)
    app.sink("second", straight(app, "b", cut, protect=start()), rr.memory())


def a_loop(app: rr.Application) -> None:
    """Describe a loop: what the region puts out steers an operator of it."""
    back = app.loop("back", SCHEMA)
    steered = app.custom(
        "steered", Follows, app.source("a", rows()), schema=SCHEMA, control=back, protect=start()
    )
    told = straight(app, "told", steered)
    app.close(back, told)
    app.sink("out", steered, rr.memory())


def steers(app: rr.Application) -> None:
    """Describe an operator that a region reaches by its control port alone."""
    told = app.source("told", rows(), protect=start())
    steered = app.custom("steered", Follows, app.source("a", rows()), schema=SCHEMA, control=told)
    app.sink("out", steered, rr.memory())


def a_control_port_from_outside(app: rr.Application) -> None:
    back = app.loop("back", SCHEMA)
    steered = app.custom(
        "steered", Follows, app.source("a", rows(), protect=start()), schema=SCHEMA, control=back
    )
    app.close(back, straight(app, "cut", steered, protect=OUT))
    app.sink("out", steered, rr.memory())


def composites(app: rr.Application) -> None:
    """Describe a composite that is used twice, once in a region."""

    def made(place: rr.Application, stream: rr.Stream, **more: Any) -> rr.Stream:
        return straight(place, "second", straight(place, "first", stream, **more))

    a = app.source("a", rows())
    app.sink("kept", app.composite("inside", made, a, protect=start()), rr.memory())
    app.sink("shown", app.composite("beside", made, a), rr.memory())


def ports_of_several_streams(app: rr.Application) -> None:
    one, other = (app.source(name, rows(), protect=start()) for name in ("one", "other"))
    app.sink("out", [one, other], rr.memory())
    app.sink(
        "apart",
        app.source("alone", rr.folder_scan("in", format="csv", schema=SCHEMA), protect=BY_FILE),
        rr.memory(),
    )


def a_clock(app: rr.Application) -> None:
    """Describe a clock, which is in no region and counts as no port."""
    clock = app.clock("clock", rr.ticks(every="1s"), time="time")
    a = app.source("a", rows(), protect=start())
    app.sink("out", app.delay("later", a, time="1s", clock=clock), rr.memory())


def no_region(app: rr.Application) -> None:
    app.sink("out", app.source("a", rows(), protect=OUT), rr.memory())


# For each its regions, and why other operators are autonomous.
TABLE: list[tuple[Callable[[rr.Application], None], list[Row], dict[str, str]]] = [
    (one_start, [("op1", "op1 op2 op3 op4 op5 op6", "op5 op6", {})], {}),
    (two_starts, [("op1 op3", "op1 op2 op3 op4 op5 op6", "op6", {})], {}),
    (
        two_kinds,
        [("op1", "op1 op2 op5 op6", "op6", {"op5": (1,)})],
        {"op3": "no region starts at it", "op4": "fed by 'op3', in no region", "op7": "leaves regions by its protect="},
    ),
    (
        won_back,
        [("a", "a won out", "out", {"won": (0,)})],
        {
            "cut": "leaves regions by its protect=",
            "late": "fed by 'cut', in no region",
            "shown": "fed by 'late', in no region",
        },
    ),
    (
        in_the_middle,
        [("middle", "middle out", "out", {"middle": (0,)})],
        {"a": "no region starts at it", "b": "fed by 'a', in no region"},
    ),
    (
        several_regions,
        [("a", "a first", "first", {}), ("b", "b second", "second", {"b": (0,)})],
        {"cut": "leaves regions by its protect="},
    ),
    (
        a_loop,
        [("steered", "steered told out", "told out", {"steered": (0,)})],
        {"a": "no region starts at it"},
    ),
    (
        steers,
        [("told", "told steered out", "told out", {"steered": (0,)})],
        {"a": "no region starts at it"},
    ),
    (
        a_control_port_from_outside,
        [("a", "a steered out", "out", {"steered": (1,)})],
        {"cut": "leaves regions by its protect="},
    ),
    (
        composites,
        [("inside.first", "inside.first inside.second kept", "kept", {"inside.first": (0,)})],
        {
            "a": "no region starts at it",
            "beside.first": "fed by 'a', in no region",
            "beside.second": "fed by 'beside.first', in no region",
            "shown": "fed by 'beside.second', in no region",
        },
    ),
    (
        ports_of_several_streams,
        [("one other", "one other out", "out", {}), ("alone", "alone apart", "apart", {})],
        {},
    ),
    (a_clock, [("a", "a later out", "out", {})], {"clock": "no region starts at it"}),
    (no_region, [], {"a": "leaves regions by its protect=", "out": "fed by 'a', in no region"}),
]  # fmt: skip


def described(build: Build[[rr.Application], object]) -> rr.Graph:
    app = rr.Application("described")
    build(app)
    return app.graph()


@pytest.mark.parametrize(("build", "regions", "outside"), TABLE, ids=[row[0].__name__ for row in TABLE])
def test_what_is_in_a_region(
    build: Build,
    regions: list[Row],
    outside: dict[str, str],
) -> None:
    graph = described(build)

    found = regions_of(graph)

    assert [(" ".join(r.starts), set(r.operators), set(r.ends), dict(r.autonomous_ports)) for r in found] == [
        (starts, set(inside.split()), set(ends.split()), ports) for starts, inside, ends, ports in regions
    ]
    order = [o.name for o in graph]
    for region in found:
        assert region.name == region.starts[0]
        assert list(region.operators) == sorted(region.operators, key=order.index)
        assert list(region.reasons) == list(region.operators)
    assert why_autonomous(graph) == outside


def test_why_an_operator_is_in_a_region() -> None:
    def build(app: rr.Application) -> None:
        steered = app.custom(
            "steered",
            Follows,
            app.source("a", rr.from_tcp("h", 9, format="csv", schema=SCHEMA), protect=start()),
            schema=SCHEMA,
            control=straight(app, "told", app.source("b", rows(), protect=start())),
        )
        app.sink("out", steered, rr.memory())
        app.sink("more", straight(app, "d", app.source("c", rows()), protect=start()), rr.memory())

    found = {name: why for region in regions_of(described(build)) for name, why in region.reasons.items()}

    assert found == {
        "a": "starts the region: what was read is kept, and what came while nobody read is lost",
        "b": "starts the region: can be read again from where a run stopped",
        "told": "fed by 'b'",
        "steered": "fed by 'a'",
        "out": "fed by 'steered'",
        "d": "starts the region: what comes from 'c' is kept in a channel",
        "more": "fed by 'd'",
    }
    (steering, *_) = regions_of(described(steers))
    assert steering.reasons["steered"] == "steered by 'told'"


def test_when_a_start_says_so_is_told() -> None:
    app = rr.Application("files")
    files = rr.files("in", format="csv", schema=SCHEMA)
    app.sink("out", straight(app, "b", app.source("in", files, protect=BY_FILE)), rr.memory())
    what, text = next(iter(describe_regions(app.graph())))

    assert what == "region"
    assert text == (
        "in: cut when its start says so: after each file, survives the loss of a host's memory; starts at in, "
        "ends at out"
    )


def test_of_merged_regions_the_stricter_terms_hold() -> None:
    (region,) = regions_of(described(two_starts))

    assert region.terms == RegionTerms(
        trigger="periodic",
        period=2.0,
        drain_timeout=180.0,
        reset_timeout=1.0,
        max_consecutive_reset_attempts=2,
        durable="power",
    )


@dataclass(frozen=True)
class Node:
    """An operator of a random graph: the operators on each port, the one on its control port, and its policy."""

    ports: tuple[tuple[int, ...], ...]
    control: int | None
    protect: Literal["", "start", "out"]

    @property
    def fed_by(self) -> set[int]:
        return {n for port in self.all_ports for n in port}

    @property
    def all_ports(self) -> tuple[tuple[int, ...], ...]:
        return (*self.ports, *(((self.control,),) if self.control is not None else ()))


@st.composite
def random_graphs(draw: st.DrawFn) -> list[Node]:
    size = draw(st.integers(2, 9))
    nodes = []
    for number in range(size):
        ports: list[tuple[int, ...]] = []
        if number and draw(st.booleans()):
            before = st.lists(st.integers(0, number - 1), min_size=1, max_size=2, unique=True)
            ports = [tuple(port) for port in draw(st.lists(before, min_size=1, max_size=2))]
        steered = bool(ports) and draw(st.integers(0, 3)) == 0
        control = draw(st.integers(0, size - 1)) if steered else None
        nodes.append(Node(tuple(ports), control, draw(st.sampled_from(["", "", "", "start", "out"]))))
    return nodes


def made_of(nodes: list[Node]) -> rr.Application:
    app, streams, loops = rr.Application("random"), [], {}
    policies = {"": None, "start": start(), "out": OUT}
    for number, node in enumerate(nodes):
        name, protect = f"n{number}", policies[node.protect]
        if not node.ports:
            streams.append(app.source(name, rows(), protect=protect))
            continue
        loop = app.loop(f"loop{number}", SCHEMA) if node.control is not None else None
        ports = [[streams[n] for n in port] for port in node.ports]
        streams.append(app.custom(name, Follows, *ports, schema=SCHEMA, control=loop, protect=protect))
        if loop is not None:
            loops[number] = loop
    for number, loop in loops.items():
        app.close(loop, streams[nodes[number].control or 0])
    for number, stream in enumerate(streams):
        app.sink(f"out{number}", stream, rr.memory())
    return app


@given(random_graphs())
@settings(max_examples=300, deadline=None)
def test_regions_are_what_starts_reach(nodes: list[Node]) -> None:
    inside = {n for n, node in enumerate(nodes) if node.protect == "start"}
    while True:
        more = {n for n, node in enumerate(nodes) if node.protect == "" and node.fed_by & inside} - inside
        if not more:
            break
        inside |= more
    # Those with a path between them, whichever way it leads, are one.
    region = {n: n for n in inside}
    for _ in nodes:
        for n in inside:
            for other in nodes[n].fed_by & inside:
                region[n] = region[other] = min(region[n], region[other])
    mixed = [n for n in inside for port in nodes[n].all_ports if 0 < len(inside & set(port)) < len(set(port))]
    app = made_of(nodes)

    if mixed:
        with pytest.raises(rr.GraphError, match="A port is fed by one kind"):
            app.graph()
        return
    graph = app.graph()
    found = {name: region.name for region in regions_of(graph) for name in region.operators}
    wanted = {f"n{n}": own for n, own in region.items()} | {f"out{n}": own for n, own in region.items()}

    assert found.keys() == wanted.keys()
    for one, other in combinations(wanted, 2):
        assert (found[one] == found[other]) == (wanted[one] == wanted[other])
    assert why_autonomous(graph).keys() == {o.name for o in graph} - wanted.keys()
    for name in wanted:
        reached = set(graph.reached_from(name))
        assert name in reached
        assert reached <= {other for other in found if found[other] == found[name]}


@dataclass(frozen=True)
class Torn(rr.Policy):
    """Begins a region and leaves it."""

    def begins(self, operator: Protectable) -> RegionTerms | None:
        return start().begins(operator)

    def leaves(self, operator: Protectable) -> bool:
        return True


@dataclass(frozen=True)
class Careless(rr.Policy):
    """Begins a region anywhere."""

    def begins(self, operator: Protectable) -> RegionTerms | None:
        return start().begins(operator)


def live(app: rr.Application) -> None:
    a = app.source("a", rows(), protect=start())
    b = straight(app, "b", a)
    app.place("late", b, restart="live")
    app.sink("out", b, rr.memory())


def sums(app: rr.Application, stream: rr.Stream, **more: Any) -> None:
    made = app.aggregate("sums", stream, by="k", window=rr.sliding(tuples=2), select="sum(v) as s", **more)
    app.sink("out", made, rr.memory())


def by_operator(app: rr.Application, name: str, trigger: Any = "operator") -> rr.Stream:
    period = "1s" if trigger == "periodic" else None
    return app.source(name, rows(), protect=start(trigger=trigger, period=period))


# fmt: off
REFUSALS: dict[str, tuple[Build, str]] = {
    "a port of both kinds": (
        lambda a: a.sink("out", [a.source("in", rows(), protect=start()), a.source("by", rows())], rr.memory()),
        "operator 'out' (HERE): one of its ports takes 'in', of region 'in', and 'by', which is autonomous. A port "
        "is fed by one kind: let a region start at what makes 'by' too, or keep it out of regions with "
        "protect=rr.autonomous()",
    ),
    "two starts of an operator-driven region": (
        lambda a: a.sink("out", [by_operator(a, "one"), by_operator(a, "two")], rr.memory()),
        "operator 'two' (THERE): with trigger='operator' one start says when to make a cut, and its region starts at "
        "operator 'one' (THERE) too. Leave out protect= at one, or write trigger='periodic'",
    ),
    "two triggers": (
        lambda a: a.sink("out", [by_operator(a, "one", "periodic"), by_operator(a, "two")], rr.memory()),
        "operator 'two' (THERE): its region is that of operator 'one' (THERE) too, and has trigger='operator', where "
        "that has 'periodic'. Give both the same, or part them with protect=rr.autonomous()",
    ),
    "a source that has no files": (
        lambda a: a.sink("out", by_operator(a, "in"), rr.memory()),
        "operator 'in' (THERE): with trigger='operator' it says when to make a cut, and a source of 0 rows in memory "
        "cannot. Begin the region at a source that reads rr.folder_scan(...) or rr.files(...), which says so after "
        "each file; or write period=",
    ),
    "a start in the middle that would say when": (
        lambda a: sums(a, a.source("in", rr.files("in", format="csv", schema=SCHEMA)), protect=BY_FILE),
        "operator 'sums' (THERE): with trigger='operator' it says when to make a cut, and an aggregate cannot. Begin "
        "the region at a source that reads rr.folder_scan(...) or rr.files(...), which says so after each file; or "
        "write period=",
    ),
    "a checkpoint of its own": (
        lambda a: sums(a, a.source("in", rows(), protect=start()), protect=rr.checkpoint(every="1s")),
        "operator 'sums' (THERE): it is in region 'in' (fed by 'in'), which saves it, and has "
        "protect=Checkpoint(every=1.0, keep=3, group='auto') of its own. Leave that out, or let one before it leave "
        "the region with protect=rr.autonomous()",
    ),
    "an operator that blocks": (
        lambda a: a.sink("out", a.gate("few", a.source("in", rows(), protect=start()), a.source("ok", rows())), "out"),
        "operator 'few' (HERE): it is in region 'in' (fed by 'in'), and cannot be: it blocks: a tuple waits for an "
        "acknowledgement that may never come. Keep it out of regions with protect=rr.autonomous()",
    ),
    "a start that blocks": (
        lambda a: a.gate("few", a.source("in", rows()), a.source("ok", rows()), protect=start()),
        "Gate 'few' (HERE): it cannot start a consistent region: it blocks: a tuple waits for an acknowledgement that "
        "may never come. Keep it out of regions with protect=rr.autonomous()",
    ),
    "a source in no order, by a policy that does not look": (
        lambda a: a.sink("out", a.source("in", rr.from_spark(str, schema=SCHEMA), protect=Careless()), rr.memory()),
        "operator 'in' (HERE): it is in region 'in' (starts the region: can be read again from where a run stopped), "
        "and cannot be: a DataFrame without position= cannot be replayed. Name its position= column",
    ),
    "an element that restarts live": (
        live,
        "operator 'b' (THERE): it is in region 'a' (fed by 'a'), and placed in 'late', which restarts live and so "
        "loses tuples. Place it with restart='resume', or keep it out of regions with protect=rr.autonomous()",
    ),
    "a policy that wants both": (
        lambda a: a.sink("out", a.source("in", rows(), protect=Torn()), rr.memory()),
        "operator 'in' (HERE): protect=Torn() begins a consistent region and leaves it. Let it do one",
    ),
}
# fmt: on


@pytest.mark.parametrize("wrong", REFUSALS)
def test_what_cannot_be_in_a_region_is_said_when_it_is_built(wrong: str) -> None:
    build, wanted = REFUSALS[wrong]
    app = rr.Application("wrong")

    def built() -> None:
        build(app)
        app.graph()

    with pytest.raises(RiprapError) as caught:
        built()

    line = build.__code__.co_firstlineno
    said = str(caught.value).replace(f"{__file__}:{line})", "HERE)")
    said = said.removesuffix("\n    " + linecache.getline(__file__, line).strip())
    for number in range(1, len(linecache.getlines(__file__)) + 1):
        said = said.replace(f"{__file__}:{number})", "THERE)")
    assert said == wanted
    assert isinstance(caught.value, rr.GraphError)


def test_out_of_a_region_nothing_is_refused() -> None:
    def build(app: rr.Application) -> None:
        a = app.source("a", rows(), protect=start())
        app.sink("kept", a, rr.memory())
        cut = straight(app, "cut", a, protect=OUT)
        few = app.gate("few", app.custom("dice", Follows, cut, schema=SCHEMA, deterministic=False), cut)
        app.place("late", few, restart="live")
        sums(app, few, protect=rr.checkpoint(every="1s"))

    assert [region.operators for region in regions_of(described(build))] == [("a", "kept")]


def test_what_may_come_out_otherwise_is_said() -> None:
    def build(app: rr.Application) -> None:
        app.function("noise", lambda v: v, returns="int", deterministic=False)
        app.function("twice", lambda v: v, returns="int")
        a = app.source("a", rows(), protect=start())
        drawn = app.custom("drawn", Follows, a, schema=SCHEMA, deterministic=False)
        noisy = app.functor("noisy", drawn, where="v > 0 and not noise(v) > twice(v)")
        app.sink("out", app.functor("calm", noisy, select="k, twice(v) as v"), rr.memory())

    graph = described(build)
    assert {o.name: o.differs for o in graph if o.differs} == {
        "drawn": "it says deterministic=False",
        "noisy": "noise() says deterministic=False",
    }
    held = [text for _, text in describe_regions(graph) if "held" in text]
    second = "may put out something else the second time"
    assert held == [
        f"drawn: fed by 'a'; {second} (it says deterministic=False): its results are held until a cut has them",
        f"noisy: fed by 'drawn'; {second} (noise() says deterministic=False): its results are held until all that "
        "read it can have them",
    ]
