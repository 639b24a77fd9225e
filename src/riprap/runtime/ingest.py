"""Sources that Spark reads: a streaming query decodes their rows and appends them to channels, batch by batch.

Its tasks decode, put bad records aside, and leave pages; the driver appends them to the channels of those who read the
source, once for each of Spark's batch numbers. Stages read the channel like any other. What Spark has read of its
source is in Spark's own checkpoint, in the element's folder under ``spark``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col
from pyspark.sql.pandas.types import to_arrow_schema

from riprap.adapters.retrying import Tell
from riprap.compiler import Plan
from riprap.errors import LedgerError, RunError
from riprap.expressions import check_type, normalise
from riprap.graph.connectors import FromKafka, FromSpark
from riprap.graph.graph import Graph
from riprap.graph.options import RunOptions
from riprap.operators.source import Source
from riprap.runtime.batches import BatchRunner
from riprap.runtime.failures import as_riprap_error
from riprap.runtime.folder import RunFolder
from riprap.runtime.kafka import await_brokers, decode, messages_of, set_messages_aside
from riprap.runtime.settings import load_setting
from riprap.runtime.spark_log import SparkLog
from riprap.runtime.task import Answer, load_plan, run_task
from riprap.stage.arrival import ReadRows

_ANSWER = "answer binary"


class Ingest:
    """The batches of an element that reads one of Spark's sources; Spark says when there is one."""

    restoring = False
    again = 0

    def __init__(
        self,
        name: str,
        graph: Graph,
        plan: Plan,
        setting: Path,
        session: SparkSession,
        runner: BatchRunner,
        *,
        options: RunOptions,
        tell: Tell,
    ) -> None:
        source = graph[plan.entries[0].name]
        assert isinstance(source, Source)
        self._source = source
        self._log = SparkLog(setting.parent / "spark", plan)
        self._tell = tell
        self._runner = runner
        # One at a time, and none once the run has been stopped.
        self._at_hand = threading.Lock()
        self._closed = False
        self._refused = False
        self._failure: BaseException | None = None
        self._query: Any = None
        interval = options.interval
        writer = answers_of(session, graph, plan, setting, options.most_rows).writeStream.foreachBatch(
            self._take
        )
        writer = writer.queryName(_free_name(session, name)).option(
            "checkpointLocation", f"file://{self._log.folder}"
        )
        self._writer: Any = (
            writer.trigger(availableNow=True)
            if interval is None
            else writer.trigger(processingTime=f"{int(interval * 1000)} milliseconds")
        )

    def start(self) -> None:
        """Start the query."""
        await_brokers([self._source], self._tell)
        self._runner.catch_up()
        self._query = self._writer.start()

    @property
    def active(self) -> bool:
        """Whether the query is going."""
        return bool(self._query.isActive)

    @property
    def busy(self) -> bool:
        """Whether a batch is under way."""
        return bool(self._query.status["isDataAvailable"])

    @property
    def failure(self) -> BaseException | None:
        """What went wrong, if anything did."""
        if self._failure is None and self._query is not None and not self._refused and not self._closed:
            self._failure = self._query.exception()
        return self._failure

    def stop(self) -> None:
        """End the query between two batches: Spark's own stop would cut off the batch at hand."""
        with self._at_hand:
            failed = self.failure is not None
            self._closed = not failed
        self._query.stop()
        self._runner.abandon()

    def cut_off(self) -> None:
        """End the query in the middle of what it does, as a crash would."""
        self._query.stop()
        with self._at_hand:
            self._closed = True
        self._runner.abandon()

    def await_end(self, seconds: float) -> None:
        """Wait a while for the query to end."""
        try:
            self._query.awaitTermination(seconds)
        except StreamingQueryException:
            # Told as what it is by whoever asks for the failure: here Spark has wrapped it.
            return

    def _take(self, answers: Any, batch: int) -> None:
        with self._at_hand:
            if self._closed:
                # Raised so that Spark does not commit it: whoever takes the run up computes it.
                self._refused = True
                raise RunError(f"batch {batch} came after the run was stopped")
            try:
                planned = self._log.planned(batch)
                if planned is None:
                    raise LedgerError(
                        f"batch {batch}: Spark's log in {self._log.folder} does not say what it had"
                    )
                self._runner.run(
                    batch,
                    planned,
                    lambda: [Answer.from_json(bytes(row.answer)) for row in answers.collect()],
                )
                # A batch of Spark's takes so long that there is nothing to be gained by going on.
                self._runner.settle()
            except BaseException as error:
                self._failure = as_riprap_error(error) if isinstance(error, PySparkException) else error
                raise self._failure from error


