"""The benchmarks on tiny data: that they run, check answers, and do their sums; never how fast anything is."""

import contextlib
import json
import math
import subprocess
import sys
from collections import defaultdict, deque
from pathlib import Path
from typing import Literal

import numpy as np
import psutil
import pyarrow as pa
import pytest

from riprap.apps.market import generate
from riprap.errors import RunError
from riprap_bench import BENCHMARKS, bargain, faults, operators, san, trial
from riprap_bench.answers import difference, first_of, read_answer
from riprap_bench.baselines import run_bare
from riprap_bench.feed import make_feed
from riprap_bench.kernel import Windows
from riprap_bench.measuring import Memory, Outcome, WarmUp, about, measure, rounded, steady_rate
from riprap_bench.trial import VARIANTS, Trial, missing

QUOTE = {"seq": 1, "ticker": "A", "vwap": 10.0, "price": 9.0, "size": 100, "gain": 100.0}


def answer(*quotes: dict[str, object]) -> pa.Table:
    return pa.Table.from_pylist(
        [QUOTE | quote for quote in quotes], schema=pa.Table.from_pylist([QUOTE]).schema
    )


def outcome(ends: list[float], rows: int = 10, **told: object) -> Outcome:
    trial = Trial(variant="riprap", files=(), rows_per_file=rows, events=rows * len(ends), folder="")
    memory = Memory(total=100.0, jvm=60.0, python=40.0)
    batches = [(rows, end) for end in ends]
    return Outcome(trial=trial, told={"batches": batches, "live_heap_mb": 20.0, **told}, memory=memory)


def test_every_benchmark_is_listed_under_its_name() -> None:
    assert {name: b.name for name, b in BENCHMARKS.items()} == {
        "bargain": "bargain",
        "operators": "operators",
        "adapters": "adapters",
        "checkpoint": "checkpoint",
        "eventual": "eventual",
        "faults": "faults",
        "kill": "kill",
        "latency": "latency",
        "model": "model",
        "regions": "regions",
        "replicas": "replicas",
        "san": "san",
        "wafer": "wafer",
    }


def test_answers_are_the_same_up_to_rounding() -> None:
    theirs = answer({"vwap": math.nextafter(10.0, 11.0)}, {"seq": 2})
    assert difference(answer({}, {"seq": 2}), theirs) is None


def test_a_quote_at_its_average_may_be_a_bargain_or_not() -> None:
    at_the_edge = {"seq": 2, "vwap": math.nextafter(9.0, 10.0)}
    assert difference(answer({}), answer({}, at_the_edge)) is None


@pytest.mark.parametrize(
    ("theirs", "says"),
    [
        (answer({}), "in one answer only"),
        (answer({}, {"seq": 2}, {"seq": 3}), "in one answer only"),
        (answer({}, {"seq": 2}, {"seq": 2}), "quote 2 is reported twice"),
        (answer({}, {"seq": 2, "vwap": 10.001}), "differ in vwap"),
        (answer({}, {"seq": 2, "gain": 100.001}), "differ in gain"),
        (answer({}, {"seq": 2, "ticker": "B"}), "differ in ticker"),
    ],
)
def test_another_answer_is_noticed(theirs: pa.Table, says: str) -> None:
    found = difference(answer({}, {"seq": 2}), theirs)
    assert found is not None
    assert says in found


def test_only_the_beginning_of_an_answer_is_compared_on_request() -> None:
    assert first_of(answer({}, {"seq": 2}, {"seq": 3}), 2).column("seq").to_pylist() == [1, 2]


def test_the_kernel_follows_the_definition_across_batches() -> None:
    events = next(generate(6000, seed=3, tickers=50, block=6000))
    tickers = sorted(set(events.column("ticker").to_pylist()))
    windows = Windows.empty()
    windows.grow(len(tickers))

    found = []
    for start in range(0, 6000, 1700):
        part = events.slice(start, 1700)
        slot = np.array([tickers.index(t) for t in part.column("ticker").to_pylist()])
        trade = np.array([k == "trade" for k in part.column("kind").to_pylist()])
        rows, average = windows.find(
            slot, trade, part.column("price").to_numpy(), part.column("size").to_numpy()
        )
        found += list(zip((rows + start).tolist(), average.tolist(), strict=True))

    expected = []
    trades: dict[str, deque[tuple[float, int]]] = defaultdict(lambda: deque(maxlen=5))
    for row, event in enumerate(events.to_pylist()):
        held = trades[event["ticker"]]
        if event["kind"] == "trade":
            held.append((event["price"] * event["size"], event["size"]))
        elif held and (average := sum(n for n, _ in held) / sum(v for _, v in held)) > event["price"]:
            expected.append((row, average))
    assert found == expected


