"""What a checkpoint is worth: wafer yield with a model that crashes, with a checkpoint every second and without.

A crash loses the host's memory, the model is down for 2 to 5 seconds, and its input meanwhile is lost. Both scenarios
crash after the same wafer. Each run's output is compared with that of a plain loop, bit by bit: one that differs ends
the benchmark.
"""

from __future__ import annotations

import math
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from riprap.apps.wafer_feed import make_wafers
from riprap.apps.wafer_model import require_river
from riprap.apps.wafer_secom import read_secom
from riprap.errors import RunError
from riprap_bench.measuring import Report, about, rounded
from riprap_bench.wafer_crash import ELEMENTS, Stage
from riprap_bench.wafer_errors import compare, distribution, errors_of, pairs_of, summarise
from riprap_bench.wafer_figure import figures as figures
from riprap_bench.wafer_kill import Killing
from riprap_bench.wafer_outage import crash_points, root_mean_square
from riprap_bench.wafer_table import table as table
from riprap_bench.wafer_trial import SCENARIOS, DisagreementError, Pace, Point, Scenario, Trial, Wafers

FORMAT = "riprap-bench-wafer/1"
# As many as make 107 lots that the application tells of, the number of predictions in the paper.
WAFERS = 5_381
POINTS, QUICK_POINTS = 40, 2
REAL = 2
SECONDS = 18.0
DOWN = (2.0, 5.0)
# Wafers for so many seconds come after every outage.
AFTER = 3.0
AT_ONCE = 4
MASTER = "local[2,2]"
_TRIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to measure."""

    wafers: Wafers
    points: tuple[Point, ...]
    pace: Pace
    real: tuple[Point, ...] = ()
    at_once: int = AT_ONCE


def run(
    quick: bool,
    report: Report,
    *,
    points: int | None = None,
    rate: float | None = None,
    seed: int = 0,
    real: int | None = None,
    feed: Path | None = None,
    at_once: int = AT_ONCE,
    show: Callable[[float], None] = lambda share: None,
) -> dict[str, Any]:
    """Crash at so many ``points`` in a session, and at ``real`` many by killing processes, both in each scenario.

    ``feed`` is another than the one that is made: Parquet files, or SECOM's CSV file. ``rate`` is wafers a second;
    without it, so many that a run takes 18 s. Crashes are drawn with ``seed``, which is also that of the feed.
    """
    require_river()
    wafers = Wafers.of(open_feed(feed) if feed is not None else make_wafers(WAFERS, seed=seed))
    count = wafers.table.num_rows
    pace = Pace(rate=rate or a_second(count, SECONDS))
    drawn = draw(points or (QUICK_POINTS if quick else POINTS), count, pace.rate, seed)
    plan = Plan(
        wafers=wafers,
        points=drawn,
        pace=pace,
        real=latest(drawn, real if real is not None else 0 if quick else REAL),
        at_once=at_once,
    )
    described = about(
        seed=seed,
        quick=quick,
        feed=feed.name if feed is not None else "made",
        wafers=count,
        rate=pace.rate,
        down=list(DOWN),
        every=pace.every,
        trigger=pace.trigger,
        at_once=at_once,
        master=MASTER,
        river=version("river"),
    )
    return {"format": FORMAT, **run_plan(plan, report, show=show), "about": described}


def a_second(wafers: int, seconds: float) -> float:
    """Return how many wafers come a second so that all take about so long.

    >>> a_second(5_381, 18.0)
    300.0
    """
    return max(1.0, round(wafers / seconds, -1))


def open_feed(path: Path) -> pa.Table:
    """Read wafers from Parquet files, or SECOM's from its CSV file."""
    try:
        return read_secom(path) if path.name.endswith((".csv", ".csv.gz")) else pq.read_table(path)
    except (OSError, ValueError) as error:
        raise RunError(f"--feed {path} is not a feed of wafers: {error}") from error


def draw(count: int, wafers: int, rate: float, seed: int) -> tuple[Point, ...]:
    """Draw when to crash, and for how long; the first few are the same however many there are."""
    try:
        pairs = crash_points(count, wafers=wafers - math.ceil(AFTER * rate), rate=rate, down=DOWN, seed=seed)
    except ValueError as error:
        raise RunError(f"{error}; give a lower --rate") from error
    return tuple(
        Point(number=number, crash=outage.crash, down=(outage.back - outage.crash) / rate)
        for number, (outage, _) in enumerate(pairs)
    )


def latest(points: Sequence[Point], many: int) -> tuple[Point, ...]:
    """Return the points of the latest crashes: by then a model whose process started late has caught up with its input.

    >>> latest([Point(number=0, crash=900, down=2.0), Point(number=1, crash=700, down=3.0)], 1)
    (Point(number=0, crash=900, down=2.0),)
    """
    return tuple(sorted(points, key=lambda point: point.crash)[len(points) - many :])


def run_plan(
    plan: Plan,
    report: Report,
    *,
    show: Callable[[float], None] = lambda share: None,
    session: Any = None,
) -> dict[str, Any]:
    """Run a plan in a temporary folder; in a ``session`` of Spark's, if one is given."""
    folder = Path(tempfile.mkdtemp(prefix="riprap-bench-"))
    track = _Track(1 + len(SCENARIOS) * (len(plan.points) + len(plan.real)), report, show)
    try:
        golden, trials = _in_session(plan, folder, track, session)
        killed = [
            track.done(_persistently(Killing(plan.wafers, plan.pace, folder), point, scenario, track))
            for point in plan.real
            for scenario in SCENARIOS
        ]
    except DisagreementError as error:
        raise DisagreementError(f"{error}. What the run left is in {folder}") from error
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder)
    return result_of(plan.wafers, golden, trials, killed, repeated=track.repeated)


