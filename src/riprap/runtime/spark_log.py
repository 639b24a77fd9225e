"""Spark's own log of an element that reads a source of Spark's: what it planned for each batch, and has committed.

    spark/metadata          {"id": "..."}                  the query's
    spark/offsets/<batch>   v1, a line of settings, and a line for each stream of the source: where the batch ends
    spark/commits/<batch>   written once the batch is published

Spark writes these without syncing them, so a power cut may take the newest, or leave them empty. The ledger is durable
and says what a batch had, so that the log is put right from it, and a batch on record never gets other input.
"""

from __future__ import annotations

import json
import re
import uuid
from pathlib import Path

from riprap.compiler import Plan
from riprap.errors import LedgerError
from riprap.graph.connectors import FromSpark
from riprap.operators.source import Source
from riprap.runtime.offsets import Planned
from riprap.state.ledger import BatchRecord

_VERSION = "v1"
# Of a commit only that it is there counts, in whatever version of its format.
_COMMIT = re.compile(rb"v\d+\n\{")
# How Spark writes that a source has nothing yet.
_NOTHING = "-"


class SparkLog:
    """The log of an element's query, in the folder that is its checkpoint for Spark."""

    def __init__(self, folder: Path, plan: Plan) -> None:
        self.folder = folder
        self._plan = plan
        (self._source,) = plan.graph.of_kind(Source)

    def planned(self, batch: int) -> Planned | None:
        """Return what was planned for a batch, None if that is gone or cannot be read."""
        try:
            # A DataFrame of the user's may have several streams in it: the first stands for all.
            version, settings, end, *_ = (
                (self.folder / "offsets" / str(batch)).read_text().rstrip("\n").split("\n")
            )
            json.loads(settings)
            if end != _NOTHING:
                json.loads(end)
        except (OSError, ValueError):
            return None
        return Planned.of(self._plan, batch, {self._source.name: end}) if version == _VERSION else None

    @property
    def taken(self) -> int:
        """The newest batch that must have been on record: it is committed, or another was planned after it; else -1."""
        return max(max(self._listed("commits"), default=-1), max(self._listed("offsets"), default=0) - 1)

    def compare(self, record: BatchRecord) -> None:
        """Refuse other input for a batch than it has on record: tuples would be left out, or counted twice."""
        planned = self.planned(record.batch)
        ends = {name: end for name, (_, end) in record.sources.items()}
        if planned is None or planned.ends != ends:
            begins = {name: start for name, (start, _) in record.sources.items()}
            raise LedgerError(
                f"batch {record.batch} of '{self._plan.name}' is on record from {begins} to {ends}, and Spark's log in "
                f"{self.folder} has it end at {planned.ends if planned else 'nothing that can be read'}: tuples would "
                f"be left out or counted twice. {self._remedy}"
            )

    @property
    def _remedy(self) -> str:
        if self._not_ours:
            return "Put back the folder as it was when the run stopped, from a copy; or start a new run"
        return "Remove that folder and take the run up again: it is made anew from the ledger"

    @property
    def _not_ours(self) -> bool:
        """Whether there is a source whose offsets mean nothing without what Spark itself wrote down about it."""
        return isinstance(self._source.connector, FromSpark)

    def put_right(self, record: BatchRecord) -> bool:
        """See to it that the log says of the newest batch on record what the record says; return whether it did not.

        Spark goes by the newest entry and the one before it. A batch that was planned and is not on record was never
        given to anyone, and may be planned anew.
        """
        damaged, newest = self._drop_damaged(record.batch), record.batch
        if newest < 0:
            return damaged
        lost = [batch for batch in (newest - 1, newest) if batch >= 0 and self.planned(batch) is None]
        if newest not in lost or self._not_ours:
            self.compare(record)
        if newest - 1 in lost:
            self._write(newest - 1, record.sources[self._source.name][0], record.time)
        if newest in lost:
            self._write(newest, record.sources[self._source.name][1], record.time)
        if lost:
            self._name_query()
        return damaged or bool(lost)

    def _drop_damaged(self, newest: int) -> bool:
        """Remove what cannot be read: of the offsets from the newest on record, and of the commits."""
        offsets, commits = self.folder / "offsets", self.folder / "commits"
        dropped = [
            offsets / str(b) for b in self._listed("offsets") if b >= newest - 1 and self.planned(b) is None
        ]
        dropped += [path for b in self._listed("commits") if not _is_commit(path := commits / str(b))]
        for path in dropped:
            path.unlink()
        # A log without entries is that of a query which has not begun, and names itself.
        begun = bool(self._listed("offsets") or self._listed("commits"))
        return self._name_query(missing_too=begun) or bool(dropped)

    def _write(self, batch: int, end: str | None, time: float) -> None:
        lines = [
            _VERSION,
            json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": int(time * 1000), "conf": {}}),
            _NOTHING if end is None else end,
        ]
        _replace(self.folder / "offsets" / str(batch), "\n".join(lines))

    def _name_query(self, *, missing_too: bool = True) -> bool:
        """Give the query another name where it has lost its own; return whether it has."""
        path = self.folder / "metadata"
        lost = not _holds_id(path) if path.exists() else missing_too
        if lost:
            _replace(path, json.dumps({"id": str(uuid.uuid4())}))
        return lost

    def _listed(self, what: str) -> list[int]:
        folder = self.folder / what
        return [int(p.name) for p in folder.iterdir() if p.name.isdigit()] if folder.is_dir() else []


def _is_commit(path: Path) -> bool:
    return _COMMIT.match(path.read_bytes()) is not None


def _holds_id(path: Path) -> bool:
    try:
        return bool(json.loads(path.read_text())["id"])
    except (ValueError, TypeError, KeyError):
        return False


def _replace(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(text)
    temporary.rename(path)
    # Hadoop may have left a checksum of what was there.
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
