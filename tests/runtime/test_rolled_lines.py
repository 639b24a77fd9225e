"""Files of lines are put aside when they are large, and nobody who follows them misses one or sees one twice."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from riprap.runtime.rolled_lines import RolledLines

WRITER = """\
import sys
from pathlib import Path
from riprap.runtime.rolled_lines import RolledLines

lines = RolledLines(Path(sys.argv[1]), "events", full=2000, keep=1000)
for number in range(400):
    lines.append({"writer": sys.argv[2], "number": number})
"""


def test_the_newest_few_stay(tmp_path: Path) -> None:
    lines = RolledLines(tmp_path, "events", full=1000, keep=3)
    following, seen = lines.follow(), []
    for number in range(1000):
        lines.append({"number": number})
        if number % 7 == 0:
            seen += following.new()
    seen += following.new()

    assert [line["number"] for line in seen] == list(range(1000))
    kept = [line["number"] for line in lines.read()]
    assert kept == list(range(kept[0], 1000))
    assert list(lines.backwards()) == list(lines.read())[::-1]
    sizes = [path.stat().st_size for path in tmp_path.glob("events*.jsonl")]
    assert len(sizes) == 4
    assert sum(sizes) < 4 * 1100


def test_without_a_word_four_stay(tmp_path: Path) -> None:
    lines = RolledLines(tmp_path, "events", full=1)
    for number in range(10):
        lines.append({"number": number})
    assert [line["number"] for line in lines.read()] == [6, 7, 8, 9]
    following = lines.follow()
    lines.append({"number": 10})
    assert [line["number"] for line in following.new()] == [10]


def test_a_line_that_comes_while_the_file_is_put_aside_is_not_missed(tmp_path: Path) -> None:
    lines = RolledLines(tmp_path, "events", full=30)
    following = lines.follow()
    with (tmp_path / "events.jsonl").open("a") as late:
        lines.append({"number": 0, "long": "x" * 30})
        assert (tmp_path / "events-0000000001.jsonl").exists()
        lines.append({"number": 1})
        assert [line["number"] for line in following.new()] == [0, 1]
        late.write(json.dumps({"number": 2}) + "\n")
    assert [line["number"] for line in following.new()] == [2]
    assert following.new() == []


def test_processes_write_at_once(tmp_path: Path) -> None:
    following = RolledLines(tmp_path, "events").follow()
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    writers = [subprocess.Popen([*command, name]) for name in "ab"]
    seen = []
    while any(writer.poll() is None for writer in writers):
        seen += following.new()
    seen += following.new()

    assert all(writer.returncode == 0 for writer in writers)
    for name in "ab":
        assert sorted(line["number"] for line in seen if line["writer"] == name) == list(range(400))
    assert len(list(RolledLines(tmp_path, "events").read())) == 800
