"""Check an operator of the user's own against what the runtime relies on."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from riprap.application import Application
from riprap.graph.connectors import memory
from riprap.graph.connectors import rows as rows_in_memory
from riprap.operators.custom.user_operator import CustomOperator
from riprap.testing.comparison import Reference, compare
from riprap.testing.promises import Promises, same_rows
from riprap.testing.rehearsal import Rehearsal


def check_operator(
    made_by: type[CustomOperator],
    table: pa.Table,
    *,
    reference: Reference | None = None,
    cuts: int = 8,
    seed: int = 0,
    **options: Any,
) -> list[str]:
    """Check an operator of your own against what the runtime relies on, and return the promises it keeps.

    It gets the tuples of a ``table`` on one port; ``options`` are those of ``app.custom``, such as ``schema`` and
    ``params``. ``reference`` is as for :func:`compare`.

    >>> import pyarrow as pa
    >>> class Counter(rr.CustomOperator):
    ...     def reset_to_initial_state(self):
    ...         self.seen = 0
    ...     def on_tuple(self, port, tuple):
    ...         self.seen += 1
    ...         self.submit({"n": tuple["n"], "seen": self.seen})
    ...     def checkpoint(self):
    ...         return self.seen
    ...     def reset(self, saved):
    ...         self.seen = saved
    >>> for words in rr.testing.check_operator(Counter, pa.table({"n": [5, 6, 7]}), schema="n bigint, seen bigint"):
    ...     print(words)
    the same tuples make the same output
    it does not matter how many tuples come at once
    all it needs is in the state that is saved: an instance may be lost after any batch

    Raise :class:`BrokenPromise` with all that it does not keep.
    """
    app = Application("checked")
    made = app.custom("operator", made_by, app.source("rows", rows_in_memory(table.slice(0, 0))), **options)
    streams = made if isinstance(made, dict) else {"operator": made}
    for name, stream in streams.items():
        app.sink(f"to_{name}", stream, memory())
    promises = Promises(f"operator {made_by.__name__}")
    with promises.promise("the same tuples make the same output"):
        first, again = (Rehearsal(app).feed({"rows": table}) for _ in range(2))
        for sink, got in again.items():
            same_rows(got, first[sink], f"output '{sink.removeprefix('to_')}' of a second run")
    for words, crashes in (
        ("it does not matter how many tuples come at once", False),
        ("all it needs is in the state that is saved: an instance may be lost after any batch", True),
    ):
        with promises.promise(words):
            for name in streams:
                compare(
                    app, table, reference, sink=f"to_{name}", cuts=cuts, buckets=1, crashes=crashes, seed=seed
                )
    return promises.report()
