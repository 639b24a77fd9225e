"""What is wrong with a command is said in a line, with exit code 2, before anything is started."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.cli.conftest import Command

from riprap.runtime.output_lease import OutputLease

APPLICATION = """\
import riprap as rr

app = rr.Application("words")
words = app.source("words", rr.rows([{"word": "a"}], "word string"))
counts = app.aggregate("counts", words, by="word", window=rr.sliding(tuples=3), select="count(*) as n")
app.sink("out", counts, rr.csv("counted"))
"""


def test_help_shows_the_commands_and_examples(riprap: Command) -> None:
    done = riprap("--help")
    assert done.code == 0
    for word in ("demo", "run", "explain", "bench", "riprap run bargain --feed"):
        assert word in done.out


@pytest.mark.parametrize("command", ["demo", "run", "stop", "reset", "kill", "explain", "bench"])
def test_every_command_has_help_with_examples(riprap: Command, command: str) -> None:
    done = riprap(command, "--help")
    assert done.code == 0
    assert "examples:" in done.out


def test_version(riprap: Command) -> None:
    done = riprap("--version")
    assert (done.code, done.out.split()[0]) == (0, "riprap")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "required: COMMAND"),
        (["fly"], "invalid choice: 'fly'"),
        (["run"], "required: APP"),
        (["run", "nothing"], "no application 'nothing'. Built in: bargain"),
        (["run", "app.py"], "write file.py:name"),
        (["run", "missing.py:app"], "'missing.py' does not exist"),
        (["run", "bargain"], "needs --feed PATH"),
        (["run", "bargain", "--config", "memory=4g"], "--config memory=4g: write spark.NAME=VALUE"),
        (["run", "bargain", "--feed", "nowhere/"], "no Parquet file matches nowhere/"),
        (["run", "bargain", "--feed", "nowhere.csv.gz"], "nowhere.csv.gz does not exist"),
        (["run", "logwatch"], "'riprap demo --app logwatch' makes one"),
        (["run", "logwatch", "--feed", "nowhere.log"], "the feed nowhere.log does not exist"),
        (["run", "wordcount", "--feed", "nowhere/*.txt"], "the feed nowhere/*.txt does not exist"),
        (["run", "wordcount", "--feed", ".", "--rate", "5"], "Leave out --rate"),
        (
            ["run", "logwatch", "--feed", ".", "--set", "attempts=many"],
            "--set attempts=many: invalid literal",
        ),
        (["run", "logwatch", "--feed", ".", "--set", "attempts=0"], "at least 1, got 0"),
        (["run", "logwatch", "--feed", ".", "--set", "window=soon"], "takes a time such as"),
        (
            ["run", "logwatch", "--feed", ".", "--set", "attempts"],
            "are: attempts=VALUE, window=VALUE, year=VALUE",
        ),
        (["run", "bargain", "--feed", "f", "--set", "year=1"], "the settings of 'bargain' are: none"),
        (["run", "bargain", "--feed", "f", "--batch-rows", "0"], "at least 1, got 0"),
        (["run", "bargain", "--feed", "f", "--rate", "-1"], "above 0, got -1"),
        (["run", "bargain", "--feed", "f", "--trigger", "soon"], "--trigger takes a time such as '10s'"),
        (["demo", "--app", "fly"], "invalid choice: 'fly'"),
        (["demo", "--events", "none"], "invalid positive value"),
        (["explain", "nothing"], "no application 'nothing'"),
    ],
)
def test_wrong_usage(riprap: Command, arguments: list[str], expected: str) -> None:
    done = riprap(*arguments)
    assert (done.code, done.out) == (2, "")
    assert expected in done.err


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            lambda feed: feed.drop_columns(["price", "kind"]),
            "lacks kind string, price double; it has seq, time",
        ),
        (
            lambda feed: feed.set_column(4, "price", feed["price"].cast("string")),
            "price is string, not double",
        ),
        (lambda feed: pa.table({"a": [1]}), "lacks seq bigint"),
    ],
)
def test_a_feed_with_wrong_columns(
    riprap: Command, feed: pa.Table, tmp_path: Path, change: object, expected: str
) -> None:
    assert callable(change)
    pq.write_table(change(feed), tmp_path / "feed.parquet")
    done = riprap("run", "bargain", "--feed", "feed.parquet")
    assert done.code == 2
    assert expected in done.err
    assert "docs/market-feed.md" in done.err


def test_a_feed_that_is_no_parquet_or_no_real_slice(riprap: Command, tmp_path: Path) -> None:
    (tmp_path / "feed.parquet").write_text("no parquet")
    (tmp_path / "feed.csv").write_text("a,b,c\n")
    assert "cannot read the schema" in riprap("run", "bargain", "--feed", "feed.parquet").err
    done = riprap("run", "bargain", "--feed", "feed.csv")
    assert done.code == 2
    assert "feed.csv, line 1: expected 30 columns, got 3" in done.err


def test_output_that_is_taken(riprap: Command, feed_file: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = riprap("run", "bargain", "--feed", feed_file, "--out", "file")
    assert (done.code, "is a file" in done.err) == (2, True)
    (tmp_path / "bargains").mkdir()
    (tmp_path / "bargains" / "part-0000000000-0000000000.parquet").touch()
    done = riprap("run", "bargain", "--feed", feed_file)
    assert done.code == 2
    assert "--overwrite" in done.err

    held = OutputLease.take(tmp_path / "bargains", run="another", sink="Sink", resume=False)
    held.sign()
    done = riprap("run", "bargain", "--feed", feed_file, "--overwrite")
    held.release()
    assert done.code == 2
    assert "is being written to by sink 'Sink' of run another" in " ".join(done.err.split())


def test_a_demo_leaves_alone_what_it_did_not_make(riprap: Command, tmp_path: Path) -> None:
    (tmp_path / "demo" / "feed").mkdir(parents=True)
    done = riprap("demo", "--events", "10")
    assert done.code == 2
    assert "did not make" in done.err


def test_a_folder_that_is_no_run(riprap: Command, feed_file: Path) -> None:
    done = riprap("run", "bargain", "--feed", feed_file, "--folder", "somewhere")
    assert done.code == 2
    assert "there is no folder somewhere: folder= takes up an earlier run" in done.err


def test_an_own_application_has_its_own_sources_and_sinks(riprap: Command, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APPLICATION)
    done = riprap("run", "app.py:app", "--feed", "x", "--out", "y")
    assert done.code == 2
    assert "--feed and --out: app.py:app has its own sources and sinks" in done.err
    assert "--set: app.py:app has" in riprap("run", "app.py:app", "--set", "x=1").err


def test_an_own_application_that_is_not_there(riprap: Command, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APPLICATION)
    done = riprap("run", "app.py:other")
    assert done.code == 2
    assert "no application 'other'; it has: app" in done.err


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("1 / 0", "app.py, line 2: ZeroDivisionError: division by zero"),
        ("def", "app.py: SyntaxError"),
        ("app.functor('f', app, where='x')", "Functor 'f' (app.py:2)"),
    ],
)
def test_an_own_application_that_fails_to_load(
    riprap: Command, tmp_path: Path, line: str, expected: str
) -> None:
    (tmp_path / "app.py").write_text(f"import riprap as rr; app = rr.Application('a')\n{line}\n")
    done = riprap("run", "app.py:app")
    assert done.code == 2
    assert expected in done.err
    assert "Traceback" not in done.err


def test_debug_shows_the_traceback(riprap: Command) -> None:
    done = riprap("run", "nothing", "--debug")
    assert done.code == 2
    assert "Traceback" in done.err


def test_no_colours_without_a_terminal(riprap: Command) -> None:
    done = riprap("explain", "bargain")
    assert "\x1b" not in done.out + riprap("run", "nothing").err


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (["run", "nothing"], "UsageError", "no application 'nothing'"),
        (["run"], "UsageError", "required: APP"),
        (["fly"], "UsageError", "invalid choice: 'fly'"),
        (["kill", "nowhere"], "UsageError", "nowhere is not the folder of a supervised run"),
        (["stop", "nowhere"], "UsageError", "nowhere is not the folder of a supervised run"),
        (["reset", "nowhere", "r"], "UsageError", "nowhere is not the folder of a supervised run"),
        (["state", "list", "nowhere"], "UsageError", "nowhere"),
    ],
)
def test_json_tells_what_is_wrong_too(
    riprap: Command, arguments: list[str], error: str, message: str
) -> None:
    done = riprap(*arguments, "--json")
    told = json.loads(done.out)
    assert (told["error"], told["exit_code"], done.code) == (error, 2, 2)
    assert message in told["message"]
    assert message in done.err


def test_a_reader_that_has_seen_enough_is_no_failure() -> None:
    for options in ([], ["--json"]):
        command = [sys.executable, "-m", "riprap", "operators", *options]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as shown:
            assert shown.stdout is not None
            assert shown.stderr is not None
            shown.stdout.close()
            told = shown.stderr.read()
        assert (shown.returncode, told) == (0, b"")


PRINTER = """\
import os, sys
from riprap.runtime.supervision.driver import _Stdout

sys.stdout = _Stdout(sys.stdout.buffer)
sys.stdin.read()
for number in range(10_000):
    print("got", number, flush=number % 100 == 0)
print("done", file=sys.stderr)
sys.stdout.flush()
os._exit(0)
"""


def test_a_function_that_prints_goes_on_when_nobody_reads() -> None:
    command = [sys.executable, "-c", PRINTER]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as printer:  # type: ignore[call-overload]
        printer.stdout.close()
        printer.stdin.close()
        assert printer.stderr.read() == b"done\n"
    assert printer.returncode == 0
