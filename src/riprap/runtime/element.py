"""A processing element on Spark, from start to end: a stage that stays, or a query that reads Spark's sources."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pyspark.sql import SparkSession

from riprap.channels import ChannelReader
from riprap.compiler import Plan, describe_state
from riprap.errors import RunError
from riprap.feeds.leaving import Leaving
from riprap.feeds.listed_feed import spool_rows
from riprap.feeds.pacing import pace_start
from riprap.feeds.segments import SegmentLog
from riprap.feeds.tables import Tables
from riprap.graph import connectors
from riprap.graph.graph import Graph
from riprap.graph.operators import Lookup, Outlet, Sink, Source
from riprap.graph.options import RunOptions
from riprap.runtime.agent.hired import Saver, hire
from riprap.runtime.agent.lock import await_saver
from riprap.runtime.batches import BatchRunner
from riprap.runtime.checkpointing.durable import Durable
from riprap.runtime.checkpointing.protection import Protection
from riprap.runtime.checkpointing.recovery import Recovery
from riprap.runtime.folder import RunFolder
from riprap.runtime.handed import Handed
from riprap.runtime.handing_over import hand_over
from riprap.runtime.inflow import END, has_all, recorded
from riprap.runtime.ingest import Ingest
from riprap.runtime.lost_records import agree, agree_alone
from riprap.runtime.meter import Meter
from riprap.runtime.outflow import Outflow
from riprap.runtime.resident.stage import ResidentStage
from riprap.runtime.settings import Setting, save_setting
from riprap.runtime.sinks import Publisher, make_publisher
from riprap.runtime.site import EXECUTOR, Site
from riprap.runtime.spark_log import SparkLog
from riprap.runtime.task import save_plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What it takes to start the processing elements of a run."""

    graph: Graph
    session: SparkSession
    folder: RunFolder
    resume: bool
    options: RunOptions
    stays: bool = True

    @property
    def durable(self) -> Durable:
        """Where checkpoints are."""
        return Durable.of(self.folder.path, self.folder.identity, self.options.store)

    def prepare(self, plan: Plan, site: Site) -> Element:
        """Write down what an element's processes share, and open its ledger and channels; nothing runs yet."""
        if plan.protected and EXECUTOR in site.pages.folder:
            raise RunError(
                f"pages={site.pages.folder}: with protect= the driver must see all pages: name one folder"
            )
        home = self.home(plan)
        setting = self._save_setting(plan, site, home)
        if self.resume:
            tell = self.folder.event
            if plan.ingests:
                agree(plan, site.ledger, SparkLog(home / "spark", plan), clock=self.options.clock, tell=tell)
            else:
                agree_alone(plan, site.ledger, handed=Handed(home).batch, tell=tell)
            self.recover(plan, site, setting)
        else:
            site.ledger.begin(plan.buckets)
        outlets = {
            outlet.name: Outflow(
                outlet, plan.outlets[outlet.ports[0][0]], self.folder.path / "channels", site.results
            )
            for outlet in plan.graph.of_kind(Outlet)
        }
        return Element(plan, site, home, setting, outlets, self)

    def recover(self, plan: Plan, site: Site, setting: Path) -> None:
        """Bring back state that is gone."""
        home = self.home(plan)
        await_saver(home, self.folder.event)
        Recovery(
            plan=plan,
            site=site,
            durable=self.durable,
            layouts=describe_state(self.graph),
            home=home,
            setting=setting,
            start=len(list(home.glob("setting-*.json"))),
            clock=self.options.clock,
            tell=self.folder.event,
        ).run()

    def home(self, plan: Plan) -> Path:
        """Return an element's folder."""
        return self.folder.path / "elements" / plan.name

    def _save_setting(self, plan: Plan, site: Site, home: Path) -> Path:
        home.mkdir(parents=True, exist_ok=True)
        # Workers keep what they read, and a session's outlive a run: a run taken up again has files of its own.
        number = len(list(home.glob("setting-*.json")))
        setting = Setting(
            plan=str(home / f"plan-{number}.pickle"),
            sources=str(home / "sources"),
            folder=str(self.folder.path),
            tables=str(home / "tables"),
            site=site,
            start=number,
        )
        save_plan(Path(setting.plan), plan)
        save_setting(home / f"setting-{number}.json", setting)
        for source in plan.graph.of_kind(Source):
            whole = self.graph[source.name]
            assert isinstance(whole, Source)
            spool_rows(whole, home / "sources" / source.name)
        return home / f"setting-{number}.json"