def _in_session(
    plan: Plan, folder: Path, track: _Track, session: Any
) -> tuple[dict[int, float], list[Trial]]:
    # Every trial has a task of each element that stays.
    own = _session(folder / "spark.log", elements=len(ELEMENTS) * plan.at_once) if session is None else None
    try:
        stage = Stage(session=own or session, folder=folder, wafers=plan.wafers, pace=plan.pace)
        # Alone, and first: it also makes Spark and its workers warm.
        golden = stage.undisturbed()
        track.done(None)
        jobs = [(point, scenario) for point in plan.points for scenario in SCENARIOS]
        with ThreadPoolExecutor(plan.at_once) as pool:
            futures = [pool.submit(_persistently, stage, *job, track) for job in jobs]
            try:
                trials = [track.done(future.result()) for future in as_completed(futures)]
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return golden, trials
    finally:
        if own is not None:
            own.stop()


def _persistently(way: Stage | Killing, point: Point, scenario: Scenario, track: _Track) -> Trial:
    """Make a trial. One in which Spark did not start a query, or too late, says nothing and is made again."""
    for left in reversed(range(_TRIES)):
        try:
            return way.crash(point, scenario)
        except DisagreementError:
            raise
        except RunError as error:
            if not left:
                raise
            track.again(point, scenario, error)
            shutil.rmtree(way.home(point, scenario), ignore_errors=True)
    raise AssertionError("a trial is made at least once")


def _session(log: Path, *, elements: int) -> Any:
    from riprap.runtime.session import make_session

    return make_session(MASTER, {"spark.log.level": "OFF"}, log, elements=elements)


def result_of(
    wafers: Wafers,
    golden: Mapping[int, float],
    trials: Sequence[Trial],
    killed: Sequence[Trial],
    *,
    repeated: int = 0,
) -> dict[str, Any]:
    """Sum up: those crashed in a session and those killed apart, for they are the same crashes again."""
    errors = {(t.point.number, t.scenario): errors_of(t, wafers, golden) for t in trials}
    pairs = pairs_of(trials)
    by_scenario = {s: [pair[place] for pair in pairs] for place, s in enumerate(SCENARIOS)}
    worst = max(errors, key=lambda at: max(map(abs, errors[at]), default=0.0))[0]
    result: dict[str, Any] = rounded(
        {
            "scenarios": {
                s: summarise(of, [errors[t.point.number, s] for t in of]) for s, of in by_scenario.items()
            },
            "compared": compare(pairs, errors),
            "agreed": {"session": len(trials), "processes": len(killed)},
            "repeated": repeated,
            "golden": {"lots": len(golden), "mean": math.fsum(golden.values()) / len(golden)},
            "distribution": {
                "all": {
                    s: distribution([e for t in of for e in errors[t.point.number, s]])
                    for s, of in by_scenario.items()
                },
                "worst_run": {s: distribution(errors[worst, s]) for s in SCENARIOS},
                "worst_point": worst,
            },
            "trials": [
                _line(t, errors_of(t, wafers, golden)) for pair in (*pairs, *pairs_of(killed)) for t in pair
            ],
        }
    )
    return result


def _line(trial: Trial, errors: Sequence[float]) -> dict[str, Any]:
    return {
        "point": trial.point.number,
        "way": trial.way,
        "scenario": trial.scenario,
        "asked": trial.point.crash,
        "crash": trial.outage.crash,
        "back": trial.outage.back,
        "saved": trial.outage.saved,
        "asked_s": trial.point.down,
        "down_s": trial.seconds,
        "age_s": trial.age,
        "lots": len(errors),
        "rmse": root_mean_square(errors),
        "worst": max(map(abs, errors), default=0.0),
    }


class _Track:
    """Tells how far a plan has come, and how long the rest may take."""

    def __init__(self, total: int, report: Report, show: Callable[[float], None]) -> None:
        self._total = total
        self._report = report
        self._show = show
        self._began = time.monotonic()
        self._done = 0
        self.repeated = 0

    def done(self, trial: Any) -> Any:
        """Take note of a run, and hand it on."""
        self._done += 1
        self._show(self._done / self._total)
        left = (time.monotonic() - self._began) / self._done * (self._total - self._done)
        what = "no crash" if trial is None else _told(trial)
        self._report(f"{self._done} of {self._total}, {what}; about {left / 60:.0f} min left")
        return trial

    def again(self, point: Point, scenario: Scenario, error: Exception) -> None:
        """Take note of a run that has to be made again."""
        self.repeated += 1
        self._report(f"crash {point.number + 1} ({scenario}) is made again: {str(error).splitlines()[0]}")


def _told(trial: Trial) -> str:
    outage = trial.outage
    saved = "nothing saved" if outage.saved is None else f"{outage.crash - outage.saved} not saved"
    return (
        f"crash {trial.point.number + 1} ({trial.scenario}) after {outage.crash}: {trial.lost} lost, {saved}"
    )
