"""Bargain Discovery in Bytewax, as experts would write it: by ticker with NumPy, and by bucket with the compiled loop.

Both read the files in order, a file at a time, by one source: a ticker's trades must stay in order. Both have two
workers and keep where they are in Bytewax's recovery store, every `EPOCH`. What was tried and is slower: worker
processes where items are a ticker's rows, which cross between them pickled one by one; worker threads where items are
a bucket's, since threads share one interpreter; NumPy alone for a whole bucket.

``python -m riprap_bench.bytewax_flows FLOW PROCESS`` is one process of a flow that has several.
"""

from __future__ import annotations

import json
import pickle
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import bytewax.operators as op
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from bytewax._bytewax import cluster_main
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.operators import StatefulBatchLogic
from bytewax.outputs import DynamicSink, FixedPartitionedSink, StatefulSinkPartition, StatelessSinkPartition
from bytewax.recovery import RecoveryConfig, init_db_dir

from riprap.runtime.link import environment_with, search_path
from riprap_bench.kernel import WINDOW, Flags, Floats, Ints, Windows

By = Literal["ticker", "bucket"]
Columns = tuple[Ints, Floats, Floats, Ints]

EPOCH = timedelta(seconds=1)  # the shortest that its command line takes
WORKERS = 2
# Bytewax hashes these two to different ones of two workers.
BUCKETS = ("0", "4")

_READ = ["seq", "ticker", "kind", "price", "size"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """A flow over files, into a folder: ``by`` ticker in two threads of this process, by bucket in two processes."""

    by: By
    files: Sequence[str]
    out: str
    recovery: str
    addresses: Sequence[str] = ()

    def run(self, process: int = 0) -> None:
        """Run the flow, or one of its processes, to its end."""
        flow = Dataflow("bargain")
        build = _by_ticker if self.by == "ticker" else _by_bucket
        build(flow, tuple(map(Path, self.files)), Path(self.out))
        cluster_main(
            flow, list(self.addresses), process, epoch_interval=EPOCH,
            recovery_config=RecoveryConfig(Path(self.recovery)),
            worker_count_per_proc=WORKERS // max(1, len(self.addresses)),
        )  # fmt: skip


def run_on_bytewax(files: Sequence[Path], *, by: By, out: Path, recovery: Path) -> list[tuple[int, float]]:
    """Run a flow with a recovery store of its own; return each file's rows and the moment its bargains were written."""
    out.mkdir(parents=True)
    recovery.mkdir(parents=True)
    init_db_dir(recovery, WORKERS)
    names = tuple(map(str, files))
    flow = Flow(by=by, files=names, out=str(out), recovery=str(recovery), addresses=_addresses(by))
    others: list[subprocess.Popen[bytes]] = []
    try:
        for process in range(1, len(flow.addresses)):
            command = [sys.executable, "-m", __name__, json.dumps(asdict(flow)), str(process)]
            others.append(subprocess.Popen(command, env=environment_with(search_path())))
        flow.run()
        for other in others:
            if other.wait() != 0:
                raise subprocess.CalledProcessError(other.returncode, other.args)
    finally:
        for other in others:
            other.kill()
            other.wait()
    rows = [pq.read_metadata(file).num_rows for file in files]
    return list(zip(rows, _completions(out, len(files)), strict=True))


def _addresses(by: By) -> tuple[str, ...]:
    if by == "ticker":
        return ()
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(WORKERS)]
    addresses = tuple(f"127.0.0.1:{one.getsockname()[1]}" for one in held)
    for one in held:
        one.close()
    return addresses


def _completions(out: Path, count: int) -> list[float]:
    """Return when the last bargain of each file was written; a file without any was done when the one before was."""
    done = np.zeros(count)
    for path in out.iterdir():
        number = int(path.name.split("-")[1])
        done[number] = max(done[number], path.stat().st_mtime)
    return [float(moment) for moment in np.maximum.accumulate(done)]


class _Files(FixedPartitionedSource[Any, int]):
    """The files as one partition; ``cut`` makes keyed items of the number and the rows of each."""

    def __init__(self, files: Sequence[Path], cut: Callable[[int, pa.Table], Iterable[Any]]) -> None:
        self.files, self.cut = files, cut

    def list_parts(self) -> list[str]:
        return ["feed"]

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> _Reader:
        return _Reader(self, resume_state or 0)


