"""Everything the trials of one seed share: the golden run, what reaches each target, scores; and running a trial."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from riprap.compiler import compile_graph
from riprap.compiler.weaving import weave
from riprap.errors import RunError
from riprap.faults.campaign import Campaign, Outage, Task
from riprap.faults.feeds import Feed, cut_feed, read_feed
from riprap.faults.golden import Golden, play_golden
from riprap.faults.interleaving import interleave, weave_lags
from riprap.faults.outputs import Output, Sections, output_of
from riprap.faults.scores import Floats
from riprap.faults.targets import Incoming, incoming, watched
from riprap.faults.trial import Trial, run_trial
from riprap.graph.faults import Fault
from riprap.graph.graph import Graph
from riprap.state.hashing import Hashes

BLOCK_ROWS = 25_000


@dataclass(frozen=True, slots=True)
class Setup:
    """A campaign on a graph and its feed, woven and cut up."""

    campaign: Campaign
    graph: Graph
    feed: Feed
    sections: Sections

    @classmethod
    def of(cls, graph: Graph, campaign: Campaign, *, block_rows: int = BLOCK_ROWS) -> Setup:
        """Weave faults into a graph, and read and cut its feed."""
        lagging = weave_lags(graph) if campaign.interleave is not None else graph
        targets = dict.fromkeys(name for together in campaign.targets for name in together)
        woven = weave(lagging, list(targets), deep=Fault(model=campaign.model).deep)
        rows = read_feed(woven, compile_graph(woven, buckets=1, tasks=1, path="direct"))
        total = max(part.rows for part in rows.values())
        beyond = [offset for offset in campaign.offsets if offset >= total]
        if beyond:
            raise RunError(f"offset {beyond[0]:,} is beyond the stream, which has {total:,} tuples")
        feed = cut_feed(woven, rows, block_rows=block_rows)
        last = int(max(part.position.max(initial=0) for part in rows.values()))
        count = last // campaign.section + 1
        return cls(campaign, woven, feed, Sections(length=campaign.section, by=campaign.by, count=count))

    def seeded(self, seed: int) -> Seeded:
        """Make the golden run of a seed."""
        graph, campaign = self.graph, self.campaign
        if campaign.interleave is not None:
            knots = tuple((self.feed.marks + 1).tolist())
            graph = interleave(graph, distance=campaign.interleave, knots=knots, seed=campaign.seed + seed)
        names = {name for together in campaign.targets for name in together}
        golden = play_golden(graph, self.feed, watch={s for n in names for s in watched(graph, n)})
        return Seeded(self, golden, {name: incoming(golden, name) for name in names})


@dataclass(frozen=True, slots=True)
class Hit:
    """Which of its tuples a target misses: the number of the first, and how many."""

    first: int
    count: int


@dataclass(frozen=True, slots=True)
class Seeded:
    """The golden run of a seed, and what reaches each target in it."""

    setup: Setup
    golden: Golden
    incoming: Mapping[str, Incoming]

    def hit(self, target: str, offset: int, outage: Outage) -> Hit:
        """Convert an offset and an outage of the source to a target's own tuples."""
        known = self.incoming[target]
        if self.setup.campaign.stretch == "source":
            return Hit(*known.between(offset, offset + int(outage.positions)))
        share = len(known) / max(part.rows for part in self.setup.feed.rows.values())
        return Hit(int(offset * share), int(outage.positions * share))

    def run(self, task: Task) -> Trial:
        """Run a trial."""
        faults: dict[str, dict[str, Fault]] = {}
        hits: dict[str, dict[int, Hashes]] = {}
        campaign = self.setup.campaign
        for target in task.targets:
            known, hit = self.incoming[target], self.hit(target, task.offset, task.outage)
            if not hit.count:
                continue
            faults[target] = {
                stream: Fault(model=campaign.model, stretches=stretches, seed=campaign.seed + task.repetition)
                for stream, stretches in known.stretches(hit.first, hit.count).items()
            }
            mine = hits.setdefault(known.element, {})
            for block, keys in known.hits(hit.first, hit.count).items():
                mine[block] = np.union1d(mine[block], keys) if block in mine else keys
        return run_trial(self.golden, faults, hits)

    def output(self, trial: Trial | None = None) -> Output:
        """Return what reaches the sink, in a trial or in the golden run."""
        campaign = self.setup.campaign
        pieces = trial.output(self.golden, campaign.sink) if trial is not None else self.golden.output(campaign.sink)
        return output_of(
            pieces,
            origin=self.golden.layout.plans[0].origin,
            read=campaign.score.reads,
            by=campaign.by,
            key=campaign.key,
        )

    def affected(self, trial: Trial) -> np.ndarray:
        """Return the tuples of the golden output that are missing, or another, in a trial."""
        differences = trial.differences.get(self.setup.campaign.sink, {})
        missing = [d.missing for d in differences.values()]
        if not missing:
            return np.empty(0, np.uint64)
        campaign = self.setup.campaign
        return output_of(
            missing,
            origin=self.golden.layout.plans[0].origin,
            read=(),
            by=campaign.by,
            key=campaign.key,
        ).identity

    def local(self, output: Output) -> Floats:
        """Return the scores of the sections of an output."""
        return output.scores(self.setup.campaign.score, self.setup.sections)