def answers_of(session: SparkSession, graph: Graph, plan: Plan, setting: Path, most_rows: int) -> DataFrame:
    """Return the streaming DataFrame of the tasks' answers."""
    source = graph[plan.entries[0].name]
    assert isinstance(source, Source)
    if isinstance(source.connector, FromKafka):
        frame = messages_of(session, source.connector, most_rows)
    else:
        frame = _given(session, source, plan)
    answers: DataFrame = frame.mapInArrow(Decode(str(setting)), _ANSWER)
    return answers


def _given(session: SparkSession, source: Source, plan: Plan) -> DataFrame:
    """Return the user's DataFrame, checked, with the columns that are needed."""
    assert isinstance(source.connector, FromSpark)
    frame: Any = source.connector.build(session)
    what = f"source '{source.name}' ({source.location})"
    if not isinstance(frame, DataFrame):
        raise RunError(f"{what}: its function returned {type(frame).__name__}, not a DataFrame")
    if not frame.isStreaming:
        raise RunError(
            f"{what}: its function returned a DataFrame that is not streaming: make it from spark.readStream"
        )
    columns = sorted(plan.needed[source.name])
    lacking = [c for c in columns if c not in frame.columns]
    if lacking:
        raise RunError(
            f"{what}: the DataFrame lacks '{lacking[0]}' of its schema=; it has {', '.join(frame.columns)}"
        )
    frame = frame.select(*(col(f"`{c}`") for c in columns))
    for field in to_arrow_schema(frame.schema, timezone="UTC"):
        wanted = source.schema.field(field.name).type
        if check_type(field.type) != wanted:
            raise RunError(
                f"{what}: column '{field.name}' is {field.type} in the DataFrame and {wanted} in schema="
            )
    checked: DataFrame = frame
    return checked


class Decode:
    """The function of the query's one stage: rows of Spark's in, pages of tuples left, an answer out."""

    def __init__(self, setting: str) -> None:
        self._setting = setting

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held = [batch for batch in batches if batch.num_rows]
        if not held:
            return
        context = TaskContext.get()
        assert context is not None
        number = context.getLocalProperty("streaming.sql.batchId")
        assert number is not None, "it runs only inside a streaming query"
        setting = load_setting(self._setting)
        plan = load_plan(setting.plan)
        source = plan.graph[plan.entries[0].name]
        assert isinstance(source, Source)
        began = time.perf_counter()
        rows = self._rows(source, plan, Path(setting.folder), pa.Table.from_batches(held).combine_chunks())
        task = context.partitionId()
        answer = run_task(
            plan,
            setting.site,
            batch=int(number),
            task=task,
            attempt=f"{setting.start}.{task}.{context.taskAttemptId()}",
            rows={source.name: rows},
            read_seconds=time.perf_counter() - began,
        )
        yield pa.RecordBatch.from_arrays([pa.array([answer.to_json()], pa.binary())], ["answer"])

    @staticmethod
    def _rows(source: Source, plan: Plan, folder: Path, table: pa.Table) -> ReadRows:
        if isinstance(source.connector, FromKafka):
            rows, bad = decode(source.connector, table, sorted(plan.needed[source.name]))
            set_messages_aside(source, RunFolder(folder, time.time).quarantine(source.name), bad)
            return rows
        columns = {c: normalise(table.column(c)) for c in table.column_names}
        if source.position is None:
            return ReadRows(columns, np.zeros(table.num_rows, np.int64))
        if columns[source.position].null_count:
            raise RunError(f"{source}: there is null in its position column '{source.position}'")
        return ReadRows(columns, columns[source.position].cast(pa.int64()).to_numpy())


def _free_name(session: SparkSession, name: str) -> str:
    """Return a name for a query, numbered if another run of the application is going in this session."""
    taken = {q.name for q in session.streams.active}
    return next(n for n in (name, *(f"{name}_{i}" for i in range(2, 1000))) if n not in taken)
