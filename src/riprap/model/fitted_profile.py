"""A profile with what was fitted in it; and one to put it into, where nothing is measured yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from riprap.errors import ModelError
from riprap.graph.graph import Graph
from riprap.model.causes import KEPT, UNFITTED
from riprap.model.fitting import Fit
from riprap.model.profile import OperatorProfile, Port, Profile
from riprap.operators.source import Source


def put_in(profile: Profile, fits: Sequence[Fit]) -> Profile:
    """Return a profile with the state and factors that were fitted, and what they assume."""
    operators = dict(profile.operators)
    for fit in fits:
        profiled = operators.get(fit.operator, OperatorProfile())
        if fit.port >= len(profiled.ports):
            raise ModelError(
                f"operator '{fit.operator}' has a port {fit.port}, and its profile has {len(profiled.ports)} ports: "
                "describe each under 'ports', or measure them with `riprap profile`"
            )
        ports = list(profiled.ports)
        ports[fit.port] = replace(
            ports[fit.port],
            state=fit.state or ports[fit.port].state,
            alpha=fit.alpha,
            beta=fit.beta,
            gamma=fit.gamma,
        )
        operators[fit.operator] = replace(profiled, ports=tuple(ports))
    kept = [each for each in profile.assumed if not each.endswith((KEPT, UNFITTED))]
    notes = [fit.note for fit in fits if fit.note]
    return replace(profile, operators=operators, assumed=tuple(dict.fromkeys((*kept, *notes))))


def blank_profile(graph: Graph, rate: float) -> Profile:
    """Return a profile in which nothing is measured."""
    sources = [s.name for s in graph.of_kind(Source) if s.tick is None]
    operators: Mapping[str, OperatorProfile] = {
        o.name: OperatorProfile(ports=(Port(),) * max(1, len(o.ports))) for o in graph if o.tick is None
    }
    return Profile(
        rates={name: rate / len(sources) for name in sources},
        operators=operators,
        assumed=("rates, times and selectivities are not measured: run `riprap profile`",),
    )
