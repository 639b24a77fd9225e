"""``riprap operators`` lists every operator there is, with what it says of itself."""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil

import pytest
from tests.cli.conftest import Command

from riprap import operators
from riprap.cli.operators import TOOLKIT
from riprap.errors import GraphError
from riprap.graph.connectors import Promise
from riprap.graph.operator import Operator
from riprap.operators.channel import Inlet, Outlet
from riprap.operators.faulty import Faulty


def kinds() -> dict[str, type[Operator]]:
    """Return every operator of every file, but for what the compiler and fault injection put in."""
    modules = [
        importlib.import_module(f"riprap.operators.{m.name}")
        for m in pkgutil.iter_modules(operators.__path__)
    ]
    found = (v for module in modules for v in vars(module).values() if inspect.isclass(v))
    of_users = (v for v in found if issubclass(v, Operator) and v not in (Inlet, Outlet, Faulty))
    return {k.__name__: k for k in of_users if hasattr(k, "TRAITS")}


def test_every_kind_of_operator_is_in_the_toolkit() -> None:
    assert {name: kind.TRAITS for name, kind in kinds().items()}.items() <= TOOLKIT.items()


def test_state_pages_and_slots_go_together() -> None:
    for name, traits in TOOLKIT.items():
        assert bool(traits.state) == bool(traits.pages), name
        if traits.state:
            assert traits.key != "any", name
            assert traits.stale or traits.holds, f"{name} says nothing of what becomes of its state"


def test_a_table_for_people_and_an_object_for_programs(riprap: Command) -> None:
    assert "it blocks" in " ".join(riprap("operators").out.split())
    listed = {o["operator"]: o for o in json.loads(riprap("operators", "--json").out)["operators"]}
    assert list(listed) == list(TOOLKIT)
    assert listed["Gate"]["consistent"] is False
    assert listed["Barrier"]["holds"] is True
    assert listed["Join"]["state"] == ["the window's tuples"] * 2


def test_adapters_say_their_promise_in_a_word(riprap: Command) -> None:
    told = json.loads(riprap("operators", "--json").out)
    sources, sinks = ({a["adapter"]: a["promise"] for a in told[kind]} for kind in ("sources", "sinks"))
    assert (sources["files"], sources["TCP"]) == ("replays", "forgets")
    assert (sinks["PostgreSQL"], sinks["files"], sinks["Kafka"]) == ("replaces", "once", "repeats")
    assert "promise: repeats: TCP does not say" in " ".join(riprap("operators").out.split())
    with pytest.raises(GraphError, match="one of replays, forgets, replaces, once, repeats, got 'twice'"):
        Promise(word="twice")  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="why_not"):
        Promise(word="repeats")
