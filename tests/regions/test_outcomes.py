"""The page of the fault matrix keeps the lines of cases that were not run."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.regions.outcomes import Outcome, commit_of, merge, read

CASES = ("a-each-driver:1400-wiped", "b-each-error:3", "c-redis-jvm:1")


def test_a_case_replaces_its_line_and_those_of_others_stay(tmp_path: Path) -> None:
    path = tmp_path / "matrix.md"
    merge(path, CASES[0], Outcome("failed", 3.04, "abc"), CASES)
    merge(path, CASES[1], Outcome("passed", 2.0, "abc dirty"), CASES)
    assert "**1 of 3 cases have passed.** Not run yet: 1." in path.read_text()
    assert f"- `{CASES[0]}`" in path.read_text()

    merge(path, CASES[0], Outcome("passed", 4.0, "def"), CASES)
    merge(path, CASES[2], Outcome("skipped: Redis is not installed", 0.0, "def"), CASES)

    assert read(path) == {
        CASES[0]: Outcome("passed", 4.0, "def"),
        CASES[1]: Outcome("passed", 2.0, "abc dirty"),
        CASES[2]: Outcome("skipped: Redis is not installed", 0.0, "def"),
    }
    assert "**2 of 3 cases have passed.**" in path.read_text()
    assert f"- `{CASES[0]}`" not in path.read_text()


def test_lines_of_cases_that_are_gone_go(tmp_path: Path) -> None:
    path = tmp_path / "matrix.md"
    merge(path, CASES[0], Outcome("failed", 3.0, "abc"), CASES)
    merge(path, CASES[1], Outcome("passed", 3.0, "abc"), CASES[1:])
    assert list(read(path)) == [CASES[1]]


def test_the_commit_is_told_and_whether_more_than_the_page_has_changed(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        who = ("-c", "user.name=n", "-c", "user.email=e")
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True)

    page, other = tmp_path / "matrix.md", tmp_path / "other.py"
    assert commit_of(tmp_path, page) == "unknown"
    git("init")
    for file in (page, other):
        file.write_text("1")
    git("add", ".")
    git("commit", "-m", "first")
    page.write_text("2")
    name = commit_of(tmp_path, page)
    assert name
    assert " " not in name
    other.write_text("2")
    assert commit_of(tmp_path, page) == f"{name} dirty"
