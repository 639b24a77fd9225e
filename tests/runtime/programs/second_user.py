"""Be the victim of another user of the host, in a namespace where nobody minds: python -m ... ATTACK ...

Prints, as JSON and for each attack: what the run was refused with, what is left of the victim's files, and as whom the
attacker's code ran.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from tests.customs import table_of, telling

import riprap as rr
from riprap.compiler import compile_graph
from riprap.errors import RunError
from riprap.operators.custom.instances import HELD
from riprap.runtime.folder import RunFolder
from riprap.runtime.site import Site, take_hold
from riprap.runtime.task import run_task
from riprap.stage.arrival import ReadRows
from riprap.state.keys import encode_keys
from riprap.state.leases import sweep
from riprap.state.ledger import BatchRecord
from riprap.state.pages import PageStore, page_root
from riprap.state.windows import Contents, make_page
from riprap.testing import forget_instances

OTHER = 4242


class Evil:
    """What runs where it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"id -u > {self._mark}",)


@dataclass
class State:
    """What is kept."""

    count: int = 0


def as_other(script: str) -> None:
    """Let the attacker run a script."""
    subprocess.run(["/bin/sh", "-ec", script], user=OTHER, group=OTHER, extra_groups=[], check=True)


def plant_link(folder: Path) -> None:
    """Put a link to the victim's files where the pages of the next run go."""
    thesis = folder / "home" / "papers" / "thesis"
    thesis.parent.mkdir(parents=True)
    thesis.touch()
    for path in (thesis, thesis.parent):
        os.utime(path, (time.time() - 9000,) * 2)
    as_other(f"ln -s {folder / 'home'} {page_root()}")


def plant_folder() -> None:
    """Put a folder there that is the attacker's own."""
    as_other(f"mkdir -m 777 {page_root()}")


def exchange_pages(folder: Path, home: Path) -> None:
    """Put the attacker's pages in the place of the victim's, whose names can be guessed: here they are looked up."""
    names = [path.name for path in home.glob("state/custom/*.page")]
    keys, _ = encode_keys([], 0)
    held = pa.array([{"object": pickle.dumps(Evil(folder / "ran")), "token": "x"}], HELD)
    evil = make_page(keys, Contents(np.array([0, 1]), held, np.zeros((1, 1), np.int64)))
    made = folder / "made"
    made.mkdir(mode=0o700)
    PageStore(str(made)).write("evil", evil)
    made.chmod(0o755)
    (made / "evil.page").chmod(0o644)
    # Where the folder above is the attacker's, or anybody's, so is the name of what is in it.
    moved = home if home.parent.stat().st_uid == OTHER else home.parent
    pages = home / "state" / "custom"
    as_other(f"mv {moved} {moved}-gone; mkdir -p {pages} {home}/results/custom; chmod -R 777 {moved}")
    for name in names:
        as_other(f"cp {made}/evil.page {pages}/{name}; chmod 666 {pages}/{name}")


class Total(rr.CustomOperator):
    """Counts."""

    state: State

    def on_tuple(self, port: Any, values: dict[str, Any]) -> None:
        self.state.count += 1


def run_batch(site: Site, batch: int) -> None:
    """Compute a batch of an operator with a class of the user's, in a process that has not seen it."""
    forget_instances()
    plan = compile_graph(telling(Total).graph(), buckets=1, tasks=1).plans[0]
    table = table_of(1)
    rows = ReadRows({c: table.column(c).combine_chunks() for c in plan.needed["source"]}, np.array([batch]))
    answer = run_task(plan, site, batch=batch, task=0, attempt="0", rows={"source": rows})
    site.ledger.write(BatchRecord(epoch=0, batch=batch, manifests=(answer.manifest,), time=0.0))


def work(folder: Path) -> None:
    """Do what a run does, from its start to its second batch."""
    run = RunFolder.create(folder / "runs", "custom", time.time)
    housing, lease = take_hold(run, None, None, one_host=True)
    try:
        sweep(page_root())
        site = housing.site("custom", run.path)
        site.ledger.begin(1)
        run_batch(site, 0)
        exchange_pages(folder, page_root() / run.identity)
        run_batch(site, 1)
    finally:
        lease.release()


def suffer(attack: str, folder: Path) -> dict[str, Any]:
    """Let the other user be there first, or come later; say what became of it."""
    folder.mkdir(mode=0o755)
    if attack == "link":
        plant_link(folder)
    elif attack == "folder":
        plant_folder()
    refused = ""
    try:
        work(folder)
    except RunError as error:
        refused = f"{type(error).__name__}: {error}"
    sweep(page_root())
    ran = folder / "ran"
    left = [path.name for path in sorted(folder.glob("home/**/*"))]
    subprocess.run(f"rm -rf {page_root()}*", shell=True, check=True)
    return {"refused": refused, "left": left, "ran_as": ran.read_text().strip() if ran.exists() else None}


if __name__ == "__main__":
    # Others have to get to what they name, so all of it is in the namespace's own /dev/shm.
    print(json.dumps({attack: suffer(attack, Path("/dev/shm") / attack) for attack in sys.argv[1:]}))
