"""A processing element on Spark, from start to end: a stage that stays, or a query that reads Spark's sources."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from riprap.compiler import Plan
from riprap.feeds.fetch_stop import FetchStop
from riprap.feeds.pacing import arrival, rates_of
from riprap.feeds.segments import SegmentLog
from riprap.graph import connectors
from riprap.operators.sink import Sink
from riprap.operators.source import Source
from riprap.runtime.agent.handle import Saver
from riprap.runtime.agent.opening import saver_of
from riprap.runtime.backlog import hand_over
from riprap.runtime.batches import BatchRunner
from riprap.runtime.checkpointing.chosen_cut import chosen_cut
from riprap.runtime.checkpointing.go_back import come_back
from riprap.runtime.checkpointing.recovery import read_wishes
from riprap.runtime.delivery import Delivery
from riprap.runtime.file_publisher import FilePublisher
from riprap.runtime.ingest import Ingest
from riprap.runtime.inlets import Inlets
from riprap.runtime.late_cuts import late_cuts_of
from riprap.runtime.meter import Meter
from riprap.runtime.offsets import END
from riprap.runtime.outflow import Outflow
from riprap.runtime.resident.stage import ComputeAgain, ResidentStage
from riprap.runtime.sinks import Publisher, make_publisher
from riprap.runtime.site import Site
from riprap.runtime.source_inflow import recorded
from riprap.runtime.stage import Pulse, Stage

if TYPE_CHECKING:
    from riprap.runtime.launch import Launch


class Element:
    """A processing element of a run: prepared, then running, then halted."""

    def __init__(
        self,
        plan: Plan,
        site: Site,
        home: Path,
        setting: Path,
        outlets: Mapping[str, Outflow],
        launch: Launch,
    ) -> None:
        self.plan = plan
        self.publishers: dict[str, Publisher] = {}
        self._site = site
        self._home = home
        self._setting = setting
        self._outlets = outlets
        # From the graph: the plan's sources carry no more than tasks need.
        self._rates = rates_of(launch.graph[s.name] for s in plan.graph.of_kind(Source))
        self._launch = launch
        self._handed = Delivery(home)
        self._inlets = Inlets(plan, launch.folder.path)
        self._stage: Stage | None = None
        self._saver: Saver | None = None
        self._finished = False
        # What is there at the start is too little for what comes by and by.
        fetched = [s for s in plan.graph.of_kind(Source) if isinstance(s.connector, connectors.Source)]
        self._watched = launch.options.interval is None and bool(plan.inlets or self._rates or fetched)
        forgetting = [s.name for s in fetched if s.connector.PROMISE.word == "forgets"]
        self._once = {name: FetchStop(home / "sources" / name) for name in forgetting}

    def take_sinks(self) -> None:
        """Take hold of what the sinks write to, and refuse what is not to be written to; nothing there is changed."""
        launch = self._launch
        for sink in self.plan.graph.of_kind(Sink):
            self.publishers[sink.name] = make_publisher(
                launch.graph[sink.name],  # type: ignore[arg-type]
                self._site.results,
                launch.session,
                run=launch.folder.identity,
                resume=launch.resume,
                tell=launch.folder.event,
                clock=launch.options.clock,
            )

    def open_sinks(self) -> None:
        """Let the sinks begin, and give them and the channels the batches an earlier process had on record.

        First all sinks must be taken hold of, those of other elements too: who is refused by one leaves the others to
        the run that had them.
        """
        for publisher in self.publishers.values():
            publisher.begin()
        for outflow in self._outlets.values():
            outflow.reopen()
        if not self.plan.replays:
            self._hand_over()

    def _hand_over(self, had: int = -1) -> None:
        had, tell = max(had, self._handed.batch), self._launch.folder.event
        hand_over(self.plan.name, self._site, self.publishers, self._outlets, had=had, tell=tell)

    def pass_over(self) -> int:
        """Go on at the live edge where the plan says so: what came in the meantime is lost, and counted."""
        if not self._launch.resume or self.plan.restart != "live":
            return 0
        batches = self._site.ledger.batches()
        done = self._site.ledger.get(batches[-1]).sources if batches else {}
        lost = self._inlets.pass_over({root: end for root, (_, end) in done.items()})
        self._launch.folder.event("passed over", element=self.plan.name, tuples=lost)
        return lost

    def start(self) -> None:
        """Start the query."""
        launch = self._launch
        arrivals = {name: arrival(self._home / "sources" / name, rate) for name, rate in self._rates.items()}
        names = () if self.plan.inlets else (e.name for e in self.plan.entries)
        before = launch.folder.last_metrics([self.plan.name]).get(self.plan.name) if launch.resume else None
        self.meter = Meter(names, self.publishers, arrivals, self.plan.inlets, before)
        self._runner = BatchRunner(
            self.plan,
            self._site,
            self.publishers,
            self._outlets,
            launch.tables(self.plan),
            launch.folder,
            self._handed,
            self.meter,
            launch.options.clock,
        )
        if not self.plan.replays:
            self._be_saved()
        for leaving in self._once.values():
            leaving.forget()
        try:
            self._stage = self._made_stage()
            self._stage.start()
        except BaseException:
            self._let_go_of_saver()
            raise

    def _begin(self, compute_again: ComputeAgain) -> None:
        """Bring back what is gone of an element that must not lose anything, and hand over what is on record."""
        if not self.plan.replays:
            return
        had = -1
        # What was asked for must not be undone by the next loss.
        wished = bool(read_wishes(self._home)) or chosen_cut(self._home) is not None
        if self._launch.resume:
            recovery = self._launch.recovery(self.plan, self._site)
            had = come_back(recovery, self._has_had, self._outlets.values(), self._handed, compute_again)
            # Wishes come last: they are for the state of now.
            recovery.run()
        self._hand_over(had)
        self._be_saved(at_once=wished)

    def _conclude(self) -> None:
        """Let those who read from this element have all its results, which takes a last cut."""
        if self.plan.holds:
            self._let_go_of_saver(save=True)
            self._runner.release_all(self._launch.durable(self.plan).url)

    def _has_had(self, name: str, batch: int) -> bool:
        """Say whether a sink, or who reads a stream, has had a batch for good."""
        end = self._outlets.get(name) or self.publishers[name]
        return end.has(batch) if isinstance(end, FilePublisher | Outflow) else batch <= self._handed.batch

    def _be_saved(self, *, at_once: bool = False) -> None:
        """Have the protected operators saved from now on."""
        if self.plan.protected:
            # What is not noted as handed over may come again, whatever a sink says of itself.
            waiting = min(self._runner.first_wanted(), self._handed.batch + 1)
            self._saver = saver_of(
                self.plan, self._site, self._home, self._launch, waiting=waiting, at_once=at_once
            )
            self._runner.saver = self._saver
        self._runner.late = late_cuts_of(self.plan, self._launch, {**self.publishers, **self._outlets})

    def _let_go_of_saver(self, *, save: bool = False) -> None:
        if self._saver is not None:
            self._saver.close(save=save)
            self._saver = None

    def _made_stage(self) -> Stage:
        launch, plan = self._launch, self.plan
        name = launch.graph.name if plan.name == launch.graph.name else f"{launch.graph.name}.{plan.name}"
        if plan.ingests:
            return Ingest(
                name,
                launch.graph,
                plan,
                self._setting,
                launch.session,
                self._runner,
                options=launch.options,
                tell=launch.folder.event,
            )
        return ResidentStage(
            name,
            plan,
            self._setting,
            launch.session,
            self._runner,
            options=launch.options,
            rates=self._rates,
            watched=self._watched,
            stays=launch.stays,
            tell=launch.folder.event,
            begin=self._begin,
            conclude=self._conclude,
        )

    @property
    def active(self) -> bool:
        """Whether batches go on."""
        return self._stage is not None and self._stage.active

    def settle(self) -> None:
        """Take the next step towards the end, where it is due: stop when all is read, then tell the readers."""
        if self._finished or self.restoring or self.failure() is not None:
            return
        if self._stage is not None and self.active and self._watched and self.all_read():
            # Who ends the run says whether the state is saved once more.
            self._stage.stop()
        if not self.active and self.failure() is None:
            self.finish()

    def finish(self) -> None:
        """Let those who read from this element know that nothing more comes."""
        self._finished = True
        for outflow in self._outlets.values():
            outflow.finish()

    def await_end(self, seconds: float) -> None:
        """Wait a while for the batches to end; what went wrong is found by :meth:`failure`."""
        if self._stage is not None:
            self._stage.await_end(seconds)

    def all_read(self) -> bool:
        """Say whether all input there is going to be is on record, and handed over."""
        if self._runner.owes:
            return False
        done = self._done()
        flushed = not self._launch.options.flush or bool(done.get(END))
        if not self.plan.inlets:
            return flushed and all(
                SegmentLog.end_of(self._home / "sources" / s.name) == done.get(s.name, 0)
                for s in recorded(self.plan)
            )
        return self._inlets.all_read(done, flushed=flushed)

    def leave_off(self) -> None:
        """Let sources that cannot be replayed fetch no more: what they have fetched is still to be computed."""
        if self.active:
            for leaving in self._once.values():
                leaving.ask()

    def held(self) -> list[str]:
        """Name the sources that cannot be replayed and have, or may have, fetched more than is on record."""
        done = self._done()
        return [
            name for name, leaving in self._once.items() if self._fetched(name, leaving) != done.get(name, 0)
        ]

    def _fetched(self, name: str, leaving: FetchStop) -> int | None:
        # One whose input has ended is not there any more to answer.
        finite = self._launch.options.interval is None
        end = SegmentLog.end_of(self._home / "sources" / name) if finite else None
        return leaving.rows if end is None else end

    def _done(self) -> dict[str, Any]:
        """Return how far each source, or channel, is on record."""
        last = self._runner.last
        return {name: end for name, (_, end) in last.sources.items()} if last is not None else {}

    @property
    def batch(self) -> int:
        """The newest batch that is on record and handed over, -1 if none is."""
        return self._runner.handed

    def behind(self, edge: Mapping[str, int | None]) -> bool:
        """Say whether channels are not yet on record up to an edge, as :meth:`edge` has given it."""
        done = self._done()
        return any(
            end is not None and (done.get(root) is None or done[root] < end) for root, end in edge.items()
        )

    def edge(self) -> dict[str, int | None]:
        """Say how far the channels it reads are complete by now."""
        return self._inlets.edge()

    @property
    def interval(self) -> float:
        """Seconds from one look for input to the next, at most."""
        return self._launch.options.interval or 0.0

    @property
    def busy(self) -> bool:
        """Whether a new batch is under way."""
        return self._stage is not None and not self.restoring and (self._stage.busy or self._runner.owes)

    @property
    def pulse(self) -> Pulse:
        """How it stands."""
        again = 0 if self._stage is None else self._stage.again
        return Pulse(self.batch, self.active and self.busy, self.restoring, again)

    @property
    def restoring(self) -> bool:
        """Whether it is not yet where it was when it ended."""
        return self._stage is not None and self._stage.restoring and self.active

    @property
    def owes(self) -> bool:
        """Whether a batch that an earlier process had on record is still to be handed over."""
        return self._runner.owes_earlier

    def halt(self, *, save: bool = False) -> None:
        """Stop between two batches; with ``save``, protected operators are saved as they are then."""
        self._end(lambda stage: stage.stop(), save=save)

    def cut_off(self) -> None:
        """End in the middle of what there is, as a crash would; for trials of recovery in one process."""
        self._end(lambda stage: stage.cut_off())

    def _end(self, how: Callable[[Stage], None], *, save: bool = False) -> None:
        if self._stage is not None:
            how(self._stage)
        self._let_go_of_saver(save=save)
        self._handed.close()

    def failure(self) -> BaseException | None:
        """Return what went wrong, if anything did."""
        return self._stage.failure if self._stage is not None else None

    def close_sinks(self) -> None:
        """Let go of what the sinks hold."""
        for each in self.publishers.values():
            each.close()

    def flush(self) -> None:
        """Make visible all that sinks have taken."""
        for publisher in self.publishers.values():
            publisher.flush()
