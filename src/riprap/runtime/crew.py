"""The processing elements of one process: started, watched, started again, and drained, each by itself.

    prepare all -> take hold of all sinks -> open all sinks -> start -> watch ... -> end

A run in one process, a driver process of a supervised one and trials of recovery all go this way.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from riprap.compiler import Plan
from riprap.errors import RiprapError
from riprap.graph.options import RunOptions
from riprap.runtime.checkpointing.peer import Peer, peers_of
from riprap.runtime.drain import Drain
from riprap.runtime.element import Element
from riprap.runtime.failures import as_riprap_error
from riprap.runtime.kafka import explained
from riprap.runtime.launch import Launch
from riprap.runtime.site import Housing
from riprap.runtime.stage import Pulse
from riprap.state.ledger import Ledger


class Report(Protocol):
    """Takes note of what an element has come to: started, failed, caught up, ended."""

    def __call__(self, what: str, **details: Any) -> None: ...


def _to_nobody(what: str, **details: Any) -> None: ...


@dataclass(slots=True)
class _Member:
    """An element at work; ``edge`` and ``batch`` are what it has to pass to have caught up."""

    element: Element
    edge: dict[str, int | None]
    batch: int
    caught_up: bool = False
    failed: bool = False


class Crew:
    """What a process runs. An element that fails is reported, and waits for what is decided; the others go on.

    ``options`` are those of elements that run otherwise than the rest.
    """

    def __init__(
        self,
        launch: Launch,
        plans: Sequence[Plan],
        housing: Housing,
        report: Report = _to_nobody,
        *,
        options: Mapping[str, RunOptions] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._launch = launch
        self._plans = tuple(plans)
        self._housing = housing
        self._report = report
        self._options = options or {}
        self._clock = clock
        self._members: dict[str, _Member] = {}
        self._draining: Drain | None = None
        # As they were started last, those that have ended or failed included.
        self.elements: dict[str, Element] = {}
        self.errors: dict[str, RiprapError] = {}

    def begin(self, names: Iterable[str], *, resume: Collection[str]) -> None:
        """Start elements, those named in ``resume`` where an earlier process left them.

        Opening a sink may replace earlier output, so first everything else must be in order.
        """
        wanted, began = set(names), self._clock()
        for name in wanted:
            self.errors.pop(name, None)
        elements = [plan for plan in self._plans if plan.name in wanted]
        new = {plan.name for plan in elements} - set(resume)
        prepared: list[Element] = []
        for plan in elements:
            with self._reporting(plan.name, final=plan.name in new):
                element = self._prepare(plan, resume=plan.name not in new)
                with _closing_sinks(element):
                    element.take_sinks()
                prepared.append(element)
        if not new <= {element.plan.name for element in prepared}:
            # The run comes to nothing: what new elements would have replaced stays.
            for element in prepared:
                if element.plan.name in new:
                    element.close_sinks()
            prepared = [element for element in prepared if element.plan.name not in new]
        opened: list[Element] = []
        for element in prepared:
            name = element.plan.name
            with self._reporting(name, final=name in new), _closing_sinks(element):
                element.open_sinks()
                opened.append(element)
        for element in opened:
            name = element.plan.name
            with self._reporting(name, final=name in new), _closing_sinks(element):
                self._start(element, began)

    def retry(self, name: str) -> None:
        """Start an element again that has failed, or was set aside; the others go on."""
        self.set_aside(name)
        self.begin([name], resume=[name])

    def set_aside(self, name: str) -> None:
        """End an element between two batches, until it is started again; the others go on."""
        member = self._members.pop(name, None)
        if member is not None:
            member.element.halt()
            member.element.close_sinks()

    def stop(self, *, resume: bool = False) -> None:
        """Let elements come to an orderly end, or be taken up again later; :meth:`watch` sees to it."""
        if self._draining is None:
            self._draining = Drain(self._launch.graph, self._launch.folder, resume=resume)
            for member in self._members.values():
                member.element.leave_off()

    @property
    def going(self) -> list[Element]:
        """The elements that have neither failed nor ended."""
        return [member.element for member in self._members.values() if not member.failed]

    def watch(self) -> None:
        """Take each element a step further, and report what happened to it."""
        for name, member in list(self._members.items()):
            if member.failed:
                continue
            with self._reporting(name):
                self._step(name, member)

    def pulse(self) -> dict[str, Pulse]:
        """Say of each element how it stands."""
        return {name: m.element.pulse for name, m in list(self._members.items()) if not m.failed}

    def halt(self) -> None:
        """End all elements between two batches, and let go of their sinks."""
        for member in self._members.values():
            member.element.halt()
        self._members.clear()
        for element in self.elements.values():
            element.close_sinks()

    def cut_off(self, name: str) -> None:
        """End an element in the middle of what there is, as a crash would."""
        element = self._members.pop(name).element
        element.cut_off()
        element.close_sinks()

    def _prepare(self, plan: Plan, *, resume: bool) -> Element:
        site = self._housing.site(plan.name, self._launch.home(plan))
        # A process may have died after the first batch, and before anybody knew that the element had started.
        # A replica has others to come back from, though it has never begun.
        returns = plan.replica is not None and not plan.replays
        resumed = resume or returns or any(batch >= 0 for batch in site.ledger.batches())
        options = self._options.get(plan.name, self._launch.options)
        launch = replace(self._launch, resume=resumed, options=options)
        return launch.prepare(plan, site, lambda: self._peers(plan))

    def _peers(self, plan: Plan) -> list[Peer]:
        """Return the copies of an element that other replicas have."""
        elements = self._launch.folder.path / "elements"
        group = next(group for group in self._launch.graph.groups if group.name == plan.group)
        return peers_of(plan, group.letters, lambda name: self._housing.site(name, elements / name), elements)

    def _start(self, element: Element, began: float) -> None:
        edge = element.edge()
        lost = element.pass_over()
        element.start()
        member = _Member(element, edge, element.batch)
        if self._draining is not None:
            element.leave_off()
        self._members[element.plan.name] = member
        self.elements[element.plan.name] = element
        self._report(
            "started",
            element=element.plan.name,
            restore=self._clock() - began,
            lost=lost,
            batch=member.batch,
        )

    def _step(self, name: str, member: _Member) -> None:
        element = member.element
        if self._draining is None:
            element.settle()
        elif self._draining.may_halt(element):
            element.halt(save=self._draining.resume)
        over = not element.active
        failure = element.failure()
        if failure is not None:
            raise failure
        past = not element.behind(member.edge) if element.plan.inlets else element.batch > member.batch
        if not member.caught_up and (over or (past and not element.restoring)):
            member.caught_up = True
            self._report("caught up", element=name)
        if over:
            self._end(name, element)

    def _end(self, name: str, element: Element) -> None:
        if self._draining is not None:
            with self._reporting(name, final=True):
                self._draining.check_held(element)
            if self._members[name].failed:
                return
        element.halt()
        if self._draining is None or not self._draining.resume:
            element.finish()
        # Its sinks are held until the others have ended too: they may be read, and belong to this run.
        element.flush()
        del self._members[name]
        self._report("ended", element=name)

    def _recorded(self, name: str) -> int:
        """Return the newest batch that an element which is not at work has on record."""
        plan = next(plan for plan in self._plans if plan.name == name)
        return max(Ledger(str(self._launch.home(plan) / "ledger")).batches(), default=-1)

    @contextlib.contextmanager
    def _reporting(self, name: str, *, final: bool = False) -> Iterator[None]:
        """Report what goes wrong with an element."""
        try:
            yield
        except Exception as failure:
            member = self._members.get(name)
            if member is not None:
                member.failed = True
            error = explained(as_riprap_error(failure), self._launch.graph)
            error.__cause__ = error.__cause__ or (failure if failure is not error else None)
            self.errors[name] = error
            self._report(
                "failed",
                element=name,
                error=type(error).__name__,
                message=str(error),
                batch=member.element.batch if member is not None else self._recorded(name),
                final=final,
            )


@contextlib.contextmanager
def _closing_sinks(element: Element) -> Iterator[None]:
    """Let go of an element's sinks if it does not start: when it is tried again, it takes hold of them again."""
    try:
        yield
    except BaseException:
        element.close_sinks()
        raise
