"""Replica groups: what they are, and what cannot be in one."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from typing import Any

import pytest

import riprap as rr
from riprap.compiler import compile_graph
from riprap.errors import RiprapError
from riprap.graph.replicas import copy_name, describe_groups, group_by_operator

Build = Callable[[rr.Application], object]
SCHEMA = "k int, v int"


def source(app: rr.Application, name: str = "feed", **more: Any) -> rr.Stream:
    return app.source(name, rr.rows([], SCHEMA), **more)


def straight(app: rr.Application, name: str, stream: rr.Stream, **more: Any) -> rr.Stream:
    return app.functor(name, stream, select="k, v", **more)


def sums(app: rr.Application, name: str, stream: rr.Stream, **more: Any) -> rr.Stream:
    return app.aggregate(name, stream, by="k", window=rr.sliding(tuples=2), select="sum(v) as v", **more)


class Passes(rr.CustomOperator):
    """Passes on what it gets, and counts it."""

    seen = 0

    def on_tuple(self, port: Any, tuple: dict[str, Any]) -> None:
        self.seen += 1
        self.submit(tuple)

    def checkpoint(self) -> int:
        return self.seen

    def reset(self, saved: int) -> None:
        self.seen = saved


def chain(app: rr.Application) -> rr.Stream:
    """Describe feed, a, b, c and a sink in a row, of which c is returned."""
    c = straight(app, "c", sums(app, "b", straight(app, "a", source(app))))
    app.sink("out", c, rr.memory())
    return c


def described(build: Build) -> rr.Graph:
    app = rr.Application("described")
    build(app)
    return app.graph()


def test_a_group_is_connected_operators_with_processes_of_their_own() -> None:
    def build(app: rr.Application) -> None:
        chain(app)
        app.replicate(
            "hot", "a", "b", replicas=3, failover="plain", detect="250ms", back="empty", hosts=("x", "y", "z")
        )

    graph = described(build)
    (group,) = graph.groups

    assert (group.name, group.operators, group.letters) == ("hot", ("a", "b"), ("a", "b", "c"))
    assert [group.process(letter) for letter in group.letters] == ["hot~a", "hot~b", "hot~c"]
    assert (group.detect, group.back, group.hosts, group.compared) == (0.25, "empty", ("x", "y", "z"), False)
    assert group_by_operator(graph) == {"a": group, "b": group}
    assert copy_name("b", "c") == "b~c"
    assert list(describe_groups(graph)) == [
        "hot: a, b; 3 replicas, plain: the others go on in the log of another replica from where that is: what is "
        "between is lost, a loss found within 0.25 s; a replica comes back with empty state"
    ]
    assert graph.without_replicas.groups == ()


def test_defaults() -> None:
    app = rr.Application("described")
    chain(app)
    app.replicate("hot", "b")
    (group,) = app.graph().groups

    assert (group.replicas, group.failover, group.detect, group.back, group.hosts) == (
        2,
        "exact",
        1.0,
        "peer",
        (),
    )
    assert group.compared
    assert str(group) == f"replica group 'hot' ({group.location})"
    assert list(describe_groups(app.graph())) == [
        "hot: b; 2 replicas, exact: the others go on in the log of another replica from where they were: nothing is "
        "lost, a loss found within 1 s; a replica comes back from the state of a replica that is ahead"
    ]


def test_all_are_in_one_group_but_sources_and_sinks() -> None:
    def build(app: rr.Application) -> None:
        app.replicate_all(replicas=3, back="own")
        chain(app)
        # It need not be connected.
        app.sink("shown", straight(app, "other", source(app, "more")), rr.memory())

    (group,) = described(build).groups

    assert (group.name, group.operators, group.failover) == ("all", ("a", "b", "c", "other"), "ahead")
    assert (group.replicas, group.back, group.compared) == (3, "own", True)


def test_two_groups_side_by_side_and_one_after_the_other() -> None:
    def build(app: rr.Application) -> None:
        c = chain(app)
        app.replicate("first", "a")
        app.replicate("second", "b", c, failover="ahead")

    assert {name: g.name for name, g in group_by_operator(described(build)).items()} == {
        "a": "first", "b": "second", "c": "second"
    }  # fmt: skip


def test_in_a_composite_names_are_its_own() -> None:
    def made(place: rr.Application, stream: rr.Stream) -> rr.Stream:
        one = sums(place, "one", stream)
        two = straight(place, "two", one)
        place.replicate("hot", "one", two)
        return two

    def build(app: rr.Application) -> None:
        feed = source(app)
        for name in ("left", "right"):
            app.sink(f"out_{name}", app.composite(name, made, feed), rr.memory())

    graph = described(build)
    assert {g.name: g.operators for g in graph.groups} == {
        "left.hot": ("left.one", "left.two"), "right.hot": ("right.one", "right.two")
    }  # fmt: skip
    processes = {plan.process for plan in compile_graph(graph, buckets=1, tasks=1).plans}
    assert processes == {"main", "left.hot~a", "left.hot~b", "right.hot~a", "right.hot~b"}


def test_an_error_names_a_group_of_a_composite_as_all_do() -> None:
    def twice(place: rr.Application, stream: rr.Stream) -> rr.Stream:
        one = sums(place, "one", stream)
        place.replicate("hot", one)
        place.replicate("hot", one)
        return one

    app = rr.Application("app")
    with pytest.raises(RiprapError, match=r"replica group 'left\.hot' .* has that name already"):
        app.composite("left", twice, source(app))
    with pytest.raises(RiprapError, match="a name is letters"):
        app.replicate("left.hot", sums(app, "two", source(app, "more")))


def test_an_operator_with_several_streams_is_named_by_any_of_them_or_all() -> None:
    def build(app: rr.Application) -> None:
        parts = app.split("parts", source(app), outputs={"even": "k % 2 = 0", "odd": "k % 2 <> 0"})
        app.replicate("hot", parts["even"], parts["odd"])
        app.sink("out", [parts["even"], parts["odd"]], rr.memory())

    assert [g.operators for g in described(build).groups] == [("parts",)]


@pytest.mark.parametrize("named", [("steered", "told"), ("told", "steered")])
def test_a_control_port_connects(named: tuple[str, str]) -> None:
    def build(app: rr.Application) -> None:
        told = straight(app, "told", source(app))
        steered = app.custom("steered", Passes, source(app, "fed"), schema=SCHEMA, control=told)
        app.sink("out", steered, rr.memory())
        app.replicate("hot", *named)

    assert [g.operators for g in described(build).groups] == [named]


def test_a_group_may_lie_in_a_region_reach_out_of_it_or_hold_one() -> None:
    def build(app: rr.Application) -> None:
        a = straight(app, "a", source(app), protect=rr.consistent(period="2s"))
        b = sums(app, "b", a)
        app.sink("out", straight(app, "c", b, protect=rr.autonomous()), rr.memory())
        app.replicate("hot", "b", "c")

    assert [g.operators for g in described(build).groups] == [("b", "c")]


def replicated(*named: str, **options: Any) -> Build:
    def build(app: rr.Application) -> None:
        chain(app)
        app.replicate(options.pop("group", "hot"), *(named or ("b",)), **options)

    return build


def process_of_that_name(app: rr.Application) -> None:
    c = chain(app)
    app.place("apart", c, process="hot")
    app.replicate("hot", "a")


def twice_the_name(app: rr.Application) -> None:
    chain(app)
    app.replicate("hot", "a")
    app.replicate("hot", "b")


def overlapping(app: rr.Application) -> None:
    chain(app)
    app.replicate("hot", "a", "b")
    app.replicate("warm", "b", "c")


def all_and_some(app: rr.Application) -> None:
    chain(app)
    app.replicate_all()
    app.replicate("hot", "b")


def nothing_between(app: rr.Application) -> None:
    app.sink("out", source(app), rr.memory())
    app.replicate_all()


def apart(app: rr.Application) -> None:
    chain(app)
    app.replicate("hot", "a", "c")


def placed_in_a_process(app: rr.Application) -> None:
    app.place("apart", chain(app), process="other")
    app.replicate("hot", "b", "c")


def placed_live(app: rr.Application) -> None:
    app.place("late", chain(app), restart="live")
    app.replicate("hot", "b", "c")


def plain_in_a_region(app: rr.Application) -> None:
    app.sink("out", straight(app, "a", source(app, protect=rr.consistent(period="2s"))), rr.memory())
    app.replicate("hot", "a", failover="plain")


def draws(app: rr.Application) -> None:
    drawn = app.custom("dice", Passes, source(app), schema=SCHEMA, deterministic=False)
    app.sink("out", drawn, rr.memory())


def some_that_draw(app: rr.Application) -> None:
    draws(app)
    app.replicate("hot", "dice")


def all_that_draw(app: rr.Application) -> None:
    draws(app)
    app.replicate_all()


def looks_up(app: rr.Application) -> None:
    found = app.lookup("found", source(app), table=rr.rows([], "k int, name string"), by="k")
    app.sink("out", found, rr.memory())


def some_that_look_up(app: rr.Application) -> None:
    looks_up(app)
    app.replicate("hot", "found")


def all_that_look_up(app: rr.Application) -> None:
    looks_up(app)
    app.replicate_all()


GROUP = "replica group 'hot' (THERE): "
ALL = "replica group 'all' (THERE): "
# fmt: off
REFUSALS: dict[str, tuple[Build, str]] = {
    "a name that is none": (
        replicated(group="hot~a"),
        "replica group at THERE: a name is letters, digits and '_', got 'hot~a': replicate(name, stream, ...)",
    ),
    "a stream for a name": (
        lambda a: a.replicate(chain(a)),  # type: ignore[arg-type]
        "replica group 'stream 'c' (k int, v bigint)' (HERE): it names no operator",
    ),
    "no operator": (lambda a: a.replicate("hot"), "replica group 'hot' (HERE): it names no operator"),
    "an unknown operator": (
        replicated("b", "d"), GROUP + "no operator 'd'. There are: feed, a, b, c, out"
    ),
    "one replica": (replicated(replicas=1), GROUP + "replicas= is a whole number from 2 to 26, got 1"),
    "too many replicas": (replicated(replicas=27), GROUP + "replicas= is a whole number from 2 to 26, got 27"),
    "no number of replicas": (replicated(replicas=True), GROUP + "replicas= is a whole number from 2 to 26, got True"),
    "an unknown failover": (
        replicated(failover="fast"), GROUP + "failover= is one of 'exact', 'plain', 'ahead', got 'fast'"
    ),
    "an unknown way back": (
        replicated(back="store"), GROUP + "back= is one of 'peer', 'own', 'empty', got 'store'"
    ),
    "back with nothing": (
        replicated(back="empty"),
        GROUP + "back='empty' lets a replica come back that puts out something else until its state is full again, and "
        "failover='exact' takes it for a copy. Write failover='plain', or back='peer'",
    ),
    "too few hosts": (
        replicated(replicas=3, hosts=["spark://a:7077", "spark://b:7077"]),
        GROUP + "hosts= has 2 Spark masters for 3 replicas: give one for each, such as 'spark://host:7077'",
    ),
    "a host that is a text": (
        replicated(hosts="ab"),
        GROUP + "hosts= has 1 Spark masters for 2 replicas: give one for each, such as 'spark://host:7077'",
    ),
    "a time that is none": (
        replicated(detect="soon"),
        GROUP + "detect= takes a time such as '10s', '250ms' or '2m', got 'soon'. Units: us, ms, s, m, h, d, w, or in "
        "full, such as seconds; a number alone is of seconds; or a timedelta",
    ),
    "no time at all": (
        replicated(detect=0),
        GROUP + "detect= takes a time such as '10s', '250ms' or '2m', got 0. Units: us, ms, s, m, h, d, w, or in full, "
        "such as seconds; a number alone is of seconds; or a timedelta",
    ),
    "a name twice": (
        twice_the_name,
        GROUP + "replica group 'hot' (THERE) has that name already. Give each its own",
    ),
    "a process of that name": (
        process_of_that_name, GROUP + "there is a process 'hot' already. Give it another name"
    ),
    "nothing to replicate": (
        nothing_between, ALL + "there is nothing between sources and sinks to have replicas of. Leave it out"
    ),
    "groups that overlap": (
        overlapping,
        "replica group 'warm' (THERE): operator 'b' (THERE) is in replica group 'hot' (THERE) too. Groups do not "
        "overlap: put both into one, or leave it out of one",
    ),
    "all of them, and some again": (
        all_and_some,
        GROUP + "operator 'b' (THERE) is in replica group 'all' (THERE) too. Groups do not overlap: put both into one, "
        "or leave it out of one",
    ),
    "operators apart": (
        apart,
        GROUP + "'c' and 'a' are not connected within it. Name what is between them, or make two groups",
    ),
    "a source": (
        replicated("feed", "a"),
        GROUP + "operator 'feed' (THERE) is a source, and what two read of it would differ. Leave it out: all replicas "
        "read what one process has read",
    ),
    "a sink": (
        replicated("c", "out"),
        GROUP + "operator 'out' (THERE) is a sink, and would get everything twice. Leave it out: it reads one "
        "replica's results",
    ),
    "one with a process": (
        placed_in_a_process,
        GROUP + "operator 'c' (THERE) is placed in process 'other', and each replica has a process of its own. Leave "
        "out process=",
    ),
    "one that restarts live": (
        placed_live,
        GROUP + "operator 'c' (THERE) is placed in 'late', which restarts live: replicas would read different tuples. "
        "Place it with restart='resume'",
    ),
    "plain failover in a region": (
        plain_in_a_region,
        GROUP + "operator 'a' (THERE) is in region 'feed', whose results count exactly once, and failover='plain' "
        "loses some. Write failover='exact', or keep it out of regions with protect=rr.autonomous()",
    ),
    "one that draws": (
        some_that_draw,
        GROUP + "operator 'dice' (THERE) may put out something else than its copy: it says deterministic=False. Make "
        "it deterministic, leave it out, or write failover='plain'",
    ),
    "one that draws, among all": (
        all_that_draw,
        ALL + "operator 'dice' (THERE) may put out something else than its copy: it says deterministic=False. Make it "
        "deterministic, name others than it in app.replicate(...), or write failover='plain'",
    ),
    "one that looks up": (
        some_that_look_up,
        GROUP + "operator 'found' (THERE) reads a table that changes, each replica at a time of its own, so their "
        "results may differ. Leave it out, or write failover='plain'",
    ),
    "one that looks up, among all": (
        all_that_look_up,
        ALL + "operator 'found' (THERE) reads a table that changes, each replica at a time of its own, so their "
        "results may differ. Name others than it in app.replicate(...), or write failover='plain'",
    ),
}
# fmt: on


@pytest.mark.parametrize("wrong", REFUSALS)
def test_what_cannot_be_in_a_group_is_said_when_it_is_built(wrong: str) -> None:
    build, wanted = REFUSALS[wrong]
    app = rr.Application("wrong")

    def built() -> None:
        build(app)
        app.graph()

    with pytest.raises(RiprapError) as caught:
        built()

    line = build.__code__.co_firstlineno
    said = str(caught.value)
    if "lambda" in build.__name__:
        said = said.replace(f"{__file__}:{line}", "HERE")
    for number in range(len(linecache.getlines(__file__)), 0, -1):
        said = said.replace(f"{__file__}:{number}", "THERE")
    said = "\n".join(each for each in said.splitlines() if not each.startswith("    "))
    assert said == wanted
    assert isinstance(caught.value, rr.GraphError)


def test_what_is_refused_of_copies_goes_with_plain_failover() -> None:
    def build(app: rr.Application) -> None:
        dice = app.custom("dice", Passes, source(app), schema=SCHEMA, deterministic=False)
        app.sink("out", dice, rr.memory())
        app.replicate("hot", dice, failover="plain", back="empty")

    assert [g.operators for g in described(build).groups] == [("dice",)]
