"""Nets for tests: those of the textbooks, whose answers are known, and random ones."""

from __future__ import annotations

from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from tests.san.oracle import Oracle

from riprap.san import (
    Activity,
    Case,
    Deterministic,
    Distribution,
    Empirical,
    Erlang,
    Exponential,
    Gamma,
    InputGate,
    Lognormal,
    Net,
    Normal,
    OutputGate,
    Place,
    Uniform,
    Weibull,
)

MOST = 3  # tokens in a place of a random net


def queue(arrivals: float, services: float, room: int, servers: int = 1) -> Net:
    """M/M/c/K; K = c is Erlang's loss system."""
    return Net(
        "queue",
        [Place("jobs")],
        [
            Activity(
                "arrive", time=Exponential("l"), puts={"jobs": 1}, gates=[InputGate(when="jobs < room")]
            ),
            Activity("serve", time=Exponential("m * min(jobs, servers)"), takes={"jobs": 1}),
        ],
        {"l": arrivals, "m": services, "room": room, "servers": servers},
    )


def machines(count: int, failures: float, repairs: float, crew: int) -> Net:
    """Machines that fail on their own and wait for a repairer."""
    return Net(
        "machines",
        [Place("up", count), Place("down")],
        [
            Activity("fail", time=Exponential("a * up"), takes={"up": 1}, puts={"down": 1}),
            Activity("repair", time=Exponential("b * min(down, crew)"), takes={"down": 1}, puts={"up": 1}),
        ],
        {"a": failures, "b": repairs, "crew": crew},
    )


TIMES: tuple[Distribution, ...] = (
    Deterministic("1 + p0"),
    Uniform("0.5", "1 + p1"),
    Normal(1, "0.5 * (p0 + 1)"),
    Lognormal(0, 0.5),
    Weibull("1 + p0", 1.5),
    Erlang("1 + p0", 2),
    Gamma("0.5 + p1", 1),
    Empirical([0.3, 0.9, 1.4]),
)
RATES = st.sampled_from(
    ["0.5", "2", "k", "0.5 + p0", "k * p1", "1.5 if p0 > p1 else k", "p0 * p1", "1 + (p0 > 1)"]
)
PLACES = 3
places = st.sampled_from([f"p{i}" for i in range(PLACES)])
conditions = st.sampled_from(["p0 < 2", "p1 > 0 or p2 == 0", "not p2 > p0", "0 < p0 + p1 <= 4"])
functions = st.sampled_from(
    [
        "p0 = min(p0 + p1, 3)",
        "p1 = max(p2 - 1, 0); p2 //= 2",
        "if p0 > 1: p1 = 0\nelif p2 > 0: p2 -= 1\nelse: p0 = 3",
        "p2 = abs(p0 - p1) % 4",
        "p1 = 1 if p0 == p2 else k * 2",
        "p2 = p0 > p1; p0 = max(p1 == 2, p0 - 1)",
    ]
)


@st.composite
def random_activity(draw: st.DrawFn, name: str, markov: bool) -> Activity:
    """Return a timed activity that keeps all places of a random net within bounds."""
    time = Exponential(draw(RATES)) if markov or draw(st.booleans()) else draw(st.sampled_from(TIMES))
    takes = dict.fromkeys(draw(st.sets(places, max_size=2)), 1)
    puts = dict.fromkeys(draw(st.sets(places, max_size=1)), 1)
    gates: list[InputGate | OutputGate] = [InputGate(when=f"{place} < {MOST}") for place in puts]
    if draw(st.booleans()):
        gates.append(InputGate(when=draw(conditions), then=draw(st.one_of(st.just(""), functions))))
    if draw(st.booleans()):
        gates.append(OutputGate(then=draw(functions)))
    cases: list[Case] = []
    if not puts and draw(st.booleans()):
        cases = [
            Case("0.25", then=draw(functions)),
            Case("0.75 / (1 + p0)"),
            Case("0.75 - 0.75 / (1 + p0)", then=draw(functions)),
        ]
    reactivate = draw(st.sampled_from([None, None, "p0 > 1", 1]))
    return Activity(name, time=time, takes=takes, puts=puts, gates=gates, cases=cases, reactivate=reactivate)


@st.composite
def random_net(draw: st.DrawFn, markov: bool = False) -> Net:
    """Return a small net; ``markov`` is one that can be solved. Instantaneous activities only ever take: they end."""
    timed = [draw(random_activity(f"t{i}", markov)) for i in range(draw(st.integers(2, 4)))]
    instantaneous = [
        Activity(
            f"i{i}",
            time=None,
            takes={draw(places): draw(st.integers(1, 2))},
            gates=[InputGate(when=draw(conditions))] if draw(st.booleans()) else [],
            priority=draw(st.integers(0, 1)),
            weight=draw(st.sampled_from(["1", "1 + p0", "k"])),
        )
        for i in range(draw(st.integers(0, 3)))
    ]
    mixed = draw(st.permutations([*timed, *instantaneous]))
    initial = [Place(f"p{i}", draw(st.integers(0, MOST))) for i in range(PLACES)]
    return Net("random", initial, mixed, {"k": draw(st.sampled_from([0.5, 1.0, 1.5]))})


def sample_nets(count: int, *, markov: bool) -> list[Net]:
    """Return random nets, always the same, in which enough happens to be worth a simulation."""
    found: list[Net] = []

    @seed(2)
    @settings(max_examples=300, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(net=random_net(markov=markov))
    def gather(net: Net) -> None:
        if len(found) < count and net not in found:
            trace = Oracle(net, 1).trace(20.0, 40)
            names = {name for _, name, _ in trace}
            if len(trace) == 40 and len(names) > 2 and len({(*m.values(),) for _, _, m in trace}) > 4:
                found.append(net)

    gather()
    assert len(found) == count
    return found