class _Reader(StatefulSourcePartition[Any, int]):
    def __init__(self, source: _Files, number: int) -> None:
        self.source, self.number = source, number

    def next_batch(self) -> Iterable[Any]:
        if self.number == len(self.source.files):
            raise StopIteration
        number, self.number = self.number, self.number + 1
        with pq.ParquetFile(self.source.files[number], read_dictionary=["ticker", "kind"]) as file:
            return self.source.cut(number, file.read(_READ).unify_dictionaries().combine_chunks())

    def snapshot(self) -> int:
        return self.number


def _columns(table: pa.Table) -> tuple[Ints, Flags, Floats, Ints]:
    seq, price, size = (table.column(name).to_numpy() for name in ("seq", "price", "size"))
    return seq, pc.equal(table.column("kind"), "trade").to_numpy(), price, size


def _by_ticker(flow: Dataflow, files: Sequence[Path], out: Path) -> None:
    rows = op.input("feed", flow, _Files(files, _cut_by_ticker))
    op.output("bargains", op.stateful_batch("windows", rows, _Ticker), _NumberedFiles(out))


def _cut_by_ticker(number: int, table: pa.Table) -> list[Any]:
    ticker = table.column("ticker").chunk(0)
    code = ticker.indices.to_numpy()
    # Sixteen bits, if they do: NumPy sorts them by radix.
    order = np.argsort(code.astype(np.min_scalar_type(len(ticker.dictionary))), kind="stable")
    seq, trade, price, size = (column[order] for column in _columns(table))
    starts = np.flatnonzero(np.diff(code[order], prepend=-1))
    names = ticker.dictionary.take(pa.array(code[order][starts])).to_pylist()
    spans = zip(names, starts.tolist(), [*starts[1:].tolist(), len(code)], strict=True)
    return [(name, (number, name, seq[a:b], trade[a:b], price[a:b], size[a:b])) for name, a, b in spans]


class _Ticker(StatefulBatchLogic[Any, Any, tuple[Floats, Ints]]):
    """The newest trades of one ticker, and the quotes below their average."""

    def __init__(self, held: tuple[Floats, Ints] | None) -> None:
        self.notional, self.volume = held or (np.zeros(WINDOW), np.zeros(WINDOW, np.int64))

    def on_batch(self, values: list[Any]) -> tuple[list[Any], bool]:
        found = []
        for number, name, seq, trade, price, size in values:
            rows, average = self._find(trade, price, size)
            if len(rows):
                found.append((number, name, (seq[rows], average, price[rows], size[rows])))
        return found, self.RETAIN

    def _find(self, trade: Flags, price: Floats, size: Ints) -> tuple[npt.NDArray[np.intp], Floats]:
        traded = trade.nonzero()[0]
        notional = np.concatenate((self.notional, price[traded] * size[traded]))
        volume = np.concatenate((self.volume, size[traded]))
        self.notional, self.volume = notional[-WINDOW:], volume[-WINDOW:]
        # Window i ends with the i-th trade of the rows; window 0 is what was held, perhaps nothing.
        average = _window_sums(notional) / np.maximum(_window_sums(volume), 1)
        met = average[trade.cumsum()]
        rows = (~trade & (met > price)).nonzero()[0]
        return rows, met[rows]

    def snapshot(self) -> tuple[Floats, Ints]:
        return self.notional, self.volume


def _window_sums(values: Any) -> Any:
    # Written out, oldest first: for the few values of a ticker this is quicker than a sliding view.
    return values[:-4] + values[1:-3] + values[2:-2] + values[3:-1] + values[4:]


class _NumberedFiles(FixedPartitionedSink[Any, int]):
    """A file for each of the source's files that a write has bargains of; its state is how many there are."""

    def __init__(self, out: Path) -> None:
        self.out = out

    def list_parts(self) -> list[str]:
        return [str(number) for number in range(WORKERS)]

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> _NumberedPart:
        written = resume_state or 0
        for path in self.out.glob(f"part-*-{for_part}-*.parquet"):
            if int(path.stem.split("-")[3]) >= written:
                path.unlink()  # it will be written again
        return _NumberedPart(self.out, for_part, written)


