"""What to do about a failure: one pure function of the failure, the policy, and what was decided before.

    failure                                                          action
    ------------------------------------------------------------    ---------------------------------------------
    error that another try cannot mend (``HOPELESS``),
      or rows that would be lost by stopping                         give up, with the error
    element did not start the first time                             give up, with the error
    same element, same way, same batch as its failure before,
      within ``window``, and no store that is away                   give up, with the error
    query failed, first time within ``window``                       retry the query
    query failed, again within ``window``                            restart the process
    state pages gone (host lost)                                     retry the query, which restores what it can;
                                                                     from the ``restarts``-th on, as a process that died
    process died or lost its JVM, silent, or a query stuck           restart the process
    Spark did not start the first time                               elsewhere; without a standby give up
    the process restarted ``restarts`` times within ``window``       elsewhere; without a standby left give up

The n-th restart within ``window`` waits ``backoff[n]`` seconds. To go elsewhere is to take the next master of
``standby``; then counting begins anew. What came before a give-up does not count: a person took the run up again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

# Described wrongly, not possible, or in need of a person: the next try would come to the same end.
HOPELESS = frozenset(
    {
        "GraphError",
        "NotYetError",
        "JavaNotFoundError",
        "FormatError",
        "DamagedFileError",
        "PageSpaceError",
        "SealError",
        "OwnershipError",
    }
)
# The exit code of a driver process whose JVM is gone: it ends itself, for nothing can be tried again in it.
SPARK_GONE = 70


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Something that went wrong in a driver process, at a time."""

    time: float
    process: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ElementFailure(Failure):
    """A failure of one element; ``batch`` is the last it has on record."""

    element: str
    batch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryFailed(ElementFailure):
    """A query ended with an error. ``final``: it never ran, or no other try may be made."""

    error: str
    message: str
    final: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLost(ElementFailure):
    """State pages that the ledger names are gone."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stuck(ElementFailure):
    """A query is busy, and has completed no batch for so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessDied(Failure):
    """A driver process is gone; ``code`` is its exit code, the negative of a signal that killed it."""

    code: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Silent(Failure):
    """A driver process has given no sign of life for so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NotStarted(Failure):
    """A driver process has no Spark session. ``first``: the process never had one."""

    error: str
    message: str
    first: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryQuery:
    """Start an element's query again, in its process, after so many seconds."""

    process: str
    element: str
    after: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartProcess:
    """End what is left of a driver process and start another, after so many seconds."""

    process: str
    after: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartElsewhere:
    """Restart a driver process with another Spark master."""

    process: str
    master: str
    after: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUp:
    """End the run; ``error`` is the type of error it ends with, ``reason`` its text."""

    error: str
    reason: str


