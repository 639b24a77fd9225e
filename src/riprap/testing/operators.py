"""Check an operator of the user's own against what the runtime relies on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import pyarrow as pa

from riprap.application import Application
from riprap.graph.connectors import memory
from riprap.graph.connectors import rows as rows_in_memory
from riprap.graph.stream import Stream
from riprap.operators.custom.user_operator import CustomOperator
from riprap.testing.comparison import Reference, compare
from riprap.testing.promises import Promises, pickled, same_rows
from riprap.testing.rehearsal import Rehearsal

# A class for app.custom, or a function such as app.sort is: of the application, a name and a stream.
OperatorMaker: TypeAlias = type[CustomOperator] | Callable[..., Stream | Mapping[str, Stream]]


def check_operator(
    operator: OperatorMaker,
    table: pa.Table,
    *,
    reference: Reference | None = None,
    cuts: int = 8,
    seed: int = 0,
    **options: Any,
) -> list[str]:
    """Check an operator of your own against what the runtime relies on, and return the promises it keeps.

    It is a class derived from ``rr.CustomOperator``, with ``options`` of ``app.custom``; or a function that adds an
    operator, called with an application, a name, a stream and ``options``. It gets the tuples of a ``table`` on one
    port. ``reference`` is as for :func:`compare`.

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
    it is pickled with the graph
    the same tuples make the same output
    it does not matter how many tuples come at once, and to how many tasks keys are dealt out
    all it needs is in the state that is saved: a process may be lost after any batch
    columns that nobody reads may be left out

    Raise :class:`BrokenPromise` with all that it does not keep.
    """
    checked = _Checked(operator, table, options)
    app = checked.application()
    promises = Promises(f"operator {operator.__name__}")
    with promises.promise("it is pickled with the graph"):
        pickled(app.graph())
    whole = Rehearsal(app).feed({"rows": table})
    with promises.promise("the same tuples make the same output"):
        for sink, got in Rehearsal(app).feed({"rows": table}).items():
            same_rows(got, whole[sink], f"output '{sink.removeprefix('to_')}' of a second run")
    for words, crashes in (
        ("it does not matter how many tuples come at once, and to how many tasks keys are dealt out", False),
        ("all it needs is in the state that is saved: a process may be lost after any batch", True),
    ):
        with promises.promise(words):
            for sink in whole:
                compare(app, table, reference, sink=sink, cuts=cuts, crashes=crashes, seed=seed)
    with promises.promise("columns that nobody reads may be left out"):
        for sink, rows in whole.items():
            checked.check_columns(sink, rows, table)
    return promises.report()


class _Checked:
    """An operator, to be put into applications."""

    def __init__(self, operator: OperatorMaker, table: pa.Table, options: Mapping[str, Any]) -> None:
        self._operator = operator
        self._none = table.slice(0, 0)
        self._options = options

    def application(self, only: str | None = None) -> Application:
        """Build an application that has it, with a sink for each output; of which ``only`` a column is read, if so."""
        app = Application("checked")
        rows = app.source("rows", rows_in_memory(self._none))
        if isinstance(self._operator, type):
            made = app.custom("operator", self._operator, rows, **self._options)
        else:
            made = self._operator(app, "operator", rows, **self._options)
        streams = made if isinstance(made, Mapping) else {"operator": made}
        for name, stream in streams.items():
            if only in stream.schema.names:
                stream = app.functor(f"only_{name}", stream, select=f"`{only}`")
            app.sink(f"to_{name}", stream, memory())
        return app

    def check_columns(self, sink: str, rows: list[dict[str, Any]], table: pa.Table) -> None:
        """Check that a column of the rows that reach a sink is the same where nobody reads the others."""
        for column in rows[0] if rows else ():
            got = Rehearsal(self.application(only=column)).feed({"rows": table})[sink]
            wanted = [{column: row[column]} for row in rows]
            same_rows(got, wanted, f"output '{sink.removeprefix('to_')}' of which only '{column}' is read")
