"""Show what checkpoints cost to people, as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from riprap_bench.bargain_table import grid
from riprap_bench.checkpoint_ratios import MOST_BYTES

_TITLES = {
    "single": "One window over all tuples (the paper's figures 8 and 9)",
    "per-key": "A window for each key (the paper's figure 10)",
    "zipf": "A window for each key, keys by Zipf's law",
    "size": "Large windows",
    "restore": "Restoring",
    "plain": "Without any policy",
}


def table(result: Mapping[str, Any]) -> str:
    """Return the whole result as Markdown tables."""
    parts = result["parts"]
    shown = []
    for part, title in _TITLES.items():
        if part in parts:
            body = {"size": _sizes, "restore": _restore, "plain": _plain}.get(part, _grid)(parts[part])
            shown.append(f"### {title}\n\n{body}\n\n{_about(parts[part]['sittings'])}")
    return "\n\n".join(shown)


def _grid(part: Mapping[str, Any]) -> str:
    rows = [
        [
            f"{line['window']:,}",
            f"{line['every']:g} s",
            f"{line['group']:,}" if line["group"] != "auto" else "auto",
            _ratio(line, "throughput"),
            _ratio(line, "cpu"),
            f"{line['least']:.2f}",
            f"{line['saving']:.1%}",
            _bytes(line),
            _missed(line),
            _number(line["seconds_a_checkpoint"], 1000, "ms"),
            str(line["throughput"]["pairs"]),
        ]
        for line in part["lines"]
    ]
    plain = [
        [
            f"{line['window']:,}",
            f"{line['batch_rows']:,}",
            f"{line['tuples_per_s']:,.0f}",
            "{:,.0f} to {:,.0f}".format(*line["spread"]),
            f"{line['tuples_per_s'] * line['matches_per_tuple']:,.0f}",
        ]
        for line in part["unprotected"]
    ]
    return (
        grid(
            [
                "window", "every", "group", "throughput (95%)", "CPU seconds (95%)", "bar", "saving", "bytes",
                "missed", "a checkpoint", "pairs",
            ],
            rows,
        )
        + f"\n\n{_together(part['together'])}\n\n"
        + grid(["unprotected, window", "tuples a batch", "tuples/s in", "least to greatest", "out"], plain)
    )  # fmt: skip


def _together(lines: Sequence[Mapping[str, Any]]) -> str:
    said = [
        f"every {line['every']:g} s throughput {_ratio(line, 'throughput')} and CPU seconds {_ratio(line, 'cpu')}, "
        f"{line['throughput']['pairs']} pairs"
        for line in lines
    ]
    return f"All configurations together: {'; '.join(said)}."


def _sizes(part: Mapping[str, Any]) -> str:
    rows = [
        [
            f"{line['mb']} MB",
            _number(line["replaced"], 100, "%"),
            _ratio(line, "throughput"),
            _ratio(line, "cpu"),
            f"{line['least']:.2f}" if line["met"] else "",
            f"{line['saving']:.1%}",
            _bytes(line),
            _missed(line),
            _number(line["seconds_a_checkpoint"], 1000, "ms"),
            _number(line["bytes_a_checkpoint"], 1e-6, "MB"),
            str(line["throughput"]["pairs"]),
        ]
        for line in part["lines"]
    ]
    return (
        grid(
            [
                "windows", "replaced between", "time of batches, or throughput", "CPU seconds (95%)", "bar", "saving",
                "bytes", "missed", "a checkpoint", "writes", "pairs",
            ],
            rows,
        )
        + "\n\nA few percent are replaced at a set pace: compared is the time that batches take. At full speed it is "
        "throughput."
    )  # fmt: skip


def _restore(part: Mapping[str, Any]) -> str:
    rows = [
        [
            f"{part['mb']} MB, {line['files']}",
            f"{line['read_seconds']:.2f} s",
            f"{line['restore_seconds']:.2f} s",
            _ratio(line, "speed"),
            f"{line['least']:.2f}",
            str(line["speed"]["pairs"]),
        ]
        for line in part["lines"]
    ]
    return grid(["state", "its files are read in", "restored in", "speed (95%)", "bar", "turns"], rows)


def _plain(part: Mapping[str, Any]) -> str:
    row = [
        f"{part['events_per_s']:,.0f}",
        f"{part['before_events_per_s']:,.0f}",
        _ratio(part, "throughput"),
        f"{part['least']:.2f}",
        str(part["throughput"]["pairs"]),
    ]
    return grid(["events/s now", "before", "throughput (95%)", "bar", "pairs"], [row])


def _ratio(line: Mapping[str, Any], name: str) -> str:
    found = line[name]
    shown = "{:.3f} ({:.3f} to {:.3f})".format(found["median"], *found["interval"])
    return shown + ("" if line.get("met", {}).get(name, True) else " (missed)")


def _bytes(line: Mapping[str, Any]) -> str:
    if line["bytes"] is None:
        return "unknown"
    return f"{line['bytes']:.2f}" + (f" (missed: {MOST_BYTES})" if not line["met"].get("bytes", True) else "")


def _missed(line: Mapping[str, Any]) -> str:
    shown = f"{line['missed']} of {line['missed'] + line['checkpoints']}"
    failed = f", {line['failed']} failed" if line["failed"] else ""
    return shown + failed + ("" if line["met"].get("intervals", True) else " (missed)")


def _number(value: float | None, times: float, unit: str) -> str:
    return "unknown" if value is None else f"{value * times:.3g} {unit}"


def _about(sittings: Sequence[Mapping[str, Any]]) -> str:
    quick = " A quick run: a smoke test, not a measurement." if sittings[-1]["quick"] else ""
    when = "; ".join(f"{sitting['date']}, load {sitting['load_before']} before" for sitting in sittings)
    return f"{when}; {sittings[-1]['machine']}.{quick}"
