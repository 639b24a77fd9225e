"""What a drawing of a net shows."""

from __future__ import annotations

import re
from xml.etree import ElementTree as xml

import pytest
from hypothesis import HealthCheck, given, settings
from tests.san.nets import machines, queue, random_net

from riprap.san import Activity, Case, Exponential, InputGate, Net, OutputGate, Place, join
from riprap.san.picture import forward, layers, shapes_of

SVG = "{http://www.w3.org/2000/svg}"


@settings(
    max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), database=None, derandomize=True
)
@given(net=random_net())
def test_every_name_and_gate_is_in_the_drawing(net: Net) -> None:
    root = xml.fromstring(net.draw())
    shown = [(g.get("class"), g.get("data-name")) for g in root.iter(f"{SVG}g") if g.get("data-name")]
    expected = [("place", place.name) for place in net.places]
    for activity in net.activities:
        expected.append(("timed" if activity.timed else "instantaneous", activity.name))
        expected += [
            ("input gate" if isinstance(gate, InputGate) else "output gate", f"gate {i} of {activity.name}")
            for i, gate in enumerate(activity.gates, start=1)
        ]
    assert sorted(map(str, shown)) == sorted(map(str, expected))
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert {place.name for place in net.places} | {a.name for a in net.activities} <= set(texts)


@settings(
    max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), database=None, derandomize=True
)
@given(net=random_net())
def test_everything_goes_from_left_to_right(net: Net) -> None:
    shapes, lines = shapes_of(net)
    ways = forward(shapes, lines)
    depth = layers(shapes, ways)
    assert all(depth[a] < depth[b] for a, b in ways)
    assert {frozenset(way) for way in ways} == {frozenset(line) for line in lines}


def test_gates_stand_between_an_activity_and_what_they_touch() -> None:
    act = Activity(
        "act",
        time=Exponential(1),
        gates=[InputGate(when="a > 0", then="b = 0"), OutputGate(then="c = a")],
        cases=[Case(0.5, puts={"a": 1}), Case(0.5, then="d = 1")],
    )
    _, lines = shapes_of(Net("n", [Place(name) for name in "abcd"], [act]))
    assert set(lines) == {
        ("a", "gate 1 of act"), ("b", "gate 1 of act"), ("gate 1 of act", "activity act"),
        ("activity act", "gate 2 of act"), ("gate 2 of act", "c"), ("activity act", "a"), ("activity act", "d"),
    }  # fmt: skip


@pytest.mark.parametrize(("tokens", "dots"), [(0, 0), (1, 1), (3, 3), (4, 4)])
def test_tokens_are_dots(tokens: int, dots: int) -> None:
    root = xml.fromstring(Net("n", [Place("a", tokens)], []).draw())
    assert len([*root.iter(f"{SVG}circle")]) == 1 + dots


def test_many_tokens_are_a_number_and_long_names_are_cut() -> None:
    text = Net("n", [Place("a_very_long_name_of_a_place_17", 12)], []).draw()
    assert ">12<" in text
    assert re.search(">a_very_long_…._17<|>a_very_long.*…", text)
    assert "place a_very_long_name_of_a_place_17" in text


def test_a_net_of_nothing_and_a_net_of_nets() -> None:
    assert xml.fromstring(Net("empty", [], []).draw()).findtext(f"{SVG}title") == "empty"
    assert "q.jobs" in join("whole", {"q": queue(1, 1, 3), "m": machines(1, 1, 1, 1)}).draw()
