"""Write docs/operators.md: every operator, from what it says of itself and from the call that adds it.

python docs/operators_page.py
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from riprap.application import Application
from riprap.cli.operators import HEADINGS, SINKS, SOURCES, TOOLKIT, cells
from riprap.graph.connectors.promise import SINK_WORDS, SOURCE_WORDS

PAGE = Path(__file__).resolve().parent / "operators.md"
CALLS = {"TopN": "top"}
SECTIONS = [name for name in TOOLKIT if " " not in name]
INTRODUCTION = """\
# Operators

Made by `python docs/operators_page.py` from what the operators say of themselves; `riprap operators` prints the table.
How tuples are ordered, what windows hold, how time goes on, what punctuations do and what is put out at the end of
finite input is in [streams.md](streams.md); the
expressions are in [expressions.md](expressions.md), examples in [api.md](api.md).
"""


def page() -> str:
    """Return the page's text."""
    lines = [INTRODUCTION, f"| {' | '.join(HEADINGS)} |", f"|{'---|' * len(HEADINGS)}"]
    lines += [f"| {' | '.join((name, *cells(traits)))} |" for name, traits in TOOLKIT.items()]
    for name in TOOLKIT:
        if name in SECTIONS:
            lines += ["", *section(name)]
    lines += [
        "",
        "## Adapters",
        "",
        "What a source or sink promises; [each has a page](adapters/README.md).",
        "",
        *(f"- *{word}* (a source): {meaning}" for word, meaning in SOURCE_WORDS.items()),
        *(f"- *{word}* (a sink): {meaning}" for word, meaning in SINK_WORDS.items()),
        "",
    ]
    lines += ["| adapter | call | does | after a failure | promise |", "|---|---|---|---|---|"]
    for kind, adapters in (("source", SOURCES), ("sink", SINKS)):
        for name, p in adapters.items():
            lines += [f"| {name}, {kind} | `{p.call}` | {p.does} | {p.after_failure} | {p} |"]
    return "\n".join(lines).rstrip() + "\n"


def section(name: str) -> list[str]:
    """Describe one operator: how it is added, and what its call says."""
    method = getattr(Application, CALLS.get(name, name.lower()))
    signature = str(inspect.signature(method)).replace("(app: 'Builder', ", "(")
    signature = re.sub(r" -> .*$", "", signature).replace("'", "")
    # Examples are in api.md.
    told = inspect.cleandoc(method.__doc__ or "").partition("\n\n>>> ")[0]
    text = re.sub(r"``([^`]*)``", r"`\1`", told)
    return [f"## {name}", "", "```python", f"app.{method.__name__}{signature}", "```", "", text]


if __name__ == "__main__":
    PAGE.write_text(page())
