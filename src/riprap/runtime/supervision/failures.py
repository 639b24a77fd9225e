"""What goes wrong with driver processes and elements, and what can be done about it: values, and words for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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
class NotReset(ElementFailure):
    """An element of a consistent region has not come back within the so many seconds that a reset may take."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class HaltRegion:
    """Let the elements of a consistent region be, until a person asks for its reset; the others go on."""

    region: str
    error: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveOut:
    """Go on without a replica, of which the run would be given up if there were no other."""

    process: str
    error: str
    reason: str


Action = RetryQuery | RestartProcess | RestartElsewhere | GiveUp | HaltRegion | LeaveOut


@dataclass(frozen=True, slots=True)
class Decision:
    """A failure, and what was decided to do about it."""

    failure: Failure
    action: Action


def failure_of(process: str, report: Mapping[str, Any], time: float) -> ElementFailure:
    """Return what a driver process has reported of an element of its own."""
    about = {"time": time, "process": process, "element": report["element"], "batch": report["batch"]}
    if report["error"] == "MissingPageError":
        return HostLost(**about, message=report["message"])
    return QueryFailed(**about, error=report["error"], message=report["message"], final=report["final"])


def describe(failure: Failure) -> str:
    """Say in a line what went wrong."""
    match failure:
        case QueryFailed(element=element, error=error, message=message):
            return f"element '{element}' failed: {error}: {message.splitlines()[0] if message else ''}"
        case HostLost(element=element):
            return f"element '{element}': state pages are gone"
        case Stuck(element=element, batch=batch, seconds=seconds):
            return f"element '{element}' has completed no batch after {batch} for {seconds:.0f} s"
        case NotReset(element=element, seconds=seconds):
            return f"element '{element}' was not back {seconds:.0f} s after its reset began"
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
        case HaltRegion(region=region):
            return f"halting region '{region}'"
        case LeaveOut(process=process):
            return f"going on without '{process}'"


def _soon(after: float) -> str:
    return f" in {after:g} s" if after else ""
