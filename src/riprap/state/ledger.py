"""The ledger: one record a batch, and what it does not name does not exist.

A record is a file ``<epoch>-<batch>.json`` in the run's ledger folder, written whole under a temporary name, renamed,
and synced before anything follows from it that outlives the host. One that is found damaged is set aside as
``<epoch>-<batch>.damaged``. Record -1 of an epoch is its beginning, so a missing record is always an error.

    {"format": "riprap-ledger/1", "epoch": 0, "batch": 12,
     "sources": {"Source": [6000000, 6500000]},              offsets the batch covers, see below for marks
     "manifests": [{"buckets": [0, 4],                        buckets 0 to 3, as one task had them
                    "pages": {"Aggregator/0": ["..."]}}],     per operator and port, newest page first
     "outputs": {"Sink": [{"page": "...", "rows": 61234}]},   what each sink publishes, in order of bucket
     "frontier": 12,                                          how far the stream of everything is complete
     "time": 1731690000.0}                                    when it was written

Where the start of a consistent region says when to make a cut, ``sources`` has an entry for its *marks*, as
``"$mark": [{"Source": 6000000}, {"Source": 6500000}]``: for each source, or root of channels, the newest mark there is
before the batch and with it. A mark is a number that rises; a source of files takes the rows up to the end of a file. A
batch is marked where all have come to the next one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from riprap.errors import DamagedFileError, LedgerError
from riprap.state.durable_files import checking, fields_of, load_json, save_json, sync_in_place

FORMAT = "riprap-ledger/1"
_ENTRIES = {
    "epoch": int,
    "batch": int,
    "sources": dict,
    "manifests": list,
    "outputs": dict,
    "frontier": int | None,
    "time": float | int,
}
_REMEDY = (
    "Put it back from a copy; or take the run up, which goes on from its checkpoints and says what is lost"
)

# In the offset of what is cut where a start says so: for each source, or root, the newest mark up to there.
MARK = "$mark"

PageNames = Mapping[str, tuple[str, ...]]


def page_name(*, epoch: int, batch: int, attempt: str, slot: str) -> str:
    """Name a page so that names sort by age, and no two attempts at a task ever share one."""
    return f"{page_prefix(epoch=epoch, batch=batch)}-{attempt}-{slot.replace('/', '.')}"


def page_prefix(*, epoch: int, batch: int) -> str:
    """Return what the names of a batch's pages begin with: those of later batches sort after it."""
    return f"{epoch:04d}-{batch:010d}"


@dataclass(frozen=True, slots=True)
class Manifest:
    """The state pages of a range of buckets, by ``operator/port``, newest page first; they count for no others."""

    buckets: tuple[int, int]
    pages: PageNames


