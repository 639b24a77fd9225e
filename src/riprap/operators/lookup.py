"""Add to each tuple the row of a table that has the same key."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from riprap.errors import RunError
from riprap.expressions import normalise
from riprap.graph.operators import Lookup
from riprap.operators.chunk import Chunk, Ints
from riprap.operators.functor import compute
from riprap.operators.given import Given, Result
from riprap.state.hashing import Hashes
from riprap.state.keys import KeyTable, encode_keys

# The column of an indexed table with the hash of each row's key, by which its rows are sorted.
HASH = "$hash"


def index_table(operator: Lookup, table: pa.Table) -> pa.Table:
    """Sort a table by the hash of its key, as :func:`run_lookup` wants it; rows whose key has a null are left out."""
    columns = [normalise(table.column(its)) for _, its in operator.by]
    keys, codes = encode_keys(columns, table.num_rows)
    counts = np.bincount(codes, minlength=len(keys))
    twice = np.flatnonzero((counts > 1) & ~keys.has_null)
    if len(twice):
        key = ", ".join(
            f"{its} {c[int(twice[0])].as_py()!r}"
            for (_, its), c in zip(operator.by, keys.columns, strict=True)
        )
        raise RunError(
            f"{operator}: its table {operator.table} has {counts[twice[0]]} rows of key {key}. A tuple takes the row "
            "of its key, so there can be one only: remove the others, or name more columns in by="
        )
    order = np.argsort(codes, kind="stable")
    order = order[~keys.has_null[codes[order]]]
    sorted_ = table.select([f.name for f in operator.table_schema]).take(pa.array(order))
    return sorted_.append_column(HASH, pa.array(keys.hashes[~keys.has_null]))


def run_lookup(operator: Lookup, given: Given) -> Result:
    """Look up a batch in the indexed table that counts for it."""
    (chunk,), needed = given.inputs, given.needed[operator.name]
    if given.table is None:
        raise RunError(f"{operator}: its table was not loaded for this batch")
    row = _rows_in(given.table, operator, chunk)
    if operator.missing == "drop":
        found = np.flatnonzero(row >= 0)
        if len(found) < chunk.rows:
            chunk, row = chunk.take(found), row[found]
    columns = {f"{operator.names[0]}.{c}": chunk.columns[c] for c in operator.columns_of(0, given.needed)}
    index = pa.array(row, mask=row < 0)
    for name in operator.columns_of(1, given.needed):
        columns[f"{operator.names[1]}.{name}"] = normalise(given.table.column(name)).take(index)
    chunk = chunk.with_columns(columns)
    return Result(outputs=(chunk.with_columns(compute(operator.select, chunk, needed)),))


def _rows_in(table: pa.Table, operator: Lookup, chunk: Chunk) -> Ints:
    """Return the table's row of each tuple, -1 where it has none."""
    keys, codes = encode_keys([chunk.columns[mine] for mine, _ in operator.by], chunk.rows)
    hashes = _hashes(table)
    if not len(hashes) or not chunk.rows:
        return np.full(chunk.rows, -1)
    row = np.searchsorted(hashes, keys.hashes)
    row[row == len(hashes)] = 0
    near = np.flatnonzero((hashes[row] == keys.hashes) & ~keys.has_null)
    same = _same([normalise(table.column(its)) for _, its in operator.by], row[near], keys, near)
    row_of = np.full(len(keys), -1)
    row_of[near[same]] = row[near[same]]
    found: Ints = row_of[codes]
    return found


def _hashes(table: pa.Table) -> Hashes:
    column = table.column(HASH)
    hashes: Hashes = column.chunk(0).to_numpy() if column.num_chunks == 1 else column.to_numpy()
    return hashes


def _same(columns: Sequence[pa.Array], row: Ints, keys: KeyTable, code: Ints) -> npt.NDArray[np.bool_]:
    """Say where keys equal those of table rows: two keys may have one hash. NaN equals itself, as in a join."""
    same = np.ones(len(row), bool)
    for column, key in zip(columns, keys.columns, strict=True):
        left, right = column.take(pa.array(row)), key.take(pa.array(code))
        equal = pc.equal(left, right)
        if pa.types.is_floating(left.type):
            equal = pc.or_(equal, pc.and_(pc.is_nan(left), pc.is_nan(right)))
        same &= equal.to_numpy(zero_copy_only=False)
    return same
