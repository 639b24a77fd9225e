"""``riprap explain`` shows the operators, the compiler's passes and the processing elements."""

from __future__ import annotations

import json
import xml.etree.ElementTree as xml
from pathlib import Path

import pytest
from tests.cli.conftest import Command
from tests.cli.test_usage import APPLICATION

from riprap.protection import Consistent

OPERATORS = [
    "Source", "TradeQuote", "TradeFilter", "Aggregator", "VWAP", "QuoteFilter", "BargainIndex", "Sink",
]  # fmt: skip


def test_text_for_people(riprap: Command) -> None:
    done = riprap("explain", "bargain", "--buckets", "6", "--parallelism", "3")
    assert done.code == 0
    for operator in OPERATORS:
        assert operator in done.out
    assert "(once)" in done.out
    for part in ("fuse", "prune", "key", "6 buckets in 3 tasks", "stay", "bargain.py:"):
        assert part in done.out


def test_json_for_scripts(riprap: Command) -> None:
    done = riprap("explain", "bargain", "--json")
    told = json.loads(done.out)
    assert list(told) == [
        "application", "operators", "passes", "pes", "channels", "groups", "regions", "autonomous", "guarantees",
        "spark_plan",
    ]  # fmt: skip
    assert [operator["name"] for operator in told["operators"]] == OPERATORS
    aggregator = told["operators"][3]
    told_of_each = ["name", "kind", "inputs", "ports", "outputs", "schema", "stateful", "summary", "location"]
    assert list(aggregator) == told_of_each
    assert aggregator["kind"] == "Aggregate"
    assert aggregator["inputs"] == ["TradeFilter"]
    assert (aggregator["ports"], aggregator["outputs"]) == ([["TradeFilter"]], ["Aggregator"])
    assert aggregator["schema"] == {"ticker": "string", "notional": "double", "volume": "bigint"}
    assert aggregator["stateful"] is True
    assert told["pes"][0]["operators"] == OPERATORS
    assert told["pes"][0]["key"] == {"Source": ["ticker"]}
    assert {step["pass"] for step in told["passes"]} >= {"fuse", "key", "prune", "run"}
    assert told["channels"] == []
    assert told["spark_plan"] is None


def test_the_feed_is_shown_when_it_is_named(riprap: Command, feed_file: Path) -> None:
    done = riprap("explain", "bargain", "--feed", feed_file, "--json")
    assert json.loads(done.out)["operators"][0]["summary"] == f"parquet files {feed_file}"


def test_a_drawing(riprap: Command, tmp_path: Path) -> None:
    done = riprap("explain", "bargain", "--svg", "graph.svg")
    assert "Drawing: graph.svg" in done.out
    assert "BargainIndex" in "".join(xml.parse(tmp_path / "graph.svg").getroot().itertext())


def test_an_own_application_may_import_what_is_beside_it(riprap: Command, tmp_path: Path) -> None:
    (tmp_path / "beside_the_application.py").write_text("SIZE = 7\n")
    (tmp_path / "app.py").write_text(
        "from beside_the_application import SIZE\n" + APPLICATION.replace("tuples=3", "tuples=SIZE")
    )
    done = riprap("explain", "app.py:app")
    assert "sliding(7 tuples)" in done.out
    assert "app.py:6" in done.out


