"""What is wrong with a net is said when it is made, or when it happens."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from riprap.errors import RiprapError
from riprap.san import (
    Activity,
    At,
    Case,
    CodeError,
    Deterministic,
    Empirical,
    Exponential,
    Impulse,
    InputGate,
    MarkingError,
    Mean,
    Net,
    NetError,
    OutputGate,
    Place,
    ProbabilityError,
    Rate,
    SolutionError,
    TimeParameterError,
    Total,
    UnknownNameError,
    UnstableError,
    simulate,
    solve,
)


def net(*activities: Activity, **parameters: float) -> Net:
    return Net("n", [Place("a", 1), Place("b")], activities, parameters)


def act(**more: object) -> Activity:
    return Activity("act", **{"time": Exponential(1), **more})  # type: ignore[arg-type]


def gate(when: str = "True", then: str = "") -> Activity:
    return act(gates=[InputGate(when=when, then=then)])


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: net(act(takes={"c": 1})), UnknownNameError, "net 'n', activity 'act': an arc .* 'c'.*There are: a, b"),
        (lambda: net(act(time=Exponential("c"))), UnknownNameError, "'act', rate: 'c' uses 'c'.*There are: a, b"),
        (lambda: net(gate("a > k"), m=1), UnknownNameError, "condition: 'a > k' uses 'k'.*There are: a, b, m"),
        (lambda: net(gate(then="c = 1")), UnknownNameError, "input gate's function: 'c = 1' uses 'c'"),
        (lambda: net(gate(then="a = c")), UnknownNameError, "uses 'c'"),
        (lambda: net(gate(then="k = 1"), k=1), NetError, "assigns to the parameter 'k'"),
        (lambda: net(gate("a >")), CodeError, "activity 'act', input gate's condition: 'a >' is not an expression"),
        (lambda: net(gate("print(a)")), CodeError, r"'print\(a\)' is not in the language of nets"),
        (lambda: net(gate("a[0]")), CodeError, "is not in the language"),
        (lambda: net(gate("'text'")), CodeError, "is not in the language"),
        (lambda: net(gate("min(a)")), CodeError, "has 1 arguments"),
        (lambda: net(gate(then="while a: b = 1")), CodeError, "neither an assignment"),
        (lambda: net(gate(then="import os")), CodeError, "neither an assignment"),
        (lambda: net(gate(then="a, b = 1, 2")), CodeError, "is not the name of a place"),
        (lambda: net(act(cases=[Case(0.5), Case(0.4)])), ProbabilityError, "sum to 0.9, not to 1"),
        (lambda: net(act(cases=[Case("k"), Case(0.4)]), k=0.7), ProbabilityError, "sum to 1.1"),
        (lambda: net(act(cases=[Case(1.5), Case(-0.5)])), ProbabilityError, "case 1 has probability 1.5"),
        (lambda: net(act(cases=[Case("a")])), ProbabilityError, "only case is not sure"),
        (lambda: net(act(), act()), NetError, "the name 'act' is there twice"),
        (lambda: Net("n", [Place("a"), Place("a")], []), NetError, "the name 'a' is there twice"),
        (lambda: Net("n", [Place("a")], [], {"a": 1}), NetError, "the name 'a' is there twice"),
        (lambda: Net("n", [Place("a", -1)], []), NetError, "place 'a': cannot begin with -1 tokens"),
        (lambda: Net("n", [Place("a b")], []), NetError, "'a b' is no name"),
        (lambda: Net("n", [Place("if")], []), NetError, "'if' is a keyword of Python; 'if_' can"),
        (lambda: Net("n", [Place("a.in")], []), NetError, "'in' is a keyword of Python; 'a.in_' can"),
        (lambda: net(Activity("class", time=Exponential(1))), NetError, "'class' is a keyword of Python"),
        (lambda: Net("n", [Place("min")], []), NetError, "'min' is a function"),
        (lambda: Net("n", [], [], {"k": float("nan")}), NetError, "parameter 'k'"),
        (lambda: net(act(takes={"a": 0})), NetError, "an arc of 'a' cannot carry 0 tokens"),
        (lambda: net(act(priority=1)), NetError, "only instantaneous"),
        (lambda: net(act(time=None, reactivate="a")), NetError, "only timed activities are reactivated"),
        (lambda: Empirical([]), NetError, "one or more samples"),
        (lambda: Impulse("i", {"act": 1}, At(1)), NetError, "worth nothing at one time"),
        (lambda: Rate("r", "a", Mean(2, 1)), NetError, "no time from 2 to 1"),
        (lambda: Rate("r", "a", Total(2, 2)), NetError, "no time between"),
        (lambda: solve(net(act()), [Rate("r", "c")]), UnknownNameError, "reward 'r': 'c' uses 'c'"),
        (lambda: solve(net(act()), [Impulse("r", {"go": 1})]), UnknownNameError, "no activity 'go'. There are: act"),
        (lambda: solve(net(act()), [Rate("r", "a"), Rate("r", "b")]), NetError, "two of that name"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_at_once(
    make: Callable[[], object], error: type[RiprapError], says: str
) -> None:
    with pytest.raises(error, match=says):
        make()


WRONG = Net(
    "wrong",
    [Place("a", 2), Place("b"), Place("x"), Place("y")],
    [
        Activity(
            "act",
            time=Exponential("1 - 3 * (mode == 4 and b)"),
            takes={"a": 1},
            gates=[
                OutputGate(then="if mode == 1: b -= 2\nelif mode == 2: b = 0.5\nelse: b += 1"),
                OutputGate(then="if mode == 5: x = 1"),
                OutputGate(then="if mode == 6: b = 1 // (b - 1)"),
            ],
            cases=[Case("0.5"), Case("0.5 - (mode == 3) * 0.25 * a")],
        ),
        Activity("there", time=None, takes={"x": 1}, puts={"y": 1}),
        Activity("back", time=None, takes={"y": 1}, puts={"x": 1}),
    ],
    {"mode": 0},
)


@pytest.mark.parametrize(
    ("mode", "error", "says"),
    [
        (
            1,
            MarkingError,
            r"net 'wrong', activity 'act': place 'b' would hold -2 tokens, in marking \(a=1, b=-2\)",
        ),
        (2, MarkingError, "place 'b' would not hold a whole number"),
        (
            3,
            ProbabilityError,
            r"activity 'act': its cases have the probabilities 0.5, 0.25, in marking \(a=1\)",
        ),
        (
            4,
            TimeParameterError,
            r"activity 'act': Exponential\(.*\) with -2 is no time, in marking \(a=1, b=1\)",
        ),
        (5, UnstableError, "net 'wrong': (there -> back -> there|back -> there -> back) complete for ever"),
        (6, SolutionError, r"net 'wrong': .*zero, in marking \(a="),
    ],
)
def test_what_goes_wrong_is_said_with_the_marking(mode: int, error: type[RiprapError], says: str) -> None:
    wrong = WRONG.with_parameters({"mode": mode})
    with pytest.raises(error, match=says):
        solve(wrong, [Rate("a", "a", At(1))])
    with pytest.raises(error, match=says):
        simulate(wrong, [Rate("a", "a", At(1000))], replications=1, seed=1)


def test_what_is_not_wrong_runs() -> None:
    assert simulate(WRONG, [Rate("a", "a", At(1000))], replications=1, seed=1)["a"].mean == 0


@pytest.mark.usefixtures("interpreted")
def test_a_loop_of_no_time_at_all() -> None:
    tick = Activity("tick", time=Deterministic(0), puts={"a": 1})
    with pytest.raises(UnstableError, match="tick -> tick complete for ever"):
        simulate(net(tick), [Rate("a", "a", At(1))], replications=1, seed=1)


def test_equal_nets_made_differently_are_equal() -> None:
    one = net(act(gates=(InputGate(when=" a > 0 "),), cases=[]))
    two = net(act(gates=[InputGate(when="a > 0")], cases=()))
    assert one == two
    assert len({one, two}) == 1
