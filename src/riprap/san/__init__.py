"""Stochastic activity networks: describe them as values, simulate them fast, or solve them exactly.

>>> arrive = Activity("arrive", time=Exponential("l"), puts={"jobs": 1}, gates=[InputGate(when="jobs < 3")])
>>> serve = Activity("serve", time=Exponential("m"), takes={"jobs": 1})
>>> queue = Net("queue", [Place("jobs")], [arrive, serve], {"l": 1, "m": 1})
>>> round(solve(queue, [Rate("jobs", "jobs")])["jobs"], 9)
1.5
"""

from riprap.san.composition import join, replicate
from riprap.san.distributions import (
    Deterministic,
    Distribution,
    Empirical,
    Erlang,
    Exponential,
    Gamma,
    Lognormal,
    Normal,
    Uniform,
    Weibull,
)
from riprap.san.errors import (
    CodeError,
    MarkingError,
    NetError,
    NotMarkovError,
    ProbabilityError,
    SolutionError,
    TimeParameterError,
    TooManyStatesError,
    UnknownNameError,
    UnstableError,
)
from riprap.san.estimates import Precision, RewardEstimate, Simulation
from riprap.san.markov import Solution, solve
from riprap.san.net import Activity, Case, InputGate, Net, OutputGate, Place
from riprap.san.rewards import At, Impulse, Mean, Rate, Reward, Steady, Total
from riprap.san.simulation import Compiled, compile_net, run_chunk, simulate, trace

__all__ = [
    "Activity",
    "At",
    "Case",
    "CodeError",
    "Compiled",
    "Deterministic",
    "Distribution",
    "Empirical",
    "Erlang",
    "Exponential",
    "Gamma",
    "Impulse",
    "InputGate",
    "Lognormal",
    "MarkingError",
    "Mean",
    "Net",
    "NetError",
    "Normal",
    "NotMarkovError",
    "OutputGate",
    "Place",
    "Precision",
    "ProbabilityError",
    "Rate",
    "Reward",
    "RewardEstimate",
    "Simulation",
    "Solution",
    "SolutionError",
    "Steady",
    "TimeParameterError",
    "TooManyStatesError",
    "Total",
    "Uniform",
    "UnknownNameError",
    "UnstableError",
    "Weibull",
    "compile_net",
    "join",
    "replicate",
    "run_chunk",
    "simulate",
    "solve",
    "trace",
]