def test_the_bare_loop_gives_one_answer_whatever_the_batch_size(tmp_path: Path) -> None:
    for rows in (500, 1500):
        feed = make_feed(tmp_path / f"feed-{rows}", 3000, rows_per_file=rows, seed=1)
        assert sum(rows for rows, _ in run_bare(feed.files, out=tmp_path / f"out-{rows}")) == 3000
    assert read_answer(tmp_path / "out-500").equals(read_answer(tmp_path / "out-1500"))


@pytest.mark.parametrize("by", ["ticker", "bucket"])
def test_bytewax_gives_the_answer_of_the_bare_loop(tmp_path: Path, by: Literal["ticker", "bucket"]) -> None:
    pytest.importorskip("bytewax")
    from riprap_bench.bytewax_flows import run_on_bytewax

    feed = make_feed(tmp_path / "feed", 9000, rows_per_file=2000, seed=1)
    run_bare(feed.files, out=tmp_path / "bare")
    done = run_on_bytewax(feed.files, by=by, out=tmp_path / "out", recovery=tmp_path / "recovery")

    assert [rows for rows, _ in done] == feed.rows
    assert [moment for _, moment in done] == sorted(moment for _, moment in done)
    assert difference(read_answer(tmp_path / "bare"), read_answer(tmp_path / "out")) is None


def test_a_variant_whose_library_is_missing_is_skipped_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trial, "find_spec", lambda name: None)
    assert missing("bytewax_key") == "Bytewax is not installed: pip install 'riprap[bytewax]'"
    assert missing("numba") is None


def test_the_beginning_of_a_feed_is_whole_files(tmp_path: Path) -> None:
    feed = make_feed(tmp_path / "feed", 2500, rows_per_file=1000, seed=1)
    assert feed.rows == [1000, 1000, 500]
    assert feed.first(2100).rows == [1000, 1000]
    assert feed.first(10).rows == [1000]
    assert feed.first(99_999) == feed
    ages = [file.stat().st_mtime for file in feed.files]
    assert ages == sorted(set(ages))


@pytest.mark.parametrize(
    ("warm_up", "expected"),
    [
        (WarmUp(batches=1, seconds=0.0), 40 / 4),
        (WarmUp(batches=3, seconds=0.0), 20 / 2),
        (WarmUp(batches=1, seconds=1.5), 20 / 2),
        (WarmUp(batches=99, seconds=99.0), 20 / 2),
    ],
)
def test_a_steady_rate_leaves_out_the_warm_up(warm_up: WarmUp, expected: float) -> None:
    assert steady_rate(outcome([50.0, 51.0, 52.0, 53.0, 54.0]), warm_up) == expected


def test_a_rate_of_two_batches_is_refused() -> None:
    with pytest.raises(RunError, match="a rate takes three batches"):
        steady_rate(outcome([1.0, 2.0]), WarmUp(batches=1, seconds=0.0))


def test_scaling_compares_time_for_the_same_number_of_events() -> None:
    first = bargain._scaling_line([outcome([0.0, 1.0, 2.0])], None)
    slower = bargain._scaling_line([outcome([0.0, 1.0, 2.0, 4.0, 8.0])], first)
    assert first["time_growth"] == 1.0
    assert first["grows_no_faster"]
    assert slower["time_growth"] == 2.0
    assert slower["late_over_early"] == 4.0
    assert not slower["grows_no_faster"]


