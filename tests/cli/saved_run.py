"""A run's folder with checkpoints, made without Spark, beside a plain account of what is in them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from tests.state.checkpoints.small_pages import page_of

from riprap.runtime.checkpointing.durable import Durable
from riprap.state.checkpoints.groups import Table
from riprap.state.checkpoints.increments import Fresh, SlotState
from riprap.state.checkpoints.manifest import CheckpointManifest, Saved
from riprap.state.checkpoints.versions import Versions
from riprap.state.stores import open_store
from riprap.state.windows import restrict

SIZE = 6
BUCKETS = 2
LAYOUT = "sliding(6 tuples) by ticker, emit(every=1): size bigint"
START = 1_700_000_000.0


class SavedRun:
    """The newest few tuples of each key, plainly, and the checkpoints a run would have left of them."""

    def __init__(
        self, runs: Path, *, group: int | None = 2, name: str = "app", replica: str | None = None
    ) -> None:
        self.folder = runs / name / "2026-01-01-000000-abcdef"
        self.folder.mkdir(parents=True)
        (self.folder.parent / "latest").symlink_to(self.folder.name)
        run = {"format": "riprap-run/1", "application": name, "options": {"buckets": BUCKETS}}
        (self.folder / "run.json").write_text(json.dumps(run))
        about = {"kind": "Aggregate", "key": ["ticker"], "columns": {"v": "size"}, "slides": ["0"]}
        homes = ["main"] if replica is None else ["main~a", "main~b"]
        layout = {
            "elements": {**{home: ["sums", "bare", "fresh", "inlet"] for home in homes}, "last": ["sums"]},
            "buckets": BUCKETS,
            "operators": {"sums": LAYOUT, "bare": "nothing much", "fresh": "nothing yet"},
            "about": {
                "sums": {**about, "protected": True},
                "bare": {**about, "protected": False},
                "fresh": {**about, "protected": True},
            },
        }
        (self.folder / "state.json").write_text(json.dumps(layout))
        (self.folder / "checkpoints").mkdir()
        durable = replace(Durable.of(self.folder, f"{name}-{self.folder.name}", None), replica=replica)
        self.versions = Versions(open_store(self.folder / "checkpoints"), durable.entry("sums"))
        self.windows: dict[str, list[int]] = {}
        self.saved: dict[int, dict[str, list[int]]] = {}
        self.manifests: dict[int, CheckpointManifest] = {}
        self._slots = {(n, n + 1): SlotState((n, n + 1), group, []) for n in range(BUCKETS)}
        self._fresh: list[pa.RecordBatch] = []
        self._batch = -1

    def batch(self, came: Mapping[str, Sequence[int]], *, emptied: Sequence[str] = ()) -> None:
        """Let tuples come in; all that some keys had goes."""
        self._batch += 1
        for key, tuples in came.items():
            self.windows[key] = [*self.windows.get(key, []), *tuples][-SIZE:]
        for key in emptied:
            self.windows[key] = []
        kept = {k: list(t)[-SIZE:] for k, t in came.items()} | {k: [] for k in emptied}
        self._fresh.append(page_of(kept, {k: len(self.windows[k]) for k in kept}))

    def checkpoint(self) -> int:
        """Save what came in; return the version."""
        values: dict[str, pa.Buffer] = {}
        time = START + self._batch
        for (low, high), state in self._slots.items():
            pages = [restrict(page, low, high, BUCKETS) for page in reversed(self._fresh)]
            fresh = [Fresh(page, time - 1, time) for page in pages]
            self._slots[low, high], made = state.advance(fresh, self._load)
            values |= made
        self._fresh = []
        number = len(self.saved) + 1
        kept = tuple(k.saved for state in self._slots.values() for k in state.kept)
        self.manifests[number] = CheckpointManifest(
            operator="sums",
            layout=LAYOUT,
            version=number,
            time=time,
            batch=self._batch,
            buckets=BUCKETS,
            rate=2.5,
            slots={"sums/0": kept},
        )
        self.versions.put({"sums/0": values})
        self.versions.commit(self.manifests[number])
        self.saved[number] = {k: list(t) for k, t in self.windows.items() if t}
        return number

    def table(self, saved: Saved) -> Table:
        """Return where the parts of a value are."""
        table = Table.read(self.versions.store.get(self.versions.entry, saved.name), saved.name, saved.groups)
        assert table is not None
        return table

    def change(self, name: str, offset: int) -> None:
        """Flip a bit of a value in the store."""
        data = bytearray(self.versions.store.get(self.versions.entry, name).to_pybytes())
        data[offset] ^= 1
        self.versions.store.put(self.versions.entry, {name: bytes(data)})

    def _load(self, saved: Saved) -> list[pa.RecordBatch]:
        return [group for group in self.versions.read(saved).groups if group is not None]


def three_versions(runs: Path, replica: str | None = None) -> SavedRun:
    """Make a run in which keys come, change, stay and go."""
    run = SavedRun(runs, replica=replica)
    run.batch({"IBM": [1, 2, 3], "HPQ": [10], "SUN": [20, 21]})
    run.checkpoint()
    run.batch({"IBM": [4, 5]})
    run.batch({"IBM": [6, 7, 8], "NOK": [30, 30, 31]})
    run.checkpoint()
    run.batch({"IBM": [9], "NOK": [30]}, emptied=["SUN"])
    run.checkpoint()
    return run
