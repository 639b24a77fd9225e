"""Draw how errors are distributed, with a checkpoint and without, as the paper's figure 7 does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from riprap_bench.drawing import new_figure, save_figure

_LOOKS = {"checkpoint": ("with a checkpoint every second", "-"), "none": ("without", "--")}


def figures(result: Mapping[str, Any], beside: Path) -> list[Path]:
    """Draw the distribution as SVG next to a result's file: of all runs, and of the one with the worst lot."""
    drawn, points = result["distribution"], result["compared"]["points"]
    titles = {"all": f"All {points} crashes", "worst_run": f"Crash {drawn['worst_point'] + 1}"}
    figure = new_figure(9.0, 3.6)
    for axes, (part, title) in zip(figure.subplots(1, 2, sharey=True), titles.items(), strict=True):
        for scenario, (label, line) in _LOOKS.items():
            sizes = drawn[part][scenario]
            shares = [number / (len(sizes) - 1) for number in range(len(sizes))]
            # On an axis of powers of ten there is no place for 0.
            there = [(size, share) for size, share in zip(sizes, shares, strict=True) if size > 0]
            if there:
                axes.step(*zip(*there, strict=True), label=label, linestyle=line, where="post")
        axes.set_xscale("log")
        axes.set_title(title)
        axes.set_xlabel("error of a lot's quality metric, in its unit")
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel("share of lots with no more")
    figure.axes[0].legend(fontsize="small")
    return [save_figure(figure, beside.with_suffix(".svg"))]
