"""A supervised run: start it, follow it, wait for it, end it."""

from __future__ import annotations

import time
import types
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from pyspark import cloudpickle

from riprap.errors import GraphError, RiprapError, RunError
from riprap.graph.graph import Graph
from riprap.graph.options import RunOptions
from riprap.operators.sink import Sink
from riprap.runtime.changes import accept_changes
from riprap.runtime.checkpointing.durable import settle_store
from riprap.runtime.folder import RunFolder
from riprap.runtime.meter import Progress, rate_of
from riprap.runtime.run import close_books
from riprap.runtime.session import check_master
from riprap.runtime.site import Housing, left_behind, take_hold
from riprap.runtime.start import calling_off, open_folder, settle
from riprap.runtime.supervision.decisions import Patience
from riprap.runtime.supervision.journal import Recovered, read_history, read_recovered
from riprap.runtime.supervision.presence import FOLDER
from riprap.runtime.supervision.regions import RegionHaltedError
from riprap.runtime.supervision.requests import forget_requests
from riprap.runtime.supervision.roster import Conditions
from riprap.runtime.supervision.supervisor import Supervisor
from riprap.runtime.supervision.warm_up import forget_warming
from riprap.state.durable_files import save_private
from riprap.state.leases import Lease, sweep
from riprap.state.ledger import Ledger
from riprap.state.pages import page_root

_POLL_SECONDS = 0.05
_PATIENCE = Patience()


def supervise(
    graph: Graph,
    options: RunOptions,
    *,
    patience: Patience = _PATIENCE,
    spare: bool | None = None,
    stdout: int | None = None,
) -> Supervised:
    """Start an application in driver processes of its own, watch over them, and return at once.

    Every driver process has a Spark session of its own. ``patience`` says what to put up with. ``spare`` keeps a
    process with a warm session ready for one that dies; without a word it does so for runs with a trigger. ``stdout``
    is a descriptor that processes print to, instead of this one's. The graph travels to them by pickle: what its
    functions change of this process's memory stays there.
    """
    if options.spark is not None:
        raise GraphError(
            "spark=: every driver process of a supervised run has a session of its own. Give master="
        )
    options, clock = settle(graph, options), options.clock
    hosts = [host for group in graph.groups for host in group.hosts]
    for each in (options.master, *patience.standby, *hosts):
        check_master(each)
    pickled = _pickled(graph, replace(options, clock=time.time))
    folder, resume = open_folder(graph, options)
    with calling_off(folder, resume=resume, clock=clock) as held:
        options = replace(options, store=settle_store(folder.path, options.store))
        conditions = Conditions(
            options=options,
            patience=patience,
            spare=options.interval is not None if spare is None else spare,
            stdout=stdout,
        )
        one_host = all(
            each.startswith("local") for each in (options.master or "local", *patience.standby, *hosts)
        )
        # First the lease: nothing of a run that is alive may be changed. Then the sweep: the run to take up may look as
        # dead as others.
        housing, lease = take_hold(folder, options.pages, options.page_limit, one_host=one_host)
        held.callback(lease.release)
        forget_warming(folder.path)
        sweep(page_root(), clock=clock)
        changes = accept_changes(folder, graph, ignore_state=options.ignore_state, fresh=options.fresh)
        (folder.path / FOLDER).mkdir(mode=0o700, exist_ok=True)
        forget_requests(folder.path)
        # What users close over, passwords included, is in it.
        save_private(folder.path / "graph.pickle", pickled)
        supervisor = Supervisor(
            graph,
            conditions,
            folder,
            housing,
            changes,
            resume=resume,
            history=read_history(folder.read_events()),
        )
        return Supervised(graph, supervisor, folder, lease, housing, resume=resume, clock=clock)