class Stage(Protocol):
    """What computes an element's batches, one after the other."""

    @property
    def active(self) -> bool:
        """Whether batches go on."""

    @property
    def busy(self) -> bool:
        """Whether a batch is under way."""

    @property
    def failure(self) -> BaseException | None:
        """What went wrong, if anything did."""

    def start(self) -> None:
        """Begin."""

    def stop(self) -> None:
        """End between two batches."""

    def cut_off(self) -> None:
        """End in the middle of what there is, as a crash would."""

    def await_end(self, seconds: float) -> None:
        """Wait a while for the batches to end."""


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
        self._rates = _rates(launch.graph, plan)
        self._launch = launch
        self._handed = Handed(home)
        self._stage: Stage | None = None
        self._saver: Saver | None = None
        self._finished = False
        # What is there at the start is too little for what comes by and by.
        fetched = [s for s in plan.graph.of_kind(Source) if isinstance(s.connector, connectors.Source)]
        self._watched = launch.options.interval is None and bool(plan.inlets or self._rates or fetched)
        self._once = {
            s.name: Leaving(home / "sources" / s.name)
            for s in fetched
            if s.connector.PROMISE.word == "forgets"
        }

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
        launch = self._launch
        for publisher in self.publishers.values():
            publisher.begin()
        for outflow in self._outlets.values():
            outflow.reopen()
        hand_over(
            self.plan.name,
            self._site,
            self.publishers,
            self._outlets,
            had=self._handed.batch,
            tell=launch.folder.event,
        )

    def pass_over(self) -> int:
        """Go on at the live edge where the plan says so: what came in the meantime is lost, and counted."""
        if not self._launch.resume or self.plan.restart != "live":
            return 0
        batches = self._site.ledger.batches()
        done = self._site.ledger.get(batches[-1]).sources if batches else {}
        lost = 0
        for root in self.plan.roots:
            readers = [
                ChannelReader(self._launch.folder.path / "channels" / c.name, self.plan.name)
                for c in self.plan.inlets.values()
                if c.root == root
            ]
            frontiers = [f for r in readers if (f := r.frontier) is not None]
            after = done[root][1] if root in done else None
            if len(frontiers) == len(readers) and (after is None or min(frontiers) > after):
                before = sum(reader.lost for reader in readers)
                for reader in readers:
                    reader.skip(after, min(frontiers))
                # One that failed before its next batch has left out the same rows already.
                lost += sum(reader.lost for reader in readers) - before
        self._launch.folder.event("passed over", element=self.plan.name, tuples=lost)
        return lost

    def start(self) -> None:
        """Start the query."""
        launch = self._launch
        arrivals = {name: _arrival(self._home / "sources" / name, rate) for name, rate in self._rates.items()}
        names = () if self.plan.inlets else (e.name for e in self.plan.entries)
        before = launch.folder.last_metrics([self.plan.name]).get(self.plan.name) if launch.resume else None
        self.meter = Meter(names, self.publishers, arrivals, self.plan.inlets, before)
        if self.plan.protected:
            self._saver = self._be_saved()
        self._runner = BatchRunner(
            self.plan,
            self._site,
            self.publishers,
            self._outlets,
            self._tables(),
            launch.folder,
            self._handed,
            self.meter,
            self._saver,
            launch.options.clock,
        )
        for leaving in self._once.values():
            leaving.forget()
        try:
            self._stage = self._made_stage()
            self._stage.start()
        except BaseException:
            self._let_go_of_saver()
            raise

    def _be_saved(self) -> Saver:
        launch, ledger = self._launch, self._site.ledger
        protection = Protection.of(
            self.plan,
            self._site,
            launch.durable,
            describe_state(launch.graph),
            home=self._home,
            channels=launch.folder.path / "channels",
        )
        batches = ledger.batches()
        newest = ledger.get(batches[-1]) if batches else None
        return hire().open(protection, launch.folder.path, newest, launch.folder.event)

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
        )

    def _tables(self) -> Tables:
        """Open the tables of the element's lookups, as the user gave them: the plan has no more than tasks need."""
        launch = self._launch
        lookups = tuple(launch.graph[o.name] for o in self.plan.graph.of_kind(Lookup))
        return Tables(
            self._home / "tables",
            Graph(self.plan.name, lookups),
            lambda text: launch.folder.event("warning", element=self.plan.name, message=text),
        )

    @property
    def active(self) -> bool:
        """Whether batches go on."""
        return self._stage is not None and self._stage.active

    def settle(self) -> None:
        """Take the next step towards the end, where it is due: stop when all is read, then tell the readers."""
        if self._finished or self.failure() is not None:
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
        channels = self._launch.folder.path / "channels"
        inlets = self.plan.inlets.values()
        readers = [ChannelReader(channels / channel.name, self.plan.name) for channel in inlets]
        for channel, reader in zip(inlets, readers, strict=True):
            # In this order: a frontier asked for after the end is the last. Others may have gone further.
            if not reader.ended or _before(done.get(channel.root), reader.frontier):
                return False
        # Where the run is stopped, channels finish and the input has not ended.
        return flushed or not all(map(has_all, readers))

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

    def _fetched(self, name: str, leaving: Leaving) -> int | None:
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
        channels = self._launch.folder.path / "channels"
        ends: dict[str, int | None] = {}
        for root in self.plan.roots:
            inlets = [c for c in self.plan.inlets.values() if c.root == root]
            frontiers = [ChannelReader(channels / c.name, self.plan.name).frontier for c in inlets]
            known = [f for f in frontiers if f is not None]
            ends[root] = min(known) if len(known) == len(frontiers) else None
        return ends

    @property
    def interval(self) -> float:
        """Seconds from one look for input to the next, at most."""
        return self._launch.options.interval or 0.0

    @property
    def busy(self) -> bool:
        """Whether a batch is under way."""
        return self._stage is not None and (self._stage.busy or self.owes)

    @property
    def owes(self) -> bool:
        """Whether a batch is on record that is still to be handed over."""
        return self._runner.owes

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
        for publisher in self.publishers.values():
            publisher.close()

    def flush(self) -> None:
        """Make visible all that sinks have taken."""
        for publisher in self.publishers.values():
            publisher.flush()


def _before(done: int | None, frontier: int | None) -> bool:
    return frontier is not None and (done is None or done < frontier)


def _rates(graph: Graph, plan: Plan) -> dict[str, float]:
    # From the graph: the plan's sources carry no more than tasks need.
    sources = (graph[s.name] for s in plan.graph.of_kind(Source))
    rates = {s.name: getattr(s.connector, "rate", None) for s in sources if isinstance(s, Source)}
    return {name: rate for name, rate in rates.items() if rate is not None}


def _arrival(folder: Path, rate: float) -> Callable[[int], float]:
    return lambda row: pace_start(folder, rate) + row / rate
