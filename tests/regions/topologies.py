"""The applications of the fault matrix: each a function that adds sources and operators, and names what sinks get.

What comes out does not depend on where batches are cut, but for ``loop``, whose batches are cut alike each time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tests.regions.brokers import BROKERS_BATCH, kafka
from tests.regions.drawn import dice
from tests.regions.making import BATCH, FILES, ROWS, SCHEMA, START, TICKS, Made, Streams, rows_of
from tests.regions.tables import NAME, write_table

import riprap as rr


def chain(made: Made) -> Streams:
    app, read = made.app, made.source("read")
    counted = app.functor(
        "counted", read, by="k", variables={"n": "0L", "most": "-1L"},
        update="n + 1 as n, greatest(most, v) as most", select="seq, at, k, v, n, most",
    )  # fmt: skip
    recent = app.aggregate(
        "recent", counted, by="k", window=rr.sliding(tuples=5),
        select="sum(v) as total, last(n) as n, last(seq) as seq",
    )  # fmt: skip
    return {"recent": recent}


def diamond(made: Made) -> Streams:
    app, read = made.app, made.source("read")
    low = app.functor("low", read, where="v < 12")
    high = app.functor("high", read, where="v >= 12")
    sums = app.aggregate(
        "sums", low, by="k", window=rr.tumbling(tuples=3), select="sum(v) as total, last(seq) as seq"
    )
    met = app.join(
        "met", sums, high, by="k", windows=(rr.sliding(tuples=2), rr.sliding(tuples=3)),
        select="sums.seq as l, high.seq as h, sums.total as total",
    )  # fmt: skip
    return {"met": met}


def sources(made: Made) -> Streams:
    """Pair tuples of two sources by their number, in whatever order they come."""
    app = made.app
    left, right = made.source("left"), made.source("right", seed=4)
    pairs = app.barrier("pairs", left, right, by="k", select="k, left_read.seq as l, right_read.seq as r")
    return {"pairs": pairs, "left_only": app.functor("left_only", left, where="v = 3", select="seq, k")}


def aligned(made: Made) -> Streams:
    """Interleave two sources by a column, and number what comes."""
    app = made.app
    both = app.union("both", made.source("left", ordering="at"), made.source("right", seed=4, ordering="at"))
    numbered = app.functor(
        "numbered", both, by="k", variables={"n": "0L", "total": "0L"},
        update="n + 1 as n, total + v as total", select="k, n, total, seq",
    )  # fmt: skip
    return {"numbered": numbered}


def sinks(made: Made) -> Streams:
    app, read = made.app, made.source("read")
    sums = app.aggregate(
        "sums", read, by="k", window=rr.sliding(time="5s", on="at"),
        select="sum(v) as total, count(*) as n, last(seq) as seq",
    )  # fmt: skip
    best = app.top("best", read, n=2, order="v desc", window=rr.tumbling(tuples=6), by="k")
    return {
        "sums": sums,
        "odd": app.functor("odd", sums, where="n % 2 = 1", select="seq, total"),
        "best": app.functor("best_only", best, select="k, v, seq"),
    }


def regions(made: Made) -> Streams:
    """Describe two regions: one starts at a source, the other in the middle of what is autonomous."""
    app = made.app
    first = app.deduplicate("first", made.source("read"), by=("v", "k"), tuples=30)
    plain = made.source("plain", seed=2, start=False)
    safe = app.functor("safe", plain, select="seq, k, v", protect=made.start)
    sums = app.aggregate(
        "sums", safe, by="k", window=rr.tumbling(tuples=4), select="sum(v) as total, last(seq) as seq"
    )
    return {"first": app.functor("first_only", first, select="k, v, seq"), "sums": sums}


class Limit(rr.CustomOperator):
    """Lets numbers pass, with the greatest it was told of."""

    def __init__(self) -> None:
        super().__init__()
        self.limit = -1

    def on_tuple(self, port: int | str, tuple: dict[str, Any]) -> None:
        if port == "control":
            self.limit = max(self.limit, tuple["seq"])
        else:
            self.submit({"seq": tuple["seq"], "told": self.limit})

    def checkpoint(self) -> Any:
        return self.limit

    def reset(self, saved: Any) -> None:
        self.limit = saved

    def reset_to_initial_state(self) -> None:
        self.limit = -1


def loop(made: Made) -> Streams:
    app = made.app
    feedback = app.loop("feedback", "seq bigint")
    passed = app.custom(
        "limit", Limit, made.source("read"), schema="seq bigint, told bigint", control=feedback
    )
    app.close(feedback, app.functor("told_back", passed, select="seq"))
    return {"passed": passed}


class CountsPorts(rr.CustomOperator):
    """Numbers the tuples of each port by itself; those of port 1 from below."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = [0, 0]

    def on_tuple(self, port: int | str, tuple: dict[str, Any]) -> None:
        assert isinstance(port, int)
        self.seen[port] += 1
        self.submit({"port": port, "n": self.seen[0] if port == 0 else 0, "seq": tuple["seq"]})

    def checkpoint(self) -> Any:
        return self.seen

    def reset(self, saved: Any) -> None:
        self.seen = list(saved)

    def reset_to_initial_state(self) -> None:
        self.seen = [0, 0]


