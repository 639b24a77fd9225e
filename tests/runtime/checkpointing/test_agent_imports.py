"""The agent is quick to start: it loads neither the graph nor what Arrow would load for tables."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys
import riprap.runtime.agent.__main__
print([name for name in ("pandas", "riprap.graph", "riprap.expressions") if name in sys.modules])
"""


def test_it_loads_what_it_needs_alone() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
