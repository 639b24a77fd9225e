"""Nets made of nets."""

from __future__ import annotations

import pickle

import pytest
from tests.san.nets import machines, queue

from riprap.san import (
    Activity,
    At,
    Case,
    Exponential,
    InputGate,
    Net,
    NetError,
    OutputGate,
    Place,
    Rate,
    UnknownNameError,
    join,
    replicate,
    solve,
)


def test_code_is_renamed_with_what_it_names() -> None:
    everything = Activity(
        "act",
        time=Exponential("k * a"),
        takes={"a": 1},
        puts={"b": 2},
        gates=[InputGate(when="a > b", then="a = b"), OutputGate(then="if a:\n    b += min(a, k)")],
        cases=[Case("a / 4", puts={"a": 1}), Case("1 - a / 4", then="b = 0")],
        reactivate="b == 0",
    )
    net = Net("part", [Place("a", 1), Place("b")], [everything], {"k": 2})

    whole = join("whole", {"x": net, "y": net}, shared={"b": ["x.b", "y.b"]})

    assert [place.name for place in whole.places] == ["x.a", "b", "y.a"]
    assert dict(whole.parameters) == {"x.k": 2.0, "y.k": 2.0}
    assert whole.activities[0] == Activity(
        "x.act",
        time=Exponential("x.k * x.a"),
        takes={"x.a": 1},
        puts={"b": 2},
        gates=[InputGate(when="x.a > b", then="x.a = b"), OutputGate(then="if x.a:\n    b += min(x.a, x.k)")],
        cases=[Case("x.a / 4", puts={"x.a": 1}), Case("1 - x.a / 4", then="b = 0")],
        reactivate="b == 0",
    )


def test_parts_without_shared_places_do_not_touch() -> None:
    left, right = queue(0.7, 1.0, 4), machines(2, 0.5, 1.0, 1)
    whole = join("whole", {"q": left, "m": right})
    found = solve(
        whole, [Rate("jobs", "q.jobs", At(2)), Rate("down", "m.down"), Rate("both", "q.jobs * m.down")]
    )
    jobs = solve(left, [Rate("jobs", "jobs", At(2)), Rate("always", "jobs")])
    down = solve(right, [Rate("down", "down")])
    assert found["jobs"] == pytest.approx(jobs["jobs"], rel=1e-9)
    assert found["down"] == pytest.approx(down["down"], rel=1e-9)
    assert found["both"] == pytest.approx(jobs["always"] * down["down"], rel=1e-9)


def test_replicas_share_a_repairer() -> None:
    """Machines one by one, with one free repairer between them, are the machines that were counted."""
    machine = Net(
        "machine",
        [Place("up", 1), Place("down"), Place("repairer", 1), Place("mending")],
        [
            Activity("fail", time=Exponential(0.4), takes={"up": 1}, puts={"down": 1}),
            Activity("start", time=None, takes={"down": 1, "repairer": 1}, puts={"mending": 1}),
            Activity("end", time=Exponential(1.0), takes={"mending": 1}, puts={"up": 1, "repairer": 1}),
        ],
    )
    shop = replicate("shop", machine, 3, shared=["repairer"])
    up = " + ".join(f"machine{i}.up" for i in (1, 2, 3))
    counted = solve(machines(3, 0.4, 1.0, 1), [Rate("up", "up"), Rate("soon", "up", At(1.5))])
    found = solve(shop, [Rate("up", up), Rate("soon", up, At(1.5))])
    assert found["up"] == pytest.approx(counted["up"], rel=1e-9)
    assert found["soon"] == pytest.approx(counted["soon"], rel=1e-9)


def test_nets_of_nets_of_nets() -> None:
    inner = replicate("pair", machines(1, 1, 1, 1), 2)
    outer = replicate("four", inner, 2, shared=["machines1.up"])
    assert [place.name for place in outer.places] == [
        "machines1.up", "pair1.machines1.down", "pair1.machines2.up", "pair1.machines2.down",
        "pair2.machines1.down", "pair2.machines2.up", "pair2.machines2.down",
    ]  # fmt: skip


def test_shared_places_must_be_there_and_agree() -> None:
    net = machines(1, 1, 1, 1)
    with pytest.raises(
        UnknownNameError, match=r"'b\.sideways', which is not there\. There are: a\.up, a\.down"
    ):
        join("w", {"a": net, "b": net}, shared={"x": ["a.up", "b.sideways"]})
    with pytest.raises(NetError, match="'up', begin with 1 and 2 tokens"):
        join("w", {"a": net, "b": machines(2, 1, 1, 1)}, shared={"up": ["a.up", "b.up"]})


def test_nets_are_values() -> None:
    net = queue(1, 2, 3)
    assert net == queue(1, 2, 3)
    assert hash(net) == hash(queue(1, 2, 3))
    assert pickle.loads(pickle.dumps(net)) == net
    assert net.with_parameters({"l": 2}) == queue(2, 2, 3)
    assert net != queue(1, 2, 4)
