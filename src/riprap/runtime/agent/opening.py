"""Have an element's protected operators saved by the agent of this process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from riprap.compiler import Plan, describe_state
from riprap.runtime.agent.handle import Saver, hire
from riprap.runtime.checkpointing.peer import was_taken
from riprap.runtime.checkpointing.protection import ElementProtection
from riprap.runtime.site import Site

if TYPE_CHECKING:
    from riprap.runtime.launch import Launch


def saver_of(plan: Plan, site: Site, home: Path, launch: Launch, *, waiting: int, at_once: bool) -> Saver:
    """Return what saves an element from its newest record on, and that ``at_once``, whatever a region's start says.

    ``waiting`` is the first batch that a sink may still ask for.
    """
    layouts = describe_state(launch.graph)
    batches = site.ledger.batches()
    newest = site.ledger.get(batches[-1]) if batches else None
    # Before that the input of another time is needed, which may be gone.
    at_once |= plan.replica is not None and newest is not None and was_taken(newest)
    protection = ElementProtection.of(plan, site, launch.durable(plan), layouts, home=home, at_once=at_once)
    return hire().open(protection, launch.folder.path, newest, launch.folder.event, waiting=waiting)