Action = RetryQuery | RestartProcess | RestartElsewhere | GiveUp


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long to wait for signs of life, and how often to try again. Times are in seconds.

    ``delay`` is how long what failed stays down before it is started again, on top of ``backoff``; ``starting`` is how
    long Spark may take to start, and a query for its first batch.
    """

    silent: float = 15.0
    stuck: float = 300.0
    starting: float = 180.0
    window: float = 600.0
    retries: int = 1
    restarts: int = 5
    backoff: tuple[float, ...] = (0.0, 1.0, 2.0, 4.0, 8.0)
    delay: float = 0.0
    standby: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    """A failure, and what was decided to do about it."""

    failure: Failure
    action: Action


def decide(failure: Failure, patience: Patience, history: Sequence[Decision]) -> Action:
    """Say what to do about a failure; ``history`` is what was decided before, oldest first."""
    past = _since_given_up(history)
    hopeless = _hopeless(failure, patience, past)
    if hopeless is not None:
        return hopeless
    match failure:
        case HostLost() | QueryFailed():
            tries = patience.restarts if isinstance(failure, HostLost) else patience.retries
            if _failed_before(failure, patience, past) < tries:
                return RetryQuery(process=failure.process, element=failure.element, after=patience.delay)
        case NotStarted(first=True):
            return _go_elsewhere(failure, patience, past)
    return _restart(failure, patience, past)


def _since_given_up(history: Sequence[Decision]) -> Sequence[Decision]:
    ends = [i for i, d in enumerate(history) if isinstance(d.action, GiveUp)]
    return history[ends[-1] + 1 :] if ends else history


def _hopeless(failure: Failure, patience: Patience, past: Sequence[Decision]) -> GiveUp | None:
    """Give up where another try would come to the same end."""
    match failure:
        case QueryFailed(error=error, message=message, final=True):
            return GiveUp(error=error, reason=message)
        case QueryFailed(error=error, message=message) | NotStarted(error=error, message=message):
            if error in HOPELESS:
                return GiveUp(error=error, reason=message)
    if not isinstance(failure, ElementFailure):
        return None
    before = [
        d.failure
        for d in past
        if isinstance(d.failure, ElementFailure) and d.failure.element == failure.element
    ]
    recent = bool(before) and failure.time - before[-1].time <= patience.window
    if not recent or _way(before[-1]) != _way(failure) or _may_pass(failure):
        return None
    match failure:
        case QueryFailed(error=error, message=message):
            return GiveUp(error=error, reason=message)
        case HostLost(message=message):
            return GiveUp(error="MissingPageError", reason=message)
    return GiveUp(
        error="RunError",
        reason=f"element '{failure.element}' hangs after batch {failure.batch}, and did so again when it was restarted",
    )


def _may_pass(failure: ElementFailure) -> bool:
    """Say whether the same again is no sign: a store that is away may be back."""
    return isinstance(failure, QueryFailed) and failure.error == "StoreError"


def _way(failure: ElementFailure) -> tuple[object, ...]:
    """Return what two failures have in common if one is the other over again; numbers in the text may differ."""
    text = re.sub(r"\d+", "#", failure.message) if isinstance(failure, QueryFailed) else ""
    error = failure.error if isinstance(failure, QueryFailed) else ""
    return type(failure), failure.element, failure.batch, error, text


def _failed_before(failure: ElementFailure, patience: Patience, past: Sequence[Decision]) -> int:
    return sum(
        isinstance(d.failure, type(failure))
        and d.failure.element == failure.element
        and failure.time - d.failure.time <= patience.window
        for d in past
    )


def _restart(failure: Failure, patience: Patience, past: Sequence[Decision]) -> Action:
    moves = [
        i
        for i, d in enumerate(past)
        if isinstance(d.action, RestartElsewhere) and d.action.process == failure.process
    ]
    restarts = sum(
        isinstance(d.action, RestartProcess)
        and d.action.process == failure.process
        and failure.time - d.failure.time <= patience.window
        for d in past[moves[-1] + 1 if moves else 0 :]
    )
    if restarts >= patience.restarts:
        return _go_elsewhere(failure, patience, past)
    wait = patience.backoff[min(restarts, len(patience.backoff) - 1)] if patience.backoff else 0.0
    return RestartProcess(process=failure.process, after=patience.delay + wait)


def _go_elsewhere(failure: Failure, patience: Patience, past: Sequence[Decision]) -> Action:
    taken = sum(isinstance(d.action, RestartElsewhere) and d.action.process == failure.process for d in past)
    if taken < len(patience.standby):
        master = patience.standby[taken]
        return RestartElsewhere(process=failure.process, master=master, after=patience.delay)
    match failure:
        case NotStarted(error=error, message=message) | QueryFailed(error=error, message=message):
            return GiveUp(error=error, reason=message)
    tries = f"{patience.restarts} restarts within {patience.window:g} s did not help"
    return GiveUp(error="RunError", reason=f"{describe(failure)}; {tries}")


def describe(failure: Failure) -> str:
    """Say in a line what went wrong."""
    match failure:
        case QueryFailed(element=element, error=error, message=message):
            return f"element '{element}' failed: {error}: {message.splitlines()[0] if message else ''}"
        case HostLost(element=element):
            return f"element '{element}': state pages are gone"
        case Stuck(element=element, batch=batch, seconds=seconds):
            return f"element '{element}' has completed no batch after {batch} for {seconds:.0f} s"
        case ProcessDied(process=process, code=code) if code == SPARK_GONE:
            return f"driver process '{process}' lost its JVM"
        case ProcessDied(process=process, code=code):
            how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
            return f"driver process '{process}' {how}"
        case Silent(process=process, seconds=seconds):
            return f"driver process '{process}' has been silent for {seconds:.0f} s"
        case NotStarted(process=process, message=message):
            return f"driver process '{process}' has no Spark: {message.splitlines()[0] if message else ''}"
    raise TypeError(f"no failure: {failure!r}")


def describe_action(action: Action) -> str:
    """Say in a few words what is done about it."""
    match action:
        case RetryQuery(element=element, after=after):
            return f"starting '{element}' again{_soon(after)}"
        case RestartProcess(process=process, after=after):
            return f"restarting process '{process}'{_soon(after)}"
        case RestartElsewhere(process=process, master=master, after=after):
            return f"restarting process '{process}' at {master}{_soon(after)}"
        case GiveUp():
            return "giving up"


def _soon(after: float) -> str:
    return f" in {after:g} s" if after else ""