@dataclass(frozen=True, slots=True)
class Output:
    """A page of result rows that a task made for a sink, and one of punctuations where there are any.

    ``digest`` is that of its rows, where they may have to be computed again. Where open windows are recorded,
    ``windows`` names the page of records, and says how many tuples were read, and the time of the operator's clock.
    """

    page: str
    rows: int
    punctuations: str | None = None
    digest: int | None = None
    windows: Mapping[str, Any] | None = None

    @property
    def control(self) -> str | None:
        """The page of records, None if there are none."""
        return None if self.windows is None else self.windows["control"]

    @property
    def pages(self) -> set[str]:
        return {self.page, self.punctuations, self.control} - {None}  # type: ignore[return-value]

    def to_json(self) -> dict[str, Any]:
        """Return the output as a record's file has it: nothing of windows where none are recorded."""
        return {
            name: value for name, value in fields_of(self).items() if name != "windows" or value is not None
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRecord:
    """What is true once a batch has happened."""

    epoch: int
    batch: int
    sources: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    manifests: tuple[Manifest, ...] = ()
    outputs: Mapping[str, tuple[Output, ...]] = field(default_factory=dict)
    frontier: int | None = None
    time: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Return the record as it is in its file."""
        outputs = {name: [each.to_json() for each in outputs] for name, outputs in self.outputs.items()}
        manifests = [fields_of(each) for each in self.manifests]
        return {"format": FORMAT, **fields_of(self), "manifests": manifests, "outputs": outputs}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> BatchRecord:
        """Take a record from what its file says."""
        return cls(
            epoch=data["epoch"],
            batch=data["batch"],
            sources={n: (s, e) for n, (s, e) in data["sources"].items()},
            manifests=tuple(
                Manifest((m["buckets"][0], m["buckets"][1]), {k: tuple(p) for k, p in m["pages"].items()})
                for m in data["manifests"]
            ),
            outputs={n: tuple(Output(**o) for o in outputs) for n, outputs in data["outputs"].items()},
            frontier=data["frontier"],
            time=data["time"],
        )

    def pages(self) -> set[str]:
        """Return every page the record names."""
        state = {p for m in self.manifests for pages in m.pages.values() for p in pages}
        return state | {p for outputs in self.outputs.values() for o in outputs for p in o.pages}

    @property
    def marked(self) -> bool:
        """Whether a cut is to be made of the batch, because a start said so."""
        return mark_of(self.sources) is not None

    def state_of(self, first_bucket: int, end_bucket: int) -> tuple[Manifest, ...]:
        """Return what is known of some buckets: the manifests that cover them, cut down to them.

        A page counts for its manifest's buckets only. It may hold keys of others, from the time before the buckets
        were dealt out to another number of tasks, and those keys have moved on.
        """
        return tuple(
            Manifest((max(low, first_bucket), min(high, end_bucket)), manifest.pages)
            for manifest in self.manifests
            for low, high in [manifest.buckets]
            if low < end_bucket and first_bucket < high
        )


def mark_of(sources: Mapping[str, Sequence[Any]]) -> int | None:
    """Return the mark at the end of what covers these offsets, a batch or a segment; None if there is none.

    >>> mark_of({"Source": (0, 50), MARK: ({"Source": 0}, {"Source": 50})})
    50
    """
    before, after = (least_mark(marks) for marks in sources.get(MARK, (None, None)))
    return after if after > before else None


def least_mark(marks: Mapping[str, int] | None) -> int:
    """Return the newest mark that all have come to, 0 before the first."""
    return min((marks or {}).values(), default=0)


@dataclass(frozen=True, slots=True)
class Ledger:
    """The records of one run and epoch, in a folder."""

    folder: str
    epoch: int = 0

    def begin(self, buckets: int) -> None:
        """Write the epoch's beginning, unless it has begun: that no bucket has pages is on record too."""
        Path(self.folder).mkdir(parents=True, exist_ok=True)
        if not self._path(-1).exists():
            self.write(BatchRecord(epoch=self.epoch, batch=-1, manifests=(Manifest((0, buckets), {}),)))

    def write(self, record: BatchRecord, *, synced: bool = True) -> None:
        """Add a record; from then on the batch has happened.

        Until one that is not ``synced`` is, by :meth:`sync`, nothing may follow from it that outlives a power cut.
        """
        save_json(self._path(record.batch), record.to_json(), synced=synced)

    def sync(self, batch: int) -> None:
        """Wait until a batch's record is on the disk."""
        sync_in_place(self._path(batch))

    def find(self, batch: int) -> BatchRecord | None:
        """Return a batch's record, or None if the batch has not happened."""
        path = self._path(batch)
        data = load_json(path, FORMAT, _ENTRIES, remedy=_REMEDY)
        if data is None:
            return None
        with checking(path, _REMEDY):
            return BatchRecord.from_json(data)

    def get(self, batch: int) -> BatchRecord:
        """Return a batch's record; that there is none is an error."""
        record = self.find(batch)
        if record is None:
            raise LedgerError(
                f"the ledger in {self.folder} has no record of batch {batch} (epoch {self.epoch}); it has "
                f"{self.batches() or 'none'}. Was the folder put back from an older copy?"
            )
        return record

    def batches(self) -> list[int]:
        """Return the batches on record, oldest first."""
        names = (p.stem.split("-", 1) for p in Path(self.folder).glob(f"{self.epoch:04d}-*.json"))
        return sorted(int(batch) for _, batch in names)

    def damaged(self) -> list[int]:
        """Return the batches whose records cannot be read."""
        batches = []
        for batch in self.batches():
            try:
                self.find(batch)
            except DamagedFileError:
                batches.append(batch)
        return batches

    def set_aside(self, batches: Iterable[int]) -> None:
        """Rename records, so that they do not count."""
        for batch in batches:
            self._path(batch).rename(self._path(batch).with_suffix(".damaged"))

    def forget(self, batches: Iterable[int]) -> None:
        """Remove the records of old batches."""
        for batch in batches:
            self._path(batch).unlink(missing_ok=True)

    def _path(self, batch: int) -> Path:
        return Path(self.folder) / f"{self.epoch:04d}-{batch:010d}.json"
