"""Run an application of tests/regions/topologies.py as a job says, in a session of its own or supervised.

{"topology": "chain", "sink": "each", "period": "100ms", "work": "...", "place": {...}, "traps": [[1200, "driver", ""]],
 "attempts": 5, "options": {"runs": "..."}, "supervised": false, "reset": false,
 "reads_apart": false}

With ``reset``, what was halted in an earlier life is to begin anew; with ``reads_apart``, tasks read batches of a few
rows in a step of its own, too.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.regions.building import application
from tests.regions.sinks import Place
from tests.regions.traps import Trap

import riprap as rr
from riprap.runtime import Patience, shares, supervise
from riprap.runtime.resident import rounds
from riprap.runtime.supervision.requests import ask_to_reset


def run_topology(
    topology: str,
    sink: str,
    period: str,
    work: str,
    place: dict[str, str],
    traps: list[list[Any]],
    attempts: int,
    options: dict[str, Any],
    supervised: bool,
    reset: bool,
    reads_apart: bool = False,
) -> None:
    if reads_apart:
        rounds.LEAST_AHEAD = shares.LEAST_REPEATED = 1
    set_off = [Trap(*trap) for trap in traps]
    app = application(topology, sink, Path(work), Place(**place), set_off, period=period, attempts=attempts)
    options = {"config": {"spark.log.level": "OFF"}, **options}
    if supervised:
        # However slow the machine is: only who is dead is to be started again.
        patience = Patience(silent=120.0, stuck=240.0)
        with supervise(app.graph(), rr.RunOptions(**options), patience=patience, spare=False) as run:
            for region in run.halted if reset else ():
                ask_to_reset(run.folder, region)
            run.wait()
    else:
        with app.run(**options) as run:
            run.wait()


if __name__ == "__main__":
    run_topology(**json.loads(Path(sys.argv[1]).read_text()))