def test_where_the_time_of_a_batch_goes() -> None:
    line = {"compute": 0.6, "publish": 0.5, "task": {"read": 0.4, "compute": 0.3}}
    told = outcome([0.0, 1.0, 2.0, 3.0], parts=[trial._parts({"seconds": line})] * 4)
    assert rounded(bargain._where(told, WarmUp(batches=1, seconds=0.0))) == {
        "whole batch": 1000.0,
        "between batches": 400.0,
        "from plan to record": 600.0,
        "task: read": 400.0,
        "task: compute": 300.0,
        "publish, behind": 500.0,
    }


def test_parts_of_the_bargain_benchmark_have_names() -> None:
    with pytest.raises(RunError, match="there is no part 'speed'; there are: throughput, scaling"):
        bargain.run(True, lambda _: None, only=["speed"])


@pytest.mark.skipif(
    not Path("/proc/self/smaps_rollup").exists(), reason="only Linux tells shared pages apart"
)
def test_memory_that_processes_share_counts_once(tmp_path: Path) -> None:
    file = tmp_path / "shared"
    file.write_bytes(bytes(64 << 20))
    # Each maps the file, touches every page of it, says so, and stays until its input ends.
    code = """if True:
        import mmap, sys
        with open(sys.argv[1], "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as pages:
            sum(pages[at] for at in range(0, len(pages), 4096))
            print("mapped", flush=True)
            sys.stdin.read()
    """
    with contextlib.ExitStack() as stack:
        pipe = subprocess.PIPE
        children = [
            stack.enter_context(subprocess.Popen([sys.executable, "-c", code, file], stdin=pipe, stdout=pipe))
            for _ in range(2)
        ]
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == b"mapped\n"
        memory = Memory()
        memory.see([psutil.Process(child.pid) for child in children])
        for child in children:
            child.communicate()
    assert 64e6 < memory.total * 1e6 < 2 * 64e6
    assert memory.python == memory.total


def test_a_trial_that_fails_says_why(tmp_path: Path) -> None:
    trial = Trial(
        variant="numba", files=("nowhere.parquet",), rows_per_file=1, events=1, folder=str(tmp_path / "trial")
    )
    with pytest.raises(RunError, match=r"numba failed \(exit code 1\)(.|\n)*nowhere\.parquet"):
        measure(trial)


def test_operators_on_tiny_batches() -> None:
    heard: list[str] = []
    result = operators.measure_operators(heard.append, batches=4, rows=500)

    json.dumps(result)
    assert len(heard) == len(result["operators"])
    assert all(line["tuples_per_s"] > 0 for line in result["operators"])
    assert "join: windows 1 and 0" in operators.table(result)


@pytest.mark.slow
def test_bargain_all_ways_on_tiny_batches() -> None:
    plan = bargain.Plan(
        events={2_000: dict.fromkeys(VARIANTS, 6_000) | {"riprap": 8_000}},
        repetitions=1,
        warm_up=WarmUp(batches=1, seconds=0.0),
    )
    result = bargain.run_plan(plan, lambda _: None)

    json.dumps(result)
    assert result["same_answer"] is True
    for variant in VARIANTS:
        assert missing(variant) is None
        assert result[variant]["events_per_s"]["2000"] > 0
        assert result[variant]["peak_memory_mb"]["2000"] > 10
    assert set(result["ratios"]["2000"]) == set(VARIANTS) - {"riprap"}
    assert "(b) applyInPandasWithState by ticker" in bargain.table(result)


def test_trials_cost_what_they_replay(tmp_path: Path) -> None:
    short, long = (faults.measure(tmp_path / str(times), 20_000, times) for times in (1, 3))

    assert long["events"] == 3 * short["events"]
    assert 0 < short["replayed"] < short["events"]
    # Keys that do not come back to what they were are carried on, and there are more of them to come.
    assert long["replayed"] < long["events"] / 2
    assert "a trial" in faults.table({"lengths": [short, long], "about": about()})


def test_a_net_is_simulated_as_theory_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [san.measure(2, constant, 400.0, 1) for constant in (False, True)]

    assert [row["expected"] for row in rows] == pytest.approx([1.5, 1.05])
    assert [row["activities"] for row in rows] == [7, 7]
    assert "by theory" in san.table({"rows": rows, "about": about()})
    monkeypatch.setattr(san, "expected", lambda constant: 3.0)
    with pytest.raises(RunError, match="the first queue of 2 is"):
        san.measure(2, False, 400.0, 1)
