"""Build the Spark query of a plan: a stream of one answer a task and batch."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col
from pyspark.sql.pandas.types import to_arrow_schema

from riprap.compiler import Plan
from riprap.errors import RunError
from riprap.expressions import check_type, normalise
from riprap.graph.connectors import FromKafka, FromSpark, ReadBySpark
from riprap.graph.graph import Graph
from riprap.graph.operators import Source
from riprap.operators.arrival import Rows
from riprap.runtime import packets
from riprap.runtime.folder import RunFolder
from riprap.runtime.inflow import recorded
from riprap.runtime.kafka import decode, messages_of, set_messages_aside
from riprap.runtime.recorded import (
    ANSWER_SCHEMA,
    NAME,
    RecordedSource,
    answer_batch,
    batch_and_attempt,
    tables_of,
)
from riprap.runtime.settings import load_setting
from riprap.runtime.task import load_plan, run_task

# Rows from Spark come in small batches; packing many together makes fewer, larger packets.
_PACK_ROWS = 250_000


def answers_of(session: SparkSession, graph: Graph, plan: Plan, setting: Path) -> DataFrame:
    """Return the streaming DataFrame of the tasks' answers."""
    session.dataSource.register(RecordedSource)
    streams = []
    if plan.inlets or recorded(plan):
        streams.append(session.readStream.format(NAME).option("setting", str(setting)).load())
    if plan.path == "direct":
        return streams[0]
    for number, entry in enumerate(plan.entries):
        source = graph[entry.name]
        assert isinstance(source, Source)
        if isinstance(source.connector, ReadBySpark):
            streams.append(_packed(session, source, plan, number, str(setting)))
    together = reduce(DataFrame.unionAll, streams)
    # Labels make this partition t of the shuffle task t: a task without rows still knows its buckets.
    shuffled = together.repartition(plan.tasks, col("label"))
    return shuffled.mapInArrow(Compute(str(setting)), ANSWER_SCHEMA)


def _packed(session: SparkSession, source: Source, plan: Plan, number: int, setting: str) -> DataFrame:
    if isinstance(source.connector, FromKafka):
        frame = messages_of(session, source.connector, load_setting(setting).batch_rows)
    else:
        frame = _given(session, source, plan)
    packed: DataFrame = frame.mapInArrow(Pack(setting, number), packets.SCHEMA)
    return packed


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


class Pack:
    """The function of the first stage: rows of a Spark source in, packets out."""

    def __init__(self, setting: str, source: int) -> None:
        self._setting = setting
        self._source = source

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        setting = load_setting(self._setting)
        plan = load_plan(setting.plan)
        source = plan.graph[plan.entries[self._source].name]
        assert isinstance(source, Source)
        quarantine = RunFolder(Path(setting.folder), time.time).quarantine(source.name)
        for table in _gathered(batches):
            if isinstance(source.connector, FromKafka):
                rows, bad = decode(source.connector, table, sorted(plan.needed[source.name]))
                set_messages_aside(source, quarantine, bad)
            else:
                rows = self._rows(source, table)
            yield from packets.pack(plan, self._source, rows)

    @staticmethod
    def _rows(source: Source, table: pa.Table) -> Rows:
        columns = {c: normalise(table.column(c)) for c in table.column_names}
        if source.position is None:
            position = np.zeros(table.num_rows, np.int64)
        elif columns[source.position].null_count:
            raise RunError(f"{source}: there is null in its position column '{source.position}'")
        else:
            position = columns[source.position].cast(pa.int64()).to_numpy()
        return Rows(columns, position)


def _gathered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(b.num_rows for b in held) >= _PACK_ROWS:
            yield pa.Table.from_batches(held).combine_chunks()
            held = []
    if held:
        yield pa.Table.from_batches(held).combine_chunks()


class Compute:
    """The function of the second stage: a task's packets in, its answer out."""

    def __init__(self, setting: str) -> None:
        self._setting = setting

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        setting = load_setting(self._setting)
        plan = load_plan(setting.plan)
        context = TaskContext.get()
        assert context is not None
        began = time.perf_counter()
        rows = packets.unpack(plan, batches)
        seconds = time.perf_counter() - began
        batch, attempt = batch_and_attempt(setting.start)
        task = context.partitionId()
        answer = run_task(
            plan,
            setting.site,
            batch=batch,
            task=task,
            attempt=attempt,
            rows=rows,
            tables=tables_of(plan, setting, batch),
            read_seconds=seconds,
        )
        yield answer_batch(task, answer.to_json())
