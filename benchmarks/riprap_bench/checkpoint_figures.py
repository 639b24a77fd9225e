"""Draw what checkpoints cost as the paper's figures 8 to 10 do: throughput by window, a line a group of tuples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from riprap_bench.drawing import new_figure, save_figure

_SIZE = (6.4, 4.0)


def figures(result: Mapping[str, Any], beside: Path) -> list[Path]:
    """Draw a figure for each part that has one, as SVG next to a result's file; without matplotlib it is an error."""
    parts, drawn = result["parts"], []
    if "single" in parts:
        for every in sorted({line["every"] for line in parts["single"]["lines"]}):
            lines = [line for line in parts["single"]["lines"] if line["every"] == every]
            path = beside.with_name(f"{beside.stem}-single-{every:g}s.svg")
            drawn.append(_windows(lines, f"One window, saved every {every:g} s", path))
    if "per-key" in parts:
        path = beside.with_name(f"{beside.stem}-per-key.svg")
        drawn.append(_groups(parts["per-key"]["lines"], "A window for each key", path))
    if "size" in parts:
        path = beside.with_name(f"{beside.stem}-size.svg")
        drawn.append(_sizes(parts["size"]["lines"], path))
    return drawn


def _windows(lines: Sequence[Mapping[str, Any]], title: str, path: Path) -> Path:
    figure, axes = _new(title, "tuples in the window")
    for group in dict.fromkeys(line["group"] for line in lines):
        mine = [line for line in lines if line["group"] == group]
        _draw(axes, [line["window"] for line in mine], mine, "throughput", f"groups of {group}")
    windows = sorted({line["window"] for line in lines})
    axes.set_xscale("log", base=2)
    axes.set_xticks(windows, [f"{w:,}" for w in windows])
    return _save(figure, axes, path)


def _groups(lines: Sequence[Mapping[str, Any]], title: str, path: Path) -> Path:
    figure, axes = _new(title, "tuples in a group")
    for every in dict.fromkeys(line["every"] for line in lines):
        mine = [line for line in lines if line["every"] == every]
        _draw(axes, [line["group"] for line in mine], mine, "throughput", f"every {every:g} s")
    groups = sorted({line["group"] for line in lines})
    axes.set_xscale("log", base=2)
    axes.set_xticks(groups, [str(g) for g in groups])
    return _save(figure, axes, path)


def _sizes(lines: Sequence[Mapping[str, Any]], path: Path) -> Path:
    figure, axes = _new("Large windows", "MB of windows")
    for pace, name, what in (
        ("share", "a few percent replaced: time of batches", "busy"),
        ("share", "a few percent replaced: CPU seconds", "cpu"),
        ("all", "full speed: throughput", "throughput"),
        ("all", "full speed: CPU seconds", "cpu"),
    ):
        mine = [line for line in lines if line["pace"] == pace]
        _draw(axes, [line["mb"] for line in mine], mine, what, name)
    sizes = sorted({line["mb"] for line in lines})
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [str(s) for s in sizes])
    return _save(figure, axes, path)


def _new(title: str, across: str) -> tuple[Any, Any]:
    figure = new_figure(*_SIZE)
    axes = figure.add_subplot()
    axes.set_title(title)
    axes.set_xlabel(across)
    axes.set_ylabel("of unprotected")
    axes.axhline(1.0, color="0.7", linewidth=1)
    return figure, axes


def _draw(axes: Any, at: Sequence[float], lines: Sequence[Mapping[str, Any]], what: str, name: str) -> None:
    middles = [line[what]["median"] for line in lines]
    lows = [max(0.0, m - line[what]["interval"][0]) for m, line in zip(middles, lines, strict=True)]
    highs = [max(0.0, line[what]["interval"][1] - m) for m, line in zip(middles, lines, strict=True)]
    axes.errorbar(at, middles, yerr=[lows, highs], marker="o", capsize=3, linewidth=1.2, label=name)


def _save(figure: Any, axes: Any, path: Path) -> Path:
    axes.legend(fontsize="small")
    axes.minorticks_off()
    return save_figure(figure, path)
