"""Give sinks and channels the batches that an earlier process had on record.

Pages of results are in host memory. If they are gone with it, what a sink or channel has had already is no loss, and
must not be replaced by less; what it has not had is lost, and that is told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from riprap.adapters.retrying import Tell
from riprap.runtime.file_publisher import FilePublisher
from riprap.runtime.outflow import Outflow
from riprap.runtime.sinks import Publisher
from riprap.runtime.site import Site
from riprap.state.ledger import BatchRecord


def hand_over(
    element: str,
    site: Site,
    publishers: Mapping[str, Publisher],
    outlets: Mapping[str, Outflow],
    *,
    had: int,
    tell: Tell,
) -> None:
    """Hand over what is on record; ``had`` is the newest batch that all sinks have had for certain."""
    for batch in site.ledger.batches():
        if batch < 0:
            continue
        record = site.ledger.get(batch)
        gone = results_gone(site, record)
        lost: dict[str, int] = {}
        if gone:
            # Of files and channels one can tell what they have; of others, what was noted.
            telling: dict[str, Outflow | FilePublisher] = dict(outlets)
            telling |= {name: p for name, p in publishers.items() if isinstance(p, FilePublisher)}
            lost = {
                name: rows
                for name, rows in gone.items()
                if not (telling[name].has(batch) if name in telling else batch <= had)
            }
            if lost:
                tell("results lost", element=element, batch=batch, rows=lost)
            # A batch is whole, or it is left out: a part would replace what a sink may have.
            left = {name: outputs for name, outputs in record.outputs.items() if name not in gone}
            record = replace(record, outputs=left)
        if gone or batch > had:
            # What is lost is told once. Of others, who wrote it may have died before it was synced, or failed at that.
            site.ledger.write(record)
        for outflow in outlets.values():
            outflow.publish(record)
        for name, publisher in publishers.items():
            publisher.take_up(batch, record.outputs.get(name, ()))


def results_gone(site: Site, record: BatchRecord) -> dict[str, int]:
    """Name the sinks and channels some of whose pages are gone, with the rows they were to get."""
    return {
        name: sum(output.rows for output in outputs)
        for name, outputs in record.outputs.items()
        if any(not site.has_result(page) for output in outputs for page in output.pages)
    }
