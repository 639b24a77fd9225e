"""What counts as the end of the input, and what does not: told by the lists and channels alone, without Spark."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.harness import wait_until

import riprap as rr
from riprap.compiler import Plan, compile_graph
from riprap.feeds.fetch_stop import FetchStop
from riprap.operators.channel import Outlet
from riprap.runtime.folder import RunFolder
from riprap.runtime.inflow import open_inflow, read_piece
from riprap.runtime.offsets import END, Inflow, Offset
from riprap.runtime.outflow import Outflow
from riprap.runtime.settings import Setting
from riprap.runtime.site import Site
from riprap.state.ledger import BatchRecord, Ledger
from riprap.state.pages import PageStore

OPTIONS = rr.RunOptions(at_end="flush")


def setting_of(folder: Path) -> Setting:
    pages = PageStore(str(folder / "pages"))
    return Setting(
        plan="",
        sources=str(folder / "sources"),
        folder=str(folder),
        tables="",
        site=Site(ledger=Ledger(str(folder / "ledger")), pages=pages, results=pages, key=""),
        start=0,
    )


def two_elements() -> list[Plan]:
    app = rr.Application("sums")
    source = app.source("source", rr.rows([{"k": 1, "n": 1}], "k bigint, n bigint"))
    threes = app.aggregate("threes", source, by="k", window=rr.tumbling(tuples=3), select="sum(n) as n")
    every = app.aggregate("every", threes, window=rr.tumbling(tuples=100), select="sum(n) as m")
    app.sink("out", every, rr.memory())
    return list(compile_graph(app.graph(), buckets=2, tasks=1).plans)


def outflow_of(plan: Plan, setting: Setting) -> Outflow:
    (outlet,) = plan.graph.of_kind(Outlet)
    channels = plan.outlets[outlet.ports[0][0]]
    return Outflow(outlet, channels, Path(setting.folder), setting.site.results)


def publish(outflow: Outflow, batch: int, *, end: int) -> None:
    sources = {"source": (batch, batch + 1), END: (0, end)}
    outflow.publish(
        BatchRecord(epoch=0, batch=batch, sources=sources, manifests=(), outputs={}, frontier=batch)
    )


def all_there_is(inflow: Inflow, offset: Offset) -> Offset:
    """Return how far batches go by themselves."""
    while (further := inflow.latest(offset, 1000)) != offset:
        offset = further
    return offset


def test_the_end_of_a_channel_stays_when_its_producer_is_taken_up(tmp_path: Path) -> None:
    first, second = two_elements()
    setting, (root,) = setting_of(tmp_path), second.roots
    outflow, inflow = outflow_of(first, setting), open_inflow(second, setting, OPTIONS, {})
    publish(outflow, 0, end=0)
    publish(outflow, 1, end=1)
    outflow.finish()
    before = inflow.latest(inflow.initial(), 1000)
    end = inflow.latest(before, 1000)
    assert (before, end) == ({root: 1, END: 0}, {root: 2, END: 1})

    # Killed in the batch of the end, which Spark has planned; both are taken up.
    outflow_of(first, setting).reopen()
    again = open_inflow(second, setting, OPTIONS, {})
    (piece,) = again.pieces(before, end)
    assert piece.ends
    assert [rows.rows for rows in read_piece(second, setting, piece).values()] == [0]
    again.commit(end)
    assert again.latest(end, 1000) == end


def test_a_channel_that_is_stopped_has_not_come_to_its_end(tmp_path: Path) -> None:
    first, second = two_elements()
    setting, (root,) = setting_of(tmp_path), second.roots
    outflow, inflow = outflow_of(first, setting), open_inflow(second, setting, OPTIONS, {})
    publish(outflow, 0, end=0)
    outflow.finish()
    stopped = all_there_is(inflow, inflow.initial())
    assert stopped == {root: 0, END: 0}

    # The run did not end after all: what comes once it is taken up goes on to the end.
    outflow_of(first, setting).reopen()
    outflow = outflow_of(first, setting)
    publish(outflow, 1, end=1)
    outflow.finish()
    assert all_there_is(inflow, stopped) == {root: 2, END: 1}


def test_a_server_that_is_left_has_not_come_to_its_end(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        app = rr.Application("sums")
        tcp = rr.from_tcp("127.0.0.1", server.getsockname()[1], schema="n bigint", format="json")
        sums = app.aggregate(
            "sums", app.source("source", tcp), window=rr.tumbling(tuples=9), select="sum(n) as n"
        )
        app.sink("out", sums, rr.memory())
        (plan,) = compile_graph(app.graph(), buckets=2, tasks=1).plans
        setting = setting_of(tmp_path)
        inflow = open_inflow(plan, setting, OPTIONS, {})
        leaving = FetchStop(tmp_path / "sources" / "source")
        offset = inflow.latest(inflow.initial(), 1000)
        connection, _ = server.accept()
        with connection:
            connection.sendall(b'{"n": 1}\n{"n": 2}\n')
            wait_until(lambda: inflow.latest(offset, 1000)["source"] == 2)
            leaving.ask()
            wait_until(lambda: leaving.rows == 2)
            assert all_there_is(inflow, offset) == {"source": 2, END: 0}


def test_a_run_is_taken_up_as_it_began(tmp_path: Path) -> None:
    app = rr.Application("sums")
    app.sink("out", app.source("source", rr.rows([{"n": 1}], "n bigint")), rr.memory())
    options: dict[str, Any] = {"runs": tmp_path, "master": "local[1]"}
    for began, given, said in (
        (None, {"at_end": "flush"}, "was started without at_end="),
        ("flush", {"trigger": "1s"}, "at_end= is for runs whose input ends"),
    ):
        folder = RunFolder.create(tmp_path, "sums", time.time)
        folder.describe("sums", {"at_end": began}, {}, master="", java="")
        with pytest.raises(rr.RiprapError) as caught:
            app.run(folder=folder.path, **options, **given)
        assert said in str(caught.value)
