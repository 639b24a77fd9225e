"""Applications of the fault matrix, put together from a topology, a kind of sink and traps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.regions.making import Lost, Made
from tests.regions.sinks import KINDS, Place
from tests.regions.topologies import TOPOLOGIES
from tests.regions.traps import Trap, trap_function

import riprap as rr


def application(
    topology: str,
    sink: str,
    work: Path,
    place: Place,
    traps: Sequence[Trap] = (),
    *,
    period: str | None = None,
    attempts: int = 5,
    lost: Lost = (),
) -> rr.Application:
    """Describe an application; without ``period`` it has no policy at all; its sources lack what is ``lost``."""
    markers = work / "markers"
    markers.mkdir(parents=True, exist_ok=True)
    Path(place.out).mkdir(exist_ok=True)
    app = rr.Application(topology)
    app.function("trapped", trap_function(traps, str(markers)), returns="bigint")
    start = None
    if period is not None:
        start = rr.consistent(period=period, max_consecutive_reset_attempts=attempts)
    made = Made(app, work, place, start, lost)
    for name, stream in TOPOLOGIES[topology].build(made).items():
        app.sink(f"{name}_out", stream, KINDS[sink].make(place, name))
    return app
