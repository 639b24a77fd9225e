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

Of an element of a consistent region attempts to bring it back count, one after the other, until it has more on record:

    query failed, or its pages are gone                              retry the query; from the second attempt on restart
                                                                     the process, if nothing else is at work in it
    not back within ``timeout``, stuck, or its process is gone       restart the process
    ``limit`` attempts did not help, or it would be given up         halt the region

What had run never before is given up all the same. A process counts anew once a region of it is halted: that may have
been the cause.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from riprap.runtime.supervision.failures import (
    Action,
    Decision,
    ElementFailure,
    Failure,
    GiveUp,
    HaltRegion,
    HostLost,
    NotStarted,
    QueryFailed,
    RestartElsewhere,
    RestartProcess,
    RetryQuery,
    describe,
)

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


@dataclass(frozen=True, slots=True, kw_only=True)
class StruckRegion:
    """A region that a failure strikes: ``attempts`` of ``limit`` were made to bring back what has failed.

    ``alone``: nothing but the region is at work in the process.
    """

    region: str
    attempts: int
    limit: int
    alone: bool


def decide(
    failure: Failure, patience: Patience, history: Sequence[Decision], struck: Sequence[StruckRegion] = ()
) -> Action:
    """Say what to do about a failure; ``history`` is what was decided before, oldest first.

    Where it is to halt a region, ask again about the others that the failure strikes.
    """
    past = _since_given_up(history)
    if not struck and past and past[-1].failure == failure and isinstance(past[-1].action, HaltRegion):
        # Its region has just been halted; what is left is the process, for the others.
        return _restart(failure, patience, past)
    if not struck or _never_ran(failure):
        return _usual(failure, patience, past)
    for region in struck:
        if region.attempts >= region.limit:
            tries = f"{region.limit} {'attempt' if region.limit == 1 else 'attempts'} to bring it back did not help"
            return HaltRegion(
                region=region.region, error=_error(failure), reason=f"{describe(failure)}; {tries}"
            )
    action = _reset(failure, patience, past, struck[0])
    if isinstance(action, GiveUp):
        return HaltRegion(region=struck[0].region, error=action.error, reason=action.reason)
    return action


def _never_ran(failure: Failure) -> bool:
    match failure:
        case QueryFailed(final=True) | NotStarted(first=True):
            return True
    return False


def _reset(failure: Failure, patience: Patience, past: Sequence[Decision], region: StruckRegion) -> Action:
    """Make another attempt to bring back what belongs to a region."""
    match failure:
        case QueryFailed(error=error, message=message) | NotStarted(error=error, message=message):
            if error in HOPELESS:
                return GiveUp(error=error, reason=message)
    match failure:
        case HostLost() | QueryFailed():
            if region.attempts == 0 or not region.alone:
                after = patience.delay + _backoff(patience, region.attempts)
                return RetryQuery(process=failure.process, element=failure.element, after=after)
    return _restart(failure, patience, past)


def _usual(failure: Failure, patience: Patience, past: Sequence[Decision]) -> Action:
    """Decide about what belongs to no region."""
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
    anew = [i for i, d in enumerate(past) if _begins_anew(d, failure.process)]
    restarts = sum(
        isinstance(d.action, RestartProcess)
        and d.action.process == failure.process
        and failure.time - d.failure.time <= patience.window
        for d in past[anew[-1] + 1 if anew else 0 :]
    )
    if restarts >= patience.restarts:
        return _go_elsewhere(failure, patience, past)
    return RestartProcess(process=failure.process, after=patience.delay + _backoff(patience, restarts))


def _begins_anew(decision: Decision, process: str) -> bool:
    """Say whether restarts of a process before this do not count any more."""
    match decision.action:
        case RestartElsewhere():
            return decision.action.process == process
        case HaltRegion():
            return decision.failure.process == process
    return False


def _backoff(patience: Patience, tries: int) -> float:
    return patience.backoff[min(tries, len(patience.backoff) - 1)] if patience.backoff else 0.0


def _error(failure: Failure) -> str:
    match failure:
        case QueryFailed(error=error) | NotStarted(error=error):
            return error
        case HostLost():
            return "MissingPageError"
    return "RunError"


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
