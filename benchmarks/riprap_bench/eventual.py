"""What recording open windows in the output log costs, and how long it takes to come back by them.

Figures 5 to 9 of the paper in kind, as ratios in one run: what records of windows that open cost; the extent, the time
to load and the bytes to compute again at several bounds; the time a batch takes against the share of it. One process,
one core, no Spark; all times are seconds of the processor. Each time it comes back it is checked that the state is the
one that was lost.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from riprap.protection import WindowTerms
from riprap_bench.bargain_table import grid
from riprap_bench.eventual_element import How, RecordingElement
from riprap_bench.measuring import Report, about, middle, rounded, spread

SEED = 7
# The paper loses up to 10% of throughput to records of windows that open, and next to nothing to writing them.
OPEN_BAR, WRITTEN_BAR = 0.90, 0.97
_UNBOUNDED = WindowTerms(extent=10**9)
_WAYS: tuple[How, ...] = ("none", "memory", "log")
_NAMES = {"none": "native", "memory": "open records kept in memory", "log": "open records in the log"}


def run(quick: bool, report: Report) -> dict[str, Any]:
    """Measure all parts."""
    described = about(seed=SEED, quick=quick)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        result = {
            "cost": _cost(home / "cost", quick, report),
            "extent": _bounds(home / "extent", "extent", quick, report),
            "replay": _bounds(home / "replay", "replay", quick, report),
            "share": _shares(home / "share", quick, report),
            "about": described,
        }
    return rounded(result)  # type: ignore[no-any-return]


def _cost(home: Path, quick: bool, report: Report) -> list[dict[str, Any]]:
    """Two items, windows of 1 and of 1,000: throughput with open records and without, in rounds side by side."""
    rows, rounds = (20_000, 12) if quick else (200_000, 24)
    lines = []
    for window in (1, 1000):
        elements = {
            how: RecordingElement(
                home / f"{window}-{how}", items=2, window=window, how=how, terms=WindowTerms(extent=10**9)
            )
            for how in _WAYS
        }
        taken: dict[str, list[float]] = {how: [] for how in _WAYS}
        for number in range(rounds):
            # Whoever is first in a round finds other caches.
            for how in _WAYS[number % 3 :] + _WAYS[: number % 3]:
                element = elements[how]
                taken[how].append(element.run(element.draw(rows)))
        # What is compiled is compiled in the first rounds.
        rates = {how: [rows / seconds for seconds in times[3:]] for how, times in taken.items()}
        for how in _WAYS:
            pairs = [mine / theirs for mine, theirs in zip(rates[how], rates["none"], strict=True)]
            written = [mine / theirs for mine, theirs in zip(rates[how], rates["memory"], strict=True)]
            met = middle(pairs) >= OPEN_BAR and (how != "log" or middle(written) >= WRITTEN_BAR)
            lines.append(
                {
                    "window": window,
                    "how": _NAMES[how],
                    "tuples_per_s": middle(rates[how]),
                    "of_native": middle(pairs),
                    "spread": spread(pairs),
                    "met": met,
                    "record_bytes_per_tuple": elements[how].bytes / (rows * rounds),
                }
            )
        elements["log"].come_back()
        report(f"windows of {window}: {lines[-1]['of_native']:.3f} of native")
    return lines


def _filled(
    home: Path, terms: WindowTerms, quick: bool, cut_every: int = 0
) -> tuple[RecordingElement, list[float]]:
    """Return an element with 100,000 items and windows of 10, when most of them are open, and the times of batches."""
    items = 10_000 if quick else 100_000
    element = RecordingElement(home, items=items, window=10, terms=terms, cut_every=cut_every)
    rows, batches = items // 4, 60
    times = [element.run(element.draw(rows)) for _ in range(batches)]
    return element, times[batches // 2 :]


def _bounds(home: Path, which: str, quick: bool, report: Report) -> list[dict[str, Any]]:
    """The extent, the time to load and what is computed again, at several bounds."""
    opened = 9_000 if quick else 90_000
    scale = 0.1 if quick else 1.0
    bounds = (
        [int(times * opened) for times in (1, 2, 4, 8)]
        if which == "extent"
        else [int(n * scale) for n in (125_000, 250_000, 500_000, 1_000_000)]
    )
    lines = []
    for bound in bounds:
        terms = WindowTerms(**{which: bound}, share=0.2)
        # A cut in as many tuples bounds what is computed again alike.
        element, _ = _filled(home / str(bound), terms, quick, bound if which == "replay" else 0)
        line = {"bound": bound, **element.come_back()}
        reached = line["extent"] if which == "extent" else line["replay_tuples"]
        # A batch may add to it before anything can be done.
        line["kept"] = bool(reached <= bound + element.batches[0].rows)
        lines.append(line)
        report(f"{which} {bound:,}: {reached:,}, loaded in {line['load_seconds']:.2f} s")
    return lines


def _shares(home: Path, quick: bool, report: Report) -> list[dict[str, Any]]:
    """The time of a batch, and the extent, at several shares of the time, with a bound that cannot be kept."""
    opened = 9_000 if quick else 90_000
    lines = []
    for share in (0.0001, 0.04, 0.1, 0.2, 0.4):
        element, times = _filled(home / str(share), WindowTerms(extent=opened, share=share), quick)
        lines.append(
            {
                "share": share,
                "batch_seconds": float(np.mean(times)),
                "batch_seconds_99": float(np.quantile(times, 0.99)),
                "extent": element.windows.status["extent"],
                "checks": element.checks,
            }
        )
        lines[-1]["of_least"] = lines[-1]["batch_seconds"] / lines[0]["batch_seconds"]
        report(f"share {share:.2%}: {lines[-1]['of_least']:.2f} times as long a batch")
    return lines


def table(result: Mapping[str, Any]) -> str:
    """Return the result as Markdown tables."""
    cost = [
        [
            f"{line['window']:,}",
            line["how"],
            f"{line['tuples_per_s']:,.0f}",
            f"{line['of_native']:.3f}" + ("" if line["met"] else " (missed)"),
            "{:.3f} to {:.3f}".format(*line["spread"]),
            f"{line['record_bytes_per_tuple']:.3f}",
        ]
        for line in result["cost"]
    ]
    parts = [
        grid(
            [
                "window",
                "2 items",
                "tuples/s of a processor",
                "of native",
                "spread",
                "bytes of records a tuple",
            ],
            cost,
        )
    ]
    for which in ("extent", "replay"):
        rows = [
            [
                f"{line['bound']:,}",
                f"{line['open']:,}",
                f"{line['checks']:,}",
                f"{line['extent']:,}",
                f"{line['load_seconds']:.3f} s",
                f"{line['replay_bytes'] / 1e6:.1f} MB",
                f"{line['replay_seconds']:.3f} s",
                f"{line['record_bytes']:.1f}",
                f"{line['cut_bytes']:.1f}" if which == "replay" else "",
                "" if line["kept"] else "not kept",
            ]
            for line in result[which]
        ]
        head = [which, "open", "checks", "extent", "to load", "to compute again", "that took"]
        head += ["bytes of records a tuple", "of cuts as often" if which == "replay" else "", ""]
        parts.append(grid(head, rows))
    shares = [
        [
            f"{line['share']:.2%}",
            f"{line['batch_seconds'] * 1e3:.1f} ms",
            f"{line['batch_seconds_99'] * 1e3:.1f} ms",
            f"{line['of_least']:.2f}",
            f"{line['extent']:,}",
            f"{line['checks']:,}",
        ]
        for line in result["share"]
    ]
    parts.append(grid(["share", "a batch", "99%", "of the least share", "extent", "checks"], shares))
    described = result["about"]
    quick = " A quick run: a smoke test, not a measurement." if described["quick"] else ""
    parts.append(
        f"{described['date']}; {described['machine']}, load {described['load_before']} before.{quick}"
    )
    return "\n\n".join(parts)
