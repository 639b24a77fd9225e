"""Figures of results as SVG files that do not change when nothing has."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def new_figure(width: float, height: float) -> Any:
    """Return an empty figure; without matplotlib it is an error that says how to get it."""
    try:
        import matplotlib
    except ImportError:
        raise ImportError("no figure: it takes matplotlib (pip install 'riprap[figures]')") from None
    # Not pyplot, which keeps figures and looks for a screen.
    from matplotlib.figure import Figure

    matplotlib.rcParams.update({"svg.hashsalt": "riprap", "svg.fonttype": "none"})
    return Figure(figsize=(width, height), layout="constrained")


def save_figure(figure: Any, path: Path) -> Path:
    """Write a figure, and return where."""
    figure.savefig(path, format="svg", metadata={"Date": None})
    return path
