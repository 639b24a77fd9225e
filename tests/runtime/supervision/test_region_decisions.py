"""What is decided about failures in a consistent region: the table, and that nothing of it ends the run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.runtime.supervision.test_decisions import (
    HANG,
    LOST,
    NO_SPARK,
    PATIENCE,
    RETRY,
    died,
    failed,
    restart,
    stories,
)

from riprap.runtime.folder import RunFolder
from riprap.runtime.supervision.decisions import Patience, StruckRegion, decide
from riprap.runtime.supervision.failures import (
    Action,
    Decision,
    ElementFailure,
    Failure,
    GiveUp,
    HaltRegion,
    NotReset,
    NotStarted,
    QueryFailed,
)
from riprap.runtime.supervision.journal import note_decision, read_history

LATE = NotReset(time=0.0, process="p", element="e", batch=5, seconds=61.0)


def in_region(attempts: int, *, name: str = "r", alone: bool = True) -> StruckRegion:
    return StruckRegion(region=name, attempts=attempts, limit=3, alone=alone)


def halt(reason: str, *, error: str = "OperatorError", name: str = "r") -> HaltRegion:
    return HaltRegion(region=name, error=error, reason=reason)


OFTEN = "3 attempts to bring it back did not help"
OF_REGION = pytest.mark.parametrize(
    ("failure", "struck", "expected"),
    [
        pytest.param(failed(0), in_region(0), RETRY, id="at first a query is retried"),
        pytest.param(failed(0), in_region(1), restart(0.0), id="then its process is restarted"),
        pytest.param(
            failed(0),
            in_region(1, alone=False),
            replace(RETRY, after=1.0),
            id="unless others are at work in it",
        ),
        pytest.param(failed(0), in_region(2, alone=False), replace(RETRY, after=2.0), id="and later still"),
        pytest.param(
            failed(0),
            in_region(3, alone=False),
            halt(f"element 'e' failed: OperatorError: row 7: no; {OFTEN}"),
            id="worn out",
        ),
        pytest.param(LOST, in_region(0), RETRY, id="host lost"),
        pytest.param(LOST, in_region(1), restart(0.0), id="host lost again"),
        pytest.param(
            LOST,
            in_region(3),
            halt(f"element 'e': state pages are gone; {OFTEN}", error="MissingPageError"),
            id="host lost for good",
        ),
        pytest.param(LATE, in_region(1, alone=False), restart(0.0), id="late"),
        pytest.param(
            LATE,
            in_region(3),
            halt(f"element 'e' was not back 61 s after its reset began; {OFTEN}", error="RunError"),
            id="late for good",
        ),
        pytest.param(HANG, in_region(1), restart(0.0), id="stuck"),
        pytest.param(died(0), in_region(2), restart(0.0), id="a process"),
        pytest.param(
            died(0),
            in_region(3),
            halt(f"driver process 'p' was killed by signal 9; {OFTEN}", error="RunError"),
            id="a process for good",
        ),
        pytest.param(
            failed(0, error="FormatError"),
            in_region(0),
            halt("row 7: no", error="FormatError"),
            id="hopeless",
        ),
        pytest.param(
            replace(NO_SPARK, first=False, error="JavaNotFoundError"),
            in_region(0),
            halt("no Java", error="JavaNotFoundError"),
            id="no Spark any more, and no hope",
        ),
        pytest.param(
            replace(failed(0), final=True),
            in_region(3),
            GiveUp(error="OperatorError", reason="row 7: no"),
            id="what never ran is given up",
        ),
        pytest.param(
            NO_SPARK,
            in_region(3),
            GiveUp(error="RunError", reason="no Java"),
            id="and so is where no Spark was",
        ),
    ],
)


@OF_REGION
def test_the_table_of_regions(failure: Failure, struck: StruckRegion, expected: Action) -> None:
    assert decide(failure, PATIENCE, [], [struck]) == expected


def test_the_same_again_is_another_attempt_in_a_region() -> None:
    history = [Decision(failed(0), RETRY)]
    assert decide(failed(1), PATIENCE, history, [in_region(1)]) == restart(0.0)
    assert isinstance(decide(failed(1), PATIENCE, history), GiveUp)


def test_a_process_that_keeps_dying_halts_its_regions_and_counts_anew_for_the_others() -> None:
    history = [Decision(died(t), restart(0.0)) for t in range(3)]
    often = "driver process 'p' was killed by signal 9; 3 restarts within 100 s did not help"
    first = decide(died(3), PATIENCE, history, [in_region(0), in_region(0, name="s")])
    assert first == halt(often, error="RunError")
    history.append(Decision(died(3), first))
    assert decide(died(3), PATIENCE, history, [in_region(0, name="s")]) == restart(0.0)
    assert decide(died(3), PATIENCE, history) == restart(0.0)
    # A region elsewhere says nothing of this process.
    elsewhere = Decision(died(3, "q"), first)
    assert isinstance(decide(died(3), PATIENCE, [*history[:3], elsewhere]), GiveUp)


@pytest.mark.parametrize("failure", [HANG, LATE])
def test_what_hangs_in_a_region_that_is_halted_ends_its_process_for_the_others(failure: Failure) -> None:
    history = [Decision(failure, restart(0.0))]
    again = replace(failure, time=1.0)
    action = decide(again, PATIENCE, history, [in_region(3, alone=False)])
    assert isinstance(action, HaltRegion)
    assert decide(again, PATIENCE, [*history, Decision(again, action)]) == restart(0.0)


@given(stories(), st.lists(st.booleans(), min_size=30, max_size=30))
def test_a_region_is_not_tried_without_end_and_never_ends_the_run(
    story: tuple[list[Failure], Patience], further: list[bool]
) -> None:
    failures, patience = story
    history: list[Decision] = []
    attempts, made = 0, 0
    for failure, got_further in zip(failures, further, strict=False):
        if got_further:
            attempts = made = 0
        if isinstance(failure, ElementFailure) and failure.element != "e":
            continue
        action = decide(failure, patience, history, [in_region(attempts)])
        history.append(Decision(failure, action))
        match failure:
            case QueryFailed(final=True) | NotStarted(first=True):
                assert not isinstance(action, HaltRegion)
                if isinstance(action, GiveUp):
                    return
                continue
        assert not isinstance(action, GiveUp)
        if isinstance(action, HaltRegion):
            return
        attempts, made = attempts + 1, made + 1
        assert made <= 3


def test_a_failure_is_written_once_however_many_decisions_it_takes(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, lambda: 1.0)
    decisions = [Decision(died(3), halt("often")), Decision(died(3), restart(0.0))]
    note_decision(folder, decisions[0])
    note_decision(folder, decisions[1], further=True)
    assert [e["event"] for e in folder.read_events()] == ["failure", "decision", "decision"]
    assert read_history(folder.read_events()) == decisions
