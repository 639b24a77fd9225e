"""Agree on what has happened, when a run is taken up: the ledger says so, and Spark's log follows it.

    the log lacks a batch on record, or cannot be read     it is written anew, from the record
    a record is gone, and the log has the batch            the batch has happened; its state and results are lost, so
                                                           that protected operators come back from their checkpoints
    neither says what a batch had                          an error: nobody knows how far the input was read

Records are synced before anything else follows from them. They are lost all the same where a disk is damaged, where
it does not do what it says, or where the run is of a version of Riprap that did not sync.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from riprap.compiler import Plan
from riprap.errors import LedgerError
from riprap.runtime.spark_log import SparkLog
from riprap.runtime.task import slots_of
from riprap.state.ledger import Ledger, Manifest, Record, page_name


def agree(
    plan: Plan, ledger: Ledger, log: SparkLog | None, *, clock: Callable[[], float], tell: Callable[..., None]
) -> None:
    """Bring an element's ledger and Spark's log into agreement, and tell what is lost."""
    damaged = ledger.damaged()
    newest = max((batch for batch in ledger.batches() if batch not in damaged), default=-1)
    if log is None:
        _keep_whole(plan, ledger, newest, damaged, tell)
        return
    last = max(log.taken, newest, *damaged)
    if last > newest:
        _put_on_record(plan, ledger, log, newest, last, clock())
    # Not before that: whoever fails, or dies, on the way finds them again.
    ledger.set_aside(ledger.damaged())
    ledger.begin(plan.buckets)
    lost = sorted({*damaged, *range(newest + 1, last + 1)} - {-1})
    if lost:
        what = (
            f"the ledger records of '{plan.name}' for batches {', '.join(map(str, lost))} are gone or damaged"
        )
        went = "; what of their results is not published is lost, and so is state that no checkpoint has"
        message = what + (went if last > newest else ". Newer ones are whole, and nothing is lost")
        tell("records lost", element=plan.name, batches=lost, message=message)
    if log.put_right(ledger.get(last), ledger.find(last - 1)):
        message = f"Spark's log in {log.folder} had lost entries, and was put right from the ledger"
        tell("warning", element=plan.name, message=message)


def _put_on_record(plan: Plan, ledger: Ledger, log: SparkLog, newest: int, last: int, now: float) -> None:
    """Record what Spark's log says of batches whose records are gone, oldest first as far as it reaches back."""
    batch, before = last, log.planned(last)
    if before is None:
        raise LedgerError(
            f"nobody knows how far '{plan.name}' has read: its ledger in {ledger.folder} ends with batch {newest}, "
            f"though there was a batch {last}, and Spark's log in {log.folder} has no entry of that that can be read. "
            "Put back either folder from a copy; or start a new run"
        )
    while batch - 1 > newest and log.planned(batch - 1) is not None:
        batch -= 1
    sources = ledger.get(newest).sources if batch == newest + 1 > 0 else {}
    ends = {name: end for name, (_, end) in sources.items()}
    for number in range(batch, last + 1):
        planned = log.planned(number)
        assert planned is not None
        # Pages that nobody has: whoever takes the state up finds them gone, as after the loss of a host.
        gone = {
            slot: (page_name(epoch=ledger.epoch, batch=number, attempt="lost", slot=slot),)
            for slot in slots_of(plan)
        }
        record = Record(
            epoch=ledger.epoch,
            batch=number,
            sources={name: (ends.get(name), end) for name, end in planned.ends.items()},
            manifests=(Manifest((0, plan.buckets), gone),),
            frontier=planned.frontier,
            time=now,
        )
        ledger.write(record)
        ends = planned.ends


def _keep_whole(
    plan: Plan, ledger: Ledger, newest: int, damaged: Collection[int], tell: Callable[..., None]
) -> None:
    """Set damaged records aside that newer ones follow; without the newest nobody knows how far the input was read."""
    if any(batch > newest for batch in damaged):
        raise LedgerError(
            f"nobody knows how far '{plan.name}' has read: the newest records of its ledger in {ledger.folder}, "
            f"{', '.join(map(str, sorted(damaged)))}, are damaged. Put them back from a copy; or start a new run"
        )
    if damaged:
        ledger.set_aside(damaged)
        ledger.begin(plan.buckets)
        message = f"the ledger records of '{plan.name}' for batches {', '.join(map(str, sorted(damaged)))} are damaged"
        tell(
            "records lost",
            element=plan.name,
            batches=sorted(damaged),
            message=f"{message}. Newer ones are whole",
        )
