"""Read what the tasks of a batch left for a sink."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from riprap.channels.tags import is_tag
from riprap.graph.operators import Sink
from riprap.state.ledger import Output
from riprap.state.pages import PageStore


class ResultReader:
    """Reads what the tasks of a batch left for a sink, in tuple order whatever the buckets."""

    def __init__(self, sink: Sink, results: PageStore) -> None:
        self.schema = sink.schema
        self._results = results

    def read(self, outputs: Sequence[Output]) -> pa.Table:
        """Return a batch's rows in the order of the tuples they derive from."""
        pages = [self._results.read(o.page) for o in outputs if o.rows]
        if not pages:
            return self.schema.empty_table()
        table = pa.Table.from_batches([p.replace_schema_metadata(None) for p in pages])
        return (in_order(table) if len(pages) > 1 else table).select(self.schema.names)


def in_order(table: pa.Table) -> pa.Table:
    """Sort rows by their tags."""
    tags = [table.column(n).to_numpy() for n in table.column_names if is_tag(n)]
    return table.take(pa.array(np.lexsort(tags[::-1])))
