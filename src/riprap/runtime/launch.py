"""Starting the processing elements of a run: what they share is written down, what is gone is brought back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from pyspark.sql import SparkSession

from riprap.compiler import Plan, describe_state
from riprap.errors import RunError
from riprap.feeds.listed_feed import spool_rows
from riprap.feeds.tables import Tables
from riprap.graph.graph import Graph
from riprap.graph.options import RunOptions
from riprap.operators.channel import Outlet
from riprap.operators.lookup import Lookup
from riprap.operators.source import Source
from riprap.runtime.agent.lock import await_saver
from riprap.runtime.checkpointing.durable import Durable
from riprap.runtime.checkpointing.peer import Peer, ReturningReplica, forget_unused_logs
from riprap.runtime.checkpointing.recovery import Recovery
from riprap.runtime.checkpointing.roll_forward import can_roll_forward
from riprap.runtime.delivery import Delivery
from riprap.runtime.element import Element
from riprap.runtime.folder import RunFolder
from riprap.runtime.lost_records import agree, agree_alone, read_again
from riprap.runtime.outflow import Outflow
from riprap.runtime.settings import Setting, save_setting
from riprap.runtime.site import EXECUTOR, Site
from riprap.runtime.spark_log import SparkLog
from riprap.runtime.switch import read_switch
from riprap.runtime.task import save_plan
from riprap.runtime.window_log import WindowLog


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What it takes to start the processing elements of a run."""

    graph: Graph
    session: SparkSession
    folder: RunFolder
    resume: bool
    options: RunOptions
    stays: bool = True

    def durable(self, plan: Plan) -> Durable:
        """Say where an element's checkpoints are."""
        durable = Durable.of(self.folder.path, self.folder.identity, self.options.store)
        return replace(durable, replica=plan.replica)

    def prepare(self, plan: Plan, site: Site, peers: Callable[[], list[Peer]]) -> Element:
        """Write down what an element's processes share, and open its ledger and channels; nothing runs yet.

        ``peers`` gives its copies in other replicas, if it is in a group.
        """
        if (plan.protected or plan.recorded is not None) and EXECUTOR in site.pages.folder:
            raise RunError(
                f"pages={site.pages.folder}: with protect= the driver must see all pages: name one folder"
            )
        home = self.home(plan)
        setting = self._save_setting(plan, site, home)
        if plan.replica is not None:
            forget_unused_logs(plan, self.folder.path, site)
        outlets = {
            outlet.name: Outflow(
                outlet,
                plan.outlets[outlet.ports[0][0]],
                self.folder.path,
                site.results,
                holds=plan.holds,
                replica=plan.replica,
                windows=self._windows(plan, home),
            )
            for outlet in plan.graph.of_kind(Outlet)
        }
        if self.resume:
            tell = self.folder.event
            if plan.ingests:
                log = SparkLog(home / "spark", plan)
                read_again(site, outlets, log)
                agree(plan, site.ledger, log, clock=self.options.clock, tell=tell)
            else:
                agree_alone(plan, site.ledger, handed=Delivery(home).batch, tell=tell)
            await_saver(home, tell)
            if plan.group is not None:
                site.ledger.begin(plan.buckets)
                group = next(group for group in self.graph.groups if group.name == plan.group)
                ReturningReplica(
                    plan=plan,
                    run=self.folder.path,
                    site=site,
                    home=home,
                    outlets=outlets,
                    back=group.back,
                    clock=self.options.clock,
                    tell=tell,
                    can_compute_again=lambda: can_roll_forward(self.recovery(plan, site)),
                ).take_from(peers(), active=read_switch(self.folder.path, group.name).active == plan.replica)
            if not plan.replays:
                self.recovery(plan, site).run()
        else:
            site.ledger.begin(plan.buckets)
        return Element(plan, site, home, setting, outlets, self)

    def _windows(self, plan: Plan, home: Path) -> WindowLog | None:
        operator = plan.recorded
        if operator is None or operator.recording is None:
            return None
        return WindowLog(operator.recording, home, self.folder.event, operator=operator.name)

    def recovery(self, plan: Plan, site: Site) -> Recovery:
        """Return what brings back state that is gone."""
        home = self.home(plan)
        return Recovery(
            plan=plan,
            site=site,
            durable=self.durable(plan),
            layouts=describe_state(self.graph),
            run_folder=self.folder.path,
            home=home,
            start=len(list(home.glob("setting-*.json"))),
            clock=self.options.clock,
            tell=self.folder.event,
        )

    def tables(self, plan: Plan) -> Tables:
        """Open the tables of an element's lookups, as the user gave them: the plan has no more than tasks need."""
        lookups = tuple(self.graph[o.name] for o in plan.graph.of_kind(Lookup))
        return Tables(
            self.home(plan) / "tables",
            Graph(plan.name, lookups),
            lambda text: self.folder.event("warning", element=plan.name, message=text),
        )

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
