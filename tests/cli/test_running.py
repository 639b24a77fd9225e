"""Commands that run applications on Spark, each in a process of its own, with small feeds."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pytest
from tests.cli.conftest import EVENTS, in_process

RUN_KEYS = [
    "application", "run_folder", "output", "outputs", "batches", "tuples_in", "tuples_out", "seconds",
    "events_per_s", "steady_events_per_s", "interrupted", "take_up", "halted", "quarantined", "checkpoints",
    "operators",
]  # fmt: skip
NOISE = ("WARN", "log4j", "incubator", "Traceback")


def bargains(feed: pa.Table) -> list[tuple[int, str, float]]:
    """Find the bargains one tuple at a time: (seq, ticker, gain)."""
    trades: dict[str, list[tuple[float, int]]] = {}
    found = []
    for event in feed.to_pylist():
        ticker, price, size = event["ticker"], event["price"], event["size"]
        if event["kind"] == "trade":
            trades[ticker] = [*trades.get(ticker, [])[-4:], (price, size)]
        elif ticker in trades:
            last = trades[ticker]
            vwap = sum(p * s for p, s in last) / sum(s for _, s in last)
            if vwap > price:
                found.append((event["seq"], ticker, (vwap - price) * size))
    return found


@pytest.mark.slow
def test_run_a_built_in_application(feed: pa.Table, feed_file: Path, tmp_path: Path) -> None:
    command = ["-m", "riprap", "run", "bargain", "--feed", "feed.parquet", "--out", "found.csv"]
    command += ["--pages", "pages", "--config", "spark.default.parallelism=3"]
    done = in_process([*command, "--batch-rows", "7000", "--json"], tmp_path)

    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert list(told) == RUN_KEYS
    expected = bargains(feed)
    assert told["tuples_in"] == EVENTS
    assert told["tuples_out"] == len(expected) > 500
    assert told["batches"] == 3
    assert list(told["operators"]["Aggregator"]) == ["in", "out", "seconds", "state_bytes", "late"]
    assert told["operators"]["Source"]["in"] == EVENTS
    assert told["operators"]["Sink"]["in"] == len(expected)
    assert told["operators"]["Aggregator"]["state_bytes"] > 0

    assert told["output"] == str(tmp_path / "found.csv")
    files = sorted((tmp_path / "found.csv").glob("part-*"))
    found = pa.concat_tables([pyarrow.csv.read_csv(file) for file in files])
    assert found["seq"].to_pylist() == [seq for seq, _, _ in expected]
    assert found["ticker"].to_pylist() == [ticker for _, ticker, _ in expected]
    assert found["gain"].to_pylist() == pytest.approx([gain for _, _, gain in expected])

    assert Path(told["run_folder"]).samefile(tmp_path / "runs" / "bargain" / "latest")
    assert (tmp_path / "runs" / "bargain" / "latest" / "spark.log").exists()
    options = json.loads((tmp_path / "runs" / "bargain" / "latest" / "run.json").read_text())["options"]
    assert options["parallelism"] == 3
    assert Path(options["pages"]).parent == tmp_path / "pages"
    assert [p.name for p in (tmp_path / "runs").iterdir()] == ["bargain"]
    assert not [word for word in NOISE if word in done.err], done.err


def test_the_demonstration(tmp_path: Path) -> None:
    done = in_process(["-m", "riprap", "demo", "--events", str(EVENTS), "--seed", "3"], tmp_path)

    assert done.code == 0, done.err
    for part in (
        "BargainIndex",
        f"{EVENTS:,} events in",
        "10 best bargains",
        "demo/graph.svg",
        "riprap inject bargain --quick",
        "riprap bench",
    ):
        assert part in done.out
    assert "\x1b" not in done.out + done.err
    assert not [word for word in NOISE if word in done.out + done.err], done.err
    note = json.loads((tmp_path / "demo" / "feed" / "_feed.json").read_text())
    assert note == {"format": "riprap-demo-feed/2", "app": "bargain", "events": EVENTS, "seed": 3}
    assert (tmp_path / "demo" / "graph.svg").read_text().startswith("<")
    assert any((tmp_path / "demo" / "bargains").glob("*.parquet"))
    assert (tmp_path / "demo" / "runs" / "bargain" / "latest" / "metrics.jsonl").exists()


APPLICATIONS = """\
import os, signal
import pyarrow.compute as pc
import riprap as rr


def counting(name, sink, select="word, double_length(word) as n", **pace):
    app = rr.Application(name)
    app.function("double_length", lambda word: pc.multiply(pc.utf8_length(word), 2), returns="bigint")
    rows = [{"word": word, "amount": amount} for amount, word in enumerate(["a", "bb", "ccc"])]
    words = app.source("words", rr.rows(rows, "word string, amount int", **pace))
    app.sink("out", app.functor("lengths", words, select=select), sink)
    return app


def interrupt(batch, table):
    if batch == 0:  # a second Ctrl-C would end the program at once
        os.kill(os.getppid(), signal.SIGINT)


good = counting("good", rr.callback(lambda batch, table: print("got", table["n"].to_pylist())))
bad = counting("bad", rr.memory(), select="word, 1 / amount as n")


def endless():
    return counting("endless", rr.callback(interrupt), rate=1000)
"""
PROGRAM = """\
from riprap.cli import main

for arguments in (["good"], ["bad"], ["endless", "--trigger", "100ms"], ["good", "--folder", "runs/good/latest"]):
    code = main(["run", "apps.py:" + arguments[0], *arguments[1:]])
    print("code", arguments[0], code, flush=True)
"""


@pytest.mark.slow
def test_own_applications_that_end_fail_and_are_stopped(tmp_path: Path) -> None:
    (tmp_path / "apps.py").write_text(APPLICATIONS)
    (tmp_path / "program.py").write_text(PROGRAM)

    done = in_process(["program.py"], tmp_path)

    assert "got [2, 4, 6]" in done.out, done.err
    assert "good: 3 events" in done.out
    codes = [line for line in done.out.splitlines() if line.startswith("code")]
    assert codes == ["code good 0", "code bad 1", "code endless 130", "code good 2"], done.err
    assert "lengths" in done.err
    assert "apps.py:11" in done.err
    assert "runs/bad" in done.err
    assert "Traceback" not in done.err
    # Tried once more, for it might have been the weather; the second time the same happened.
    events = (tmp_path / "runs" / "bad" / "latest" / "events.jsonl").read_text().splitlines()
    decided = [event["what"] for event in map(json.loads, events) if event["event"] == "decision"]
    assert decided == ["RetryQuery", "GiveUp"]
    assert "Ctrl-C again" in done.err
    assert "has ended" in done.err
