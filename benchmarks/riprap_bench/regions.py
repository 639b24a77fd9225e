"""What consistent regions cost, after the third paper's figure 7, and how quickly they are back after a host is lost.

Five applications with regions that are cut every so often against none; windows of many MB; chains of operators without
state; plain Structured Streaming with its checkpoints on the same jobs; recovery. A run in a region is compared with
the unprotected ones before and after it, and the ratio is the median over such pairs. Results are kept after every
round, so one can stop, use what there is, and go on some other time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from riprap.errors import RunError
from riprap_bench.checkpoint_plan import Track
from riprap_bench.measuring import Report, about, rounded
from riprap_bench.regions_beside import measure_plain
from riprap_bench.regions_jobs import Chain
from riprap_bench.regions_plan import PARTS, Part, Plan
from riprap_bench.regions_recovery import measure_recovery
from riprap_bench.regions_rounds import Ran, Rounds
from riprap_bench.regions_runs import Bench
from riprap_bench.regions_table import table as table
from riprap_bench.trial import MASTER, SETTINGS

FORMAT = "riprap-bench-regions/1"
FULL = Plan()
# Each part within some four minutes: a smoke test.
QUICK = Plan(
    repetitions=1,
    long_repetitions=0,
    seconds=4.0,
    periods=(1.0,),
    sizes=(8, 32),
    lengths=(8, 16),
    period=2.0,
    plain_seconds=8.0,
    losses=2,
)

# Of the applications, and of joins over large windows.
_MOST_ELEMENTS = 4

Keep = Callable[[dict[str, Any]], None]


def run(
    quick: bool,
    report: Report,
    *,
    only: Sequence[Part] = (),
    repetitions: int | None = None,
    seconds: float | None = None,
    long_seconds: float | None = None,
    earlier: Mapping[str, Any] | None = None,
    keep: Keep = lambda result: None,
    show: Callable[[float], None] = lambda share: None,
) -> dict[str, Any]:
    """Run the experiments, or ``only`` some, as far as they are not in an ``earlier`` result; its other parts stay.

    ``keep`` hears of the result so far, ``show`` of the share that is done.
    """
    plan = QUICK if quick else FULL
    given: dict[str, Any] = {"repetitions": repetitions, "seconds": seconds, "long_seconds": long_seconds}
    plan = replace(plan, **{name: value for name, value in given.items() if value is not None})
    unknown = [part for part in only if part not in PARTS]
    if unknown:
        raise RunError(f"there is no part '{unknown[0]}'; there are: {', '.join(PARTS)}")
    plan = replace(plan, only=tuple(only) or plan.only)
    return run_plan(plan, report, earlier=earlier, keep=keep, show=show, quick=quick)


def run_plan(
    plan: Plan,
    report: Report,
    *,
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
    shown = ", ".join(f"{part} {seconds / 60:.0f}" for part, seconds in estimate.items())
    report(f"this takes about {track.total / 60:.0f} minutes: {shown}")

    def put(part: str, sittings: Sequence[Mapping[str, Any]], found: Mapping[str, Any]) -> None:
        parts[part] = rounded({**found, "sittings": sittings})
        keep({"format": FORMAT, "parts": dict(parts)})

    def go_on(part: Part) -> tuple[Mapping[str, Any], list[Mapping[str, Any]]]:
        """Return what there is of a part, and its sittings with a new one; both must be of the same kind."""
        report(f"{part}, about {estimate[part] / 60:.0f} minutes")
        there = parts.get(part, {"sittings": []})
        this = _described(plan, quick)
        for sitting in there["sittings"]:
            for name in ("seed", "quick", "protecting"):
                if sitting[name] != this[name]:
                    raise RunError(
                        f"the result that is there has {part} measured with {name} {sitting[name]}, and this would be "
                        f"{this[name]}: use the same, or another file"
                    )
        # Only rounds are gone on with.
        return there, [*there["sittings"], this] if "rounds" in there else [this]

    failed: list[str] = []
    with tempfile.TemporaryDirectory(prefix="riprap-bench-") as name:
        for part in (part for part in PARTS if part in plan.only):
            there, sittings = go_on(part)
            try:
                hear = partial(put, part, sittings)
                hear(_measure(part, plan, Path(name) / part, track, hear, there, session))
            except RunError as error:
                # What other parts have found, and this one so far, stays.
                report(f"{part} failed: {error}")
                failed.append(f"{part}: {error}")
    show(1.0)
    if failed:
        raise RunError("; ".join(failed))
    return {"format": FORMAT, "parts": parts}


def _measure(
    part: Part,
    plan: Plan,
    folder: Path,
    track: Track,
    keep: Keep,
    there: Mapping[str, Any],
    session: Any,
) -> dict[str, Any]:
    if part == "recovery":
        # Each run has processes of its own.
        return measure_recovery(plan, folder, track, keep)
    own = _session(plan, part) if session is None else None
    try:
        bench = Bench(own or session, folder, plan.protecting)
        if part == "plain":
            return measure_plain(plan, bench, track, keep)
        done = [Ran.from_json(told) for told in there.get("rounds", ())]
        return Rounds(part, plan, bench, track, done).measure(keep)
    finally:
        if own is not None:
            own.stop()


def _described(plan: Plan, quick: bool) -> dict[str, Any]:
    return about(
        seed=plan.seed,
        quick=quick,
        protecting=plan.protecting,
        seconds=plan.seconds,
        long_seconds=plan.long_seconds,
        master=MASTER,
        settings=SETTINGS,
    )


def _session(plan: Plan, part: Part) -> Any:
    from riprap.runtime.session import make_session

    # Tasks that stay take slots of their own, in every element.
    largest = Chain(plan.seed, many=max(plan.parallel), length=max(plan.lengths))
    elements = largest.elements if part == "chains" else _MOST_ELEMENTS
    return make_session(MASTER, SETTINGS, elements=elements)
