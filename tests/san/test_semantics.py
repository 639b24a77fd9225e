"""What the semantics say, one sentence a test, on traces that are short enough to read."""

from __future__ import annotations

import pytest

from riprap.san import (
    Activity,
    At,
    Case,
    Deterministic,
    Exponential,
    Impulse,
    InputGate,
    Net,
    OutputGate,
    Place,
    Rate,
    Total,
    Uniform,
    simulate,
    trace,
)

pytestmark = pytest.mark.usefixtures("interpreted")


def steps(net: Net, until: float = 100.0) -> list[tuple[float, str]]:
    return [(time, name) for time, name, _ in trace(net, until, seed=1, most=50)]


def tick(name: str, after: float | str, **more: object) -> Activity:
    return Activity(name, time=Deterministic(after), **more)  # type: ignore[arg-type]


def test_nothing_enabled_is_the_end() -> None:
    assert steps(Net("still", [Place("a")], [tick("a", 1, takes={"a": 1})])) == []
    assert steps(Net("empty", [], [])) == []


def test_a_disabled_activity_is_aborted_and_begins_anew() -> None:
    net = Net(
        "abort",
        [Place("on", 1), Place("off")],
        [
            tick("slow", 3, gates=[InputGate(when="on")]),
            tick("switch_off", 2, takes={"on": 1}, puts={"off": 1}),
            tick("switch_on", 1, takes={"off": 1}, puts={"on": 1}),
        ],
    )
    assert steps(net, 7) == [
        (2.0, "switch_off"), (3.0, "switch_on"), (5.0, "switch_off"), (6.0, "switch_on"),
    ]  # fmt: skip


def test_a_time_is_kept_while_the_marking_changes() -> None:
    net = Net("keep", [Place("n")], [tick("count", 1, puts={"n": 1}), tick("slow", "2.5 + 10 * n", gates=[])])
    assert [time for time, name in steps(net, 5) if name == "slow"] == [2.5]


def test_a_time_is_drawn_anew_where_reactivation_says() -> None:
    slow = tick("slow", 1.5, reactivate="n == 1")
    net = Net("again", [Place("n")], [tick("count", 1, puts={"n": 1}), slow])
    assert [time for time, name in steps(net, 5) if name == "slow"] == [2.5, 4.0]


def test_an_exponential_time_follows_its_rate() -> None:
    start = tick("start", 5, takes={"off": 1}, puts={"on": 1})
    work = Activity("work", time=Exponential("1000 * on"), gates=[OutputGate(then="done += 1")])
    net = Net("follow", [Place("off", 1), Place("on"), Place("done")], [start, work])
    found = steps(net, 5.01)
    assert found[0] == (5.0, "start")
    assert {name for _, name in found[1:]} == {"work"}


def test_input_functions_then_a_case_then_output_functions() -> None:
    act = tick(
        "act",
        1,
        takes={"a": 1},
        puts={"b": 1},
        gates=[InputGate(when="True", then="c = 10 * a + b"), OutputGate(then="c = 10 * c + b")],
        cases=[Case("a", then="c = 0"), Case("1 - a", puts={"b": 1}, then="c = 10 * c + b")],
    )
    ((_, _, marking),) = trace(Net("order", [Place("a", 1), Place("b", 3), Place("c")], [act]), 9, seed=1)
    # a is taken: 3. Both b are put, then the activity's function runs: 35, then the case's: 355.
    assert marking == {"a": 0, "b": 5, "c": 355}


def test_instantaneous_activities_come_by_priority_until_none_is_enabled() -> None:
    def move(name: str, source: str, target: str, priority: int) -> Activity:
        return Activity(name, time=None, takes={source: 1}, puts={target: 1}, priority=priority)

    net = Net(
        "chain",
        [Place("a"), Place("b"), Place("c")],
        [
            tick("go", 1, puts={"a": 2}),
            move("late", "a", "c", -1),
            move("first", "a", "b", 5),
            move("then", "b", "c", 2),
        ],
    )
    assert [name for _, name in steps(net, 1)] == ["go", "first", "first", "then", "then"]


def test_between_stable_markings_nothing_is_aborted() -> None:
    """The token is away only while no time passes."""
    net = Net(
        "away",
        [Place("home", 1), Place("away")],
        [
            tick("slow", 3, gates=[InputGate(when="home")]),
            tick("leave", 2, takes={"home": 1}, puts={"away": 1}),
            Activity("come", time=None, takes={"away": 1}, puts={"home": 1}),
        ],
    )
    assert steps(net, 3) == [(2.0, "leave"), (2.0, "come"), (3.0, "slow")]


def test_of_equal_times_the_one_listed_first_is_first() -> None:
    net = Net("ties", [], [tick("b", 1), tick("a", 1), tick("c", 0.5)])
    assert steps(net, 1) == [(0.5, "c"), (1.0, "b"), (1.0, "a"), (1.0, "c")]


def test_weights_choose_among_equals() -> None:
    def way(name: str, weight: str) -> Activity:
        return Activity(name, time=None, takes={"new": 1}, puts={name: 1}, weight=weight)

    ways = [tick("go", 1, puts={"new": 1}), way("a", "k"), way("b", "1")]
    net = Net("ways", [Place("new"), Place("a"), Place("b")], ways, {"k": 4})
    found = simulate(net, [Rate("a", "a", At(500)), Rate("b", "b", At(500))], replications=1, seed=1)
    assert found["a"].mean + found["b"].mean == 500
    assert abs(found["a"].mean - 400) < 5 * 9


def test_rewards_at_and_between_times() -> None:
    net = Net("clock", [Place("n")], [tick("tick", 2, puts={"n": 1})])
    rewards = [
        Rate("just after", "n", At(4)),
        Rate("just before", "n", At(3.9)),
        Rate("area", "n", Total(1, 5)),
        Impulse("ticks", {"tick": 1}, Total(2, 6)),
        Impulse("worth", {"tick": "10 * n"}, Total(0, 6)),
    ]
    found = simulate(net, rewards, replications=1, seed=1)
    assert [found[reward.name].mean for reward in rewards] == [2, 1, 0 + 2 * 1 + 1 * 2, 3, 0 + 10 + 20]


def test_a_marking_can_be_a_parameter_of_any_time() -> None:
    net = Net("grow", [Place("n", 1)], [Activity("t", time=Uniform("n", "n"), puts={"n": 1})])
    assert steps(net, 10) == [(1.0, "t"), (3.0, "t"), (6.0, "t"), (10.0, "t")]
