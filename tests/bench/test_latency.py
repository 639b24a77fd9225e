"""Latency by the consumer's clock: what consumers note, and the sums; how quick anything is does not matter here."""

import json
import socket
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from riprap.errors import RunError
from riprap_bench import latency
from riprap_bench.consumers import SEEN, FolderReader, LineServer
from riprap_bench.latency import Plan, by_meter, latencies
from riprap_bench.measuring import Memory, Outcome
from riprap_bench.trial import Trial

PLAN = Plan(rate=10.0, warm_up=2.0)


def outcome(ends: list[float], **told: object) -> Outcome:
    trial = Trial(variant="riprap", files=(), rows_per_file=10, events=10 * len(ends), folder="", rate=10.0)
    return Outcome(trial=trial, told={"batches": [(10, end) for end in ends], **told}, memory=Memory())


def results(delay: float, slower: float = 0.0) -> pa.Table:
    """The result of every tuple of ten seconds, each so long after it is due at 100 s and later."""
    seq = np.arange(1, 101)
    due = 100 + (seq - 1) / PLAN.rate
    return pa.table({"seq": seq, SEEN: due + delay + slower * (due - 100)})


def test_a_line_is_seen_when_its_end_is() -> None:
    with LineServer() as server, socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(b'{"seq": 1}\n{"seq": 2}\n{"se')
        while len(server._received) < 1:
            time.sleep(0.001)
        between = time.time()
        client.sendall(b'q": 3}\n')
        client.shutdown(socket.SHUT_WR)
        server._thread.join()

    seen = server.table()
    assert seen.column("seq").to_pylist() == [1, 2, 3]
    assert [moment > between for moment in seen.column(SEEN).to_pylist()] == [False, False, True]


def test_a_server_that_nobody_called_ends() -> None:
    with LineServer() as server:
        pass
    assert not server._thread.is_alive()


def test_files_are_seen_once_they_have_their_name(tmp_path: Path) -> None:
    with FolderReader(tmp_path / "out") as reader:
        (tmp_path / "out").mkdir()
        for number in (1, 2):
            hidden = tmp_path / "out" / f"_part-{number}"
            pq.write_table(pa.table({"seq": [number]}), hidden)
            named = time.time()
            hidden.rename(tmp_path / "out" / f"part-{number}.parquet")
            while len(reader._seen) < number:
                time.sleep(0.001)

    seen = reader.table()
    assert seen.column("seq").to_pylist() == [1, 2]
    assert seen.column(SEEN)[1].as_py() >= named


def test_latency_is_taken_after_the_warm_up() -> None:
    told = outcome([], pace=[100.0])

    found = latencies(PLAN, told, results(0.5))
    assert found["results"] == 75  # of a hundred tuples, a quarter is due before 100.5 + 2 s
    assert found["kept_up"]
    assert [found[name] for name in ("median", "p95", "max")] == pytest.approx([500.0] * 3)
    assert not latencies(PLAN, told, results(0.5, slower=0.1))["kept_up"]
    with pytest.raises(RunError, match="nothing arrived after 2 s of warm-up"):
        latencies(PLAN, told, results(9.0))


def test_what_the_metrics_say_is_taken_after_the_warm_up_too() -> None:
    lines = [{"oldest": 9.0, "newest": 9.0}] * 2 + [{"oldest": 0.3, "newest": 0.1}] * 3
    found = by_meter(PLAN, outcome([0.0, 1.0, 2.0, 3.0, 4.0], latency=lines))
    assert found == pytest.approx({"median": 200.0, "p95": 300.0, "max": 300.0})


@pytest.mark.slow
def test_all_sinks_at_a_slow_pace() -> None:
    plan = Plan(rate=500.0, seconds=60.0, warm_up=0.0, repetitions=1)
    result = latency.run_plan(plan, lambda _: None)

    json.dumps(result)
    assert set(result["sinks"]) == {"callback", "tcp", "parquet"}
    for found in result["sinks"].values():
        assert 0 < found["median"]["middle"] <= found["p95"]["middle"] <= found["max"]["middle"]
    assert "lines over TCP" in latency.table(result)
