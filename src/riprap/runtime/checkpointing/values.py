"""What a checkpoint of an operator has to store, of the pages that wait or of its whole state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from riprap.errors import CorruptValueError
from riprap.runtime.checkpointing.protection import ElementProtection, Range
from riprap.runtime.checkpointing.schedule import PendingOperator, Taken, Waiting
from riprap.state.checkpoints.increments import Fresh, SlotState, no_seal
from riprap.state.checkpoints.manifest import CheckpointManifest, Saved
from riprap.state.checkpoints.restoring import newest_pace
from riprap.state.ledger import BatchRecord
from riprap.state.windows import restrict

SlotRange = tuple[str, Range]


def values_for(
    protection: ElementProtection, tracked: PendingOperator, taken: Taken
) -> tuple[dict[SlotRange, SlotState], dict[str, dict[str, pa.Buffer]]]:
    """Return the durable state of every slot and range of buckets, and the values it takes to store it."""
    fresh: dict[SlotRange, list[Fresh]] = {}
    if taken.whole is not None:
        fresh = _all_of(protection, tracked, taken.whole)
    else:
        for each in reversed(taken.waiting):
            page = Fresh(page_of(protection, each), each.since, each.until, each.came)
            fresh.setdefault((each.slot, each.buckets), []).append(page)
    slots = {} if taken.whole is not None else dict(tracked.slots)
    values: dict[str, dict[str, pa.Buffer]] = {}
    seal = tracked.versions.seal if tracked.protected.sealed else no_seal

    def load(saved: Saved) -> list[pa.RecordBatch]:
        value = tracked.versions.read(saved)
        if not value.whole:
            raise CorruptValueError(f"value {saved.name} of '{tracked.name}' is damaged in the store")
        return [g for g in value.groups if g is not None]

    for place, pages in fresh.items():
        state = slots.get(place) or SlotState(place[1], tracked.protected.group, [], seal)
        slots[place], fresh_values = state.advance(pages, load)
        values.setdefault(place[0], {}).update(fresh_values)
    return slots, values


def manifest_of(
    protection: ElementProtection,
    tracked: PendingOperator,
    taken: Taken,
    slots: Mapping[SlotRange, SlotState],
    version: int,
) -> CheckpointManifest:
    """Return the manifest of what has been stored of an operator."""
    seconds = taken.until - taken.since
    return CheckpointManifest(
        operator=tracked.name,
        layout=tracked.protected.layout,
        version=version,
        time=taken.until,
        batch=taken.batch,
        buckets=protection.buckets,
        rate=taken.entered / seconds if seconds > 0 else 0.0,
        slots={
            slot: tuple(k.saved for (name, _), state in slots.items() if name == slot for k in state.kept)
            for slot in tracked.protected.slots
        },
    )


def page_of(protection: ElementProtection, waiting: Waiting) -> pa.RecordBatch:
    """Return what a page that waits has of its buckets."""
    page = protection.site.find_page(waiting.page)
    return restrict(page, *waiting.buckets, protection.buckets)


def _all_of(
    protection: ElementProtection, tracked: PendingOperator, record: BatchRecord
) -> dict[SlotRange, list[Fresh]]:
    """Return the whole state of an operator, as the tasks have it.

    How fast it was filled is known from the version before: what will be lost next must push as much out.
    """
    fresh: dict[SlotRange, list[Fresh]] = {}
    operator = tracked.protected
    for slot in operator.slots:
        pace = newest_pace(tracked.versions, slot, operator.layout) if slot in operator.slides else None
        for span in protection.spans:
            pages = [
                Fresh(
                    restrict(protection.site.find_page(name), *m.buckets, protection.buckets),
                    record.time,
                    record.time,
                )
                for m in record.state_of(*span)
                for name in m.pages.get(slot, ())
            ]
            if pace is not None and pages:
                came = pace.came.within(*span, protection.buckets)
                pages[0] = replace(pages[0], came=came, over=pace.seconds)
            fresh[slot, span] = pages
    return fresh
