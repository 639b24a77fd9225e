"""The demonstrations of log watch and word count, and both applications run on files."""

from __future__ import annotations

import csv
import gzip
import json
import re
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from tests.cli.conftest import Command, in_process

from riprap.apps.catalogue import CATALOGUE
from riprap.apps.made_log import make_log
from riprap.apps.mails import make_mail
from riprap.cli.demonstrations import DEMONSTRATIONS, first_alerts, frequent_words

LINES = 20_000
MAILS = 4


def test_every_built_in_application_has_a_demonstration() -> None:
    assert list(DEMONSTRATIONS) == list(CATALOGUE)


def test_the_total_of_a_word_is_its_largest_number() -> None:
    rows = [("a", 1), ("b", 7), ("a", 9), ("c", 7), ("b", 2)]
    found = pa.table({"word": [w for w, _ in rows], "n": [n for _, n in rows]})
    assert frequent_words(found).to_pylist() == [
        {"word": "a", "n": 9},
        {"word": "b", "n": 7},
        {"word": "c", "n": 7},
    ]


def test_alerts_are_shown_in_order_of_time() -> None:
    hours = [5, 3, 4]
    found = pa.table({"host": ["x", "y", "z"], "last": [datetime(2024, 1, 1, h, tzinfo=UTC) for h in hours]})
    assert first_alerts(found)["host"].to_pylist() == ["y", "z", "x"]


@pytest.mark.parametrize("app", ["logwatch", "wordcount"])
def test_explain_needs_no_feed(riprap: Command, app: str) -> None:
    done = riprap("explain", app, "--json")
    assert json.loads(done.out)["application"] == app


def test_settings_reach_the_application(riprap: Command) -> None:
    done = riprap("explain", "logwatch", "--set", "attempts=17", "--set", "window=90s", "--set", "year=1999")
    for part in ("FollowAttacks(attempts=17,", "sliding(90s of log_time)", "ReadSyslog(start=1999)"):
        assert part in done.out


@pytest.mark.slow
def test_the_demonstration_of_log_watch(tmp_path: Path) -> None:
    command = ["-m", "riprap", "demo", "--app", "logwatch", "--events", str(LINES), "--seed", "2"]
    done = in_process([*command, "--json"], tmp_path)

    assert done.code == 0, done.err
    told = json.loads(done.out)
    # The end of the log counts as a line.
    assert told["tuples_in"] == LINES + 1
    log = make_log(LINES, seed=2)
    assert [alert["host"] for alert in told["alerts"]] == list(log.attackers)
    assert told["alerts"][0]["first"].startswith("2026-03-0")
    unread = sum(line.startswith("--") for line in log.lines.to_pylist())
    assert unread > 0
    assert told["operators"]["Parse"]["in"] - told["operators"]["Logins"]["in"] == unread
    assert told["feed"] == str(tmp_path / "demo" / "feed")


@pytest.mark.slow
def test_the_demonstration_of_word_count(tmp_path: Path) -> None:
    command = ["-m", "riprap", "demo", "--app", "wordcount", "--events", str(MAILS)]
    done = in_process(command, tmp_path)

    assert done.code == 0, done.err
    words = Counter(
        word for n in range(1, MAILS + 1) for word in re.findall(r"[a-z0-9]+", make_mail(n).lower())
    )
    (word, most), *_ = words.most_common()
    assert re.search(rf"^{word} +{most}$", done.out, re.M), done.out
    for part in (
        "Word count: count the words",
        "The 20 most frequent words",
        "demo/words",
        "riprap run wordcount",
    ):
        assert part in done.out


@pytest.mark.slow
def test_run_log_watch_on_a_gzipped_log(tmp_path: Path) -> None:
    lines = [
        f"Dec 31 23:59:5{s} h sshd[1]: Failed password for root from 1.2.3.4 port 9 ssh2" for s in range(3)
    ]
    lines += ["broken"]
    lines += [
        f"Jan  1 00:00:0{s} h sshd[1]: Failed password for root from 1.2.3.4 port 9 ssh2" for s in range(3)
    ]
    (tmp_path / "auth.log.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    command = ["-m", "riprap", "run", "logwatch", "--feed", "auth.log.gz", "--out", "found.csv"]
    done = in_process([*command, "--set", "year=2023", "--set", "attempts=6", "--json"], tmp_path)

    assert done.code == 0, done.err
    (part,) = (tmp_path / "found.csv").glob("part-*")
    ((host, first, last, attempts),) = list(csv.reader(part.read_text().splitlines()))[1:]
    assert (host, attempts) == ("1.2.3.4", "6")
    assert first.startswith("2023-12-31")
    assert last.startswith("2024-01-01")
