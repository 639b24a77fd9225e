"""What leaves a processing element by channel, once a batch is on record."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from riprap.channels import ChannelWriter
from riprap.channels.replicas import begin_log, forget_logs, newest_log
from riprap.channels.tags import is_tag, tag_columns, tag_fields
from riprap.compiler import ChannelPlan
from riprap.operators.channel import Outlet
from riprap.operators.sink import Sink
from riprap.runtime.inlets import holds_end
from riprap.runtime.switch import counting
from riprap.runtime.window_log import WindowLog
from riprap.state.ledger import BatchRecord, Output
from riprap.state.pages import PageStore


class Outflow:
    """Appends the batches of a stream to its channels; a batch that is there already changes nothing.

    ``run`` is the run's folder. With ``holds``, readers see them once they are released. A ``replica`` has a log of its
    own in each. Where an operator records its ``windows``, the first channel has the records.
    """

    def __init__(
        self,
        outlet: Outlet,
        channels: Sequence[ChannelPlan],
        run: Path,
        results: PageStore,
        *,
        holds: bool = False,
        replica: str | None = None,
        windows: WindowLog | None = None,
    ) -> None:
        self._outlet = outlet
        self._channels = tuple(channels)
        self._run = run
        self._folders = [run / "channels" / channel.name for channel in channels]
        self._results = results
        self._holds = holds
        self._replica = replica
        self.windows = windows
        self._writers = [
            self._writer(channel, folder, folder if replica is None else newest_log(folder, replica).folder)
            for channel, folder in zip(self._channels, self._folders, strict=True)
        ]
        # A process may have died between two channels.
        self._released = min(writer.released for writer in self._writers)

    def _writer(self, channel: ChannelPlan, folder: Path, log: Path) -> ChannelWriter:
        return ChannelWriter(
            log,
            stream=channel.stream,
            schema=channel.schema,
            tags=channel.tags,
            key=channel.key,
            buckets=channel.buckets,
            readers=channel.readers,
            holds=self._holds,
            notes=folder,
            counts=counting(self._run, channel.copies),
            mends=self.windows is not None,
        )

    @property
    def log(self) -> Path:
        """The folder of the log that has the records of windows."""
        return self._folders[0]

    def begin_again(self, record: BatchRecord) -> None:
        """Begin other logs, after a record that this replica has from another: what lies before is in other logs."""
        assert self._replica is not None
        assert record.frontier is not None
        self._writers = []
        for channel, folder in zip(self._channels, self._folders, strict=True):
            writer = self._writer(channel, folder, begin_log(folder, self._replica, record.frontier).folder)
            writer.begin_at(record.batch, record.frontier, _spans(record))
            self._writers.append(writer)
        self._released = min(writer.released for writer in self._writers)

    @property
    def published(self) -> int:
        """The newest batch whose pages are not needed any more, -1 at first."""
        return min(writer.batch for writer in self._writers)

    def has(self, batch: int) -> bool:
        """Say whether a batch is published."""
        return batch <= self.published

    @property
    def released(self) -> int:
        """The newest batch that any reader can see, -1 at first."""
        return max(writer.released for writer in self._writers)

    def release(self, batch: int) -> None:
        """Let readers see batches up to one."""
        if batch > self._released:
            for writer in self._writers:
                writer.release(batch)
            self._released = batch

    def take_back(self, batch: int) -> None:
        """Remove what no reader has seen beyond a batch."""
        for writer in self._writers:
            writer.take_back(batch)

    def publish(self, record: BatchRecord) -> None:
        """Append a batch that is on record, and let go of what every reader has had."""
        if self.has(record.batch):
            # Its pages may be gone with their host, and nobody needs them.
            self._trim()
            return
        outputs = record.outputs.get(self._outlet.name, ())
        tuples = self._read([o.page for o in outputs], self._outlet.schema)
        punctuations = self._read(
            [o.punctuations for o in outputs if o.punctuations is not None], pa.schema([])
        )
        assert record.frontier is not None
        recorded = self._recorded(record, tuples.num_rows)
        for channel, writer in zip(self._channels, self._writers, strict=True):
            tags = tag_columns(channel.tags)
            writer.append(
                record.batch,
                _one_batch(tuples.select([*channel.schema.names, *tags])),
                _one_batch(punctuations.select(tags)) if punctuations.num_rows else None,
                frontier=record.frontier,
                sources=_spans(record),
                **(recorded if writer is self._writers[0] else {}),
            )
        if self.windows is not None:
            self.windows.noted(record.batch)
        self._trim()

    def _recorded(self, record: BatchRecord, rows: int) -> dict[str, Any]:
        """Return what the log is to have of the windows, and have it counted."""
        if self.windows is None:
            return {}
        told = [o.windows for o in record.outputs.get(self._outlet.name, ()) if o.windows is not None]
        controls = [self._results.read(w["control"]) for w in told if w["control"] is not None]
        read, clocks = sum(w["read"] for w in told), {w["clock"] for w in told} - {None}
        windows, opened = {"read": read}, self.windows.count(record.batch, controls, rows, read)
        if opened is not None:
            windows["open"] = opened
        if clocks:
            # Every task hears all ticks.
            windows["clock"] = max(clocks)
        return {"controls": [c.replace_schema_metadata(None) for c in controls], "windows": windows}

    def _trim(self) -> None:
        wanted = self.windows.kept if self.windows is not None else None
        for folder, writer in zip(self._folders, self._writers, strict=True):
            writer.trim(wanted=wanted if writer is self._writers[0] else None)
            if self._replica is not None:
                forget_logs(folder, self._replica, writer.acknowledged)

    def reopen(self) -> None:
        """Let more come, where an earlier process had said that nothing would; not after the end of the input.

        Readers may have planned batches beyond it.
        """
        for writer in self._writers:
            if holds_end(writer.newest) and writer.released == writer.batch:
                writer.finish()
            else:
                writer.reopen()

    def finish(self) -> None:
        """Let readers know that nothing more comes."""
        for writer in self._writers:
            writer.finish()

    def _read(self, pages: Sequence[str], schema: pa.Schema) -> pa.Table:
        batches = [self._results.read(page) for page in pages]
        if not batches:
            return pa.schema([*schema, *tag_fields(self._channels[0].tags)]).empty_table()
        table = pa.Table.from_batches([batch.replace_schema_metadata(None) for batch in batches])
        return in_order(table) if len(batches) > 1 else table


def _spans(record: BatchRecord) -> dict[str, list[Any]]:
    return {name: [start, end] for name, (start, end) in record.sources.items()}


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    whole = table.combine_chunks().to_batches()
    return whole[0] if whole else pa.RecordBatch.from_pylist([], schema=table.schema)


class ResultReader:
    """Reads what the tasks of a batch left for a sink, in tuple order whatever the buckets."""

    def __init__(self, sink: Sink, results: PageStore) -> None:
        self.schema = sink.schema
        self._results = results

    def read(self, outputs: Sequence[Output]) -> pa.Table:
        """Return a batch's rows in the order of the tuples they derive from."""
        pages = [self._results.read(o.page) for o in outputs if o.rows]
        if not pages:
            return self.schema.empty_table()
        table = pa.Table.from_batches([p.replace_schema_metadata(None) for p in pages])
        return (in_order(table) if len(pages) > 1 else table).select(self.schema.names)


def in_order(table: pa.Table) -> pa.Table:
    """Sort rows by their tags."""
    tags = [table.column(n).to_numpy() for n in table.column_names if is_tag(n)]
    return table.take(pa.array(np.lexsort(tags[::-1])))