def mixed(made: Made) -> Streams:
    """Describe an operator with a port of each kind; what came by the autonomous one may be lost before it."""
    app = made.app
    safe, plain = made.source("read"), made.source("plain", seed=2, start=False)
    kept = app.functor("plain_kept", plain, by="k", variables={"n": "0L"}, update="n + 1 as n", select="*")
    numbered = app.custom("numbered", CountsPorts, safe, kept, schema="port bigint, n bigint, seq bigint")
    return {
        "safe": app.functor("of_safe", numbered, where="port = 0", select="n, seq"),
        "maybe": app.functor("of_plain", numbered, where="port = 1", select="seq"),
    }


def elements(made: Made) -> Streams:
    """Describe a region of three elements, each with another key, and a stateless autonomous reader."""
    app = made.app
    sums = app.aggregate(
        "sums", made.source("read"), by="k", window=rr.sliding(tuples=4),
        select="sum(v) as total, last(seq) as seq",
    )  # fmt: skip
    many = app.aggregate(
        "many", sums, by="total", window=rr.sliding(tuples=3), select="count(*) as n, last(seq) as seq"
    )
    last = app.functor(
        "last", many, by="n", variables={"m": "0L", "sum": "0L"}, update="m + 1 as m, sum + total as sum",
        select="seq, m, sum",
    )  # fmt: skip
    return {
        "sums": sums,
        "last": last,
        "seen": app.functor("seen", last, where="m % 2 = 0", protect=made.out_of_it),
    }


def byfile(made: Made) -> Streams:
    """Describe a region of two elements that is cut after each file, of less than a batch, of some, or of no rows."""
    app, folder = made.app, made.work / "files"
    if not folder.exists():
        folder.mkdir(parents=True)
        ends = [0, 7, 27, 27, 90, 91, *range(150, ROWS, 130), ROWS]
        for number, (first, end) in enumerate(pairwise(ends)):
            pq.write_table(rows_of().slice(first, end - first), folder / f"{number:02d}.parquet")
    start = rr.consistent(trigger="operator") if made.start is not None else None
    read = made.trapped("read_read", app.source("read", rr.folder_scan(folder), protect=start))
    counted = app.functor(
        "counted", read, by="k", variables={"n": "0L", "sum": "0L"}, update="n + 1 as n, sum + v as sum",
        select="seq, v, n, sum",
    )  # fmt: skip
    recent = app.aggregate(
        "recent", counted, by="v", window=rr.sliding(tuples=4), select="sum(sum) as total, last(seq) as seq"
    )
    return {"counted": counted, "recent": recent}


@dataclass
class Frames:
    """What Spark is to read: so many files, one a micro-batch."""

    folder: str

    def __call__(self, session: Any) -> Any:
        reader = session.readStream.schema("seq bigint, at timestamp, k string, v bigint")
        return reader.option("maxFilesPerTrigger", 1).parquet(self.folder)


def spark_source(made: Made) -> Streams:
    app, folder = made.app, made.work / "files"
    if not folder.exists():
        folder.mkdir(parents=True)
        each = ROWS // FILES
        for number in range(FILES):
            pq.write_table(rows_of().slice(number * each, each), folder / f"{number:02d}.parquet")
    connector = rr.from_spark(Frames(str(folder)), schema=SCHEMA)
    read = app.source("read", connector, position="seq", protect=made.start)
    sums = app.aggregate(
        "sums", made.trapped("trap", read), by="k", window=rr.tumbling(tuples=3),
        select="sum(v) as total, last(seq) as seq",
    )  # fmt: skip
    return {"sums": sums}


class Remembers(rr.CustomOperator):
    """Adds up the versions that tuples have met."""

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def on_tuple(self, port: int | str, tuple: dict[str, Any]) -> None:
        self.total += tuple["version"]
        self.submit({"seq": tuple["seq"], "total": self.total})

    def checkpoint(self) -> Any:
        return self.total

    def reset(self, saved: Any) -> None:
        self.total = saved

    def reset_to_initial_state(self) -> None:
        self.total = 0


def lookup(made: Made) -> Streams:
    app = made.app
    if not (made.work / NAME).exists():
        write_table(made.work, 1)
    read = app.functor("slim", made.source("read"), select="seq, k")
    met = app.lookup("met", read, table=str(made.work / NAME), by="k", select="slim.seq as seq, version")
    added = app.custom("added", Remembers, met, schema="seq bigint, total bigint")
    return {"met": met, "added": added}


TOTALS = "sum(v) as total, count(*) as n, first(seq) as first, last(seq) as last"


