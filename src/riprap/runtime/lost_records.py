"""Agree on what has happened, when a run is taken up: the ledger says so.

    a record is damaged, and newer ones are whole          nothing is lost
    one of the newest is, and was not handed over          it has not happened: a power cut came before it was synced
    the newest that was handed over is gone or damaged     an error: nobody knows how far the input was read

Where Spark reads a source, its own log follows the ledger:

    the log lacks a batch on record, or cannot be read     it is written anew, from the record
    a record is gone, and the log has the batch            the batch has happened, and its results are lost
    neither says what a batch had                          an error: nobody knows how far the input was read

Records are synced before anything outside follows from them. They are lost all the same where a disk is damaged, where
it does not do what it says, or where the run is of a version of Riprap that did not sync.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from riprap.compiler import Plan
from riprap.errors import LedgerError
from riprap.runtime.backlog import results_gone
from riprap.runtime.batches import MOST_UNHANDED
from riprap.runtime.outflow import Outflow
from riprap.runtime.site import Site
from riprap.runtime.spark_log import SparkLog
from riprap.state.ledger import BatchRecord, Ledger


def agree_alone(plan: Plan, ledger: Ledger, *, handed: int, tell: Callable[..., None]) -> None:
    """See to it that the ledger of an element is whole; ``handed`` is the newest batch that sinks have had for certain.

    Damaged records that newer ones follow are set aside. Of those that may not have been handed over, nothing followed:
    they were never synced, nor were those after them.
    """
    recent = [batch for batch in ledger.batches() if batch > handed][-MOST_UNHANDED:]
    never = [batch for batch in ledger.damaged() if batch in recent]
    ledger.forget(batch for batch in recent if never and batch >= never[0])
    damaged = ledger.damaged()
    newest = max((batch for batch in ledger.batches() if batch not in damaged), default=-1)
    if handed > newest or any(batch > newest for batch in damaged):
        raise LedgerError(
            f"nobody knows how far '{plan.name}' has read: its ledger in {ledger.folder} ends with batch {newest}, "
            f"though there was a batch {max(handed, *damaged, newest)}. Put it back from a copy; or start a new run"
        )
    if damaged:
        ledger.set_aside(damaged)
        ledger.begin(plan.buckets)
        batches = sorted(set(damaged) - {-1})
        what = f"the ledger records of '{plan.name}' for batches {', '.join(map(str, batches))} are damaged"
        tell(
            "records lost",
            element=plan.name,
            batches=batches,
            message=f"{what}. Newer ones are whole"
            + (
                ", and nothing is lost"
                if max(batches, default=-1) <= handed
                else "; what of their results is not published is lost"
            ),
        )


def agree(
    plan: Plan, ledger: Ledger, log: SparkLog, *, clock: Callable[[], float], tell: Callable[..., None]
) -> None:
    """Bring an element's ledger and Spark's log into agreement, and tell what is lost."""
    damaged = ledger.damaged()
    newest = max((batch for batch in ledger.batches() if batch not in damaged), default=-1)
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
        went = "; what of their results is not in channels is lost"
        message = what + (went if last > newest else ". Newer ones are whole, and nothing is lost")
        tell("records lost", element=plan.name, batches=lost, message=message)
    if log.put_right(ledger.get(last)):
        message = f"Spark's log in {log.folder} had lost entries, and was put right from the ledger"
        tell("warning", element=plan.name, message=message)


def read_again(site: Site, outlets: Mapping[str, Outflow], log: SparkLog) -> None:
    """Take the newest batch of what Spark reads off the record, if its results are gone before channels had them.

    Spark has not committed it, and reads it again: the same rows, under the same number, as its log says.
    """
    newest = max(site.ledger.batches(), default=-1)
    if newest < 0 or newest in site.ledger.damaged():
        return
    record = site.ledger.get(newest)
    if any(not outlets[name].has(newest) for name in results_gone(site, record)):
        # The record may be the only one that knows what the batch had.
        log.put_right(record)
        site.ledger.forget([newest])


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
        record = BatchRecord(
            epoch=ledger.epoch,
            batch=number,
            sources={name: (ends.get(name), end) for name, end in planned.ends.items()},
            manifests=(),
            frontier=planned.frontier,
            time=now,
        )
        ledger.write(record)
        ends = planned.ends
