"""How much of the experiments with consistent regions to run, and how long that takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

Part = Literal["apps", "sizes", "chains", "plain", "recovery"]
Name = Literal["wordcount-scan", "wordcount-files", "logwatch", "vwap", "lois"]
PARTS: tuple[Part, ...] = get_args(Part)
NAMES: tuple[Name, ...] = get_args(Name)
# Those of which there is a plain equivalent that a good user of Spark would write.
PLAIN: tuple[Name, ...] = ("wordcount-files", "logwatch", "vwap")

SEED = 20151201
# What a run costs besides the time that is measured.
RUN_SECONDS = 6.0
# Of one loss of a host, with the time until batches come steadily again.
LOSS_SECONDS = 15.0
# What a run of plain Spark costs besides the time it has: to start, to come to its first batch, to check its answer.
PLAIN_AROUND_SECONDS = 15.0
# To learn the rate of a case, and to make its input.
_CASE_SECONDS = 20.0
# A part ends when it has taken so many times as long as was told; what is left out is told too.
OVERTIME = 2.0


@dataclass(frozen=True, slots=True)
class Round:
    """Runs of one case with several periods, and unprotected ones among them, each measured for so many seconds."""

    case: str
    periods: tuple[float, ...]
    seconds: float

    @property
    def runs(self) -> tuple[float | None, ...]:
        """The periods of the runs in their order: an unprotected one first, last, and after every second one.

        >>> Round("vwap", (1.0, 2.0, 4.0), 20.0).runs
        (None, 1.0, 2.0, None, 4.0, None)
        """
        listed: list[float | None] = [None]
        for number, period in enumerate(self.periods, 1):
            listed.append(period)
            if number % 2 == 0 or number == len(self.periods):
                listed.append(None)
        return tuple(listed)

    @property
    def estimate(self) -> float:
        return len(self.runs) * (self.seconds + RUN_SECONDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to run.

    Runs with long periods are measured longer and less often. ``protecting`` says whether regions are asked for at
    all: without, the runs that are to be protected are as unprotected as the others, which tries out everything else.
    """

    only: tuple[Part, ...] = PARTS
    repetitions: int = 5
    long_repetitions: int = 2
    seconds: float = 20.0
    long_seconds: float = 72.0
    names: tuple[Name, ...] = NAMES
    plain_names: tuple[Name, ...] = PLAIN
    periods: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0)
    long_periods: tuple[float, ...] = (32.0, 64.0)
    sizes: tuple[int, ...] = (8, 32, 128, 512)
    lengths: tuple[int, ...] = (8, 16, 32, 64)
    parallel: tuple[int, ...] = (1, 4)
    period: float = 8.0
    plain_period: float = 2.0
    plain_seconds: float = 40.0
    losses: int = 10
    rate: float = 2_000.0
    seed: int = SEED
    protecting: bool = True

    def rounds(self, part: Part) -> Iterator[Round]:
        """List the rounds of a part: all of it so many times, and long periods less often."""
        for repetition in range(self.repetitions):
            if part == "apps":
                yield from (Round(name, self.periods, self.seconds) for name in self.names)
                if repetition < self.long_repetitions and self.long_periods:
                    yield from (Round(name, self.long_periods, self.long_seconds) for name in self.names)
            elif part in ("sizes", "chains"):
                # The third of three periods at the latest is one with a cut.
                seconds = round(max(self.seconds, 3 * self.period), 3)
                yield from (Round(case, (self.period,), seconds) for case in self.cases(part))

    def cases(self, part: Part) -> list[str]:
        """Name the cases of a part."""
        if part == "sizes":
            return [f"{size} MB" for size in self.sizes]
        if part == "chains":
            return [f"{many} of {length}" for many in self.parallel for length in self.lengths]
        return list(self.names if part == "apps" else self.plain_names)

    def estimate(self) -> dict[str, float]:
        """Say about how many seconds each part takes."""
        found: dict[str, float] = {
            part: sum(round.estimate for round in self.rounds(part)) + _CASE_SECONDS * len(self.cases(part))
            for part in ("apps", "sizes", "chains")
        }
        both = self.seconds + RUN_SECONDS + 3 * (self.plain_seconds + PLAIN_AROUND_SECONDS)
        found["plain"] = len(self.plain_names) * (_CASE_SECONDS + self.repetitions * both)
        found["recovery"] = 60 + 2 * self.losses * LOSS_SECONDS
        return {part: found[part] for part in self.only}