def toolkit(made: Made) -> Streams:
    """Describe all that has state, needs no clock and can be in a region: a gate cannot, for it blocks."""
    app, read = made.app, made.source("read", position="seq")
    low = app.functor("low", read, where="v < 12")
    high = app.functor("high", read, where="v >= 12")
    cut = app.punctor("cut", read, where="v = 5")
    windows = {
        "every_third": (read, rr.sliding(tuples=7), {"emit": rr.every(tuples=3)}),
        "of_delta": (read, rr.sliding(delta=9, on="seq"), {}),
        "by_time": (read, rr.tumbling(time="7s", on="at"), {}),
        "by_delta": (read, rr.tumbling(delta=11, on="seq"), {}),
        "by_punctuation": (cut, rr.tumbling(punctuation=True), {}),
    }
    made_of = {
        name: app.aggregate(name, stream, by="k", window=window, select=TOTALS, **more)
        for name, (stream, window, more) in windows.items()
    }
    made_of["met"] = app.join(
        "met", low, high, by="k", windows=(rr.sliding(time="6s", on="at"), rr.sliding(time="4s", on="at")),
        where="low.v < high.v - 3", select="low.seq as l, high.seq as h", outer="full",
    )  # fmt: skip
    pairs = app.barrier("pairs", low, high, by="k", select="k, low.seq as l, high.seq as h")
    slim = {
        "once": app.deduplicate("once", read, by="k", time="4s", on="at"),
        "late": app.delay("late", read, time="6s", on="at", by="k"),
        "slow": app.throttle("slow", read, rate=0.2, on="at", by="k"),
        "sorted": app.sort("sorted", read, order="v desc", window=rr.tumbling(tuples=6), by="k"),
        "best": app.top("best", read, n=2, order="v desc", window=rr.tumbling(tuples=6), by="k"),
    }
    slimmed = {name: app.functor(f"{name}_only", stream, select="seq, k, v") for name, stream in slim.items()}
    return {**made_of, **slimmed, "pairs": pairs}


def clock(made: Made) -> Streams:
    """Describe what a clock drives, which is in no region: this one starts after the source that goes by it."""
    app = made.app
    read = app.source("read", rr.rows(made.left("read", rows_of())), ordering="at")
    read = app.functor("read_read", read, where="trapped(seq) >= 0", protect=made.start)
    ticks = pa.Table.from_pylist([{"at": START + timedelta(seconds=s)} for s in range(ROWS // 3)], TICKS)
    told = app.clock("told", rr.rows(made.left("told", ticks)), time="at", ordering="at")
    options: dict[str, Any] = {"by": "k", "clock": told}
    slim = {
        "sorted": app.sort("sorted", read, order="v", window=rr.tumbling(time="5s"), **options),
        "once": app.deduplicate("once", read, time="4s", **options),
        "late": app.delay("late", read, time="6s", **options),
        "slow": app.throttle("slow", read, rate=0.2, **options),
    }
    slimmed = {name: app.functor(f"{name}_only", stream, select="seq, k, v") for name, stream in slim.items()}
    return {
        "sums": app.aggregate("sums", read, window=rr.tumbling(time="7s"), select=TOTALS, **options),
        **slimmed,
    }


@dataclass(frozen=True)
class Topology:
    """How to build an application, and how to compare what it puts out.

    ``ordered`` is whether rows come in the same order each time. ``outside`` has the channels that lead into a region
    from what is in none, each with its source and how many rows of that a batch has: what is lost with a host before it
    is in the channel has not entered. ``forgets`` names operators in no region, whose state may be lost, and
    ``may_lack`` streams of them, whose rows may be.
    """

    build: Callable[[Made], Streams]
    ordered: bool = True
    outside: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    forgets: frozenset[str] = frozenset()
    may_lack: frozenset[str] = frozenset()
    batch_rows: int = BATCH


TOPOLOGIES: Mapping[str, Topology] = {
    "chain": Topology(chain),
    "diamond": Topology(diamond),
    "sources": Topology(sources, ordered=False),
    "aligned": Topology(aligned),
    "sinks": Topology(sinks),
    "regions": Topology(regions, outside={"to:plain_read": ("plain", 20)}),
    "loop": Topology(loop),
    "mixed": Topology(mixed, outside={"to:plain_kept": ("plain", 20)}, forgets=frozenset({"plain_kept"})),
    "elements": Topology(elements, may_lack=frozenset({"seen"})),
    "byfile": Topology(byfile),
    "spark": Topology(spark_source),
    "lookup": Topology(lookup),
    "toolkit": Topology(toolkit),
    # A batch of both sources has what comes at the same times.
    "clock": Topology(clock, outside={"to:read": ("read", 18), "to:told": ("told", 6)}),
    "dice": Topology(dice),
    "kafka": Topology(kafka, batch_rows=BROKERS_BATCH),
}
