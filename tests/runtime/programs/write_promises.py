"""Write what a run promises to keep, and wait for the power to be cut: ``write_promises.py <disk> <ready>``."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pyarrow as pa

import riprap as rr
from riprap.channels import ChannelWriter
from riprap.feeds.listed_feed import ListedFeed
from riprap.graph.connectors import Files
from riprap.operators.source import Source
from riprap.runtime.sinks import make_publisher
from riprap.state.ledger import BatchRecord, Ledger, Output
from riprap.state.pages import PageStore

ROWS = [{"n": n} for n in range(100)]


def main(disk: Path, ready: Path) -> None:
    (disk / "unsynced.tmp").write_text("x" * 2000)
    (disk / "unsynced.tmp").rename(disk / "unsynced")
    app = rr.Application("numbers")
    (disk / "in.csv").write_text("n\n1\n2\n")
    numbers = app.source("numbers", rr.files(disk / "in.csv", schema="n bigint"))
    app.sink("out", numbers, rr.parquet(disk / "out", roll=0))
    graph = app.graph()
    source = graph["numbers"]
    assert isinstance(source, Source)
    assert isinstance(source.connector, Files)
    feed = ListedFeed(source, disk / "source", disk / "quarantine", finite=True)
    feed.upto(0, 10)
    feed.log.sync()
    ledger = Ledger(str(disk / "ledger"))
    ledger.begin(8)
    ledger.write(BatchRecord(epoch=0, batch=0, sources={"numbers": (None, 100)}))
    (disk / "pages").mkdir(mode=0o700)
    pages = PageStore(str(disk / "pages"))
    table = pa.table({"n": [row["n"] for row in ROWS], "$0": range(100)})
    (rows,) = table.to_batches()
    pages.write("page", rows)
    publisher = make_publisher(
        graph["out"],  # type: ignore[arg-type]
        pages,
        None,
        run="run",
        resume=False,
        tell=lambda kind, **details: None,
        clock=time.time,
    )
    publisher.begin()
    publisher.publish(0, [Output("page", 100)])
    writer = ChannelWriter(
        disk / "channel",
        stream="s",
        schema=pa.schema([("n", pa.int64())]),
        tags=1,
        key=None,
        buckets=1,
        readers=["r"],
    )
    writer.append(0, rows, None, frontier=99, sources={})
    ready.write_text(json.dumps("now"))
    time.sleep(60)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
