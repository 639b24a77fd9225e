"""Write docs/whats-here.md: every module with the first sentence of its docstring.

python docs/whats_here.py
"""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = (ROOT / "src" / "riprap", ROOT / "benchmarks" / "riprap_bench")
PAGE = ROOT / "docs" / "whats-here.md"


def page() -> str:
    """Return the page's text."""
    lines = [
        "# What is here",
        "",
        "Every module, in the words of its own first sentence (`python docs/whats_here.py`).",
        "",
    ]
    for top, folder in [(t, f) for t in PACKAGES for f in sorted({p.parent for p in t.rglob("*.py")})]:
        package = ".".join(folder.relative_to(top.parent).parts)
        lines += [
            f"## {package}",
            "",
            first_sentence(folder / "__init__.py"),
            "",
            "| module | |",
            "|---|---|",
        ]
        lines += [
            f"| `{m.stem}` | {first_sentence(m)} |"
            for m in sorted(folder.glob("*.py"))
            if m.stem != "__init__"
        ]
        lines += [""]
    return "\n".join(lines).rstrip() + "\n"


def first_sentence(module: Path) -> str:
    """Return the first paragraph of a module's docstring on one line, up to its first full stop."""
    docstring = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or ""
    paragraph = " ".join(docstring.split("\n\n")[0].split())
    sentence, stop, _ = paragraph.partition(". ")
    return sentence + "." if stop else paragraph


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
