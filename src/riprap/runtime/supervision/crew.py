"""The processing elements of one driver process: started, watched, started again, and drained, each by itself."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from riprap.compiler import Plan
from riprap.runtime.draining import Draining
from riprap.runtime.element import Element, Launch
from riprap.runtime.failures import as_riprap_error
from riprap.runtime.kafka import explained
from riprap.runtime.site import Housing
from riprap.runtime.supervision.messages import Link
from riprap.state.ledger import Ledger


class SparkGoneError(Exception):
    """The JVM of this process does not answer, or has stopped Spark: nothing can be tried again here."""


def check_spark(session: SparkSession) -> None:
    """Raise an error unless there is a Spark to work with. A JVM that hangs gives no answer, and no error."""
    try:
        stopped = session.sparkContext._jsc.sc().isStopped()
    except (Py4JError, OSError) as error:
        raise SparkGoneError from error
    if stopped:
        raise SparkGoneError


@dataclass(slots=True)
class _Member:
    """An element at work; ``edge`` and ``batch`` are what it has to pass to have caught up."""

    element: Element
    edge: dict[str, int | None]
    batch: int
    caught_up: bool = False
    failed: bool = False


class Crew:
    """What a driver process runs. An element that fails is reported, and waits for what the supervisor decides."""

    def __init__(
        self,
        launch: Launch,
        plans: Sequence[Plan],
        housing: Housing,
        link: Link,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._launch = launch
        self._plans = tuple(plans)
        self._housing = housing
        self._link = link
        self._clock = clock
        self._members: dict[str, _Member] = {}
        self._draining: Draining | None = None

    def begin(self, names: Iterable[str], *, resume: Collection[str]) -> None:
        """Start elements, those named in ``resume`` where an earlier process left them.

        Opening a sink may replace earlier output, so first everything else must be in order.
        """
        wanted, began = set(names), self._clock()
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
        """Start an element again that has failed; the others go on."""
        member = self._members.pop(name, None)
        if member is not None:
            member.element.halt()
            member.element.close_sinks()
        self.begin([name], resume=[name])

    def stop(self, *, resume: bool = False) -> None:
        """Let elements come to an orderly end, or be taken up again later; :meth:`watch` sees to it."""
        if self._draining is None:
            self._draining = Draining(self._launch.graph, self._launch.folder, resume=resume)
            for member in self._members.values():
                member.element.leave_off()

    def watch(self) -> None:
        """Take each element a step further, and report what happened to it."""
        for name, member in list(self._members.items()):
            if member.failed:
                continue
            with self._reporting(name):
                self._step(name, member)

    def pulse(self) -> dict[str, tuple[int, bool]]:
        """Say of each element which batch it has completed, and whether it is busy."""
        going = [(n, m.element) for n, m in list(self._members.items()) if not m.failed]
        return {name: (element.batch, element.active and element.busy) for name, element in going}

    def halt(self) -> None:
        """End all queries between two batches."""
        for member in self._members.values():
            member.element.halt()
            member.element.close_sinks()

    def _prepare(self, plan: Plan, *, resume: bool) -> Element:
        site = self._housing.site(plan.name, self._launch.home(plan))
        # A process may have died after the first batch, and before anybody knew that the element had started.
        known = resume or any(batch >= 0 for batch in site.ledger.batches())
        return replace(self._launch, resume=known).prepare(plan, site)

    def _start(self, element: Element, began: float) -> None:
        edge = element.edge()
        lost = element.pass_over()
        element.start()
        member = _Member(element, edge, element.batch)
        if self._draining is not None:
            element.leave_off()
        self._members[element.plan.name] = member
        self._link.send(
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
        if not member.caught_up and (over or past):
            member.caught_up = True
            self._link.send("caught up", element=name)
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
        element.flush()
        element.close_sinks()
        del self._members[name]
        self._link.send("ended", element=name)

    def _recorded(self, name: str) -> int:
        """Return the newest batch that an element which is not at work has on record."""
        plan = next(plan for plan in self._plans if plan.name == name)
        return max(Ledger(str(self._launch.home(plan) / "ledger")).batches(), default=-1)

    @contextlib.contextmanager
    def _reporting(self, name: str, *, final: bool = False) -> Iterator[None]:
        """Report what goes wrong with an element; without Spark it is the process that has failed."""
        try:
            yield
        except Exception as failure:
            check_spark(self._launch.session)
            member = self._members.get(name)
            if member is not None:
                member.failed = True
            error = explained(as_riprap_error(failure), self._launch.graph)
            self._link.send(
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
