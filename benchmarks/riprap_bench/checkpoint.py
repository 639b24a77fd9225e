"""What checkpoints cost: the joins of the paper with and without them, large states, restoring, and no policy at all.

A protected run is compared with the unprotected ones before and after it, and the ratio is the median over such pairs.
Results are kept after every round, so that one can stop a measurement that takes hours, use what there is, and go on
some other time: rounds of joins and large windows that are in the result already are not run again.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from riprap.errors import RunError
from riprap_bench.checkpoint_figures import figures as figures
from riprap_bench.checkpoint_grid import Grid, Ran
from riprap_bench.checkpoint_plain import measure_plain, tree_of
from riprap_bench.checkpoint_plan import GRIDS, PARTS, Part, Plan, Track
from riprap_bench.checkpoint_restore import measure_restore
from riprap_bench.checkpoint_runs import Bench
from riprap_bench.checkpoint_sizes import Pair, Sizes
from riprap_bench.checkpoint_table import table as table
from riprap_bench.measuring import Report, about, rounded
from riprap_bench.trial import MASTER, SETTINGS

FORMAT = "riprap-bench-checkpoint/1"
FULL = Plan()
QUICK = Plan(
    repetitions=1,
    corner_repetitions=1,
    seconds=4.0,
    windows=(8192, 131072),
    groups=(512, 4096),
    per_key_groups=(64,),
    zipf_groups=("auto",),
    intervals=(1.0,),
    sizes=(8,),
    size_interval=2.0,
    size_triggers=4,
    restore_mb=64,
    restore_repetitions=2,
    plain_events=1_000_000,
)

Keep = Callable[[dict[str, Any]], None]


def run(
    quick: bool,
    report: Report,
    *,
    only: Sequence[Part] = (),
    repetitions: int | None = None,
    corner_repetitions: int | None = None,
    seconds: float | None = None,
    long_seconds: float | None = None,
    before: Path | None = None,
    earlier: Mapping[str, Any] | None = None,
    keep: Keep = lambda result: None,
    show: Callable[[float], None] = lambda share: None,
) -> dict[str, Any]:
    """Run the experiments, or ``only`` some, as far as they are not in an ``earlier`` result; its other parts stay.

    ``before`` is an older source tree, for the part that needs one; ``keep`` hears of the result so far, ``show`` of
    the share that is done.
    """
    plan = QUICK if quick else FULL
    given: dict[str, Any] = {
        "repetitions": repetitions,
        "corner_repetitions": corner_repetitions,
        "seconds": seconds,
        "long_seconds": long_seconds,
    }
    plan = replace(plan, **{name: value for name, value in given.items() if value is not None})
    unknown = [part for part in only if part not in PARTS]
    if unknown:
        raise RunError(f"there is no part '{unknown[0]}'; there are: {', '.join(PARTS)}")
    if before is None and "plain" in only:
        raise RunError("--only plain compares with an older source tree: name it with --before")
    if before is not None:
        tree_of(before)
    parts = tuple(part for part in only or PARTS if part != "plain" or before is not None)
    plan = replace(plan, only=parts)
    return run_plan(plan, report, before=before, earlier=earlier, keep=keep, show=show, quick=quick)


def run_plan(
    plan: Plan,
    report: Report,
    *,
    before: Path | None = None,
    earlier: Mapping[str, Any] | None = None,
    keep: Keep = lambda result: None,
    show: Callable[[float], None] = lambda share: None,
    quick: bool = False,
    session: Any = None,
) -> dict[str, Any]:
    """Run a plan in a temporary folder; in a ``session`` of Spark's, if one is given."""
    if earlier is not None and earlier.get("format") != FORMAT:
        raise RunError(f"the result that is there is not of format {FORMAT!r}: move it away")
    parts: dict[str, Any] = dict((earlier or {}).get("parts", {}))
    estimate = plan.estimate()
    track = Track(sum(estimate.values()), report, show)
    report(f"this takes about {track.total / 60:.0f} minutes: {_shown(estimate)}")

    def put(part: str, sittings: Sequence[Mapping[str, Any]], found: Mapping[str, Any]) -> None:
        parts[part] = rounded({**found, "sittings": sittings})
        keep({"format": FORMAT, "parts": dict(parts)})

    def describe(part: Part) -> dict[str, Any]:
        report(f"{part}, about {estimate[part] / 60:.0f} minutes")
        return about(
            seed=plan.seed,
            quick=quick,
            seconds=plan.seconds,
            long_seconds=plan.long_seconds,
            master=MASTER,
            settings=SETTINGS,
        )

    def go_on(part: Part) -> tuple[Mapping[str, Any], list[Mapping[str, Any]]]:
        """Return what there is of a part, and its sittings with a new one; both must be of the same kind."""
        there = parts.get(part, {"sittings": []})
        this = describe(part)
        for sitting in there["sittings"]:
            for name in ("seed", "quick", "seconds", "long_seconds"):
                if sitting[name] != this[name]:
                    raise RunError(
                        f"the result that is there has {part} measured with {name} {sitting[name]}, and this would be "
                        f"{this[name]}: use the same, or another file"
                    )
        return there, [*there["sittings"], this]

    with tempfile.TemporaryDirectory(prefix="riprap-bench-") as name:
        folder = Path(name)
        if "restore" in plan.only:
            put("restore", [describe("restore")], measure_restore(plan, folder, track))
        if "plain" in plan.only and before is not None:
            put("plain", [describe("plain")], measure_plain(plan, folder / "plain", before, track))
        kinds = [kind for kind in GRIDS if kind in plan.only]
        own = _session() if session is None and (kinds or "size" in plan.only) else None
        try:
            bench = Bench(own or session, folder)
            for kind in kinds:
                there, sittings = go_on(kind)
                grid = Grid(kind, plan, bench, track, [Ran.from_json(r) for r in there.get("rounds", ())])
                put(kind, sittings, grid.measure(partial(put, kind, sittings)))
            if "size" in plan.only:
                there, sittings = go_on("size")
                sizes = Sizes(plan, bench, track, [Pair.from_json(p) for p in there.get("pairs", ())])
                put("size", sittings, sizes.measure(partial(put, "size", sittings)))
        finally:
            if own is not None:
                own.stop()
    show(1.0)
    return {"format": FORMAT, "parts": parts}


def _session() -> Any:
    from riprap.runtime.session import make_session

    return make_session(MASTER, SETTINGS, elements=2)


def _shown(estimate: Mapping[str, float]) -> str:
    return ", ".join(f"{part} {seconds / 60:.0f}" for part, seconds in estimate.items())