class Supervised:
    """A supervised run. Use it as a context manager, or call :meth:`stop`."""

    def __init__(
        self,
        graph: Graph,
        supervisor: Supervisor,
        folder: RunFolder,
        lease: Lease,
        housing: Housing,
        *,
        resume: bool,
        clock: Callable[[], float],
    ) -> None:
        self.graph = graph
        self._supervisor = supervisor
        self._folder = folder
        self._lease = lease
        self._housing = housing
        self._resume = resume
        self._clock = clock
        self._began = clock()
        self._tail = MetricsTail(folder, supervisor.elements, (s.name for s in graph.of_kind(Sink)))
        self._events = folder.follow_events()
        self._recovered: list[Recovered] = []
        self._raised = False
        self._closed = False
        self._vain = False
        supervisor.thread.start()

    @property
    def folder(self) -> Path:
        """The run's folder: settings, events, metrics."""
        return self._folder.path

    @property
    def running(self) -> bool:
        """Whether anything is still going."""
        return self._supervisor.thread.is_alive()

    def progress(self) -> Progress:
        """Return how far the run has come."""
        summed = self._tail.progress(self._clock() - self._began)
        return replace(summed, quarantined=sum(self._folder.quarantined().values()))

    @property
    def has_spare(self) -> bool:
        """Whether a spare process is warm, and would take the place of one that dies."""
        return self._supervisor.drivers.has_spare

    def recoveries(self) -> list[Recovered]:
        """Return what has failed and is back, oldest first."""
        self._recovered += read_recovered(self._events.new())
        return list(self._recovered)

    @property
    def halted(self) -> dict[str, str]:
        """The consistent regions that are halted, each with the cause; the rest of the run goes on."""
        return self._supervisor.halted

    def await_ready(self) -> None:
        """Wait until every driver process has its Spark session."""
        self._await(self._supervisor.ready)

    def await_up(self) -> None:
        """Wait until every element has started."""
        self._await(self._supervisor.up)
        self._began = self._clock()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the input is used up, and raise what went wrong if the supervisor has given up.

        Return False if ``timeout`` seconds passed first. A run with a trigger goes on until it is stopped, and so does
        one of which a region is halted.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        # In slices: a thread that joins without end cannot be interrupted.
        while self._supervisor.thread.is_alive():
            left = _POLL_SECONDS if deadline is None else min(_POLL_SECONDS, deadline - time.monotonic())
            if left <= 0:
                return False
            self._supervisor.thread.join(left)
        self._close()
        self._raise()
        return True

    def stop(self, *, resume: bool = False) -> None:
        """End the run: finish what is under way, publish everything, let go of the state.

        With ``resume`` the run can be taken up again with its folder, and goes on as if it had never been stopped:
        state stays in the host's memory, and protected operators are saved as they are.

        Raise what went wrong, if something did that :meth:`wait` has not raised; the run can then be taken up again. So
        it is, in either case, where a region is halted.
        """
        self._supervisor.stop(resume=resume)
        while self._supervisor.thread.is_alive():
            self._supervisor.thread.join(_POLL_SECONDS)
        self._close()
        if not self._raised:
            self._raise()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        if error is None:
            self.stop()
        else:
            self._supervisor.halt()
            self._supervisor.thread.join()
            self._close()

    def _await(self, event: Any) -> None:
        while not event.wait(_POLL_SECONDS):
            continue
        if self._supervisor.error is not None:
            self._supervisor.thread.join()
            self._close()
            self._raise()

    def _raise(self) -> None:
        error = self._supervisor.error
        if error is not None:
            self._raised = True
            if not isinstance(error, RiprapError):
                raise RunError(f"the supervisor failed: {error!r}") from error
            other = left_behind(self.folder.parent) if self._vain else ""
            raise (type(error)(f"{error}{other}") if other else error) from error
        if self.halted:
            self._raised = True
            causes = "; ".join(f"region '{name}': {cause}" for name, cause in self.halted.items())
            raise RegionHaltedError(
                f"the run was stopped while a part of it was halted. {causes}. Take it up again: its folder is "
                f"{self.folder}"
            )

    def _close(self) -> None:
        if self._closed:
            return
        self._closed = True
        how = self._supervisor.close
        self._vain = not self._supervisor.was_up and not self._resume and not self._on_record()
        if self._vain:
            # Nothing was computed, so there is nothing to take up.
            self._folder.end()
        elif not self._supervisor.was_up and not self._resume:
            self._folder.be_latest()
        forget_warming(self.folder)
        sweep(page_root(), clock=self._clock)
        close_books(self._folder, self._lease, self._housing, self.progress(), how)
        if self._vain:
            sweep(page_root(), clock=self._clock)
            self._housing.remove()
        (self.folder / "graph.pickle").unlink(missing_ok=True)

    def _on_record(self) -> bool:
        """Say whether any element has computed a batch."""
        ledgers = (Ledger(str(folder)) for folder in self.folder.glob("elements/*/ledger"))
        return any(batch >= 0 for ledger in ledgers for batch in ledger.batches())


def _pickled(graph: Graph, options: RunOptions) -> bytes:
    try:
        pickled: bytes = cloudpickle.dumps((graph, options))  # type: ignore[no-untyped-call]
    except Exception as error:
        culprit = next((o for o in graph if not _can_travel(o)), None)
        named = f"{culprit}: it" if culprit is not None else f"application '{graph.name}'"
        raise GraphError(
            f"{named} cannot be sent to a driver process: {type(error).__name__}: {error}. Functions may not hold "
            "on to locks, threads, open files or sessions; make them inside, or run with app.run() in one process"
        ) from error
    return pickled


def _can_travel(operator: Any) -> bool:
    try:
        cloudpickle.dumps(operator)  # type: ignore[no-untyped-call]
    except Exception:
        return False
    return True


_REMEMBERED = 10


class MetricsTail:
    """Follows the metrics of a run from where they end now. A line has the totals of its element so far."""

    def __init__(self, folder: RunFolder, elements: Collection[str], sinks: Iterable[str]) -> None:
        self._following = folder.follow_metrics()
        self._newest = folder.last_metrics(elements)
        self._recent: dict[str, list[dict[str, Any]]] = {}
        self._sinks = tuple(sinks)

    def progress(self, seconds: float) -> Progress:
        """Read what is new, and sum up the run so far, ``seconds`` after it began."""
        for line in self._following.new():
            element = line["element"]
            self._newest[element] = line
            self._recent[element] = [*self._recent.get(element, []), line][-_REMEMBERED:]
        totals = [line["total"] for line in self._newest.values() if "total" in line]
        newest = [lines[-1] for lines in self._recent.values()]
        return Progress(
            batches=max((line["batch"] + 1 for line in self._newest.values()), default=0),
            tuples_in=sum(total["in"] for total in totals),
            tuples_out={sink: sum(total["out"].get(sink, 0) for total in totals) for sink in self._sinks},
            seconds=seconds,
            tuples_per_second=sum(rate_of(lines) for lines in self._recent.values()),
            latency=max((float(line["latency"]["oldest"]) for line in newest), default=0.0),
            state_bytes=int(
                sum(o.get("state_bytes", 0) for line in newest for o in line["operators"].values())
            ),
        )
