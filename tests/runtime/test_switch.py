"""Which replica counts: the file that says so, and what a reader takes and passes over by it."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Literal

import pyarrow as pa
import pytest

import riprap as rr
from riprap.channels import ChannelWriter
from riprap.channels.replicas import begin_log, newest_log
from riprap.channels.segment import BEGIN
from riprap.compiler import ChannelPlan, Plan, compile_graph
from riprap.errors import DamagedFileError, FormatError
from riprap.runtime.inlets import ChannelInflow, Inlets, read_channel
from riprap.runtime.offsets import ACTIVE, Offset
from riprap.runtime.switch import FORMAT, Epoch, Switch, counting, has_switch, read_switch, run_alone
from riprap.stage.plan import Layout

SCHEMA = "k int, by string"


def at(letter: str, after: int | None, since: int | None, switch: Switch | None = None) -> Switch:
    """Switch to a replica at frontiers."""
    return (switch or Switch.begun(0.0)).to(letter, after=after, since=since, cause="lost", time=1.0)


# --- the file


def test_a_switch_is_read_as_it_was_written(tmp_path: Path) -> None:
    switch = at("b", 120, 124).without("a")
    switch.save(tmp_path, "hot")

    assert json.loads((tmp_path / "switches" / "hot.json").read_text()) == {
        "format": "riprap-switch/1",
        "out": ["a"],
        "epochs": [
            {"active": "a", "after": None, "since": None, "cause": "began", "time": 0.0},
            {"active": "b", "after": 120, "since": 124, "cause": "lost", "time": 1.0},
        ],
    }
    assert read_switch(tmp_path, "hot") == switch
    assert (switch.epoch, switch.active, switch.active_in(1), switch.active_in(2)) == (2, "b", "a", "b")
    assert (switch.counts_up_to(1), switch.counts_up_to(2)) == (120, None)
    assert at("b", None, None).counts_up_to(1) == BEGIN, "nothing of it counts"
    assert switch.epochs[1] == Epoch(active="b", after=120, since=124, cause="lost", time=1.0)
    assert (tmp_path / "switches").stat().st_mode & 0o777 == 0o700


def test_of_which_nothing_was_written_is_as_at_first(tmp_path: Path) -> None:
    assert not has_switch(tmp_path, "hot")
    assert read_switch(tmp_path, "hot") == Switch.begun(0.0)
    assert not (tmp_path / "switches").exists()


def test_who_is_out_is_named_once_and_comes_back() -> None:
    switch = Switch.begun(0.0, ["c"]).without("a").without("a")

    assert switch.out == ("c", "a")
    assert switch.including("c").including("b").out == ("a",)


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ('{"format": "riprap-switch/2"}', FormatError, "not of format riprap-switch/1.*'riprap-switch/2'"),
        ("", DamagedFileError, "it is empty, as after a power cut"),
        ("{", DamagedFileError, "it is not JSON"),
        (f'{{"format": "{FORMAT}", "epochs": []}}', DamagedFileError, "it lacks 'out'"),
        (f'{{"format": "{FORMAT}", "out": "a", "epochs": []}}', DamagedFileError, "its 'out' is 'a'"),
        (f'{{"format": "{FORMAT}", "out": [], "epochs": []}}', DamagedFileError, "it has no epoch"),
        (f'{{"format": "{FORMAT}", "out": [], "epochs": [{{"active": "a"}}]}}', DamagedFileError, "cause"),
        (f'{{"format": "{FORMAT}", "out": [], "epochs": [7]}}', DamagedFileError, "is damaged"),
    ],
)
def test_a_file_that_cannot_be_read_is_an_error(
    text: str, error: type[Exception], said: str, tmp_path: Path
) -> None:
    (tmp_path / "switches").mkdir()
    (tmp_path / "switches" / "hot.json").write_text(text)
    with pytest.raises(
        error, match=rf"(?s)hot\.json.*{said}.*or remove it: then the first replica is active"
    ):
        read_switch(tmp_path, "hot")


def test_a_file_is_read_once_as_long_as_it_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Switch.begun(0.0).save(tmp_path, "hot")
    first = read_switch(tmp_path, "hot")
    path = tmp_path / "switches" / "hot.json"

    assert read_switch(tmp_path, "hot") is first
    at("b", 3, 4).save(tmp_path, "hot")
    assert read_switch(tmp_path, "hot").active == "b"
    # Its number and time may be those of a file that is gone.
    status = path.stat()
    again = at("a", 5, 6, at("b", 3, 4))
    data = json.loads(path.read_text())
    data["epochs"].append(vars_of(again.epochs[2]))
    path.write_text(json.dumps(data))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert path.stat().st_ino == status.st_ino
    assert read_switch(tmp_path, "hot") == again
    path.unlink()
    assert read_switch(tmp_path, "hot") == Switch.begun(0.0)


def vars_of(epoch: Epoch) -> dict[str, Any]:
    return {name: getattr(epoch, name) for name in ("active", "after", "since", "cause", "time")}


def test_a_copy_of_a_replica_that_is_out_does_not_count(tmp_path: Path) -> None:
    counts = counting(tmp_path, {"sums~a": ("hot", "a"), "sums~b": ("hot", "b")})

    assert [counts(reader) for reader in ("sums~a", "sums~b", "out")] == [True, True, True]
    Switch.begun(0.0, ["b"]).save(tmp_path, "hot")
    assert [counts(reader) for reader in ("sums~a", "sums~b", "out")] == [True, False, True]
    Switch.begun(0.0).save(tmp_path, "hot")
    assert counts("sums~b")


def test_in_one_process_the_active_replica_runs_alone(tmp_path: Path) -> None:
    groups = layout_of("exact").graph.groups

    assert run_alone(tmp_path, groups, 5.0) == {"hot": "a"}
    assert read_switch(tmp_path, "hot") == Switch.begun(5.0, ["b"])
    at("b", 3, 3).save(tmp_path, "hot")
    assert run_alone(tmp_path, groups, 6.0) == {"hot": "b"}
    assert read_switch(tmp_path, "hot").out == ("a",)


# --- what readers take


def layout_of(
    failover: Literal["exact", "plain", "ahead"], *, beside: bool = False, inner: bool = False
) -> Layout:
    """Compile: a feed, a group, and a sink that reads it; perhaps the feed as well, or two elements in the group."""
    app = rr.Application("app")
    feed = app.source("feed", rr.rows([], SCHEMA))
    a = app.aggregate("a", feed, by="k", window=rr.sliding(tuples=1), select="max(by) as by")
    more = (
        app.aggregate("more", a, by="by", window=rr.sliding(tuples=1), select="count(*) as k")
        if inner
        else None
    )
    app.replicate("hot", *([a] if more is None else [a, more]), failover=failover)
    app.sink("out", a if more is None else more, rr.memory())
    if beside:
        other = app.functor("other", feed, select="k, by")
        app.place("aside", other)
        app.sink("both", app.union("all", a, other), rr.memory())
    return compile_graph(app.graph(), buckets=2, tasks=1)


def plan_of(layout: Layout, operator: str, replica: str | None = None) -> Plan:
    return next(p for p in layout.plans if p.replica == replica and any(o.name == operator for o in p.graph))


@dataclass
class Log:
    """The log of a replica: a row for each frontier, which says whose it is."""

    run: Path
    channel: ChannelPlan
    letter: str | None
    frontier: int = -1
    batch: int = -1
    writer: ChannelWriter = field(init=False)

    def __post_init__(self) -> None:
        home = self.run / "channels" / self.channel.name
        self.writer = self.opened(home if self.letter is None else newest_log(home, self.letter).folder)

    def opened(self, folder: Path) -> ChannelWriter:
        c = self.channel
        return ChannelWriter(
            folder,
            stream=c.stream,
            schema=c.schema,
            tags=c.tags,
            key=c.key,
            buckets=c.buckets,
            readers=c.readers,
            notes=self.run / "channels" / c.name,
        )

    def write(self, upto: int) -> None:
        self.batch += 1
        tags = [f"${n}" for n in range(self.channel.tags)]
        values = {"k": 1, "by": self.letter or "direct"}
        rows = [
            {name: values[name] for name in self.channel.schema.names} | dict.fromkeys(tags, 0) | {"$0": n}
            for n in range(self.frontier + 1, upto + 1)
        ]
        schema = pa.schema([*self.channel.schema, *((t, pa.int64()) for t in tags)])
        self.writer.append(
            self.batch, pa.RecordBatch.from_pylist(rows, schema=schema), None, frontier=upto, sources={}
        )
        self.frontier = upto

    def begin(self, frontier: int) -> None:
        self.batch, self.frontier = self.batch + 1, frontier
        home = self.run / "channels" / self.channel.name
        self.writer = self.opened(begin_log(home, self.letter or "", frontier).folder)
        self.writer.begin_at(self.batch, frontier, {})


class Taking:
    """An element that reads a group, batch by batch, as its driver plans it and its task reads it."""

    def __init__(self, layout: Layout, run: Path, operator: str = "out", replica: str | None = None) -> None:
        self.plan, self.run = plan_of(layout, operator, replica), run
        self.events: list[dict[str, Any]] = []
        self.offset: Offset = {}
        self.begin()
        self.offset = self.inflow.initial()

    def begin(self) -> None:
        """Begin again, as after a crash."""
        self.inflow = ChannelInflow(
            self.plan,
            self.run,
            flush=False,
            tell=lambda event, **more: self.events.append({"event": event, **more}),
        )

    def channel(self, stream: str) -> ChannelPlan:
        return self.plan.inlets[stream]

    def take(self, rows: int = 1000) -> dict[str, list[tuple[int, str]]] | None:
        """Read a batch: of each stream the frontiers and whose rows; None if there is none."""
        end = self.inflow.latest(self.offset, rows)
        if end == self.offset:
            return None
        # What is on record has been JSON.
        end = json.loads(json.dumps(end))
        (piece,) = self.inflow.pieces(self.offset, end)
        self.offset = end
        taken = {}
        for stream in self.plan.inlets:
            read = read_channel(self.plan, self.run, stream, piece)
            whose = read.columns["by"].to_pylist() if "by" in read.columns else [""] * len(read.tags[0])
            taken[stream] = list(zip(read.tags[0].tolist(), whose, strict=True))
        return taken

    def all(self, rows: int = 1000) -> dict[str, list[tuple[int, str]]]:
        whole: dict[str, list[tuple[int, str]]] = {stream: [] for stream in self.plan.inlets}
        while (batch := self.take(rows)) is not None:
            for stream, taken in batch.items():
                whole[stream] += taken
        return whole


def span(letter: str, first: int, last: int) -> list[tuple[int, str]]:
    return [(n, letter) for n in range(first, last + 1)]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path


def logs_of(taking: Taking, stream: str = "a") -> tuple[Log, Log]:
    channel = taking.channel(stream)
    return Log(taking.run, channel, "a"), Log(taking.run, channel, "b")


def test_an_exact_failover_goes_on_from_where_it_was(run: Path) -> None:
    taking = Taking(layout_of("exact"), run)
    a, b = logs_of(taking)
    a.write(9)
    b.write(6)

    assert taking.all() == {"a": span("a", 0, 9)}
    assert taking.offset[ACTIVE] == {"hot": [1, "a"]}
    b.write(8)
    at("b", 9, 8).save(run, "hot")
    assert taking.take() is None, "it was further"
    b.write(14)
    assert taking.all() == {"a": span("b", 10, 14)}
    assert taking.offset[ACTIVE] == {"hot": [2, "b"]}
    assert taking.events == []


def test_a_plain_failover_passes_over_what_is_between(run: Path) -> None:
    taking = Taking(layout_of("plain"), run)
    a, b = logs_of(taking)
    a.write(9)
    b.write(6)
    assert taking.take() == {"a": span("a", 0, 9)}
    a.write(11)
    b.write(15)
    at("b", 11, 15).save(run, "hot")

    # First all that counts of the one before, though another is active.
    assert taking.take() == {"a": span("a", 10, 11)}
    b.write(20)
    assert taking.take() == {"a": []}
    assert taking.take() == {"a": span("b", 16, 20)}
    assert taking.events == [
        {"event": "lost in failover", "element": taking.plan.name, "group": "hot", "stream": "a", "tuples": 4}
    ]
    assert taking.take() is None
    assert Inlets(taking.plan, run).reader("a").lost == 4


def test_what_is_passed_over_is_counted_once(run: Path) -> None:
    taking = Taking(layout_of("plain"), run)
    a, b = logs_of(taking)
    a.write(9)
    b.write(15)
    assert taking.take() is not None
    at("b", 9, 15).save(run, "hot")

    begun = dict(taking.offset)
    for _ in range(3):
        taking.begin()
        taking.offset = dict(begun)
        assert taking.take() == {"a": []}
    assert [event["tuples"] for event in taking.events] == [6]
    assert Inlets(taking.plan, run).reader("a").lost == 6


def test_who_has_read_nothing_yet_gets_all_that_counts(run: Path) -> None:
    taking = Taking(layout_of("plain"), run)
    a, b = logs_of(taking)
    a.write(9)
    b.write(15)
    at("b", 9, 15).save(run, "hot")
    b.write(18)

    assert taking.all() == {"a": [*span("a", 0, 9), *span("b", 16, 18)]}
    assert [event["tuples"] for event in taking.events] == [6]


def test_a_replica_of_which_nothing_counts_is_passed_over_whole(run: Path) -> None:
    taking = Taking(layout_of("plain"), run)
    a, b = logs_of(taking)
    b.write(5)
    at("b", None, 5).save(run, "hot")
    a.write(3)
    b.write(8)

    assert taking.all() == {"a": span("b", 6, 8)}
    assert [event["tuples"] for event in taking.events] == [6]


def test_one_that_is_behind_is_read_from_where_the_other_was(run: Path) -> None:
    taking = Taking(layout_of("plain"), run)
    a, b = logs_of(taking)
    a.write(9)
    b.write(4)
    assert taking.take() == {"a": span("a", 0, 9)}
    at("b", 9, 4).save(run, "hot")

    assert taking.take() is None
    b.write(12)
    assert taking.all() == {"a": span("b", 10, 12)}
    assert taking.events == []


def test_beside_a_group_nothing_is_passed_over(run: Path) -> None:
    taking = Taking(layout_of("plain", beside=True), run, operator="both")
    a, b = logs_of(taking)
    other = Log(run, taking.channel("other"), None)
    a.write(9)
    b.write(15)
    other.write(9)
    assert taking.take() == {"a": span("a", 0, 9), "other": span("direct", 0, 9)}
    at("b", 9, 15).save(run, "hot")

    # The other stream is not as far yet.
    assert taking.take() is None
    other.write(12)
    assert taking.take() == {"a": [], "other": span("direct", 10, 12)}
    other.write(20)
    b.write(20)
    taken = taking.all()
    assert taken == {"a": span("b", 16, 20), "other": span("direct", 13, 20)}
    assert [event["tuples"] for event in taking.events] == [6]


def test_in_a_plain_group_each_replica_reads_its_own(run: Path) -> None:
    layout = layout_of("plain", inner=True)
    taken = {}
    for letter in ("a", "b"):
        taking = Taking(layout, run, operator="more", replica=letter)
        logs_of(taking)
        Log(run, taking.channel("a"), letter).write(7 if letter == "a" else 9)
        at("b", 3, 5).save(run, "hot")
        taken[letter] = taking.all()

    assert taken == {"a": {"a": span("a", 0, 7)}, "b": {"a": span("b", 0, 9)}}


def test_whichever_is_ahead_is_read_of_each_stream(run: Path) -> None:
    """Of two streams of a group, each may be further in the log of another replica."""
    app = rr.Application("app")
    feed = app.source("feed", rr.rows([], SCHEMA))
    one, two = (app.functor(name, feed, select="k, by") for name in ("one", "two"))
    app.sink("out", [one, two], rr.memory())
    app.replicate_all()
    layout = compile_graph(app.graph(), buckets=2, tasks=1)
    taking = Taking(layout, run)
    logs = {(s, x): Log(run, taking.channel(s), x) for s in ("one", "two") for x in ("a", "b")}
    for (stream, letter), upto in {
        ("one", "a"): 9,
        ("one", "b"): 10,
        ("two", "a"): 12,
        ("two", "b"): 5,
    }.items():
        logs[stream, letter].write(upto)

    assert taking.take() == {"one": span("b", 0, 10), "two": span("a", 0, 10)}
    # Replica b is gone: nothing waits for it.
    logs["one", "a"].write(12)
    assert taking.take() == {"one": span("a", 11, 12), "two": span("a", 11, 12)}


@pytest.mark.parametrize("seed", range(20))
def test_plain_positions_after_any_switches(seed: int, run: Path) -> None:
    """Compare with a plain list: of each epoch what its replica put out in it."""
    chance = Random(seed)
    taking = Taking(layout_of("plain"), run)
    logs = dict(zip("ab", logs_of(taking), strict=True))
    switch = Switch.begun(0.0)
    wanted: list[tuple[int, str]] = []
    got: list[tuple[int, str]] = []
    counted = -1  # up to where the wanted rows go, or what is lost
    lost = 0
    for _ in range(40):
        action = chance.choice(["a", "b", "take", "take", "switch"])
        if action in logs:
            logs[action].write(logs[action].frontier + chance.randint(1, 5))
        elif action == "take":
            got += (taking.take(chance.randint(1, 8)) or {"a": []})["a"]
            if chance.random() < 0.3:
                taking.begin()
        elif chance.random() < 0.4:
            old = switch.active
            new = "b" if old == "a" else "a"
            after, since = logs[old].frontier, logs[new].frontier
            if after < 0 or since < 0:
                continue
            wanted += span(old, counted + 1, after)
            counted = max(counted, after)
            lost += max(since - counted, 0)
            counted = max(counted, since)
            switch = at(new, after, since, switch)
            switch.save(run, "hot")
    wanted += span(switch.active, counted + 1, logs[switch.active].frontier)
    while (batch := taking.take(5)) is not None:
        got += batch["a"]

    assert got == wanted
    assert sum(event["tuples"] for event in taking.events) == lost
    assert Inlets(taking.plan, run).reader("a").lost == lost
