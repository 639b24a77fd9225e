"""Everything the trials of one seed share: the golden run, what reaches each target, scores; and running a trial."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from riprap.arrays import Floats
from riprap.compiler import compile_graph
from riprap.compiler.weaving import weave
from riprap.errors import GraphError
from riprap.faults.campaign import Campaign, Outage, Task
from riprap.faults.crash_effects import (
    Comeback,
    come_back,
    coming_back,
    leaving,
    state_after,
    take_overs,
)
from riprap.faults.feeds import CampaignInput, cut_feed, read_feed, read_tables, times_of
from riprap.faults.golden import Golden, Replaced, play_again, play_golden
from riprap.faults.interleaving import interleave, set_apart, weave_lags
from riprap.faults.models import Loss
from riprap.faults.outputs import Form, Right
from riprap.faults.placement import FaultTarget, check_changes, place, unprotected
from riprap.faults.sections import lay_out, section_at
from riprap.faults.targets import Incoming, element_of, incoming, watched
from riprap.faults.trial import Difference, Trial, replay_trial, run_trial
from riprap.graph.faults import Crash, Fault, FaultModel
from riprap.graph.graph import Graph, Restart
from riprap.graph.regions import policy_of
from riprap.kernels.given import Pages
from riprap.operators.channel import Inlet
from riprap.operators.faulty import Faulty
from riprap.state.hashing import Hashes

BLOCK_ROWS = 25_000


@dataclass(frozen=True, slots=True)
class Hit:
    """Which of its tuples a target misses: the number of the first, and how many."""

    first: int
    count: int


@dataclass(frozen=True, slots=True)
class Setup:
    """A campaign on a graph and its feed, woven and cut up. ``times`` has the time at each row of a clocked source.

    ``form`` says where the sections of the output are, and ``spans`` in which of them the fault of a trial begins and
    ends, by its name without the repetition.
    """

    campaign: Campaign
    chosen: Mapping[str, tuple[FaultTarget, ...]]
    user: Graph
    graph: Graph
    feed: CampaignInput
    tables: Mapping[str, pa.Table]
    restarts: Mapping[str, Restart]
    times: Floats | None = None
    form: Form | None = None
    spans: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    # A golden run of this process, cut where lags begin: others share what comes before them.
    _first: list[Golden] = field(default_factory=list)

    @classmethod
    def of(cls, graph: Graph, campaign: Campaign, *, block_rows: int = BLOCK_ROWS) -> Setup:
        """Weave faults into a graph, and read and cut its feed."""
        campaign, chosen = place(graph, campaign)
        bare = unprotected(graph)
        names = [name for together in campaign.targets for name in together]
        for model in campaign.models.values():
            if isinstance(model, Crash):
                for targets in campaign.targets:
                    for taken in take_overs(graph, model, targets):
                        names += leaving(graph, taken.group)
        lagging = weave_lags(bare) if campaign.interleave is not None else bare
        woven = weave(lagging, list(dict.fromkeys(names)), deep=campaign.deep)
        layout = compile_graph(woven, buckets=1, tasks=1)
        check_changes(campaign, layout)
        rows = read_feed(woven, layout)
        if len(rows) > 1 and (campaign.crashes or campaign.stretch == "source"):
            raise GraphError(
                "a crash, or stretch='source', is about positions of the source, and here are several: inject other "
                "faults, with stretch='own', or use one source"
            )
        last = max(int(part.position.max(initial=-1)) for part in rows.values())
        beyond = [offset for offset in campaign.offsets if offset > last]
        if beyond:
            raise GraphError(
                f"offset {beyond[0]:,} is beyond the stream, whose last position is {last:,}. Give smaller offsets, "
                "or a longer feed"
            )
        elements = compile_graph(bare, buckets=1, tasks=1).plans
        setup = cls(
            campaign,
            chosen,
            graph,
            woven,
            CampaignInput(rows, {}, np.empty(0, np.int64)),
            read_tables(graph),
            {o.name: plan.restart for plan in elements for o in plan.graph if not isinstance(o, Inlet)},
            times_of(graph, campaign.clock) if campaign.clock is not None else None,
        )
        bounds = sorted({position for task in campaign.tasks() for position in setup._bounds(task)})
        return replace(setup, feed=cut_feed(woven, rows, block_rows=block_rows, bounds=bounds))._laid_out()

    def _laid_out(self) -> Setup:
        """Find the sections of the output, and those of faults, by a run in which no stream lags."""
        names, golden = self._play(self.graph)
        origin, pieces = golden.layout.plans[0].origin, golden.output(self.campaign.sink)
        form = lay_out(self.campaign, self.graph[self.campaign.sink], pieces, origin=origin, last=self.last)
        arrived, output = {name: incoming(golden, name) for name in names}, form.read(pieces)
        spans = {}
        for task in self.campaign.tasks():
            if task.cell in spans:
                continue
            first, last = task.offset, task.offset
            hits = [(arrived[t], self.hit(arrived[t], task.offset, task.outage)) for t in task.targets]
            reached = [(each, hit) for each, hit in hits if hit.count and hit.first < len(each)]
            if reached:
                first = min(each.position(hit.first) for each, hit in reached)
                last = max(each.position(min(hit.first + hit.count, len(each)) - 1) for each, hit in reached)
            spans[task.cell] = section_at(form, output, first), section_at(form, output, last)
            if form.rest and spans[task.cell][0] == form.count:
                raise GraphError(
                    f"offset {task.offset:,}: the fault begins in the last section, which the stream does not reach "
                    "the end of, so that its effects are not seen. Give a smaller offset, or a longer feed"
                )
        return replace(self, form=form, spans=spans)

    def _play(self, graph: Graph) -> tuple[set[str], Golden]:
        """Make a golden run that trials can start from, and name the operators that faults may be at."""
        names = {o.target for o in graph.of_kind(Faulty) if o.role == "fault"}
        watch = {stream for name in names for stream in watched(graph, name)}
        return names, play_golden(graph, self.feed, watch=watch, tables=self.tables)

    def hit(self, arrived: Incoming, offset: int, outage: Outage) -> Hit:
        """Convert an offset and an outage to the own tuples of a target, given what comes into it."""
        if not len(arrived):
            return Hit(0, 0)
        if self.campaign.stretch == "source":
            length = outage.tuples if outage.tuples is not None else outage.seconds * self.rate(outage)
            return Hit(*arrived.between(offset, offset + int(length)))
        # Where there are several sources, positions are those of the longest.
        share = len(arrived) / max(part.rows for part in self.feed.rows.values())
        if outage.tuples is not None:
            count = outage.tuples
        elif outage.rate is not None:
            count = int(outage.seconds * outage.rate * share)
        else:
            assert self.times is not None
            count = int(outage.seconds * measured_rate(self.times[arrived.rows(self.feed)], outage.label))
        first = int(offset * share)
        return Hit(first, max(0, min(count, len(arrived) - first)))

    @property
    def last(self) -> int:
        """The last position of any source."""
        return max(int(part.position.max(initial=0)) for part in self.feed.rows.values())

    def seed_of(self, repetition: int) -> int:
        """Return the seed of the golden run a repetition is compared with: without lags all golden runs are one."""
        return repetition if self.campaign.interleave is not None else 0

    def rate(self, outage: Outage) -> float:
        """Return the tuples of the source a second during an outage."""
        if outage.rate is not None:
            return outage.rate
        assert self.times is not None
        return measured_rate(self.times, outage.label)

    def come_back(self, task: Task, crash: Crash, name: str) -> Comeback:
        """Say how a target of a trial comes back from a crash."""
        luck = random.Random(f"{self.campaign.seed} {name} {task.offset} {task.repetition}")
        return come_back(
            crash,
            replace(self.user[name], protect=policy_of(self.user, name)),
            restart=self.restarts[name],
            rate=self.rate(task.outage),
            chance=luck.random(),
        )

    def _bounds(self, task: Task) -> set[int]:
        """Return the positions at which the trial of a crash needs a state."""
        crash = self.campaign.models[task.model]
        if not isinstance(crash, Crash):
            return set()
        backs = [self.come_back(task, crash, name) for name in coming_back(self.user, crash, task.targets)]
        return {task.offset, *(max(0, task.offset - back.age) for back in backs)}

    def seeded(self, seed: int, reference: Right | None = None, *, bare: bool = False) -> Seeded:
        """Make the golden run of a seed; scores compare with that of another, or with itself.

        A ``bare`` one is for its score alone: no trial can start from it.
        """
        graph, campaign = self.graph, self.campaign
        if campaign.interleave is not None:
            knots = tuple((self.feed.marks + 1).tolist())
            graph = interleave(graph, distance=campaign.interleave, knots=knots, seed=campaign.seed + seed)
        names, golden = (set(), self._bare(graph)) if bare else self._play(graph)
        assert self.form is not None
        right = Right.of(self.form, campaign.score, golden.output(campaign.sink), reference)
        return Seeded(self, seed, golden, right, {name: incoming(golden, name) for name in names})

    def _bare(self, graph: Graph) -> Golden:
        if not self._first:
            self._first.append(play_golden(set_apart(graph), self.feed, tables=self.tables))
            return self._first[0]
        return play_again(self._first[0], replace(graph, places=self._first[0].graph.places))


@dataclass(slots=True)
class Harm:
    """What a trial does: faults by target and stream, the keys hit by element and block, state that is another.

    ``count`` is how many tuples are hit.
    """

    count: int = 0
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

    def run(self, task: Task, *, shortcut: bool = True) -> Trial:
        """Run a trial; without the ``shortcut`` every tuple of it from the beginning to the end."""
        model = self.setup.campaign.models[task.model]
        harm = Harm()
        if isinstance(model, Crash):
            self._crash(harm, task, model)
        else:
            for target in task.targets:
                hit = self.setup.hit(self.incoming[target], task.offset, task.outage)
                self._hit(harm, task, target, hit, model)
        if shortcut:
            trial = run_trial(self.golden, harm.faults, harm.hits, harm.replaced)
        else:
            trial = replay_trial(self.golden, harm.faults, harm.replaced)
        trial.hit = harm.count
        return trial

    def _hit(
        self,
        harm: Harm,
        task: Task,
        target: str,
        hit: Hit,
        model: FaultModel,
        streams: Sequence[str] | None = None,
    ) -> None:
        """Let a fault hit some of a target's tuples, on all its streams or on some."""
        if not hit.count:
            return
        arrived = self.incoming[target]
        own = harm.faults.setdefault(target, {})
        for stream, stretches in arrived.stretches(hit.first, hit.count).items():
            concerned = model.concerns(self.setup.graph.schema_of(stream).names)
            if concerned and (streams is None or stream in streams):
                own[stream] = Fault(model=model, stretches=stretches, seed=self._seed(task, target, stream))
        harm.count += hit.count
        for element, block, keys in arrived.hits(hit.first, hit.count):
            blocks = harm.hits.setdefault(element, {})
            blocks[block] = np.union1d(blocks[block], keys) if block in blocks else keys

    def _seed(self, task: Task, target: str, stream: str) -> int:
        """Draw a seed: operators that fail together, and their streams, do not lose the same by chance."""
        luck = random.Random(f"{self.setup.campaign.seed} {task.repetition} {target} {stream}")
        return luck.getrandbits(48)

    def _crash(self, harm: Harm, task: Task, crash: Crash) -> None:
        setup, graph = self.setup, self.setup.graph
        block = self.golden.starting_at(task.offset)
        rate = setup.rate(task.outage)
        lost = task.outage.seconds * rate
        states: dict[str, dict[str, Pages]] = {}
        for taken in take_overs(setup.user, crash, task.targets):
            end = task.offset + int(min(lost, taken.lost * rate))
            for reader, streams in leaving(graph, taken.group).items():
                self._hit(
                    harm, task, reader, Hit(*self.incoming[reader].between(task.offset, end)), Loss(), streams
                )
            for name in taken.group if taken.diverging else ():
                element = element_of(self.golden, name)
                replica = self._other().state_before(element, block)
                own = {slot: replica[slot] for slot in (f"{name}/{slot}" for slot in graph[name].slots)}
                states.setdefault(element, {}).update(own)
        end = task.offset + int(lost)
        for name in coming_back(setup.user, crash, task.targets):
            arrived, back = self.incoming[name], setup.come_back(task, crash, name)
            if back.misses:
                self._hit(harm, task, name, Hit(*arrived.between(task.offset, end)), Loss())
            if back.holds != "kept" and graph[name].stateful:
                state = state_after(self.golden, arrived, graph[name], back, begin=task.offset, end=end)
                states.setdefault(arrived.element, {}).update(state)
        harm.replaced.update({element: Replaced(block, pages) for element, pages in states.items() if pages})

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


def measured_rate(times: Floats, label: str) -> float:
    """Return tuples a second: on average, or in the busiest second."""
    if len(times) < 2 or times[-1] <= times[0]:
        raise GraphError("the clock of the campaign does not go on: outages in seconds cannot be made tuples")
    if label == "peak":
        return float(np.unique(np.floor(times), return_counts=True)[1].max())
    return float((len(times) - 1) / (times.max() - times.min()))
