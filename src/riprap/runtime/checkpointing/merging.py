"""Making one page of many that wait to be saved: an operator may be due once an hour."""

from __future__ import annotations

import threading
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
        old = tracked.mergeable(_MANY_WAIT)
        if not old:
            return
        # Named before it is there: whoever collects pages meanwhile leaves it alone. A page may be of several ranges,
        # and each is put together by itself.
        low, high = old[-1].buckets
        tracked.making = name = f"{old[-1].page}-and-before-{low}-{high}"
    try:
        pages = [page_of(protection, w) for w in reversed(old)]
        came = [w.came or Came.of(Index.of(p)) for w, p in zip(reversed(old), pages, strict=True)]
        protection.site.pages.write(name, put_together(pages))
        merged = replace(old[-1], page=name, since=old[0].since, came=Came.over(came))
        with lock:
            tracked.put_together(old, merged)
    finally:
        tracked.making = None
