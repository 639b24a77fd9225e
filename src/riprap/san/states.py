"""Find every marking that a net of exponential times can rest in, and how it gets from one to another.

Markings that instantaneous activities leave at once are eliminated: a completion leads to the stable markings they may
end in, each with its probability. Impulse rewards earned on the way are kept as expectations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import sparse

from riprap.arrays import Floats, Ints
from riprap.san import kernel
from riprap.san.compiled_net import interpreted
from riprap.san.distributions import Exponential
from riprap.san.errors import NotMarkovError, SolutionError, TooManyStatesError, UnstableError
from riprap.san.failures import cycle, failure, not_a_number, shown
from riprap.san.net import Net
from riprap.san.rewards import Reward
from riprap.san.source import source_of
from riprap.san.wiring import Wiring, wire
from riprap.san.workspace import NetTables, make_tables

Marking = tuple[int, ...]
Landing = tuple[dict[Marking, float], Floats]  # stable markings by probability, and the impulses until then


@dataclass(frozen=True, slots=True)
class Chain:
    """A net as a Markov chain: rates from row to column, the state it starts in, what a state is worth."""

    markings: tuple[Marking, ...]
    rates: Any  # a sparse matrix of rates between states, without a diagonal
    start: Floats  # probabilities: instantaneous activities may complete before time begins to pass
    values: Floats  # of rate rewards, a row each
    earned: Floats  # of impulse rewards, a row each: by a unit of time in a state
    bonus: Floats  # of impulse rewards, at time 0


@dataclass(slots=True)
class _Explorer:
    wiring: Wiring
    most: int
    parameters: list[float]
    call: dict[str, Any]  # the net's code
    n: NetTables
    current: Marking  # the last one that was looked at
    landings: dict[Marking, Landing] = field(default_factory=dict)

    def fail(self, code: int, j: int, marking: Sequence[int], place: int = 0) -> SolutionError:
        return failure(self.wiring, [code, j, place], marking)

    def number(self, fixed: float, function: str, j: int, marking: Sequence[int]) -> float:
        """Return a number that is known, or else comes from code."""
        return float(self.call[function](j, marking, self.parameters)) if math.isnan(fixed) else float(fixed)

    def enabled(self, j: int, marking: Marking) -> bool:
        self.current = marking
        takes = self.wiring.activities[j].takes.items()
        if any(marking[self.wiring.places[place]] < tokens for place, tokens in takes):
            return False
        return not self.n.flags[j] & kernel.GATED or bool(self.call["gate"](j, marking, self.parameters))

    def completed(self, j: int, marking: Marking) -> tuple[list[tuple[float, Marking]], Floats]:
        """Return the markings right after a completion by probability, and the impulses earned by it."""
        n, p, e = self.n, self.parameters, [0, j, 0]
        earned = np.zeros(len(self.wiring.impulses))
        for q in range(n.rewarded_at[j], n.rewarded_at[j + 1]):
            earned[n.rewarded[q] - n.rates] += self.number(n.impulses[q], "impulse", q, marking)
        taken = list(marking)
        _add(taken, n.takes, n.takes_at, j)
        if n.flags[j] & kernel.TAKES_BY_CODE:
            self.call["take"](j, taken, p, e)
            self._check(e, j, taken)
        cases = range(n.cases_at[j], n.cases_at[j + 1])
        chances = [self.number(n.chances[c], "chance", c, taken) for c in cases]
        near_one = kernel.SUM_WITHIN
        if not (all(-near_one <= x <= 1 + near_one for x in chances) and abs(sum(chances) - 1) <= near_one):
            raise self.fail(kernel.BAD_CHANCE, j, taken)
        outcomes = []
        for c, chance in zip(cases, chances, strict=True):
            if chance > 0:
                after = list(taken)
                _add(after, n.puts, n.puts_at, c)
                if n.flags[j] & kernel.PUTS_BY_CODE:
                    self.call["put"](c, after, p, e)
                    self._check(e, j, after)
                outcomes.append((chance, tuple(after)))
        return outcomes, earned

    def _check(self, e: list[int], j: int, marking: list[int]) -> None:
        if e[0]:
            raise self.fail(e[0], j, marking, e[2])

    def chosen(self, marking: Marking) -> list[tuple[float, int]]:
        """Return the instantaneous activities that may complete next, by probability; none if the marking is stable."""
        activities = self.wiring.activities
        ready = [j for j in range(self.wiring.timed, len(activities)) if self.enabled(j, marking)]
        if len(ready) < 2:
            return [(1.0, j) for j in ready]
        top = max(activities[j].priority for j in ready)
        ready = [j for j in ready if activities[j].priority == top]
        if len(ready) == 1:
            return [(1.0, ready[0])]
        weights = [self.number(self.n.first[j], "weight", j, marking) for j in ready]
        for j, weight in zip(ready, weights, strict=True):
            if not 0 <= weight < math.inf:
                raise self.fail(kernel.BAD_WEIGHT, j, marking)
        if not sum(weights) > 0:
            raise self.fail(kernel.BAD_WEIGHT, ready[0], marking)
        return [(w / sum(weights), j) for w, j in zip(weights, ready, strict=True) if w > 0]

    def settle(self, marking: Marking) -> Landing:
        """Return the stable markings that a marking may come to without time passing."""
        if marking not in self.landings:
            self._settle_all(marking)
        return self.landings[marking]

    def _settle_all(self, marking: Marking) -> None:
        """Solve for all markings between here and stable ones: x = step to known ones + step to each other * x."""
        order: dict[Marking, int] = {marking: 0}
        steps: list[list[tuple[float, int, Marking]]] = []
        gains: list[Floats] = []
        waiting = [marking]
        while waiting:
            here = waiting.pop(0)
            steps.append([])
            gains.append(np.zeros(len(self.wiring.impulses)))
            for chance, j in self.chosen(here):
                outcomes, earned = self.completed(j, here)
                gains[-1] += chance * earned
                for also, after in outcomes:
                    steps[-1].append((chance * also, j, after))
                    if after not in order and after not in self.landings:
                        order[after] = len(order)
                        waiting.append(after)
            if len(order) > self.most:
                raise self.too_many()
        stable = [here for here, at in order.items() if not steps[at]]
        for here in stable:
            self.landings[here] = ({here: 1.0}, gains[order[here]])
        passing = [here for here, at in order.items() if steps[at]]
        if passing:
            self._check_ends(passing, order, steps)
            self._eliminate(passing, order, steps, gains)

    def _eliminate(
        self,
        passing: list[Marking],
        order: dict[Marking, int],
        steps: list[list[tuple[float, int, Marking]]],
        gains: list[Floats],
    ) -> None:
        row = {here: at for at, here in enumerate(passing)}
        ends: dict[Marking, int] = {}
        among = np.eye(len(passing))
        to_ends: list[tuple[int, int, float]] = []
        gained = np.array([gains[order[here]] for here in passing])
        for here, at in row.items():
            for chance, _, after in steps[order[here]]:
                if after in row:
                    among[at, row[after]] -= chance
                    continue
                landing, earned = self.landings[after]
                gained[at] += chance * earned
                for end, also in landing.items():
                    to_ends.append((at, ends.setdefault(end, len(ends)), chance * also))
        leaving = np.zeros((len(passing), len(ends)))
        for at, column, chance in to_ends:
            leaving[at, column] += chance
        solved = np.linalg.solve(among, np.hstack([leaving, gained]))
        for here, at in row.items():
            reached = {end: float(solved[at, k]) for end, k in ends.items() if solved[at, k] > 0}
            self.landings[here] = (reached, solved[at, len(ends) :])

    def _check_ends(
        self,
        passing: list[Marking],
        order: dict[Marking, int],
        steps: list[list[tuple[float, int, Marking]]],
    ) -> None:
        """Raise the error if from some marking no stable one can be reached."""
        inside = set(passing)
        ending: set[Marking] = set()
        grown = True
        while grown:
            more = {
                here
                for here in inside - ending
                if any(after not in inside or after in ending for _, _, after in steps[order[here]])
            }
            ending |= more
            grown = bool(more)
        for here in passing:
            if here not in ending:
                names, then = [], here
                for _ in range(2 * len(passing) + 2):
                    _, j, then = steps[order[then]][0]
                    names.append(self.wiring.activities[j].name)
                raise UnstableError(
                    f"net '{self.wiring.net.name}': {' -> '.join(cycle(names[len(passing) :]))} complete for ever "
                    f"and no time passes, {shown(self.wiring, here)}"
                )

    def too_many(self) -> TooManyStatesError:
        return TooManyStatesError(
            f"net '{self.wiring.net.name}': has more than {self.most:,} markings. Bound its places with gates, "
            "or allow more with 'most', or simulate it"
        )


def _add(marking: list[int], arcs: Ints, arcs_at: Ints, row: int) -> None:
    for q in range(arcs_at[row], arcs_at[row + 1]):
        marking[arcs[q, 0]] += int(arcs[q, 1])


def explore(net: Net, rewards: tuple[Reward, ...], most: int) -> Chain:
    """Turn a net into a Markov chain of at most so many states."""
    for activity in net.activities:
        if activity.timed and not isinstance(activity.time, Exponential):
            raise NotMarkovError(
                f"net '{net.name}', activity '{activity.name}': {activity.time} is not exponential; simulate it"
            )
    wiring = wire(net, rewards)
    here: Marking = tuple(place.initial for place in net.places)
    tables = make_tables(wiring, [(0.0, 0.0)] * len(rewards))
    code = interpreted(source_of(wiring))
    explorer = _Explorer(wiring, most, list(net.parameters.values()), code, tables, here)
    try:
        return _explore(explorer, here)
    except (ArithmeticError, ValueError) as error:
        if isinstance(error, SolutionError):
            raise
        raise not_a_number(wiring, explorer.current, error) from None


def _explore(explorer: _Explorer, initial: Marking) -> Chain:
    wiring, call, p = explorer.wiring, explorer.call, explorer.parameters
    start, bonus = explorer.settle(initial)
    number: dict[Marking, int] = {marking: k for k, marking in enumerate(start)}
    markings = list(start)
    rows: list[int] = []
    columns: list[int] = []
    rates: list[float] = []
    earned: list[Floats] = []
    at = 0
    while at < len(markings):
        here = markings[at]
        gain = np.zeros(len(wiring.impulses))
        for j in range(wiring.timed):
            if not explorer.enabled(j, here):
                continue
            rate = explorer.number(explorer.n.first[j], "first_parameter", j, here)
            if not 0 <= rate < math.inf:
                raise explorer.fail(kernel.BAD_TIME, j, here)
            if rate == 0:
                continue
            outcomes, impulses = explorer.completed(j, here)
            gain += rate * impulses
            for chance, after in outcomes:
                landing, more = explorer.settle(after)
                gain += rate * chance * more
                for end, also in landing.items():
                    if end not in number:
                        number[end] = len(markings)
                        markings.append(end)
                    rows.append(at)
                    columns.append(number[end])
                    rates.append(rate * chance * also)
        if len(markings) > explorer.most:
            raise explorer.too_many()
        earned.append(gain)
        at += 1
    matrix = sparse.coo_array((rates, (rows, columns)), shape=(len(markings),) * 2).tocsr()
    matrix.setdiag(0.0)
    matrix.eliminate_zeros()
    probabilities = np.zeros(len(markings))
    probabilities[: len(start)] = list(start.values())
    values = [[call["value"](k, m, p) for m in markings] for k in range(len(wiring.rates))]
    return Chain(
        tuple(markings),
        matrix,
        probabilities,
        np.array(values, np.float64).reshape(len(wiring.rates), len(markings)),
        np.array(earned).T.reshape(len(wiring.impulses), len(markings)),
        bonus,
    )