REGIONS = """
import riprap as rr
app = rr.Application("regions")
trades = app.source("trades", rr.rows([], "k string, v bigint"), protect=rr.consistent(period="2s"))
slow = app.source("slow", rr.rows([], "k string"))
both = app.barrier("both", trades, slow, select="trades.k as k, v")
app.sink("kept", both, rr.memory())
app.sink("shown", trades, rr.console(), protect=rr.autonomous())
"""
EXPLAINED = """
protect    trades: begins a consistent region, cut every 2 s, survives the loss of a host's memory
           shown: outside of consistent regions, and what only it reaches
region     trades: cut every 2 s, survives the loss of a host's memory; starts at trades, ends at kept
           trades: starts the region: can be read again from where a run stopped
           both: fed by 'trades'; autonomous streams feed port 1
           kept: fed by 'both'
autonomous slow: no region starts at it
           shown: leaves regions by its protect=
holds      kept: after the loss of a process or a host's memory: exactly once, of what 'slow' puts out; after the loss
           of the power: approximately (region 'trades' has durable='host', and need not survive it; results that are
           not published yet are lost)
           shown: after the loss of a process: at least once (the newest batch may come again); after the loss of a
           host's memory: best effort (results that are not published yet are lost; the newest batch may come again);
           after the loss of the power: approximately (region 'trades' has durable='host', and need not survive it;
           results that are not published yet are lost; the newest batch may come again)
"""


def test_regions_and_what_holds(riprap: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Consistent, "CARRIED_OUT", True)
    (tmp_path / "app.py").write_text(REGIONS)

    done = riprap("explain", "app.py:app")
    told = json.loads(riprap("explain", "app.py:app", "--json").out)

    assert " ".join(EXPLAINED.split()) in " ".join(done.out.split())
    (region,) = told["regions"]
    assert (region["name"], region["terms"]["period"]) == ("trades", 2.0)
    assert region["autonomous_ports"] == {"both": [1]}
    assert list(region["reasons"]) == region["operators"] == ["trades", "both", "kept"]
    assert told["autonomous"] == {
        "slow": "no region starts at it", "shown": "leaves regions by its protect="
    }  # fmt: skip
    held = told["guarantees"]["shown"]["process"]
    assert held["holds"] == "at least once"
    assert (held["missing"], held["repeated"], held["differing"]) == (False, True, False)


GROUPS = """
import riprap as rr
app = rr.Application("groups")
trades = app.source("trades", rr.rows([], "k string, v bigint"))
sums = app.aggregate("sums", trades, by="k", window=rr.sliding(tuples=2), select="sum(v) as v")
app.replicate("hot", sums, detect="500ms")
app.sink("out", sums, rr.memory())
"""
OF_GROUPS = """
fuse     processing element 'groups' of 1 operators: trades
         processing element 'sums' of 1 operators: sums
         processing element 'out' of 1 operators: out
channel  trades: groups -> sums, by k
         sums: sums -> out, all of it, a log for each replica of 'hot'
replicas hot: sums; 2 replicas, exact: the others go on in the log of another replica from where they were: nothing is
         lost, a loss found within 0.5 s; a replica comes back from the state of a replica that is ahead
process  main: groups, out
         hot~a: sums~a
         hot~b: sums~b
"""


def test_replica_groups(riprap: Command, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(GROUPS)

    done = riprap("explain", "app.py:app", "--svg", "graph.svg")
    told = json.loads(riprap("explain", "app.py:app", "--json").out)

    assert " ".join(OF_GROUPS.split()) in " ".join(done.out.split())
    assert "tasks; sums; replicas of 'hot'" in " ".join(done.out.split())
    assert "hot, 2 replicas" in (tmp_path / "graph.svg").read_text()
    assert [element["name"] for element in told["pes"]] == ["groups", "sums", "out"]
    assert [element["replicas"] for element in told["pes"]] == [None, "hot", None]
    assert [(c["stream"], c["to"], c["replicas"]) for c in told["channels"]] == [
        ("trades", ["sums"], None), ("sums", ["out"], "hot")
    ]  # fmt: skip
    (group,) = told["groups"]
    location = group.pop("location")
    assert location.endswith("app.py:6")
    assert group == {
        "name": "hot", "operators": ["sums"], "replicas": 2, "failover": "exact", "detect": 0.5, "back": "peer",
        "hosts": [], "processes": {"hot~a": ["sums~a"], "hot~b": ["sums~b"]},
    }  # fmt: skip
