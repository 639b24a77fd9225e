"""Show the result of the benchmark of replicas to people, as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from riprap_bench.bargain_table import grid

_STRUCK = {
    "switch": "the driver of the active replica is killed",
    "hang": "it is stopped",
    "ahead": "killed; readers take whichever is ahead",
}
_VARIANTS = {
    "single": "all in one element",
    "placed": "the group's operators in a process of their own",
    "group": "the same as two replicas",
    "placed all": "all between source and sink in a process of its own",
    "all": "the same twice",
}
_CASES = {
    "unprotected": "unprotected: comes back empty and live",
    "plain": "plain failover",
    "plain, hung": "plain failover, the replica hangs",
    "exact": "exact failover",
    "all": "everything twice",
}


def table(result: Mapping[str, Any]) -> str:
    """Return the whole result as Markdown tables."""
    parts = result["parts"]
    struck = {name: parts[name] for name in _STRUCK if name in parts}
    shown = [_switching(struck)] if struck else []
    for name, show in (("cost", _cost), ("quality", _quality), ("values", _values), ("model", _model)):
        if name in parts:
            shown.append(show(parts[name]))
    return "\n\n".join([*shown, *(_about(name, part["about"]) for name, part in parts.items())])


def _switching(struck: Mapping[str, Any]) -> str:
    rows = []
    for name, part in struck.items():
        silence, events = part["silence"], part["events"]
        bars = ", ".join(f"{what} {most:g} s" for what, most in part["bars"].items())
        rows.append(
            [
                _STRUCK[name],
                f"{part['seconds']:.2f} s",
                _span(part["spread"], " s"),
                f"{silence['seconds']:.2f} s",
                _span(silence["spread"], " s"),
                f"{bars}: {'met' if part['met'] else 'NOT met'}" if bars else "",
                str(len(part["all"])),
                f"{events['detect']:.2f} s" if events else "",
                f"{part['usual']:.2f} s",
            ]
        )
    head = ["until another is read", "median", "spread", "silence at the sink", "spread", "bars", "times"]
    unasked = sum(len(part["unasked"]) for part in struck.values())
    more = f"\n\nFailovers that nobody asked for: {unasked}." if unasked else ""
    return grid([*head, "of it to detect", "between batches"], rows) + more


def _cost(part: Mapping[str, Any]) -> str:
    rows = []
    for name, line in part["lines"].items():
        row = [_VARIANTS[name]]
        for figure, form, unit in (
            ("events_per_s", ",.0f", ""),
            ("cpu_per_million", ".2f", " s"),
            ("memory_mb", ",.0f", " MB"),
        ):
            found = line[figure]
            row.append(f"{found['median']:{form}}{unit} ({_span(found['spread'], unit, form)})")
            row.append(f"{line['ratios'][figure]:.2f} times" if "ratios" in line else "")
        rows.append(row)
    head = [
        "Bargain Discovery",
        "events/s",
        "of that above",
        "processors, a million",
        "times",
        "memory",
        "times",
    ]
    return f"{grid(head, rows)}\n\n{part['events']:,} events, {part['batch_rows']:,} a batch."


def _quality(part: Mapping[str, Any]) -> str:
    rows = []
    for feed in part["feeds"]:
        for name, found in feed["cases"].items():
            published = part["published"].get(name)
            rows.append(
                [
                    f"{feed['name']}: {_CASES[name]}",
                    f"{found['R']} of {found['sections']}",
                    f"{found['I']:.2f}",
                    f"{found['under']:+.0%} to {found['over']:+.0%}",
                    f"{found['passed_over'] + found['lost_in_failover']:,}",
                    f"{published['R']}, {published['I']:g}" if published else "",
                ]
            )
    head = ["a host is lost", "R, sections", "I", "local errors", "tuples lost by the group", "paper: R, I"]
    feeds = "; ".join(
        f"{f['name']}: {f['events']:,} events at {f['rate']:g}/s, sections of {f['section']:,}, lost after "
        f"{f['offset']:,}"
        for f in part["feeds"]
    )
    skipped = "".join(f" Skipped: {name}, {why}." for name, why in part["skipped"].items())
    return f"{grid(head, rows)}\n\nDown for {part['outage']:g} s. {feeds}.{skipped}"


def _values(part: Mapping[str, Any]) -> str:
    rows = []
    for case in part["cases"]:
        by_tags = case["every"] is None
        how = "by tags" if by_tags else f"by values, a punctuation every {case['every']:,} events"
        rows.append(
            [
                f"{how}{', one is killed' if case['struck'] else ''}",
                f"{case['lost']:,}",
                f"{case['doubled']:,}",
                "" if by_tags else f"{case['table_bytes'] / 1e6:,.2f} MB",
                "" if by_tags else f"{case['us_a_tuple']:.1f} µs",
            ]
        )
    head = ["everything twice, duplicates found", "bargains lost", "doubled", "table", "a tuple"]
    return (
        f"{grid(head, rows)}\n\n{part['events']:,} events at {part['rate']:g}/s, {part['right_rows']:,} bargains; "
        f"down for {part['outage']:g} s."
    )


def _model(part: Mapping[str, Any]) -> str:
    names = list(part["failovers"])
    head = ["figure", "tuples/s", "recovery", "crashes/s"]
    for name in names:
        head += [f"availability, {name}", "tainted"]
    rows = []
    for point in part["points"]:
        row = [point["figure"], f"{point['rate']:g}", f"{point['recovery']:g} s", f"{point['crashes']:.3g}"]
        for name in names:
            made = point["predicted"][name]
            row.append(f"{made['availability']:.4f} ± {made['availability_give_or_take']:.4f}")
            row.append(f"{made['tainted']:,.0f} ± {made['tainted_give_or_take']:,.0f}")
        rows.append(row)
    failovers = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in part["failovers"].items())
    return f"{grid(head, rows)}\n\nFailover: {failovers}; {part['replications']:,} replications of two hours."


def _span(spread: Sequence[float], unit: str, form: str = ".2f") -> str:
    least, most = spread
    return f"{least:{form}} to {most:{form}}{unit}"


def _about(name: str, about: Mapping[str, Any]) -> str:
    quick = " A quick run: a smoke test, not a measurement." if about["quick"] else ""
    return (
        f"{name}: {about['date']}; {about['machine']}, {about['cores']} cores, load {about['load_before']} before; "
        f"seed {about['seed']}.{quick}"
    )
