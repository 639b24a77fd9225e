"""How long timed activities take: distributions whose parameters may depend on the marking."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import ClassVar, TypeVar

from riprap.san.code import Code, text_of
from riprap.san.errors import NetError
from riprap.san.fixed import fix

D = TypeVar("D", bound="Distribution")


@dataclass(frozen=True, slots=True)
class Distribution:
    """A distribution of times. Its fields are code, evaluated in the marking in which a time is drawn."""

    draw: ClassVar[str] = ""  # the function of riprap.san.draws that draws from it

    def __post_init__(self) -> None:
        fix(self, **{field.name: text_of(getattr(self, field.name)) for field in fields(self)})

    @property
    def codes(self) -> dict[str, str]:
        """The parameters by name."""
        return {field.name: str(getattr(self, field.name)) for field in fields(self)}

    def __str__(self) -> str:
        return f"{type(self).__name__}({', '.join(self.codes.values())})"


@dataclass(frozen=True, slots=True)
class Exponential(Distribution):
    """Exponentially distributed times; a rate of 0 never completes.

    Having no memory, a time is drawn anew when its rate changes: the simulator and the exact solver agree.

    >>> str(Exponential("2 * jobs"))
    'Exponential(2 * jobs)'
    """

    draw: ClassVar[str] = "exponential"
    rate: Code


@dataclass(frozen=True, slots=True)
class Deterministic(Distribution):
    """Always the same time."""

    draw: ClassVar[str] = "deterministic"
    value: Code


@dataclass(frozen=True, slots=True)
class Uniform(Distribution):
    """Every time between two with the same density."""

    draw: ClassVar[str] = "uniform_between"
    low: Code
    high: Code


@dataclass(frozen=True, slots=True)
class Normal(Distribution):
    """Normally distributed times, given that they are not negative; the mean must not be."""

    draw: ClassVar[str] = "normal_above_zero"
    mean: Code
    deviation: Code


@dataclass(frozen=True, slots=True)
class Lognormal(Distribution):
    """Times whose logarithm is normally distributed, with this mean and deviation of the logarithm."""

    draw: ClassVar[str] = "lognormal"
    mean: Code
    deviation: Code


@dataclass(frozen=True, slots=True)
class Weibull(Distribution):
    """Weibull distributed times: a shape below 1 fails early, above 1 wears out."""

    draw: ClassVar[str] = "weibull"
    shape: Code
    scale: Code


@dataclass(frozen=True, slots=True)
class Erlang(Distribution):
    """The sum of so many exponential times of a rate each."""

    draw: ClassVar[str] = "erlang"
    stages: Code
    rate: Code


@dataclass(frozen=True, slots=True)
class Gamma(Distribution):
    """Gamma distributed times, of mean ``shape * scale``."""

    draw: ClassVar[str] = "gamma"
    shape: Code
    scale: Code


@dataclass(frozen=True, slots=True)
class Empirical(Distribution):
    """One of the samples, each as likely.

    >>> str(Empirical([1.0, 2.5]))
    'Empirical(2 samples)'
    """

    draw: ClassVar[str] = "empirical"
    samples: Sequence[float]

    def __post_init__(self) -> None:
        samples = tuple(float(each) for each in self.samples)
        if not samples or not all(0 <= each < float("inf") for each in samples):
            raise NetError("Empirical takes one or more samples, none of them negative or infinite")
        fix(self, samples=samples)

    @property
    def codes(self) -> dict[str, str]:
        return {}

    def __str__(self) -> str:
        return f"Empirical({len(self.samples)} samples)"


def with_codes(time: D, codes: dict[str, str]) -> D:
    """Return a distribution with other parameters."""
    return replace(time, **codes) if codes else time
