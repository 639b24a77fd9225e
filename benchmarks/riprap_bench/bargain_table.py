"""Show the result of the bargain benchmark to people, as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_NAMES = {
    "riprap": "(a) Riprap",
    "by_key": "(b) applyInPandasWithState by ticker",
    "by_bucket": "(c) applyInPandasWithState by bucket, Numba",
    "numba": "(d) bare Numba loop, no Spark",
    "bytewax_key": "(e) Bytewax by ticker, NumPy",
    "bytewax_bucket": "(f) Bytewax by bucket, Numba",
}


def table(result: Mapping[str, Any]) -> str:
    """Return the whole result as Markdown tables."""
    parts = [_throughput(result), _scaling(result), _where(result), _about(result)]
    return "\n\n".join(part for part in parts if part)


def grid(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Lay out a Markdown table with its columns lined up, all but the first to the right."""
    lines = [list(head), *(list(row) for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    rule = ["-" * widths[0], *("-" * (w - 1) + ":" for w in widths[1:])]
    shown = [
        [line[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(line[1:], widths[1:], strict=True))]
        for line in (lines[0], rule, *lines[1:])
    ]
    return "\n".join("| " + " | ".join(line) + " |" for line in shown)


def _throughput(result: Mapping[str, Any]) -> str:
    sizes = list(result["riprap"]["events_per_s"])
    if not sizes:
        return ""
    head = ["steady events/s (least to greatest)"]
    for size in sizes:
        head += [f"{int(size):,} rows a batch", "Riprap is", "peak memory"]
    rows = []
    for variant, name in _NAMES.items():
        if variant not in result:
            continue
        figures = result[variant]
        row = [name]
        for size in sizes:
            low, high = figures["spread"][size]
            row.append(f"{figures['events_per_s'][size]:,.0f} ({low:,.0f} to {high:,.0f})")
            row.append("" if variant == "riprap" else f"{result['ratios'][size][variant]:.2f} times")
            row.append(f"{figures['peak_memory_mb'][size]:,.0f} MB")
        rows.append(row)
    bars = "; ".join(
        f"{int(size):,} rows: "
        + ", ".join(
            f"{result['ratios'][size][variant]:.1f} of {least:g} times {_NAMES[variant][:3]}"
            for variant, least in bars.items()
            if variant in result
        )
        for size, bars in result["bars"].items()
    )
    verdict = f"\n\nBars ({'met' if result['bars_met'] else 'NOT met'}): {bars}." if bars else ""
    verdict += "".join(f"\n\n{_NAMES[v]} was skipped. {why}." for v, why in result.get("skipped", {}).items())
    return grid(head, rows) + verdict


def _scaling(result: Mapping[str, Any]) -> str:
    times = ["seconds", "s a million", "growth", "late/early"]
    memory = {
        "peak_memory_mb": "peak",
        "peak_jvm_mb": "JVM",
        "peak_python_mb": "Python",
        "live_heap_mb": "live heap",
    }
    rows = [
        [
            f"{line['events']:,}",
            f"{line['seconds']:.2f}",
            f"{line['seconds_per_million']:.3f}",
            f"{line['time_growth']:.2f}" + ("" if line["grows_no_faster"] else " (too much)"),
            f"{line['late_over_early']:.2f}",
            *(f"{line[key]:,.0f} MB" for key in memory),
        ]
        for line in result["scaling"]
    ]
    return grid(["Riprap, events", *times, *memory.values()], rows) if rows else ""


def _where(result: Mapping[str, Any]) -> str:
    goes = result["riprap"]["time_goes_ms"]
    if not goes:
        return ""
    names = list(dict.fromkeys(name for parts in goes.values() for name in parts))
    rows = [[name, *(f"{parts.get(name, 0.0):.1f} ms" for parts in goes.values())] for name in names]
    return grid(["Riprap, where a batch's time goes", *(f"{int(size):,} rows" for size in goes)], rows)


def _about(result: Mapping[str, Any]) -> str:
    about = result["about"]
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    quick = " A quick run: a smoke test, not a measurement." if about["quick"] else ""
    same = "the same" if result["same_answer"] else "NOT the same"
    return (
        f"Answers: {same}.\n\n"
        f"{about['date']}; {about['machine']}, {about['cores']} cores, {about['memory_gb']} GB, load "
        f"{about['load_before']} before; Python {about['python']}, {versions}; {about['master']}, seed "
        f"{about['seed']}, {about['repetitions']} repetitions.{quick}\n"
        f"Same answer means: {about['same_answer_means']}."
    )
