"""Small pages for tests: a key is a text, a tuple a number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from riprap.state.keys import encode_keys
from riprap.state.windows import Contents, gather, make_page

LAYOUT = pa.struct([("v", pa.int64())])


def page_of(
    tuples: Mapping[str, Sequence[int]],
    held: Mapping[str, int] | None = None,
    counters: Mapping[str, int] | None = None,
) -> pa.RecordBatch:
    """Make a page; ``held`` where a key holds more, or fewer, tuples than the page has."""
    names = list(tuples)
    keys, codes = encode_keys([pa.array(names, pa.string())], len(names))
    order = [names[i] for i in np.argsort(codes)]
    offsets = np.cumsum([0, *(len(tuples[n]) for n in order)])
    values = pa.StructArray.from_arrays([pa.array([v for n in order for v in tuples[n]], pa.int64())], ["v"])
    numbers = np.array([[(counters or {}).get(n, 0)] for n in order], np.int64).reshape(len(order), 1)
    holds = np.array([(held or {}).get(n, len(tuples[n])) for n in order], np.int64)
    return make_page(keys, Contents(offsets, values, numbers), holds)


def contents_of(pages: Sequence[pa.RecordBatch], names: Sequence[str]) -> dict[str, list[int]]:
    """Return what some keys hold over pages, newest first."""
    keys, codes = encode_keys([pa.array(names, pa.string())], len(names))
    found = gather(pages, keys, LAYOUT)
    values = found.tuples.field("v").to_pylist() if len(found.tuples) else []
    return {
        name: values[found.offsets[code] : found.offsets[code + 1]]
        for name, code in zip(names, codes, strict=True)
    }
