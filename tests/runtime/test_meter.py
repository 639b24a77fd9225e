"""What tasks did, added up to the line of a batch."""

from __future__ import annotations

from typing import Any

from riprap.runtime.meter import Meter
from riprap.runtime.task import Answer
from riprap.stage.fused import OperatorActivity
from riprap.state.ledger import BatchRecord, Manifest, Output


def answer(task: int, activity: dict[str, OperatorActivity], state: dict[str, tuple[int, int]]) -> Answer:
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
    record = BatchRecord(epoch=0, batch=0, sources={"source": (0, 5)})
    line = Meter(["source"], [], {}).add(record, answers, 0.0, 1.0, 2.0)
    found: dict[str, Any] = line["operators"]
    return found


def test_tasks_are_added_up_and_what_there_is_one_of_is_not_said_twice() -> None:
    source, plain = OperatorActivity(5, 5, 0.0), OperatorActivity(5, 4, 1.0)
    split = OperatorActivity(5, 4, 1.0, streams={"a": 1, "b": 3})
    joined = OperatorActivity(4, 9, 1.0, ports=(1, 3), marks_in=2, late=3)
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
            "late": 6,
            "state_tuples": 60,
            "state_bytes": 1000,
            "slots": {"0": 20, "1": 40},
        },
    }


def test_who_goes_on_counts_from_the_beginning_and_nothing_twice() -> None:
    def batch(number: int) -> BatchRecord:
        ends = {"source": (5 * number or None, 5 * (number + 1))}
        return BatchRecord(epoch=0, batch=number, sources=ends, outputs={"sink": (Output("page", 3),)})

    computed = [answer(0, {"source": OperatorActivity(5, 5, 0.0)}, {})]
    first = Meter(["source"], ["sink"], {})
    line = first.add(batch(0), computed, 0.0, 1.0, 2.0)
    assert line["total"] == {"in": 5, "out": {"sink": 3}}

    # The process died when batch 1 was on record, and before it was counted; batch 0 comes again all the same.
    second = Meter(["source"], ["sink"], {}, before=line)
    assert (second.progress(0.0).tuples_in, second.progress(0.0).batches) == (5, 1)
    for number in (0, 1):
        second.add(batch(number), [], 0.0, 1.0, 2.0)
    line = second.add(batch(2), computed, 0.0, 1.0, 2.0)

    assert line["total"] == {"in": 15, "out": {"sink": 9}}
    assert (second.progress(0.0).tuples_in, second.progress(0.0).batches) == (15, 3)
