"""Recorded sources (files, rows in memory) as a Spark data source written in Python.

It has two ways to be read, as the plan's path says. *Direct*: a partition is a task's buckets; the task reads the
batch's rows, keeps its own, computes, and yields its answer. *Exchange*: a partition is a range of rows, which the
task packs; the packets are shuffled and computed in a second stage.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from riprap.compiler import Plan
from riprap.graph.connectors import FromSpark
from riprap.graph.operators import Source
from riprap.operators.arrival import Rows
from riprap.runtime import packets
from riprap.runtime.reading import read_rows
from riprap.runtime.segments import Feed, Segment
from riprap.runtime.settings import Setting, load_setting
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


@dataclass
class Piece(InputPartition):
    """What a task reads: for each source, rows from start to end, in these segments."""

    task: int
    sources: dict[str, tuple[int, int, list[Segment]]]


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
    """Numbers rows, hands out batches of at most ``batch_rows``, and runs tasks."""

    def __init__(self, setting_path: str) -> None:
        self._setting_path = setting_path
        self._feeds: dict[str, Feed] | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Tasks get the reader too; what it found so far stays with the driver.
        return {"_setting_path": self._setting_path, "_feeds": None}

    @property
    def _setting(self) -> Setting:
        return load_setting(self._setting_path)

    @property
    def _plan(self) -> Plan:
        return load_plan(self._setting.plan)

    def _open(self) -> dict[str, Feed]:
        if self._feeds is None:
            setting = self._setting
            self._feeds = {
                s.name: Feed(s, Path(setting.sources) / s.name, finite=setting.finite)
                for s in recorded(self._plan)
            }
        return self._feeds

    def initialOffset(self) -> dict[str, int]:
        return dict.fromkeys(self._open(), 0)

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        for feed in self._open().values():
            feed.fix()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        return {name: self._latest(name, feed, start[name]) for name, feed in self._open().items()}

    def _latest(self, name: str, feed: Feed, start: int) -> int:
        wanted = start + self._setting.batch_rows
        rate = self._setting.rates.get(name)
        if rate is not None:
            due = int((time.time() - pace_start(Path(self._setting.sources) / name)) * rate)
            wanted = max(start, min(wanted, due))
        return feed.upto(wanted)

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[Piece]:
        plan, feeds = self._plan, self._open()
        for name in feeds:
            feeds[name].upto(end[name])
        pieces = []
        for task in range(plan.tasks):
            sources = {}
            for name, feed in feeds.items():
                low, high = start[name], end[name]
                if plan.path == "exchange" or not plan.keyed:
                    span = high - low
                    low, high = low + span * task // plan.tasks, low + span * (task + 1) // plan.tasks
                sources[name] = (low, high, feed.log.between(low, high))
            pieces.append(Piece(task, sources))
        return pieces

    def commit(self, end: dict[str, int]) -> None:
        for name, feed in self._open().items():
            feed.release(end[name])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Piece)
        plan, setting = self._plan, self._setting
        began = time.perf_counter()
        rows = {name: read_source(plan, name, *piece) for name, piece in partition.sources.items()}
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
                read_seconds=seconds,
            )
            yield answer_batch(partition.task, answer.to_json())
            return
        names = [e.name for e in plan.entries]
        for name, found in rows.items():
            yield from packets.pack(plan, names.index(name), found)


def recorded(plan: Plan) -> list[Source]:
    """Return the plan's sources that this data source reads."""
    return [s for s in plan.graph.of_kind(Source) if not isinstance(s.connector, FromSpark)]


def read_source(plan: Plan, name: str, start: int, end: int, segments: list[Segment]) -> Rows:
    """Read the columns of a source that the stage needs."""
    source = plan.graph[name]
    assert isinstance(source, Source)
    return read_rows(segments, start, end, source, sorted(plan.needed[name]))


def pace_start(folder: Path) -> float:
    """Return when a paced replay began: now, if it begins now. A restart goes on as if it had never stopped."""
    path = folder / "pace.json"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"format": "riprap-pace/1", "start": time.time()}))
    began: float = json.loads(path.read_text())["start"]
    return began
