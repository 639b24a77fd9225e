"""Show the result of the benchmark of regions to people, as Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from riprap_bench.bargain_table import grid

_TITLES = {
    "apps": "Applications, of unprotected throughput",
    "sizes": "Windows all of which is replaced, of unprotected throughput",
    "chains": "Chains of operators without state, of unprotected throughput",
}


def table(result: Mapping[str, Any]) -> str:
    """Return the whole result as Markdown tables."""
    parts = result["parts"]
    shown = [f"**{title}**\n\n{_compared(parts[name])}" for name, title in _TITLES.items() if name in parts]
    if "plain" in parts:
        shown.append(f"**Beside plain Structured Streaming**\n\n{_plain(parts['plain'])}")
    if "recovery" in parts:
        shown.append(f"**From the loss of a host to the next new batch**\n\n{_recovery(parts['recovery'])}")
    return "\n\n".join([*shown, *(_about(name, part) for name, part in parts.items())])


def _compared(part: Mapping[str, Any]) -> str:
    rates = {line["case"]: line for line in part["unprotected"]}
    rows = []
    for line in part["lines"]:
        low, high = line["throughput"]["interval"]
        rows.append(
            [
                line["case"],
                f"{line['period']:g} s",
                f"{line['throughput']['median']:.3f}",
                f"{low:.3f} to {high:.3f}",
                f"{line['cpu']['median']:.3f}",
                str(line["throughput"]["pairs"]),
                f"{rates[line['case']]['tuples_per_s']:,.0f}",
                _bar(line),
            ]
        )
    head = ["", "cut every", "throughput", "95%", "processor", "pairs", "tuples/s without", "bar"]
    return grid(head, rows)


def _bar(line: Mapping[str, Any]) -> str:
    if line["least"] is None:
        return ""
    return f"{line['least']:g}" + ("" if all(line["met"].values()) else " NOT met")


def _plain(part: Mapping[str, Any]) -> str:
    rows = [
        [
            line["case"],
            f"{line['tuples_per_s']:,.0f}",
            f"{line['plain_tuples_per_s']:,.0f}",
            f"{line['throughput']['median']:.2f} times",
            f"{line['batch_seconds']:.3f} s",
            f"{line['plain_batch_seconds']:.3f} s",
            "met" if all(line["met"].values()) else "NOT met",
        ]
        for line in part["lines"]
    ]
    head = [
        "",
        "tuples/s in a region",
        "plain Spark",
        "Riprap is",
        "a batch",
        "plain Spark's",
        "ahead in both",
    ]
    return grid(head, rows)


def _recovery(part: Mapping[str, Any]) -> str:
    rows = []
    for name, title in (("region", "a region"), ("plain", "plain Spark")):
        if name not in part:
            continue
        found = part[name]
        least, most = found["spread"]
        parts = ", ".join(f"{each} {seconds:.2f}" for each, seconds in found.get("parts", {}).items())
        rows.append(
            [
                title,
                f"{found['seconds']:.2f} s",
                f"{least:.2f} to {most:.2f} s",
                str(len(found["all"])),
                parts,
            ]
        )
    head = ["", "median", "spread", "losses", "where it goes, s"]
    if not part["met"]:
        return grid(head, rows)
    verdict = "quicker than plain Spark's: " + ("yes" if all(part["met"].values()) else "NO")
    return f"{grid(head, rows)}\n\n{verdict}"


def _about(name: str, part: Mapping[str, Any]) -> str:
    about = part["sittings"][-1]
    versions = ", ".join(f"{library} {version}" for library, version in about["versions"].items())
    quick = " A quick run: a smoke test, not a measurement." if about["quick"] else ""
    bare = "" if about["protecting"] else " No region was asked for: this tries out the rest."
    return (
        f"{name}: {about['date']}; {about['machine']}, {about['cores']} cores, load {about['load_before']} before; "
        f"Python {about['python']}, {versions}; {about['master']}, seed {about['seed']}.{quick}{bare}"
    )