class _NumberedPart(StatefulSinkPartition[Any, int]):
    def __init__(self, out: Path, part: str, written: int) -> None:
        self.out, self.part, self.written = out, part, written

    def write_batch(self, values: list[Any]) -> None:
        for number in dict.fromkeys(value[0] for value in values):
            parts = [(name, columns) for n, name, columns in values if n == number]
            code = np.repeat(np.arange(len(parts), dtype=np.int32), [len(c[0]) for _, c in parts])
            ticker = pa.DictionaryArray.from_arrays(code, [name for name, _ in parts])
            seq, average, price, size = map(np.concatenate, zip(*(c for _, c in parts), strict=True))
            path = self.out / f"part-{number:05d}-{self.part}-{self.written:05d}.parquet"
            _write(path, ticker, (seq, average, price, size))
            self.written += 1

    def snapshot(self) -> int:
        return self.written


def _by_bucket(flow: Dataflow, files: Sequence[Path], out: Path) -> None:
    rows = op.input("feed", flow, _Files(files, _BucketCutter()))
    found = op.stateful_batch("windows", rows, _Bucket)
    op.output("bargains", found, _FilesByName(out))
    # The loop is loaded before the flow begins, not by the first batch of a worker that others run ahead of.
    windows = Windows.empty()
    windows.grow(1)
    windows.find(np.zeros(1, np.int64), np.ones(1, np.bool_), np.ones(1), np.ones(1, np.int64))


class _BucketCutter:
    """Deals tickers out to buckets as their names fall, the same way in every process."""

    def __init__(self) -> None:
        self.buckets: dict[str, int] = {}

    def __call__(self, number: int, table: pa.Table) -> list[Any]:
        ticker = table.column("ticker").chunk(0)
        names = ticker.dictionary.to_pylist()
        for name in names:
            if name not in self.buckets:
                self.buckets[name] = sum(name.encode()) % len(BUCKETS)
        code = ticker.indices.to_numpy()
        bucket = np.array([self.buckets[name] for name in names], np.int8)[code]
        columns = (code, *_columns(table))
        return [
            (key, (number, names, *(column[mine] for column in columns)))
            for key, mine in ((k, np.flatnonzero(bucket == b)) for b, k in enumerate(BUCKETS))
        ]


class _Bucket(StatefulBatchLogic[Any, Any, bytes]):
    """The newest trades of a bucket's tickers, and the quotes below their averages, by the compiled loop."""

    def __init__(self, held: bytes | None) -> None:
        self.slots: dict[str, int]
        self.slots, self.windows = pickle.loads(held) if held is not None else ({}, Windows.empty())

    def on_batch(self, values: list[Any]) -> tuple[list[Any], bool]:
        found = []
        for number, names, code, seq, trade, price, size in values:
            place = np.array([self.slots.setdefault(name, len(self.slots)) for name in names], np.int64)
            self.windows.grow(len(self.slots))
            rows, average = self.windows.find(place[code], trade, price, size)
            ticker = pa.DictionaryArray.from_arrays(code[rows], names)
            found.append((number, ticker, (seq[rows], average, price[rows], size[rows])))
        return found, self.RETAIN

    def snapshot(self) -> bytes:
        return pickle.dumps((self.slots, self.windows), pickle.HIGHEST_PROTOCOL)


class _FilesByName(DynamicSink[Any]):
    """A file for a bucket of each of the source's files: written again, it replaces itself."""

    def __init__(self, out: Path) -> None:
        self.out = out

    def build(self, step_id: str, worker_index: int, worker_count: int) -> _FilesByNamePart:
        return _FilesByNamePart(self.out)


class _FilesByNamePart(StatelessSinkPartition[Any]):
    def __init__(self, out: Path) -> None:
        self.out = out

    def write_batch(self, items: list[Any]) -> None:
        for key, (number, ticker, columns) in items:
            _write(self.out / f"part-{number:05d}-{key}.parquet", ticker, columns)


def _write(path: Path, ticker: pa.DictionaryArray, columns: Columns) -> None:
    seq, average, price, size = columns
    names, values = ["seq", "ticker", "vwap", "price", "size", "gain"], [average, price, size]
    arrays = [seq, ticker.cast(pa.string()), *values, (average - price) * size]
    pq.write_table(pa.table(arrays, names=names), path)


def main(arguments: Sequence[str]) -> None:
    """Run one process of a flow."""
    told: dict[str, Any] = json.loads(arguments[0])
    Flow(**told).run(int(arguments[1]))


if __name__ == "__main__":
    main(sys.argv[1:])
