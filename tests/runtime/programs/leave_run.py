"""Run an application in a folder and stop it halfway: what a later version is to take up.

    python tests/runtime/programs/leave_run.py FOLDER

It leaves ``runs``, which has checkpoints of everything, ``out``, and nothing in the host's memory: a run of an older
version, from another host. tests/runtime/data/README.md says of which version there is one.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

import riprap as rr
from riprap.state.pages import page_root

ROWS = 600
# What stands for the folder in an archive: segments of a source are listed by absolute paths.
PLACE = "{folder}"
OPTIONS: dict[str, Any] = {"batch_rows": 20, "buckets": 4, "parallelism": 2}


class Steps(rr.CustomOperator):
    """Says by how much each total differs from the one before it; what it holds is pickled."""

    def reset_to_initial_state(self) -> None:
        self.last = 0

    def on_tuple(self, port: Any, tuple: dict[str, Any]) -> None:
        self.submit({"n": tuple["n"], "step": tuple["total"] - self.last})
        self.last = tuple["total"]

    def checkpoint(self) -> Any:
        return {"last": self.last}

    def reset(self, saved: Any) -> None:
        self.last = saved["last"]


def application(out: Path, rate: float | None = None) -> rr.Application:
    """Describe windows by number and by time, variables, a join and a class of the user's, in two elements."""
    saved = rr.checkpoint(every="1h")
    app = rr.Application("older")
    table = pa.table(
        {
            "n": range(ROWS),
            "k": ["abcdefg"[n * n % 7] for n in range(ROWS)],
            "v": [n * 31 % 101 for n in range(ROWS)],
            "at": pa.array([n * 250_000 for n in range(ROWS)]).cast(pa.timestamp("us", tz="UTC")),
        }
    )
    source = app.source("rows", rr.rows(table, rate=rate), position="n")
    sums = app.aggregate(
        "sums", source, by="k", window=rr.sliding(tuples=9), emit=rr.every(tuples=1),
        select="last(n) as n, sum(v) as total", protect=saved,
    )  # fmt: skip
    means = app.aggregate(
        "means", source, by="k", window=rr.tumbling(time="8s", on="at"),
        select="max(n) as n, avg(v) as mean", protect=saved,
    )  # fmt: skip
    counted = app.functor(
        "counted", source, by="k", variables={"seen": "0"}, update="seen + 1 as seen",
        select="n, k, seen", protect=saved,
    )  # fmt: skip
    both = app.join(
        "both", counted, sums, by="k", windows=(rr.sliding(tuples=3), rr.sliding(tuples=2)),
        select="counted.n as n, sums.n as of, total, seen", protect=saved,
    )  # fmt: skip
    steps = app.custom("steps", Steps, sums, schema="n bigint, step bigint", protect=saved)
    for stream in (means, both, steps):
        app.sink(f"{stream.name}_out", stream, rr.parquet(out / stream.name, roll=0))
    app.place("second", steps, "steps_out")
    return app


def leave(folder: Path) -> None:
    """Run half of the rows, stop in good order, and lose what is in memory."""
    os.chdir(folder)
    app = application(Path("out"), rate=300.0)
    with app.run(trigger="20ms", runs="runs", master="local[2]", **OPTIONS) as run:
        while run.progress().tuples_in < ROWS // 2:
            assert run.running
            time.sleep(0.01)
        run.stop(resume=True)
    shutil.rmtree(page_root() / f"{run.folder.parent.name}-{run.folder.name}")
    forget(run.folder, Path.cwd())


def forget(run_folder: Path, folder: Path) -> None:
    """Leave out what is of this start and this machine alone, so that the run can be taken up anywhere."""
    for path in [*run_folder.glob("elements/*/plan-*.pickle"), *run_folder.glob("elements/*/setting-*.json")]:
        path.unlink()
    (run_folder / "spark.log").unlink()
    for path in _texts(run_folder):
        text = path.read_text().replace(str(folder), PLACE).replace(str(Path.home()), "~")
        path.write_text(text)


def settle(run_folder: Path, folder: Path) -> None:
    """Let a run be where it is now."""
    for path in _texts(run_folder):
        path.write_text(path.read_text().replace(PLACE, str(folder)))


def _texts(run_folder: Path) -> list[Path]:
    return [p for p in run_folder.rglob("*") if p.suffix in (".json", ".jsonl") or p.name == "lease"]


if __name__ == "__main__":
    leave(Path(sys.argv[1]))
