"""One trial of one variant, in a process of its own: ``python -m riprap_bench.trial TRIAL.json RESULT.json``.

A process each, so that memory, compiled code and Spark's state of one variant do not help or hurt another.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import pyarrow as pa
import pyarrow.parquet as pq

from riprap_bench.consumers import with_moment
from riprap_bench.feed import FeedFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from riprap.graph.connectors import SinkConnector

Variant = Literal["riprap", "by_key", "by_bucket", "numba", "bytewax_key", "bytewax_bucket"]
VARIANTS: tuple[Variant, ...] = get_args(Variant)
SinkKind = Literal["callback", "tcp", "parquet"]
STAGE = "from plan to record"

CORES = 2
MASTER = f"local[{CORES}]"
BUCKETS = CORES
# For every variant that runs on Spark, on top of what riprap.runtime.session sets.
SETTINGS = {"spark.sql.shuffle.partitions": str(CORES)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What to run: a variant over the files of a feed, into a folder; at a pace, if ``rate`` is given.

    ``port`` is where Riprap sends results that go to ``"tcp"``. Those of ``"callback"`` are put into the folder at the
    end, with the moments at which they were seen.
    """

    variant: Variant
    files: tuple[str, ...]
    rows_per_file: int
    events: int
    folder: str
    rate: float | None = None
    sink: SinkKind = "parquet"
    port: int = 0

    @property
    def feed(self) -> FeedFiles:
        return FeedFiles(
            files=tuple(map(Path, self.files)), rows_per_file=self.rows_per_file, events=self.events
        )

    @property
    def out(self) -> Path:
        return Path(self.folder) / "out"

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def load(cls, path: Path) -> Trial:
        data = json.loads(path.read_text())
        return cls(**{**data, "files": tuple(data["files"])})


def run_trial(trial: Trial) -> dict[str, Any]:
    """Run a trial here; return its batches as (rows, moment of completion), and what else it can tell."""
    if trial.variant == "numba":
        return _bare(trial)
    if trial.variant == "bytewax_key" or trial.variant == "bytewax_bucket":
        return _bytewax(trial)
    from riprap.runtime.session import make_session

    # Tasks that stay take slots of their own.
    session = make_session(MASTER, SETTINGS, elements=1 if trial.variant == "riprap" else 0)
    try:
        done = _riprap(trial, session) if trial.variant == "riprap" else _plain_spark(trial, session)
        return {**done, "live_heap_mb": _live_heap(session)}
    finally:
        session.stop()


def _bare(trial: Trial) -> dict[str, Any]:
    from riprap_bench.baselines import run_bare

    # The loop is compiled before the clock starts, on a run over the first file.
    run_bare(trial.feed.files[:1], out=Path(trial.folder) / "compile")
    started = time.time()
    return {"started": started, "batches": run_bare(trial.feed.files, out=trial.out)}


def _bytewax(trial: Trial) -> dict[str, Any]:
    from riprap_bench.bytewax_flows import run_on_bytewax

    by: Literal["ticker", "bucket"] = "ticker" if trial.variant == "bytewax_key" else "bucket"
    started = time.time()
    recovery = Path(trial.folder) / "recovery"
    return {
        "started": started,
        "batches": run_on_bytewax(trial.feed.files, by=by, out=trial.out, recovery=recovery),
    }


def missing(variant: Variant) -> str | None:
    """Say why a variant cannot run here, if it cannot."""
    if variant.startswith("bytewax") and find_spec("bytewax") is None:
        return "Bytewax is not installed: pip install 'riprap[bytewax]'"
    return None


def _plain_spark(trial: Trial, session: SparkSession) -> dict[str, Any]:
    from riprap_bench import baselines

    feed = trial.feed

    def by_bucket(events: Any) -> Any:
        return baselines.by_bucket(events, buckets=BUCKETS, partitions=CORES)

    make = baselines.by_key if trial.variant == "by_key" else by_bucket
    started = time.time()
    checkpoint = Path(trial.folder) / "checkpoint"
    batches = baselines.run_on_spark(
        session, make, feed.files, out=trial.out, checkpoint=checkpoint, rows=feed.rows
    )
    return {"started": started, "batches": batches}


def _riprap(trial: Trial, session: SparkSession) -> dict[str, Any]:
    import riprap as rr
    from riprap.apps.bargain import bargain
    from riprap.feeds.pacing import PACE, read_pace
    from riprap.runtime.folder import RunFolder

    seen: list[pa.Table] = []
    sinks: dict[SinkKind, Callable[[], SinkConnector]] = {
        "callback": lambda: rr.callback(lambda _, table: seen.append(with_moment(table, time.time()))),
        "tcp": lambda: rr.to_tcp("127.0.0.1", trial.port, format="json"),
        "parquet": lambda: rr.parquet(trial.out, roll="0s"),
    }
    app = bargain(rr.files(list(trial.files), rate=trial.rate), sinks[trial.sink]())
    # At a pace, batches are as large as Riprap makes them by itself.
    size: dict[str, Any] = {"batch_rows": trial.rows_per_file} if trial.rate is None else {}
    started = time.time()
    with app.run(spark=session, runs=Path(trial.folder) / "runs", **size) as run:
        run.wait()
        lines = list(RunFolder(run.folder, time.time).read_metrics())
    pace = [read_pace(path)[0] for path in run.folder.rglob(PACE)]
    if seen:
        trial.out.mkdir()
        pq.write_table(pa.concat_tables(seen), trial.out / "part-seen.parquet")
    return {
        "started": started,
        "batches": [(line["rows"], line["time"]) for line in lines],
        "latency": [line["latency"] for line in lines],
        "parts": [_parts(line) for line in lines],
        "pace": pace,
    }


def _parts(line: Mapping[str, Any]) -> dict[str, float]:
    """Return the parts of a batch's time. They overlap: tasks read ahead, and results are published behind."""
    seconds = line["seconds"]
    return {
        STAGE: seconds["compute"],
        **{f"task: {name}": s for name, s in seconds["task"].items()},
        "publish, behind": seconds["publish"],
    }


def _live_heap(session: SparkSession) -> float:
    """Return how much of the JVM's heap is in use after a collection: what the query really holds on to."""
    jvm: Any = session._jvm
    jvm.java.lang.System.gc()
    runtime = jvm.java.lang.Runtime.getRuntime()
    return float(runtime.totalMemory() - runtime.freeMemory()) / 1e6


def main(arguments: Sequence[str]) -> None:
    """Run the trial of the first file, and leave the result in the second."""
    trial, result = map(Path, arguments)
    result.write_text(json.dumps(run_trial(Trial.load(trial))))


if __name__ == "__main__":
    main(sys.argv[1:])
