"""Check a policy against what those who ask it rely on."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pyarrow as pa

from riprap.application import Application
from riprap.errors import GraphError, ModelError
from riprap.graph import Graph
from riprap.graph.connectors import memory, rows
from riprap.protection import Aftermath, OperatorOutage, Policy, Protection, Saving
from riprap.protection.policy import Holds
from riprap.testing.promises import Promises, pickled, same
from riprap.windows import sliding

_MEMORY = ("kept", "lost")


def check_policy(policy: Policy, app: Application | None = None) -> list[str]:
    """Check a policy against what those who ask it rely on, and return the promises it keeps.

    It is asked of every operator of an application; without one, of a small one that has a source, a functor, a window,
    a barrier and a sink.

    >>> rr.testing.check_policy(rr.checkpoint(every="10s"))[0]
    'it is a value: equal to what another process has of it'

    Raise :class:`BrokenPromise` with all that it does not keep.
    """
    if not isinstance(policy, Policy):
        raise GraphError(f"check_policy(...) takes a policy that derives from rr.Policy, got {policy!r}")
    graph = (app or _every_kind()).graph()
    promises = Promises(f"policy {policy!r}")
    with promises.promise("it is a value: equal to what another process has of it"):
        same(pickled(policy), policy, "the policy, pickled")
        same(hash(pickled(policy)), hash(policy), "its hash")
    with promises.promise("it says what stands against an operator: a reason and what to do, or None"):
        for operator in graph:
            answer = policy.objection(operator)
            fine = answer is None or (
                len(answer) == 2 and all(isinstance(part, str) and part for part in answer)
            )
            same(fine, True, f"objection({operator.name}) is {answer!r}")
    asked = [replace(o, protect=policy) for o in graph if policy.objection(o) is None]
    with promises.promise("it says how state is saved, and always the same"):
        for operator in asked:
            saving = policy.saving(operator)
            same(saving is None or isinstance(saving, Saving), True, f"saving({operator.name}) is {saving!r}")
            same(policy.saving(operator), saving, f"saving({operator.name}), asked again")
            for question in (policy.keeps_input, policy.stands_alone):
                answers = [question(operator), question(operator)]
                same(
                    answers in ([True] * 2, [False] * 2),
                    True,
                    f"{question.__name__}({operator.name}): {answers}",
                )
    with promises.promise("it says how an operator comes back from every outage"):
        for operator in asked:
            for outage in _outages():
                back = policy.after(operator, outage)
                what = f"after({operator.name}, {outage}) is {back!r}"
                same(isinstance(back, Aftermath) and back.holds in get_args(Holds), True, what)
                same(
                    back.misses and not outage.misses,
                    False,
                    f"{what}: it misses what the outage does not take",
                )
                older = back.holds == "older" and policy.saving(operator) is None
                same(older, False, f"{what}: an older state, which saving() does not save")
    with promises.promise("it says what a model of operators has"):
        for operator in asked:
            _check_modelled(policy, operator.name, graph)
    with promises.promise("it describes itself in a line"):
        text = policy.describe()
        same(
            isinstance(text, str) and bool(text.strip()) and "\n" not in text, True, f"describe() is {text!r}"
        )
    return promises.report()


def _check_modelled(policy: Policy, name: str, graph: Graph) -> None:
    try:
        modelled = policy.modelled(replace(graph[name], protect=policy), graph)
    except ModelError:
        # There is no model of it, which is an answer.
        return
    for key, value in modelled.items():
        same(
            key in {o.name for o in graph}, True, f"modelled({name}) names '{key}', an operator of the graph"
        )
        same(isinstance(value, Protection), True, f"modelled({name}) has {value!r} for '{key}', a Protection")


def _outages() -> list[OperatorOutage]:
    return [
        OperatorOutage(misses=misses, memory="kept" if memory == "kept" else "lost", age=age, chance=0.5)
        for misses in (False, True)
        for memory in _MEMORY
        for age in (None, 1.5)
    ]


def _every_kind() -> Application:
    app = Application("checked")
    numbers = app.source(
        "numbers", rows(pa.table({"k": pa.array([], pa.int64()), "v": pa.array([], pa.int64())}))
    )
    kept = app.functor("kept", numbers, where="v > 0")
    sums = app.aggregate("sums", kept, by="k", window=sliding(tuples=3), select="sum(v) as s")
    pairs = app.barrier("pairs", kept, sums, by="k", select="kept.k as k, v, s")
    app.sink("out", pairs, memory())
    return app
