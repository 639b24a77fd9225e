"""An element's batches over tasks that stay: plan one from the input there is, have it computed, hand it over, go on.

    idle --input--> computing --every bucket answered--> handing over --> idle
                        |
                        '-- a task is lost: Spark starts it again, and it gets the same piece
                        '-- the job is lost: it is begun again if it got somewhere, or else the element has failed

Where the session has too few slots for tasks that stay, they end after each batch and are started again for the next.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from riprap.adapters.retrying import Tell
from riprap.compiler import Plan
from riprap.errors import RunError
from riprap.graph.options import RunOptions
from riprap.runtime.batch_size import BatchSize
from riprap.runtime.batches import BatchRunner
from riprap.runtime.failures import as_riprap_error
from riprap.runtime.inflow import open_inflow
from riprap.runtime.offsets import Inflow, Offset, Piece, Planned
from riprap.runtime.resident.alone import Alone
from riprap.runtime.resident.coordinator import CancelledError, Coordinator
from riprap.runtime.resident.rounds import Rounds
from riprap.runtime.resident.task import Resident
from riprap.runtime.session import host_of
from riprap.runtime.settings import load_setting
from riprap.runtime.source_inflow import recorded
from riprap.runtime.task import Answer
from riprap.stage.recording import RecordOrder
from riprap.state.ledger import MARK, BatchRecord

# Computes a batch that is on record again, from the record before it; with windows that were found in a log.
ComputeAgain = Callable[[BatchRecord, RecordOrder], Sequence[Answer]]
Begin = Callable[[ComputeAgain], None]

# How often to look for input where there was none: a look at a folder takes some 20 microseconds.
_POLL_SECONDS = 0.005
# How often to look at what is being handed over while there is nothing else to do.
_LOOK_SECONDS = 0.1
# How long tasks may take to end that were told to.
_END_SECONDS = 5.0


class ResidentStage:
    """The batches of one element, by a thread of its own."""

    def __init__(
        self,
        name: str,
        plan: Plan,
        setting: Path,
        session: SparkSession,
        runner: BatchRunner,
        *,
        options: RunOptions,
        rates: Mapping[str, float],
        watched: bool,
        stays: bool,
        tell: Tell,
        begin: Begin,
        conclude: Callable[[], None],
    ) -> None:
        """``begin`` is called before the first batch, with what computes one again that is on record; ``conclude`` in
        the end, if that comes in good order, when all is handed over."""
        self._plan = plan
        self._setting = str(setting)
        self._session = session
        self._runner = runner
        self._options = options
        self._rates = rates
        self._watched = watched
        self._size = (
            BatchSize() if options.batch_rows == "auto" and not _ordered_by_batch(plan, options) else None
        )
        self._stays = stays
        self._begin = begin
        self._conclude = conclude
        self._alone = Alone()
        self._tell = tell
        self._first = 0
        self._unsettled: deque[tuple[int, Offset]] = deque()
        self._token = secrets.token_hex(16)
        self._tag = f"riprap-{secrets.token_hex(8)}"
        self._name = name
        self._coordinator = Coordinator(plan.tasks, self._token, host=host_of(session))
        self._rounds = Rounds(self._coordinator, plan, stay=stays)
        # How far the next batch goes that tasks are reading already, and its pieces.
        self._ahead: tuple[Offset, list[Piece]] | None = None
        self._job: threading.Thread | None = None
        self._over = threading.Event()
        self._cut_off = False
        self._dismissed = False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.busy = False
        # Until it is where it was; there may be much to compute again.
        self.restoring = True
        self.again = 0

    def start(self) -> None:
        """Start the tasks, and the batches."""
        self._thread.start()

    @property
    def active(self) -> bool:
        """Whether batches go on."""
        return self._thread.is_alive()

    @property
    def failure(self) -> BaseException | None:
        """What went wrong, if anything did."""
        return self._failure

    def stop(self) -> None:
        """End between two batches."""
        self._over.set()
        self._thread.join()

    def cut_off(self) -> None:
        """End in the middle of what there is, as a crash would."""
        self._cut_off = True
        self._over.set()
        self._coordinator.cancel()
        self._session.sparkContext.cancelJobsWithTag(self._tag)
        self._thread.join()

    def await_end(self, seconds: float) -> None:
        """Wait a while for the batches to end."""
        self._thread.join(seconds)

    def _run(self) -> None:
        try:
            inflow = open_inflow(self._plan, load_setting(self._setting), self._options, self._rates)
            try:
                self._batches(inflow)
                self._runner.settle()
                if not self._cut_off:
                    self._conclude()
                self._commit(inflow)
            except CancelledError:
                self._runner.abandon()
                return
            finally:
                inflow.close()
                self._runner.finish()
        except BaseException as error:
            # For whoever watches over the element, in another thread.
            self._failure = error
        finally:
            self.busy = False
            self._end_job("the run has ended")
            self._coordinator.close()

    def _batches(self, inflow: Inflow) -> None:
        if self._ends:
            inflow.fix()
        if self._stays:
            self._start_job(self._runner.next)
        self._begin(lambda record, order: self._compute_again(inflow, record, order))
        self._runner.take_up()
        self.restoring = False
        self._runner.catch_up()
        offset = Planned.reached(self._runner.last, inflow.initial())
        while not self._over.is_set():
            self._runner.look()
            self._commit(inflow)
            began = time.monotonic()
            limit, rows = self._limit, 0
            ahead, self._ahead = self._ahead, None
            end = inflow.latest(offset, limit) if ahead is None else ahead[0]
            if end != offset:
                self.busy = True
                rows = self._step(inflow, offset, end, None if ahead is None else ahead[1])
                self.busy = False
                if self._size is not None:
                    self._size.learn(rows=rows, seconds=time.monotonic() - began)
            elif self._ends:
                return
            # One that ends at a mark may have been cut short.
            full = 2 * rows > limit or end.get(MARK) != offset.get(MARK)
            self._rest(self._pause(began, idle=end == offset, full=full))
            offset = end

    def _rest(self, seconds: float) -> None:
        """Wait for the next look for input, with an eye on what is being handed over."""
        end = time.monotonic() + seconds
        while not self._over.wait(min(_LOOK_SECONDS, max(0.0, end - time.monotonic()))):
            if time.monotonic() >= end:
                return
            self._runner.look()

    def _step(self, inflow: Inflow, start: Offset, end: Offset, ahead: Sequence[Piece] | None) -> int:
        """Take a batch from one offset to another; tasks may have read ahead. Return how many rows it had."""
        batch, rows = self._runner.next, 0

        def answer() -> list[Answer]:
            nonlocal rows
            pieces = ahead or inflow.pieces(start, end, alone=self._stays and self._alone.next)
            answers = self._compute(batch, pieces, self._runner.due)
            rows = sum(a.activity[e.name].tuples_in for a in answers for e in self._plan.entries)
            self._alone.learn(rows, answers)
            if not self._options.interval and 2 * rows > self._limit:
                self._look_ahead(inflow, batch + 1, end)
            return answers

        self._runner.run(batch, Planned.of(self._plan, batch, end), answer)
        self._unsettled.append((batch, end))
        return rows

    def _compute_again(self, inflow: Inflow, record: BatchRecord, order: RecordOrder) -> list[Answer]:
        """Compute a batch that is on record from the record before it, dealt out to tasks as it was."""
        start, end = Planned.covered(record, inflow.initial())
        alone = self._stays and len(record.manifests) == 1
        answers = self._compute(record.batch, inflow.pieces(start, end, alone=alone), order)
        self.again += 1
        return answers

    def _look_ahead(self, inflow: Inflow, batch: int, start: Offset) -> None:
        """Have tasks read the batch after one that is still to be recorded: it is behind, and more is waiting."""
        end = inflow.latest(start, self._limit)
        if end != start:
            self._ahead = end, inflow.pieces(start, end)
            self._rounds.read_ahead(batch, self._ahead[1])

    @property
    def _limit(self) -> int:
        """How many rows of each source, or channel, a batch is to have at most."""
        return self._options.most_rows if self._size is None else self._size.rows

    def _commit(self, inflow: Inflow) -> None:
        """Let go of the input of batches that are settled: before that, they may have to be computed again."""
        settled, end = self._runner.settled, None
        while self._unsettled and self._unsettled[0][0] <= settled:
            end = self._unsettled.popleft()[1]
        if end is not None:
            inflow.commit(end)

    @property
    def _ends(self) -> bool:
        """Whether the input is what there is at the start, so that there is nobody to wait for."""
        return self._options.interval is None and not self._watched

    def _pause(self, began: float, *, idle: bool, full: bool) -> float:
        if self._options.interval:
            if full and self._size is not None:
                # It is behind: the batch was cut short, and more is waiting.
                return 0.0
            return max(0.0, self._options.interval - (time.monotonic() - began))
        return _POLL_SECONDS if idle else 0.0

    def _compute(self, batch: int, pieces: Sequence[Piece], order: RecordOrder) -> list[Answer]:
        while True:
            if self._job is None:
                self._start_job(batch)
            try:
                answers = self._rounds.compute(batch, pieces, order)
            except RunError as error:
                # Spark counts the failures of a task over the life of its job. One that got somewhere is begun again;
                # an error of the application's is of another kind.
                if type(error) is not RunError or batch == self._first:
                    raise
                self._tell("job lost", element=self._plan.name, batch=batch, message=str(error))
                self._end_job("the job has failed")
                continue
            if not self._stays:
                self._end_job("the batch is computed")
            return answers

    def _start_job(self, batch: int) -> None:
        self._coordinator.open()
        self._rounds.begin_again()
        self._dismissed = False
        self._first = batch
        self._job = threading.Thread(target=self._run_job, name=f"{self._name} job", daemon=True)
        self._job.start()

    def _run_job(self) -> None:
        context, tasks = self._session.sparkContext, self._plan.tasks
        try:
            context.addJobTag(self._tag)
            context.setJobDescription(self._name)
            work = Resident(self._setting, self._coordinator.address, self._token)
            context.parallelize(range(tasks), tasks).mapPartitionsWithIndex(work).collect()
        except Exception as error:
            self._coordinator.fail(as_riprap_error(error))
            return
        if self._stays and not self._dismissed:
            self._coordinator.fail(
                RunError(f"the tasks of '{self._name}' ended, though nobody had told them to")
            )

    def _end_job(self, why: str) -> None:
        """Let the tasks end, and wait for them: their slots are somebody else's then."""
        job = self._job
        if job is None:
            return
        self._dismissed = True
        if not self._coordinator.dismiss(why, lambda: not job.is_alive(), _END_SECONDS):
            # One that does not come to an end, or has had no slot to begin in.
            self._session.sparkContext.cancelJobsWithTag(self._tag)
            job.join()
        self._job = None


def _ordered_by_batch(plan: Plan, options: RunOptions) -> bool:
    """Say whether it depends on the batches alone in which order tuples of several sources come.

    Of input that is there from the start, the same order comes twice only if batches are cut alike.
    """
    return options.interval is None and not plan.aligned and len(recorded(plan)) > 1
