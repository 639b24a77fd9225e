"""What tasks did, added up to the line of a batch."""

from __future__ import annotations

from typing import Any

from riprap.operators.stage import Activity
from riprap.runtime.meter import Meter
from riprap.runtime.task import Answer
from riprap.state.ledger import Manifest, Record


def answer(task: int, activity: dict[str, Activity], state: dict[str, tuple[int, int]]) -> Answer:
    made = Answer(
        task=task,
        manifest=Manifest((task, task + 1), {}),
        outputs={},
        activity=activity,
        state=state,
        seconds={"compute": 1.0},
    )
    # As it travels from the task to the driver.
    return Answer.from_json(made.to_json())


def operators(*answers: Answer) -> dict[str, Any]:
    record = Record(epoch=0, batch=0, sources={"source": (0, 5)})
    line = Meter(["source"], [], {}).add(record, answers, 0.0, 1.0, 2.0)
    found: dict[str, Any] = line["operators"]
    return found


def test_tasks_are_added_up_and_what_there_is_one_of_is_not_said_twice() -> None:
    source, plain = Activity(5, 5, 0.0), Activity(5, 4, 1.0)
    split = Activity(5, 4, 1.0, streams={"a": 1, "b": 3})
    joined = Activity(4, 9, 1.0, ports=(1, 3), marks_in=2)
    did = {"source": source, "plain": plain, "split": split, "joined": joined}
    state = {"joined/0": (10, 100), "joined/1": (20, 400), "plain/0": (3, 30)}

    told = operators(answer(0, did, state), answer(1, did, state))

    assert told == {
        "source": {"in": 10, "out": 10, "seconds": 0.0},
        "plain": {"in": 10, "out": 8, "seconds": 2.0, "state_tuples": 6, "state_bytes": 60},
        "split": {"in": 10, "out": 8, "seconds": 2.0, "streams": {"a": 2, "b": 6}},
        "joined": {
            "in": 8,
            "out": 18,
            "seconds": 2.0,
            "ports": [2, 6],
            "punctuations": {"in": 4, "out": 0},
            "state_tuples": 60,
            "state_bytes": 1000,
            "slots": {"0": 20, "1": 40},
        },
    }
