"""What reads well is small: no module of the package is longer than a few screens, and no function than one."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "riprap"
MOST_OF_A_FILE = 350
MOST_OF_A_FUNCTION = 60
# Compiled loops: a call costs what is saved by splitting one, and what its parts share would all be arguments.
LONGER = {
    "adapters/framing_loops.py: cut",
    "kernels/extents.py: _find",
    "kernels/meetings.py: _play",
}


def too_long(package: Path) -> set[str]:
    """List files that are too long, and functions as ``file: name``."""
    offending = set()
    for file in sorted(package.rglob("*.py")):
        text, inside = file.read_text(encoding="utf-8"), file.relative_to(package)
        if len(text.splitlines()) > MOST_OF_A_FILE:
            offending.add(f"{inside}")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno is not None
                if node.end_lineno - node.lineno >= MOST_OF_A_FUNCTION:
                    offending.add(f"{inside}: {node.name}")
    return offending


def test_files_and_functions_are_small() -> None:
    assert too_long(PACKAGE) == LONGER


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("def f():\n" + "    x = 1\n" * 59, set()),
        ("def f():\n" + "    x = 1\n" * 60, {"a/b.py: f"}),
        ("class C:\n    async def f(self):\n" + "        x = 1\n" * 60, {"a/b.py: f"}),
        ("x = 1\n" * 350, set()),
        ("x = 1\n" * 351, {"a/b.py"}),
    ],
)
def test_the_check_sees(tmp_path: Path, text: str, expected: set[str]) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b.py").write_text(text)

    assert too_long(tmp_path) == expected
