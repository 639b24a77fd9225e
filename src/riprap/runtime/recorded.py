"""Recorded sources (files, rows in memory) and channels as a Spark data source written in Python.

It has two ways to be read, as the plan's path says. *Direct*: a partition is a task's buckets; the task reads the
batch's rows, keeps its own, computes, and yields its answer. *Exchange*: a partition is a range of rows, which the
task packs; the packets are shuffled and computed in a second stage.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from riprap.compiler import Plan
from riprap.graph.operators import Lookup
from riprap.runtime import packets
from riprap.runtime.inflow import Inflow, Offset, Piece, open_inflow, read_piece
from riprap.runtime.settings import Setting, load_setting
from riprap.runtime.tables import load_tables
from riprap.runtime.task import load_plan, run_task

NAME = "riprap_recorded"
ANSWER_SCHEMA = "task int, answer binary"


def answer_batch(task: int, answer: bytes) -> pa.RecordBatch:
    """Put a task's answer into the one row it returns."""
    return pa.RecordBatch.from_arrays(
        [pa.array([task], pa.int32()), pa.array([answer], pa.binary())], ["task", "answer"]
    )


def batch_and_attempt(start: int) -> tuple[int, str]:
    """Return the batch this task computes, and a name no other attempt has, of this start of the run or another."""
    context = TaskContext.get()
    assert context is not None
    batch = context.getLocalProperty("streaming.sql.batchId")
    assert batch is not None, "a stage runs only inside a streaming query"
    return int(batch), f"{start}.{context.partitionId()}.{context.taskAttemptId()}"


def tables_of(plan: Plan, setting: Setting, batch: int) -> dict[str, pa.Table]:
    """Return the tables of the plan's lookups, in the version that counts for a batch."""
    return load_tables(Path(setting.tables), batch) if plan.graph.of_kind(Lookup) else {}


class RecordedSource(DataSource):
    """The data source; its one option is the run's setting file."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        setting = load_setting(self.options["setting"])
        return ANSWER_SCHEMA if load_plan(setting.plan).path == "direct" else packets.SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return RecordedReader(self.options["setting"])


class RecordedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Hands out batches, and runs tasks."""

    def __init__(self, setting_path: str) -> None:
        self._setting_path = setting_path
        self._inflow: Inflow | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Tasks get the reader too; what it found so far stays with the driver.
        return {"_setting_path": self._setting_path, "_inflow": None}

    @property
    def _setting(self) -> Setting:
        return load_setting(self._setting_path)

    @property
    def _plan(self) -> Plan:
        return load_plan(self._setting.plan)

    def _open(self) -> Inflow:
        if self._inflow is None:
            self._inflow = open_inflow(self._plan, self._setting)
        return self._inflow

    def initialOffset(self) -> Offset:
        return self._open().initial()

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._open().fix()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        return self._open().latest(start)

    def partitions(self, start: Offset, end: Offset) -> list[Piece]:
        return self._open().pieces(start, end)

    def commit(self, end: Offset) -> None:
        self._open().commit(end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Piece)
        plan, setting = self._plan, self._setting
        began = time.perf_counter()
        rows = read_piece(plan, setting, partition)
        seconds = time.perf_counter() - began
        if plan.path == "direct":
            batch, attempt = batch_and_attempt(setting.start)
            answer = run_task(
                plan,
                setting.site,
                batch=batch,
                task=partition.task,
                attempt=attempt,
                rows=rows,
                tables=tables_of(plan, setting, batch),
                read_seconds=seconds,
                end=partition.end(batch),
            )
            yield answer_batch(partition.task, answer.to_json())
            return
        names = [e.name for e in plan.entries]
        for name, found in rows.items():
            yield from packets.pack(plan, names.index(name), found)
