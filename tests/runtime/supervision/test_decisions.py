"""What is decided about failures: the table, row by row, and what holds whatever fails."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from riprap.errors import FormatError
from riprap.runtime.folder import RunFolder
from riprap.runtime.supervision.decisions import HOPELESS, Patience, decide
from riprap.runtime.supervision.failures import (
    SPARK_GONE,
    Action,
    Decision,
    Failure,
    GiveUp,
    HostLost,
    NotReset,
    NotStarted,
    ProcessDied,
    QueryFailed,
    RestartElsewhere,
    RestartProcess,
    RetryQuery,
    Silent,
    Stuck,
    describe,
    describe_action,
)
from riprap.runtime.supervision.journal import Recovered, note_decision, note_recovered, read_history, tell

PATIENCE = Patience(window=100.0, retries=1, restarts=3, backoff=(0.0, 1.0, 2.0))


def failed(
    time: float, *, batch: int = 5, error: str = "OperatorError", message: str = "row 7: no"
) -> Failure:
    return QueryFailed(time=time, process="p", element="e", batch=batch, error=error, message=message)


def died(time: float, process: str = "p") -> Failure:
    return ProcessDied(time=time, process=process, code=-9)


def follow(*failures: Failure, patience: Patience = PATIENCE) -> list[Action]:
    """Decide about failures one after the other."""
    history: list[Decision] = []
    for failure in failures:
        history.append(Decision(failure, decide(failure, patience, history)))
    return [decision.action for decision in history]


RETRY = RetryQuery(process="p", element="e", after=0.0)
HANG = Stuck(time=0.0, process="p", element="e", batch=5, seconds=9.0)
LOST = HostLost(time=0.0, process="p", element="e", batch=5, message="page 'x' is gone")
NO_SPARK = NotStarted(time=0.0, process="p", error="RunError", message="no Java", first=True)


def restart(after: float) -> RestartProcess:
    return RestartProcess(process="p", after=after)


@pytest.mark.parametrize(
    ("failures", "expected"),
    [
        pytest.param([failed(0)], [RETRY], id="a query is retried"),
        pytest.param(
            [failed(0), failed(1)],
            [RETRY, GiveUp(error="OperatorError", reason="row 7: no")],
            id="same again",
        ),
        pytest.param(
            [failed(0), failed(1, message="row 8: no")],
            [RETRY, GiveUp(error="OperatorError", reason="row 8: no")],
            id="numbers in the text do not make it another error",
        ),
        pytest.param([failed(0), failed(1, batch=6)], [RETRY, restart(0.0)], id="another batch"),
        pytest.param([failed(0), failed(1, error="RunError")], [RETRY, restart(0.0)], id="another error"),
        pytest.param([failed(0), failed(101, batch=6)], [RETRY, RETRY], id="long ago does not count"),
        pytest.param(
            [failed(0), failed(1, batch=6), failed(2)], [RETRY, restart(0.0), restart(1.0)], id="not in a row"
        ),
        pytest.param(
            [failed(0, error="RunError"), died(1), failed(2, error="RunError")],
            [RETRY, restart(0.0), GiveUp(error="RunError", reason="row 7: no")],
            id="a restart in between does not make it another error",
        ),
        pytest.param(
            [died(0), died(1), died(2), died(3)],
            [
                restart(0.0),
                restart(1.0),
                restart(2.0),
                GiveUp(
                    error="RunError",
                    reason="driver process 'p' was killed by signal 9; 3 restarts within 100 s did not help",
                ),
            ],
            id="a process that keeps dying",
        ),
        pytest.param(
            [failed(0), *(replace(died(time), code=SPARK_GONE) for time in (1, 2))],
            [RETRY, restart(0.0), restart(1.0)],
            id="without its JVM a process is dead, however often: that is no failure of an element",
        ),
        pytest.param(
            [died(0), died(60), died(120)], [restart(0.0), restart(1.0), restart(1.0)], id="now and then"
        ),
        pytest.param(
            [died(0, "q"), died(1)], [RestartProcess(process="q", after=0.0), restart(0.0)], id="each its own"
        ),
        pytest.param([Silent(time=0, process="p", seconds=20)], [restart(0.0)], id="silent"),
        pytest.param([HANG], [restart(0.0)], id="stuck"),
        pytest.param(
            [HANG, HANG],
            [
                restart(0.0),
                GiveUp(
                    error="RunError",
                    reason="element 'e' hangs after batch 5, and did so again when it was restarted",
                ),
            ],
            id="stuck again",
        ),
        pytest.param([HANG, replace(HANG, batch=9)], [restart(0.0), restart(1.0)], id="stuck elsewhere"),
        pytest.param([LOST], [RETRY], id="host lost"),
        pytest.param([LOST, replace(LOST, batch=9)], [RETRY, RETRY], id="host lost, and later once more"),
        pytest.param(
            [LOST, LOST],
            [RETRY, GiveUp(error="MissingPageError", reason="page 'x' is gone")],
            id="host lost for good",
        ),
        pytest.param([NO_SPARK], [GiveUp(error="RunError", reason="no Java")], id="no Spark at first"),
        pytest.param(
            [died(0), replace(NO_SPARK, first=False)], [restart(0.0), restart(1.0)], id="no Spark later"
        ),
        pytest.param(
            [replace(failed(0), final=True)], [GiveUp(error="OperatorError", reason="row 7: no")], id="final"
        ),
        pytest.param(
            [failed(0), failed(1), failed(2)],
            [RETRY, GiveUp(error="OperatorError", reason="row 7: no"), RETRY],
            id="taken up again after giving up",
        ),
    ],
)
def test_the_table(failures: list[Failure], expected: list[Action]) -> None:
    assert follow(*failures) == expected


@pytest.mark.parametrize("error", sorted(HOPELESS))
def test_what_cannot_be_mended_is_given_up_at_once(error: str) -> None:
    assert follow(failed(0, error=error)) == [GiveUp(error=error, reason="row 7: no")]


def test_standbys_are_taken_one_after_the_other() -> None:
    patience = replace(PATIENCE, restarts=1, standby=("spark://a", "spark://b"))
    a, b = (RestartElsewhere(process="p", master=f"spark://{name}", after=0.0) for name in "ab")
    deaths = [died(t) for t in range(6)]

    assert follow(*deaths, patience=patience)[:5] == [restart(0.0), a, restart(0.0), b, restart(0.0)]
    assert isinstance(follow(*deaths, patience=patience)[5], GiveUp)
    assert follow(NO_SPARK, patience=patience) == [a]


def test_what_fails_stays_down_for_the_delay() -> None:
    patience = replace(PATIENCE, delay=7.0)
    assert follow(failed(0), died(1), died(2), patience=patience) == [
        replace(RETRY, after=7.0),
        restart(7.0),
        restart(8.0),
    ]


PROCESSES, ELEMENTS = st.sampled_from("pq"), st.sampled_from("ef")
ABOUT = {"time": st.just(0.0), "process": PROCESSES}
OF_ELEMENT = {**ABOUT, "element": ELEMENTS, "batch": st.integers(0, 3)}
ERRORS = {
    "error": st.sampled_from(["RunError", "OperatorError", "GraphError"]),
    "message": st.sampled_from("xy"),
}
FAILURES = st.one_of(
    st.builds(QueryFailed, **OF_ELEMENT, **ERRORS, final=st.booleans()),
    st.builds(HostLost, **OF_ELEMENT, message=st.text()),
    st.builds(Stuck, **OF_ELEMENT, seconds=st.floats(0, 100)),
    st.builds(NotReset, **OF_ELEMENT, seconds=st.floats(0, 100)),
    st.builds(ProcessDied, **ABOUT, code=st.integers(-15, 3)),
    st.builds(Silent, **ABOUT, seconds=st.floats(0, 100)),
    st.builds(NotStarted, **ABOUT, **ERRORS, first=st.booleans()),
)
POLICIES = st.builds(
    Patience,
    window=st.floats(1, 50),
    retries=st.integers(0, 2),
    restarts=st.integers(0, 4),
    backoff=st.lists(st.floats(0, 9), max_size=3).map(tuple),
    delay=st.floats(0, 5),
    standby=st.lists(st.sampled_from(["a", "b"]), max_size=2).map(tuple),
)


@st.composite
def stories(draw: st.DrawFn) -> tuple[list[Failure], Patience]:
    times = sorted(draw(st.lists(st.floats(0, 200), max_size=30)))
    return [replace(draw(FAILURES), time=time) for time in times], draw(POLICIES)


@given(stories())
def test_whatever_fails_nothing_is_tried_without_end(story: tuple[list[Failure], Patience]) -> None:
    failures, patience = story
    history: list[Decision] = []
    for failure in failures:
        action = decide(failure, patience, history)
        assert action == decide(failure, patience, list(history)), "the same question has one answer"
        history.append(Decision(failure, action))
        if isinstance(action, GiveUp):
            break
    for process in "pq":
        restarts = [
            d.failure.time
            for d in history
            if isinstance(d.action, RestartProcess) and d.action.process == process
        ]
        moves = [d for d in history if isinstance(d.action, RestartElsewhere) and d.action.process == process]
        assert len(moves) <= len(patience.standby)
        for start in restarts:
            within = sum(0 <= time - start <= patience.window for time in restarts)
            assert within <= patience.restarts * (len(moves) + 1)
    for element in "ef":
        retries = [
            (type(d.failure), d.failure.time)
            for d in history
            if isinstance(d.action, RetryQuery) and d.action.element == element
        ]
        for kind, most in ((QueryFailed, patience.retries), (HostLost, patience.restarts)):
            times = [time for found, time in retries if found is kind]
            for start in times:
                assert sum(0 <= time - start <= patience.window for time in times) <= most


@given(stories())
def test_the_journal_gives_back_what_was_decided(
    tmp_path_factory: pytest.TempPathFactory, story: tuple[list[Failure], Patience]
) -> None:
    failures, patience = story
    folder = RunFolder(tmp_path_factory.mktemp("journal"), lambda: 1.0)
    history: list[Decision] = []
    for failure in failures:
        history.append(Decision(failure, decide(failure, patience, history)))
        note_decision(folder, history[-1])
        folder.event("warning", message="something else")

    assert read_history(folder.read_events()) == history
    told = [text for event in folder.read_events() if (text := tell(event)) is not None]
    expected = []
    for decision in history:
        expected.append(describe(decision.failure))
        if not isinstance(decision.action, GiveUp):
            expected.append(describe_action(decision.action))
    assert told == expected


def test_a_journal_of_another_version_is_refused() -> None:
    with pytest.raises(FormatError, match="riprap-supervision/9"):
        read_history([{"event": "failure", "format": "riprap-supervision/9", "what": "ProcessDied"}])


def test_a_recovery_is_told_with_its_parts(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, lambda: 1.0)
    note_recovered(
        folder,
        Recovered(
            element="e", process="p", failure="Stuck", detect=1.0, restart=2.0, restore=0.25, catch_up=0.5,
            lost=1200, spare=True,
        ),
    )  # fmt: skip
    event = json.loads((tmp_path / "events.jsonl").read_text())
    assert {f.name for f in fields(Recovered)} < set(event)
    assert tell(event) == "element 'e' is back after 3.8 s, 1,200 tuples passed over"
