"""Measure the profile of an application from the metrics of a run.

What a run counts is taken as it is: tuples by port and stream, punctuations, state. Times leave out the warm-up: the
first tenth of the batches of each processing element, and at least one, in which code is compiled and caches fill; of
the others the median of the seconds a tuple takes counts, so that a batch that was held up does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from riprap.errors import ModelError
from riprap.graph.graph import Graph
from riprap.graph.operator import Operator
from riprap.model.causes import unmeasured
from riprap.model.profile import OperatorProfile, Port, Profile
from riprap.operators.sink import Sink
from riprap.operators.source import Source
from riprap.windows import Window

MetricsLine = Mapping[str, Any]

WARM_UP = 0.1
# Of the batches at the end, in which state is counted.
_LATE, _FEWEST = 0.25, 3
_FILLED = 0.9


def measure_profile(
    graph: Graph, metrics: Sequence[MetricsLine], *, rate: float | None = None, live: bool = False
) -> Profile:
    """Measure a profile from the lines of ``metrics.jsonl``.

    ``rate`` is that of all sources together, where the run does not show it because it read a feed as fast as it could;
    ``live`` says that it does.
    """
    lines = [line for line in metrics if not line["repeated"]]
    if not lines:
        raise ModelError(
            "the run has no metrics: no batch of it is done. Let it run on, or measure another run, with --run"
        )
    measuring = _Measuring(graph, lines, _steady(lines))
    for operator in graph:
        measuring.check(operator)
    rates = measuring.rates(rate, live=live)
    total = sum(measuring.totals(source).tuples_in for source in rates)
    seconds = total / sum(rates.values())
    operators = {o.name: measuring.operator(o, seconds) for o in graph if o.tick is None}
    marked = {o.name for o in graph if measuring.totals(o.name).marks_in}
    assumed = (*measuring.assumed, *unmeasured(graph, operators, marked))
    return Profile(rates=rates, operators=operators, assumed=assumed)


def _steady(lines: Sequence[MetricsLine]) -> list[MetricsLine]:
    """Leave out the first batches of each processing element."""
    kept = []
    for element in dict.fromkeys(line["element"] for line in lines):
        own = [line for line in lines if line["element"] == element]
        kept += own[max(1, round(len(own) * WARM_UP)) :]
    return kept


@dataclass(slots=True)
class _Totals:
    """What an operator did in all batches: tuples by port and by stream, and punctuations."""

    ports: list[int]
    streams: dict[str, int]
    marks_in: int = 0
    marks_out: int = 0

    @property
    def tuples_in(self) -> int:
        return sum(self.ports)


@dataclass(frozen=True, slots=True)
class _Measuring:
    """The batches of a run, those after the warm-up, and in words what they do not say."""

    graph: Graph
    lines: Sequence[MetricsLine]
    steady: Sequence[MetricsLine]
    assumed: list[str] = field(default_factory=list)

    def check(self, operator: Operator) -> None:
        """Refuse a run that does not tell what an operator did."""
        own = self._of(operator.name, self.lines)
        if not own:
            names = ", ".join(dict.fromkeys(name for line in self.lines for name in line["operators"]))
            raise ModelError(
                f"the run says nothing of operator '{operator.name}'; it has: {names}. "
                "It is of another version of the application: run this one"
            )
        several = {"ports": len(operator.ports) > 1, "streams": len(operator.outputs) > 1}
        if any(needed and entry not in did for did in own for entry, needed in several.items()):
            raise ModelError(
                f"the run does not tell the {'ports' if several['ports'] else 'streams'} of operator '{operator.name}' "
                "apart: an earlier version of Riprap made it. Run the application again"
            )

    def totals(self, name: str) -> _Totals:
        """Add up what an operator did."""
        operator = self.graph[name]
        sums = _Totals([0] * max(1, len(operator.ports)), dict.fromkeys(operator.outputs, 0))
        for line in self._of(name, self.lines):
            for port, tuples in enumerate(line.get("ports", [line["in"]])):
                sums.ports[port] += tuples
            for stream in operator.outputs:
                sums.streams[stream] += line.get("streams", {stream: line["out"]})[stream]
            marks = line.get("punctuations", {"in": 0, "out": 0})
            sums.marks_in += marks["in"]
            sums.marks_out += marks["out"]
        return sums

    def rates(self, rate: float | None, *, live: bool) -> dict[str, float]:
        """Return the tuples a second of every source that is no clock."""
        sources = [s for s in self.graph.of_kind(Source) if s.tick is None]
        counts = {s.name: self.totals(s.name).tuples_in for s in sources}
        for name, count in counts.items():
            if not count:
                raise ModelError(
                    f"source '{name}' brought no tuple in: there is nothing to measure. Give it a feed with some"
                )
        if rate is not None:
            total = sum(counts.values())
            return {name: _short(rate * count / total) for name, count in counts.items()}
        paced = {s.name: getattr(s.connector, "rate", None) for s in sources}
        if not live and not all(paced.values()):
            self.assumed.append(
                "rates: as fast as the run went. Give the rate at which tuples really come with --rate"
            )
        return {name: _short(paced[name] or self._rate_of(name)) for name in counts}

    def _rate_of(self, source: str) -> float:
        """Return the tuples a second from the end of the first batch on; of one alone, while it was computed."""
        own = [line for line in self.lines if source in line["operators"]]
        came = [line["operators"][source]["in"] for line in own]
        span = own[-1]["time"] - own[0]["time"]
        if span > 0 and sum(came[1:]):
            return float(sum(came[1:]) / span)
        return float(sum(came) / sum(line["seconds"]["compute"] for line in own))

    def operator(self, operator: Operator, seconds: float) -> OperatorProfile:
        """Return the profile of an operator, in a stream that took so many seconds."""
        totals = self.totals(operator.name)
        time, states = self._time(operator), self._states(operator)
        if not totals.tuples_in:
            self.assumed.append(f"{operator.name}: nothing came in, so its time and selectivity are unknown")
        tick = operator.period / 1_000_000 if operator.period is not None else None
        window = operator.window_of(0)
        heeds = window is not None and window.punctuation
        put_out = sum(totals.streams.values())
        silent = tick is not None or heeds
        ports = tuple(
            Port(
                time=time,
                selectivity=0.0 if silent else self._selectivity(operator, totals, port),
                state=states[port],
            )
            for port in range(len(totals.ports))
        )
        return OperatorProfile(
            ports=ports,
            tick=tick,
            ticked=_short(put_out * tick / seconds) if tick is not None else 0.0,
            tuple_bytes=self._tuple_bytes(operator.name),
            punctuated=_punctuated(operator, totals),
            on_punctuation=_short(put_out / totals.marks_in) if heeds and totals.marks_in else 0.0,
        )

    def _selectivity(self, operator: Operator, totals: _Totals, port: int) -> float | dict[str, float]:
        """Share what came out among the ports that can have brought it about, in proportion to their tuples."""
        if not operator.outputs:
            return 1.0
        speaking = [n for n in range(len(totals.ports)) if operator.brings_about(n)]
        came = sum(totals.ports[n] for n in speaking)
        if port not in speaking or not came:
            shares = dict.fromkeys(totals.streams, 0.0 if totals.tuples_in else 1.0)
        else:
            shares = {stream: _short(count / came) for stream, count in totals.streams.items()}
        return shares if len(shares) > 1 else next(iter(shares.values()))

    def _time(self, operator: Operator) -> float:
        """Return the seconds that a tuple takes: of sources to be read, of sinks to be published too."""
        steady = self._times(operator, self.steady)
        if not steady:
            steady = self._times(operator, self.lines)
            if steady:
                self.assumed.append(
                    f"{operator.name}: its time is that of the first batches, in which code is compiled"
                )
        return _short(median(steady)) if steady else 0.0

    def _times(self, operator: Operator, lines: Sequence[MetricsLine]) -> list[float]:
        times = []
        for line in lines:
            own = line["operators"].get(operator.name)
            if own is None or not own["in"]:
                continue
            spent = own["seconds"] / own["in"]
            if isinstance(operator, Source):
                task = line["seconds"]["task"]
                spent += (task.get("read", 0.0) + task.get("arrive", 0.0)) / line["rows"]
            elif isinstance(operator, Sink):
                sinks = [line["operators"].get(s.name, {"in": 0})["in"] for s in self.graph.of_kind(Sink)]
                spent += line["seconds"]["publish"] / sum(sinks)
            times.append(spent)
        return times

    def _states(self, operator: Operator) -> list[float]:
        """Return the tuples each port remembers when it is full, in the last quarter of the batches.

        What is kept may have tuples that newer ones have pushed out of their window, until pages are merged. Of a
        window of the newest so many, which does not shrink, the least that was kept is therefore the closest. A window
        that is emptied when it closes is as full as it gets before that.
        """
        ports = [0.0] * max(1, len(operator.ports))
        own = [did for did in self._of(operator.name, self.lines) if "state_tuples" in did]
        later = own[min(1, len(own) - 1) :][-max(_FEWEST, int(len(own) * _LATE)) :]
        window = getattr(operator, "window", None)
        emptied = isinstance(window, Window) and window.shape == "tumbling"
        for slot in operator.slots if later else ():
            kept = [
                did["slots"][slot] if len(operator.slots) > 1 else did["state_tuples"]
                for did in later
                if len(operator.slots) == 1 or "slots" in did
            ]
            port = int(slot) if slot.isdigit() and int(slot) < len(ports) else 0
            if kept:
                size = max if emptied else min if slot in operator.slides else median
                ports[port] += float(size(_full(kept)))
        return ports

    def _tuple_bytes(self, name: str) -> float:
        own = [did for did in self._of(name, self.lines) if did.get("state_tuples")]
        return _short(own[-1]["state_bytes"] / own[-1]["state_tuples"]) if own else 0.0

    def _of(self, name: str, lines: Sequence[MetricsLine]) -> list[Any]:
        return [line["operators"][name] for line in lines if name in line["operators"]]


def _full(kept: Sequence[float]) -> Sequence[float]:
    """Leave out the batches in which state was still filling: it is clearly less than in all that follow.

    >>> _full([20, 60, 100, 104, 101])
    [100, 104, 101]
    """
    while len(kept) > 1 and kept[0] < _FILLED * min(kept[1:]):
        kept = kept[1:]
    return kept


def _punctuated(operator: Operator, totals: _Totals) -> float:
    """Return how many punctuations of its own an operator makes for a tuple that comes in."""
    if not operator.punctuates or not totals.tuples_in:
        return 0.0
    passed = totals.marks_in if operator.traits.punctuation.startswith("passes") else 0
    return _short(max(0.0, totals.marks_out / len(operator.outputs) - passed) / totals.tuples_in)


def _short(number: float) -> float:
    """Leave as many digits as a measurement has."""
    return float(f"{number:.4g}")
