"""Everything the trials of one seed share: the golden run, what reaches each target, scores; and running a trial."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from riprap.compiler import compile_graph
from riprap.compiler.weaving import weave
from riprap.errors import GraphError
from riprap.faults.campaign import Campaign, Outage, Targets, Task
from riprap.faults.crashing import come_back, covers, group_of, leaving, state_after
from riprap.faults.feeds import Feed, cut_feed, read_feed, read_tables, times_of
from riprap.faults.golden import Golden, Replaced, play_golden
from riprap.faults.interleaving import interleave, weave_lags
from riprap.faults.outputs import Form, Right
from riprap.faults.placement import Target, find_targets
from riprap.faults.scores import Floats
from riprap.faults.targets import Incoming, element_of, incoming, watched
from riprap.faults.trial import Difference, Trial, replay_trial, run_trial
from riprap.graph.faults import Crash, Fault, Loss, Replicas
from riprap.graph.graph import Graph
from riprap.graph.operators import Faulty, Sink
from riprap.operators.given import Pages
from riprap.state.hashing import Hashes

BLOCK_ROWS = 25_000


def place(graph: Graph, campaign: Campaign) -> tuple[Campaign, tuple[Target, ...]]:
    """Return a campaign with its targets, chosen by the rules of placement unless it names some; and why each is one.

    A target "pe:NAME" is all operators of a processing element.
    """
    if campaign.sink not in {s.name for s in graph.of_kind(Sink)}:
        there = ", ".join(s.name for s in graph.of_kind(Sink))
        raise GraphError(f"there is no sink '{campaign.sink}' to score; there are: {there}")
    if not campaign.targets:
        chosen = find_targets(graph, campaign.sink, stateful=campaign.crashes)
        return replace(campaign, targets=tuple((t.name,) for t in chosen)), chosen
    named = tuple(_named(graph, targets) for targets in campaign.targets)
    known = {o.name for o in graph}
    for name in (name for together in named for name in together):
        if name not in known:
            raise GraphError(
                f"there is no operator '{name}' to inject faults at; there are: {', '.join(sorted(known))}"
            )
    return replace(campaign, targets=named), tuple(
        Target("+".join(t), "named by the campaign") for t in named
    )


def _named(graph: Graph, targets: Targets) -> Targets:
    if len(targets) != 1 or not targets[0].startswith("pe:"):
        return targets
    plans = {plan.name: plan for plan in compile_graph(graph, buckets=1, tasks=1, path="direct").plans}
    plan = plans.get(targets[0].removeprefix("pe:"))
    if plan is None:
        raise GraphError(
            f"there is no processing element for target '{targets[0]}'; there are: {', '.join(plans)}"
        )
    return tuple(o.name for o in plan.graph if o.name in {u.name for u in graph} and not isinstance(o, Sink))


@dataclass(frozen=True, slots=True)
class Setup:
    """A campaign on a graph and its feed, woven and cut up. ``times`` has the time at each row of a clocked source."""

    campaign: Campaign
    placed: tuple[Target, ...]
    graph: Graph
    feed: Feed
    tables: Mapping[str, pa.Table]
    times: Floats | None = None

    @classmethod
    def of(cls, graph: Graph, campaign: Campaign, *, block_rows: int = BLOCK_ROWS) -> Setup:
        """Weave faults into a graph, and read and cut its feed."""
        campaign, placed = place(graph, campaign)
        lagging = weave_lags(graph) if campaign.interleave is not None else graph
        names = [name for together in campaign.targets for name in together]
        for model in campaign.models.values():
            if isinstance(model, Crash) and isinstance(model.protection, Replicas):
                for targets in campaign.targets:
                    if covers(model.protection, targets):
                        names += leaving(graph, group_of(model.protection, targets))
        woven = weave(lagging, list(dict.fromkeys(names)), deep=campaign.deep)
        rows = read_feed(woven, compile_graph(woven, buckets=1, tasks=1, path="direct"))
        if campaign.crashes and len(rows) > 1:
            raise GraphError(
                "a crash is at a position of the source, and here are several: inject losses, or use one source"
            )
        last = max(int(part.position.max(initial=-1)) for part in rows.values())
        beyond = [offset for offset in campaign.offsets if offset > last]
        if beyond:
            raise GraphError(
                f"offset {beyond[0]:,} is beyond the stream, whose last position is {last:,}. Give smaller offsets, "
                "or a longer feed"
            )
        times = times_of(graph, campaign.clock) if campaign.clock is not None else None
        setup = cls(campaign, placed, woven, Feed(rows, {}, np.empty(0, np.int64)), read_tables(graph), times)
        bounds = sorted({position for task in campaign.tasks() for position in setup._bounds(task)})
        feed = cut_feed(woven, rows, block_rows=block_rows, bounds=bounds)
        return replace(setup, feed=feed)

    @property
    def last(self) -> int:
        """The last position of any source."""
        return max(int(part.position.max(initial=0)) for part in self.feed.rows.values())

    def rate(self, outage: Outage) -> float:
        """Return the tuples of the source a second during an outage."""
        if outage.rate is not None:
            return outage.rate
        assert self.times is not None
        return measured_rate(self.times, outage.label)

    def chance(self, task: Task, name: str) -> float:
        """Draw where between two checkpoints of an operator the crash of a trial falls."""
        return random.Random(f"{self.campaign.seed} {name} {task.offset} {task.repetition}").random()

    def _bounds(self, task: Task) -> set[int]:
        """Return the positions at which the trial of a crash needs a state."""
        crash = self.campaign.models[task.model]
        if not isinstance(crash, Crash):
            return set()
        found = {task.offset}
        if not isinstance(crash.protection, Replicas):
            for name in task.targets:
                back = come_back(
                    crash, self.graph[name], rate=self.rate(task.outage), chance=self.chance(task, name)
                )
                found.add(max(0, task.offset - back.age))
        return found

    def seeded(self, seed: int, reference: Right | None = None, *, bare: bool = False) -> Seeded:
        """Make the golden run of a seed; scores compare with that of another, or with itself.

        A ``bare`` one is for its score alone: no trial can start from it.
        """
        graph, campaign = self.graph, self.campaign
        if campaign.interleave is not None:
            knots = tuple((self.feed.marks + 1).tolist())
            graph = interleave(graph, distance=campaign.interleave, knots=knots, seed=campaign.seed + seed)
        names = set() if bare else {o.target for o in graph.of_kind(Faulty) if o.role == "fault"}
        watch = {stream for name in names for stream in watched(graph, name)}
        golden = play_golden(graph, self.feed, watch=watch, tables=self.tables)
        form = self._form(golden)
        right = Right.of(form, campaign.score, golden.output(campaign.sink), reference)
        return Seeded(self, seed, golden, right, {name: incoming(golden, name) for name in names})

    def _form(self, golden: Golden) -> Form:
        campaign = self.campaign
        sink = self.graph[campaign.sink]
        columns = campaign.score.reads if campaign.score.reads is not None else tuple(sink.schema.names)
        for name in (*columns, *campaign.key, *((campaign.by,) if campaign.by else ())):
            if name not in sink.schema.names:
                there = ", ".join(sink.schema.names)
                raise GraphError(
                    f"the campaign names column '{name}', which sink '{sink.name}' has not; it has: {there}"
                )
        origin = golden.layout.plans[0].origin
        first, last = 0, self.last
        if campaign.by is not None:
            place = [Form.place_of(piece, campaign.by) for piece in golden.output(campaign.sink)]
            numbers = np.concatenate(place)
            numbers = numbers[numbers > np.iinfo(np.int64).min]
            if not len(numbers):
                raise GraphError(
                    f"sink '{sink.name}' puts nothing out on this feed: there is nothing to score"
                )
            first = int(numbers.min()) // campaign.section * campaign.section
            last = int(numbers.max())
        return Form(
            columns=columns,
            key=campaign.key,
            by=campaign.by,
            origin=origin,
            length=campaign.section,
            first=first,
            count=(last - first) // campaign.section + 1,
        )


@dataclass(frozen=True, slots=True)
class Hit:
    """Which of its tuples a target misses: the number of the first, and how many."""

    first: int
    count: int


@dataclass(frozen=True, slots=True)
class Harm:
    """What a trial does: faults by target and stream, the keys hit by element and block, state that is another."""

    faults: dict[str, dict[str, Fault]] = field(default_factory=dict)
    hits: dict[str, dict[int, Hashes]] = field(default_factory=dict)
    replaced: dict[str, Replaced] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Seeded:
    """The golden run of a seed, its output, and what reaches each target in it."""

    setup: Setup
    seed: int
    golden: Golden
    right: Right
    incoming: Mapping[str, Incoming]
    _others: list[Golden] = field(default_factory=list)

    def hit(self, target: str, offset: int, outage: Outage) -> Hit:
        """Convert an offset and an outage to a target's own tuples."""
        setup, known = self.setup, self.incoming[target]
        if setup.campaign.stretch == "source":
            length = outage.tuples if outage.tuples is not None else outage.seconds * setup.rate(outage)
            return Hit(*known.between(offset, offset + int(length)))
        rows = max(part.rows for part in setup.feed.rows.values())
        share = len(known) / max(1, rows)
        if outage.tuples is not None:
            count = outage.tuples
        elif outage.rate is not None:
            count = int(outage.seconds * outage.rate * share)
        else:
            assert setup.times is not None
            count = int(outage.seconds * measured_rate(setup.times[known.rows(setup.feed)], outage.label))
        return Hit(int(offset * share), count)

    def span(self, task: Task) -> tuple[int, int]:
        """Return the sections of the output in which the fault of a trial begins and ends."""
        first, last = task.offset, task.offset
        hits = [(self.incoming[t], self.hit(t, task.offset, task.outage)) for t in task.targets]
        there = [(known, hit) for known, hit in hits if hit.count and hit.first < len(known)]
        if there:
            first = min(known.position(hit.first) for known, hit in there)
            last = max(known.position(min(hit.first + hit.count, len(known)) - 1) for known, hit in there)
        return self._section(first), self._section(last)

    def _section(self, position: int) -> int:
        form, output = self.right.form, self.right.output
        if form.by is None:
            return int(form.section(np.array([position]))[0])
        # The first tuple that derives from there, or from after it, says where that is.
        later = output.section[output.tags[form.origin + 1] >= position]
        return int(later.min()) if len(later) else form.count - 1

    def run(self, task: Task, *, shortcut: bool = True) -> Trial:
        """Run a trial; without the ``shortcut`` every tuple of it from the beginning to the end."""
        model = self.setup.campaign.models[task.model]
        harm = self._crash(task, model) if isinstance(model, Crash) else Harm()
        if not isinstance(model, Crash):
            fault = Fault(model=model, seed=self.setup.campaign.seed + task.repetition)
            for target in task.targets:
                self._hit(harm, target, self.hit(target, task.offset, task.outage), fault)
        if shortcut:
            return run_trial(self.golden, harm.faults, harm.hits, harm.replaced)
        return replay_trial(self.golden, harm.faults, harm.replaced)

    def _hit(
        self, harm: Harm, target: str, hit: Hit, fault: Fault, streams: Sequence[str] | None = None
    ) -> None:
        """Let a fault hit some of a target's tuples, on all its streams or on some."""
        if not hit.count:
            return
        known = self.incoming[target]
        own = harm.faults.setdefault(target, {})
        for stream, stretches in known.stretches(hit.first, hit.count).items():
            if streams is None or stream in streams:
                own[stream] = replace(fault, stretches=stretches)
        for element, block, keys in known.hits(hit.first, hit.count):
            mine = harm.hits.setdefault(element, {})
            mine[block] = np.union1d(mine[block], keys) if block in mine else keys

    def _crash(self, task: Task, crash: Crash) -> Harm:
        setup, graph, harm = self.setup, self.setup.graph, Harm()
        block = self.golden.starting_at(task.offset)
        rate = setup.rate(task.outage)
        lost = task.outage.seconds * rate
        states: dict[str, dict[str, Pages]] = {}
        loss = Fault(model=Loss())
        if isinstance(crash.protection, Replicas) and covers(crash.protection, task.targets):
            lost = min(lost, crash.protection.failover * rate)
            group = group_of(crash.protection, task.targets)
            for reader, streams in leaving_woven(graph, group).items():
                hit = Hit(*self.incoming[reader].between(task.offset, task.offset + int(lost)))
                self._hit(harm, reader, hit, loss, streams)
            if crash.protection.diverging:
                for name in group:
                    there = self._other().state_before(element_of(self.golden, name), block)
                    own = {slot: there[slot] for slot in (f"{name}/{slot}" for slot in graph[name].slots)}
                    states.setdefault(element_of(self.golden, name), {}).update(own)
        else:
            end = task.offset + int(lost)
            for name in task.targets:
                operator, known = graph[name], self.incoming[name]
                back = come_back(crash, operator, rate=rate, chance=setup.chance(task, name))
                if back.misses:
                    self._hit(harm, name, Hit(*known.between(task.offset, end)), loss)
                if back.holds != "kept" and operator.stateful:
                    state = state_after(self.golden, known, operator, back, begin=task.offset, end=end)
                    states.setdefault(known.element, {}).update(state)
        harm.replaced.update({element: Replaced(block, pages) for element, pages in states.items() if pages})
        return harm

    def _other(self) -> Golden:
        """Return a golden run in which streams interleave in another way: what a replica has seen."""
        if not self._others:
            self._others.append(self.setup.seeded(self.seed + _REPLICA).golden)
        return self._others[0]

    def differences(self, trial: Trial) -> list[Difference]:
        """Return in what the output of a trial differs, block by block."""
        return list(trial.differences.get(self.setup.campaign.sink, {}).values())


# The seeds of replicas: far from those of golden runs.
_REPLICA = 1_000_003


def leaving_woven(graph: Graph, group: Sequence[str]) -> dict[str, list[str]]:
    """Return the streams that leave a group, of a graph that faults are woven into, by the reader they go to."""
    mine = {stream for name in group for stream in graph[name].outputs}
    found: dict[str, list[str]] = {}
    for woven in graph.of_kind(Faulty):
        if woven.role == "fault" and woven.target not in group and woven.stream in mine:
            found.setdefault(woven.target, []).append(woven.stream)
    return found


def measured_rate(times: Floats, label: str) -> float:
    """Return tuples a second: on average, or in the busiest second."""
    if len(times) < 2 or times[-1] <= times[0]:
        raise GraphError("the clock of the campaign does not go on: outages in seconds cannot be made tuples")
    if label == "peak":
        return float(np.bincount(np.floor(times - times.min()).astype(np.int64)).max())
    return float((len(times) - 1) / (times.max() - times.min()))
