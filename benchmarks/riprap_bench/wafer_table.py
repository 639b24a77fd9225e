"""Show the result of the wafer benchmark to people, as Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from riprap_bench.bargain_table import grid

_NAMES = {"checkpoint": "crash, a checkpoint every second", "none": "crash, no checkpoint"}
# Of the paper, in the unit of its own metric; its worst errors are those of one run.
PAPER = {"checkpoint": (4.80, 6), "none": (7.79, 52)}


def table(result: Mapping[str, Any]) -> str:
    """Return the whole result as Markdown."""
    parts = [_scenarios(result), _compared(result), _killed(result), _about(result)]
    return "\n\n".join(part for part in parts if part)


def _scenarios(result: Mapping[str, Any]) -> str:
    point = result["distribution"]["worst_point"]
    head = [
        "scenario", "RMSE", "worst of all runs", f"worst of run {point + 1}", "median", "lots", "wafers lost",
        "seconds down", "checkpoint's age at the crash", "paper: RMSE", "paper: worst of one run",
    ]  # fmt: skip
    of_run = {
        t["scenario"]: t["worst"] for t in result["trials"] if (t["point"], t["way"]) == (point, "session")
    }
    rows = [
        [
            _NAMES[scenario],
            f"{found['rmse']:.4g}",
            f"{found['worst']:.4g}",
            f"{of_run[scenario]:.4g}",
            f"{found['median']:.3g}",
            f"{found['lots']:,}",
            _range(found["wafers_lost"], "{:,.0f}"),
            _range(found["seconds_down"], "{:.1f}"),
            _range(found["checkpoint_age_s"], "{:.1f} s") if found["checkpoint_age_s"] else "",
            f"{PAPER[scenario][0]:.2f}",
            str(PAPER[scenario][1]),
        ]
        for scenario, found in result["scenarios"].items()
    ]
    return grid(head, rows)


def _compared(result: Mapping[str, Any]) -> str:
    compared, agreed = result["compared"], result["agreed"]
    none_yet = result["scenarios"]["checkpoint"]["without_checkpoint_yet"]
    early = f" In {none_yet} the crash came before the first checkpoint." if none_yet else ""
    again = f" {result['repeated']} were made again, as Spark had not started." if result["repeated"] else ""
    return (
        f"The checkpoint helped in {compared['helped']} of {compared['points']} crashes.{early} The two runs of "
        f"a crash were at most {compared['crash_apart_wafers']['greatest']:,.0f} wafers apart when it came, and "
        f"{_range(compared['back_apart_wafers'], '{:,.0f}')} when the model was back.\n"
        f"Output is that of a plain loop, bit by bit, in all {agreed['session']} runs that crashed in one session and "
        f"in all {agreed['processes']} whose process was killed.{again} Without a crash the metric is "
        f"{result['golden']['mean']:.3g} in the mean of {result['golden']['lots']} lots."
    )


def _killed(result: Mapping[str, Any]) -> str:
    killed = [line for line in result["trials"] if line["way"] == "processes"]
    rows = [
        [
            f"{line['point'] + 1}, {_NAMES[line['scenario']]}",
            f"{line['crash']:,}",
            f"{line['back'] - line['crash']:,}",
            f"{line['down_s']:.1f} of {line['asked_s']:.1f}",
            f"{line['age_s']:.1f} s" if line["age_s"] is not None else "",
            f"{line['rmse']:.4g}",
            f"{line['worst']:.4g}",
        ]
        for line in killed
    ]
    head = ["process killed", "after", "lost", "seconds down, asked for", "checkpoint's age", "RMSE", "worst"]
    return grid(head, rows) if rows else ""


def _range(values: Mapping[str, float], shape: str) -> str:
    """Show a mean, and from where to where values go."""
    mean, least, greatest = (shape.format(values[name]) for name in ("mean", "least", "greatest"))
    return f"{mean} ({least.removesuffix(' s')} to {greatest})"


def _about(result: Mapping[str, Any]) -> str:
    if "about" not in result:
        return ""
    about = result["about"]
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    quick = " A quick run: a smoke test, not a measurement." if about["quick"] else ""
    return (
        f"{about['date']}; {about['machine']}, {about['cores']} cores, {about['memory_gb']} GB, load "
        f"{about['load_before']} before; Python {about['python']}, {versions}, river {about['river']}; "
        f"{about['master']}, {about['at_once']} runs at once, feed {about['feed']}, seed {about['seed']}, "
        f"{about['wafers']:,} wafers, {about['rate']:g} a second, "
        f"batches every {about['trigger']:g} s.{quick}"
    )
