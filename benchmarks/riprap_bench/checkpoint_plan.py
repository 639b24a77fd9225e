"""How much of the experiments with checkpoints to run, and how long that takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeVar, get_args

from riprap_bench.checkpoint_feeds import PER_KEY_WINDOW, SEED, Kind
from riprap_bench.checkpoint_runs import Group
from riprap_bench.measuring import Report

Part = Literal["single", "per-key", "zipf", "size", "restore", "plain"]
PARTS: tuple[Part, ...] = get_args(Part)
GRIDS: tuple[Kind, ...] = get_args(Kind)
T = TypeVar("T")

# What a run costs besides the time that is measured: starting a query, filling the window, letting go of it.
RUN_SECONDS = 4.0


@dataclass(frozen=True, slots=True)
class Round:
    """Protected runs of one window and interval with unprotected ones among them."""

    window: int
    every: float
    groups: tuple[Group, ...]

    @property
    def runs(self) -> int:
        return len(self.groups) + len(self.groups) // 2 + 1 + len(self.groups) % 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to run. ``seconds`` is how long a run is measured at a short interval, ``long_seconds`` at a long one."""

    only: tuple[Part, ...] = PARTS
    repetitions: int = 5
    corner_repetitions: int = 20
    seconds: float = 4.0
    long_seconds: float = 22.0
    batch_seconds: float = 0.5
    calibrations: int = 2
    windows: tuple[int, ...] = (8192, 16384, 32768, 65536, 131072)
    groups: tuple[Group, ...] = (512, 1024, 2048, 4096)
    per_key_window: int = PER_KEY_WINDOW
    per_key_groups: tuple[Group, ...] = (32, 64, 128, 256)
    zipf_groups: tuple[Group, ...] = ("auto", 32, 256)
    intervals: tuple[float, ...] = (1.0, 10.0)
    zipf_interval: float = 1.0
    sizes: tuple[int, ...] = (8, 32, 128, 512)
    size_interval: float = 8.0
    size_share: float = 0.05
    size_intervals: int = 3
    size_triggers: int = 16
    restore_mb: int = 512
    restore_repetitions: int = 5
    plain_events: int = 6_000_000
    seed: int = SEED

    def rounds(self, kind: Kind) -> Iterator[Round]:
        """List the rounds of a grid: all of it so many times, then its corners some more."""
        windows = self.windows if kind == "single" else (self.per_key_window,)
        intervals = self.intervals if kind != "zipf" else (self.zipf_interval,)
        groups = {"single": self.groups, "per-key": self.per_key_groups, "zipf": self.zipf_groups}[kind]
        for _ in range(self.repetitions):
            yield from (Round(window, every, groups) for window in windows for every in intervals)
        for _ in range(self.repetitions, self.corner_repetitions if kind != "zipf" else 0):
            yield from (
                Round(window, every, _ends(groups)) for window in _ends(windows) for every in _ends(intervals)
            )

    def measured_seconds(self, every: float) -> float:
        """Say how long a run with such an interval is measured."""
        return self.seconds if every <= self.seconds / 2 else self.long_seconds

    def estimate(self) -> dict[str, float]:
        """Say about how many seconds each part takes."""
        found: dict[str, float] = {}
        for kind in GRIDS:
            found[kind] = sum(
                r.runs * (self.measured_seconds(r.every) + RUN_SECONDS) for r in self.rounds(kind)
            )
        interval = self.size_interval * (self.size_intervals + 2)
        # Two paced runs and two at full speed; filling goes at about 30 MB a second.
        found["size"] = self.repetitions * sum(4 * (interval + RUN_SECONDS + mb / 30) for mb in self.sizes)
        found["restore"] = 5 + self.restore_mb / 50 * self.restore_repetitions
        found["plain"] = 2 * self.repetitions * (15 + self.plain_events / 400_000)
        return {part: found[part] for part in self.only}


def _ends(values: tuple[T, ...]) -> tuple[T, ...]:
    return tuple(dict.fromkeys((values[0], values[-1])))


@dataclass(slots=True)
class Track:
    """How far a plan has come: ``show`` hears of the share that is done, ``report`` of each thing that was found."""

    total: float
    report: Report
    show: Callable[[float], None] = field(default=lambda share: None)
    done: float = 0.0

    def pass_(self, seconds: float) -> None:
        """Note that something is done that was expected to take so long."""
        self.done += seconds
        self.show(min(1.0, self.done / self.total) if self.total else 1.0)
