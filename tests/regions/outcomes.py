"""What came of the fault matrix, as a page: each case that ends replaces its line, and the others stay.

So the matrix can be run in slices, by several processes, and be cut off at any time. A line says at which commit its
case was run. Lines of cases that are not in the table any more go.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

_LINE = re.compile(
    r"\| `(?P<case>[^`]+)` \| (?P<outcome>[^|]+) \| (?P<seconds>[\d.]+) \| (?P<commit>[^|]+) \|"
)
_HEAD = """\
# The fault matrix of consistent regions

Made by `make test-faults`: each case that ends replaces its line here, so a part can be run by itself, such as
`make test-faults ARGS="-k chain"`. `tests/regions/cases.py` says what the words of a case mean. A case passes if every
sink holds exactly what it holds in a run without policy and without fault, less what was told to be lost before it came
into a region. Where operators draw random numbers, each tuple was drawn for once, and everybody saw the same.

The last column is the commit at which the case was run last; *dirty* says that something was not committed.

"""


@dataclass(frozen=True)
class Outcome:
    """What came of a case: how long it took, and at which commit."""

    outcome: str
    seconds: float
    commit: str


def merge(path: Path, case: str, outcome: Outcome, cases: Collection[str]) -> None:
    """Put the outcome of a case into a page, or in the place of that it had; the page is there whole or as it was."""
    outcomes = read(path) | {case: outcome}
    part = path.with_suffix(".part")
    part.write_text(page({c: o for c, o in outcomes.items() if c in cases}, cases))
    part.rename(path)


def read(path: Path) -> dict[str, Outcome]:
    """Read the outcomes of a page, by case."""
    text = path.read_text() if path.exists() else ""
    return {m["case"]: Outcome(m["outcome"], float(m["seconds"]), m["commit"]) for m in _LINE.finditer(text)}


def page(outcomes: Mapping[str, Outcome], cases: Collection[str]) -> str:
    """Return the page."""
    by_word: dict[str, list[str]] = {}
    for case in sorted(outcomes):
        by_word.setdefault(outcomes[case].outcome.split(":")[0], []).append(case)
    passed = by_word.pop("passed", [])
    said = [f"**{len(passed)} of {len(cases)} cases have passed.**"]
    left = len(cases) - len(outcomes)
    said += [f"Not run yet: {left}."] if left else []
    lists = [
        f"\n{word.capitalize()} ({len(those)}):\n\n" + "\n".join(f"- `{case}`" for case in those) + "\n"
        for word, those in sorted(by_word.items())
    ]
    rows = [f"| `{c}` | {o.outcome} | {o.seconds:.1f} | {o.commit} |\n" for c, o in sorted(outcomes.items())]
    table = "\n| case | outcome | seconds | commit |\n|---|---|---:|---|\n"
    return _HEAD + " ".join(said) + "\n" + "".join(lists) + table + "".join(rows)


def commit_of(folder: Path, but: Path) -> str:
    """Return the short name of the commit a folder is at, and whether more than the page itself has changed since."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    name = git("rev-parse", "--short", "HEAD")
    if not name:
        return "unknown"
    changed = git("status", "--porcelain", "--", ".", f":(exclude){but.relative_to(folder)}")
    return f"{name} dirty" if changed else name
