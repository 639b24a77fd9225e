"""Rounds of runs with a consistent region and without: applications, sizes of state, chains of operators."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from riprap_bench.checkpoint_plan import Track
from riprap_bench.checkpoint_ratios import against, median_of, pair_up
from riprap_bench.measuring import middle
from riprap_bench.regions_jobs import Chain, Job, Large, job_of
from riprap_bench.regions_plan import NAMES, OVERTIME, Part, Plan, Round
from riprap_bench.regions_runs import Bench, Measured

# Of unprotected throughput.
APPS_LEAST, APPS_PERIOD = 0.97, 2.0
SIZES_LEAST, SIZES_MB = 0.97, 512
CHAINS_LEAST = 0.98
# What it does for longer is not to be limited by what fits on a disk.
_MOST_BATCHES = 20_000

Keep = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Ran:
    """A round that was carried out, and its runs in their order."""

    round: Round
    runs: tuple[Measured, ...]

    def to_json(self) -> dict[str, Any]:
        round = {"case": self.round.case, "periods": list(self.round.periods), "seconds": self.round.seconds}
        return {**round, "runs": [run.to_json() for run in self.runs]}

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Self:
        """Take up a round of an earlier sitting."""
        round = Round(told["case"], tuple(told["periods"]), told["seconds"])
        return cls(round, tuple(Measured.from_json(run) for run in told["runs"]))


@dataclass(slots=True)
class Rounds:
    """The rounds of one part being carried out; ``done`` may hold some of an earlier sitting."""

    part: Part
    plan: Plan
    bench: Bench
    track: Track
    done: list[Ran] = field(default_factory=list)
    jobs: dict[str, Job] = field(default_factory=dict)
    batches: dict[tuple[str, float], int] = field(default_factory=dict)
    left_out: int = 0

    def measure(self, keep: Keep) -> dict[str, Any]:
        """Run the rounds that are left, as far as there is time for them; ``keep`` hears of the result after each."""
        order = random.Random(f"{self.plan.seed} {len(self.done)}")
        over = time.monotonic() + OVERTIME * self.plan.estimate()[self.part]
        there = Counter(ran.round for ran in self.done)
        for round in self.plan.rounds(self.part):
            if there[round]:
                there[round] -= 1
            elif time.monotonic() > over:
                self.track.report(f"{round.case}: left out, as there is no more time")
                self.left_out += 1
            else:
                self._round(round, order)
                keep(self.result())
            self.track.pass_(round.estimate)
        return self.result()

    def result(self) -> dict[str, Any]:
        """Put together what there is so far."""
        pairs: dict[tuple[str, float], list[tuple[Measured, dict[str, float]]]] = {}
        for ran in self.done:
            for run, beside in pair_up(ran.runs):
                assert run.policy is not None
                pairs.setdefault((ran.round.case, run.policy), []).append((run, against(run, beside)))
        cases = list(dict.fromkeys(ran.round.case for ran in self.done))
        return {
            "lines": [self._line(*place, pairs[place]) for place in sorted(pairs, key=_in_order(cases))],
            "unprotected": [self._unprotected(case) for case in cases],
            "left_out": self.left_out,
            "rounds": [ran.to_json() for ran in self.done],
        }

    def _round(self, round: Round, order: random.Random) -> None:
        shuffled = iter(order.sample(round.periods, len(round.periods)))
        job, folder = self._job(round.case), self.bench.folder / f"feed-{round.case}".replace(" ", "-")
        if (round.case, round.seconds) not in self.batches:
            batches = min(_MOST_BATCHES, self.bench.batches_for(job, folder, round.seconds))
            self.batches[round.case, round.seconds] = batches
        feed = job.write(folder, self.batches[round.case, round.seconds])
        # The runs of a round must have the same answer: of the last it is seen whether that is right.
        last = len(round.runs) - 1
        runs = tuple(
            self.bench.run(job, feed, None if period is None else next(shuffled), check=number == last)
            for number, period in enumerate(round.runs)
        )
        self.done.append(Ran(round, runs))
        found = {run.policy: against(run, beside)["throughput"] for run, beside in pair_up(runs)}
        shown = ", ".join(f"{period:g} s {ratio:.3f}" for period, ratio in sorted(found.items()))
        rate = middle([run.rate for run in runs if run.policy is None])
        self.track.report(f"{round.case}: {rate:,.0f} tuples/s unprotected; every {shown} of that")

    def _job(self, case: str) -> Job:
        if case not in self.jobs:
            self.jobs[case] = self._made(case)
        return self.jobs[case]

    def _made(self, case: str) -> Job:
        seed = self.plan.seed
        if self.part == "apps":
            (name,) = (name for name in NAMES if name == case)
            return job_of(name, seed)
        number, _, rest = case.partition(" ")
        if self.part == "sizes":
            return Large.of(int(number), seed, self.bench.folder / f"feed-{number}-MB")
        return Chain(seed, many=int(number), length=int(rest.removeprefix("of ")))

    def _line(
        self, case: str, period: float, runs: list[tuple[Measured, dict[str, float]]]
    ) -> dict[str, Any]:
        ratios = {name: median_of([found[name] for _, found in runs]) for name in ("throughput", "cpu")}
        least = self._least(case, period)
        met = {} if least is None else {"throughput": ratios["throughput"]["median"] >= least}
        rate = middle([run.rate for run, _ in runs])
        return {"case": case, "period": period, **ratios, "tuples_per_s": rate, "least": least, "met": met}

    def _least(self, case: str, period: float) -> float | None:
        if self.part == "chains":
            return CHAINS_LEAST
        if self.part == "sizes":
            return SIZES_LEAST if case == f"{SIZES_MB} MB" else None
        return APPS_LEAST if period == APPS_PERIOD else None

    def _unprotected(self, case: str) -> dict[str, Any]:
        runs = [run for ran in self.done if ran.round.case == case for run in ran.runs if run.policy is None]
        rates = [run.rate for run in runs]
        return {
            "case": case,
            "tuples_per_s": middle(rates),
            "spread": [min(rates), max(rates)],
            "cpu_us_a_tuple": middle([1e6 * run.cpu / run.rows for run in runs]),
            "rows_out": runs[-1].answer.rows,
        }


def _in_order(cases: list[str]) -> Callable[[tuple[str, float]], tuple[int, float]]:
    return lambda place: (cases.index(place[0]), place[1])
