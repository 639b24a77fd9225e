"""Making one page of many that wait to be saved: an operator may be due once an hour."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import replace

from riprap.runtime.checkpointing.protection import ElementProtection
from riprap.runtime.checkpointing.schedule import PendingOperator
from riprap.runtime.checkpointing.values import page_of
from riprap.state.checkpoints.groups import put_together
from riprap.state.checkpoints.index import Came, Index

# Once so many of a slot wait, the older half of them becomes one.
_MANY_WAIT = 64


def merge_oldest(protection: ElementProtection, tracked: PendingOperator, lock: threading.Lock) -> None:
    """Make one page of the oldest that wait, where there are many; ``lock`` is that of what waits."""
    with lock:
        counts = Counter((w.slot, w.buckets) for w in tracked.waiting)
        place, many = counts.most_common(1)[0] if counts else (("", (0, 0)), 0)
        if many <= _MANY_WAIT:
            return
        old = [w for w in tracked.waiting if (w.slot, w.buckets) == place][: _MANY_WAIT // 2]
        # Named before it is there: whoever collects pages meanwhile leaves it alone. A page may be of several ranges,
        # and each is put together by itself.
        low, high = place[1]
        tracked.making = name = f"{old[-1].page}-and-before-{low}-{high}"
    try:
        pages = [page_of(protection, w) for w in reversed(old)]
        came = [w.came or Came.of(Index.of(p)) for w, p in zip(reversed(old), pages, strict=True)]
        protection.site.pages.write(name, put_together(pages))
        merged = replace(old[-1], page=name, since=old[0].since, came=Came.over(came))
        gone = set(map(id, old))
        with lock:
            first = next((n for n, w in enumerate(tracked.waiting) if id(w) in gone), None)
            if first is not None:
                # They may have been let go meanwhile.
                tracked.waiting[first] = merged
                tracked.waiting = [w for w in tracked.waiting if id(w) not in gone]
    finally:
        tracked.making = None
