"""The operators of a graph, as frozen values: what they are, never how they run."""

from riprap.graph.operators.base import Operator, PassesOn, Traits
from riprap.graph.operators.custom import Custom
from riprap.graph.operators.edges import Inlet, Outlet, Sink, Source
from riprap.graph.operators.faulty import Faulty
from riprap.graph.operators.functor import Functor
from riprap.graph.operators.holding import Deduplicate, Delay, Gate, Throttle
from riprap.graph.operators.lookup import Lookup
from riprap.graph.operators.pairing import Barrier, Join
from riprap.graph.operators.routing import Punctor, Split, Union
from riprap.graph.operators.windowed import Aggregate, Sort, TopN

__all__ = [
    "Aggregate",
    "Barrier",
    "Custom",
    "Deduplicate",
    "Delay",
    "Faulty",
    "Functor",
    "Gate",
    "Inlet",
    "Join",
    "Lookup",
    "Operator",
    "Outlet",
    "PassesOn",
    "Punctor",
    "Sink",
    "Sort",
    "Source",
    "Split",
    "Throttle",
    "TopN",
    "Traits",
    "Union",
]
