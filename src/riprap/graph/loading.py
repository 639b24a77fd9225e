"""Find the application that ``file.py:name`` names."""

from __future__ import annotations

import runpy
from pathlib import Path

from riprap.errors import GraphError
from riprap.graph.application import Application


def load(path: str | Path) -> Application:
    """Load the application that ``file.py:name`` names.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder) / "app.py"
    ...     _ = file.write_text("import riprap as rr; app = rr.Application('demo')")
    ...     rr.load(f"{file}:app").name
    'demo'
    """
    file, _, name = str(path).rpartition(":")
    if not file:
        raise GraphError(f"'{path}' names no application: write file.py:name")
    if not Path(file).is_file():
        raise GraphError(f"'{file}' does not exist (asked for '{path}')")
    globals_of = runpy.run_path(file, run_name="riprap_application")
    value = globals_of.get(name)
    if callable(value) and not isinstance(value, Application):
        value = value()
    if not isinstance(value, Application):
        names = [n for n, v in globals_of.items() if isinstance(v, Application)]
        raise GraphError(f"'{file}' has no application '{name}'; it has: {', '.join(names) or 'none'}")
    return value
