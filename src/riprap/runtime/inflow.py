"""The input of a processing element, whichever kind it is: recorded sources by row, or channels by frontier.

Both say how far there is input, cut a batch up into pieces for the tasks, and read a piece.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from riprap.compiler import Plan
from riprap.graph.options import RunOptions
from riprap.runtime.folder import RunFolder
from riprap.runtime.inlets import ChannelInflow, read_channel
from riprap.runtime.offsets import Inflow, Piece
from riprap.runtime.settings import Setting
from riprap.runtime.source_inflow import SourceInflow, read_source
from riprap.stage.arrival import ReadRows


def open_inflow(plan: Plan, setting: Setting, options: RunOptions, rates: Mapping[str, float]) -> Inflow:
    """Open the input of a plan; some sources have a rate."""
    if plan.inlets:
        run = RunFolder(Path(setting.folder), options.clock)
        return ChannelInflow(plan, run.path, flush=options.flush, tell=run.event)
    return SourceInflow(plan, setting, options, rates)


def read_piece(plan: Plan, setting: Setting, piece: Piece) -> dict[str, ReadRows]:
    """Read what a task has to compute."""
    if plan.inlets:
        return {
            entry.name: read_channel(plan, Path(setting.folder), entry.name, piece) for entry in plan.entries
        }
    return {name: read_source(plan, name, *rows) for name, rows in piece.sources.items()}
