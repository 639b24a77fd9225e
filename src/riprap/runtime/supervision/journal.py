"""Failures, decisions and recoveries as events of the run's folder, from which they are read back.

    {"event": "failure",   "format": "riprap-supervision/1", "what": "ProcessDied", "process": "main", "code": -9, ...}
    {"event": "decision",  "what": "RestartProcess", "process": "main", "after": 0.0}      of the failure before it;
                           where that is to halt a region, another may come for what else is at work in the process
    {"event": "recovered", "element": "sums", "process": "main", "failure": "ProcessDied",
                           "detect": 0.1, "restart": 2.3, "restore": 0.4, "catch_up": 1.1, "lost": 0, "spare": true}

Times of a recovery are seconds: from the last sign of life until the failure was noticed, until the element was being
prepared, until its query had started, until it had on record all that had come in by then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from riprap.errors import FormatError
from riprap.runtime.crash import reach
from riprap.runtime.folder import RunFolder
from riprap.runtime.supervision import failures
from riprap.runtime.supervision.failures import Action, Decision, Failure

FORMAT = "riprap-supervision/1"
_FAILURES: Mapping[str, type[Failure]] = {
    kind.__name__: kind
    for kind in (
        failures.QueryFailed,
        failures.HostLost,
        failures.Stuck,
        failures.NotReset,
        failures.ProcessDied,
        failures.Silent,
        failures.NotStarted,
    )
}
_ACTIONS: Mapping[str, type[Action]] = {
    kind.__name__: kind
    for kind in (
        failures.RetryQuery,
        failures.RestartProcess,
        failures.RestartElsewhere,
        failures.GiveUp,
        failures.HaltRegion,
        failures.LeaveOut,
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """An element that failed is back at work. Times are in seconds, ``lost`` is tuples passed over."""

    element: str
    process: str
    failure: str
    detect: float
    restart: float
    restore: float
    catch_up: float
    lost: int
    spare: bool

    @property
    def seconds(self) -> float:
        """How long it was away in all."""
        return self.detect + self.restart + self.restore + self.catch_up


def note_decision(folder: RunFolder, decision: Decision, *, further: bool = False) -> None:
    """Write down a failure and what was decided; ``further``: the failure is that of the decision before."""
    failure, action = decision.failure, decision.action
    details = {k: v for k, v in asdict(failure).items() if k != "time"}
    if not further:
        # The event's own time is when it was written down; a failure's is when it was noticed.
        folder.event("failure", format=FORMAT, what=type(failure).__name__, noticed=failure.time, **details)
    folder.event("decision", what=type(action).__name__, **asdict(action))
    reach("decided", 0, failure.process)


def note_recovered(folder: RunFolder, recovered: Recovered) -> None:
    """Write down that an element is back."""
    shown = {k: round(v, 3) if isinstance(v, float) else v for k, v in asdict(recovered).items()}
    folder.event("recovered", **shown)


def read_history(events: Iterable[Mapping[str, Any]]) -> list[Decision]:
    """Read back what was decided, oldest first."""
    history: list[Decision] = []
    failure: Failure | None = None
    for event in events:
        if event["event"] == "failure":
            if event.get("format") != FORMAT:
                raise FormatError(
                    f"a failure in events.jsonl is of format {event.get('format')}, not {FORMAT}"
                )
            failure = _failure(event)
        elif event["event"] == "decision" and failure is not None:
            history.append(Decision(failure, _made(_ACTIONS, event)))
    return history


def read_recovered(events: Iterable[Mapping[str, Any]]) -> list[Recovered]:
    """Read back the recoveries of a run."""
    return [
        _made({"recovered": Recovered}, {**e, "what": "recovered"})
        for e in events
        if e["event"] == "recovered"
    ]


def tell(event: Mapping[str, Any]) -> str | None:
    """Say in a line, to people, what an event of these is about; None for others."""
    match event:
        case {"event": "failure"}:
            return failures.describe(_failure(event))
        case {"event": "decision", "what": what} if what != "GiveUp":
            return failures.describe_action(_made(_ACTIONS, event))
        case {"event": "region halted", "region": region, "cause": cause, "remedy": remedy}:
            return (
                f"region '{region}' is halted, and what is not in it goes on: {cause}. To reset it: {remedy}"
            )
        case {"event": "region reset asked", "region": region}:
            return f"region '{region}' is to be reset"
        case {"event": "region reset", "region": region, "seconds": seconds}:
            return f"region '{region}' is reset after {seconds:.1f} s"
        case {"event": "recovered"}:
            (back,) = read_recovered([event])
            lost = f", {back.lost:,} tuples passed over" if back.lost else ""
            return f"element '{back.element}' is back after {back.seconds:.1f} s{lost}"
    return None


def _failure(event: Mapping[str, Any]) -> Failure:
    failure: Failure = _made(_FAILURES, {**event, "time": event["noticed"]})
    return failure


def _made(kinds: Mapping[str, Any], event: Mapping[str, Any]) -> Any:
    kind = kinds[event["what"]]
    return kind(**{field.name: event[field.name] for field in fields(kind)})
