"""Add to each tuple the row of a table that has the same key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal, Self, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from riprap.arrays import Ints
from riprap.errors import GraphError, RunError
from riprap.expressions import ExpressionError, Named, Scope, holding, normalise, parse_select, type_name
from riprap.graph.builder import Builder
from riprap.graph.checks import Here, Streams, has
from riprap.graph.connectors import Files, Rows, files, rows
from riprap.graph.operator import (
    Copies,
    Needed,
    Operator,
    Traits,
    named,
    passed_on,
    plain_copies,
    read_by,
    schema_of,
)
from riprap.graph.stream import Stream
from riprap.kernels.chunk import Chunk
from riprap.kernels.evaluation import compute
from riprap.kernels.given import Given, Result
from riprap.protection import Policy
from riprap.state.hashing import Hashes
from riprap.state.keys import KeyTable, encode_keys

Missing = Literal["null", "drop"]
# The column of an indexed table with the hash of each row's key, by which its rows are sorted.
HASH = "$hash"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup(Operator):
    """Adds to each tuple the row of a table that has the same key.

    ``by`` pairs the stream's columns with the table's; ``names`` are what expressions call the two. The table is read
    again when its files change, between two batches.
    """

    TRAITS: ClassVar[Traits] = Traits(
        does="adds the row of a table", stale="the table may have changed since"
    )
    looks_up = True

    table: Files | Rows
    table_schema: pa.Schema
    by: tuple[tuple[str, str], ...]
    names: tuple[str, str]
    select: tuple[Named, ...]
    missing: Missing = "null"

    def bare(self) -> Self:
        if not isinstance(self.table, Rows):
            return self
        return replace(self, table=Rows(table=self.table_schema.empty_table()))

    def columns_of(self, side: int, needed: Needed) -> frozenset[str]:
        """Return the columns of the stream (0) or the table (1) that are read to make what is needed."""
        read = read_by(n for n in self.select if n.name in passed_on(self, needed))
        prefix = self.names[side] + "."
        return frozenset(c.removeprefix(prefix) for c in read if c.startswith(prefix))

    def reads(self, needed: Needed) -> tuple[frozenset[str], ...]:
        return (self.columns_of(0, needed) | {mine for mine, _ in self.by},)

    def copies(self) -> Copies:
        prefix = self.names[0] + "."
        plain = plain_copies(self.select).items()
        return {n: frozenset({(0, c.removeprefix(prefix))}) for n, c in plain if c.startswith(prefix)}

    def summary(self) -> str:
        by = ", ".join(mine if mine == its else f"{mine} = {its}" for mine, its in self.by)
        rest = ", others dropped" if self.missing == "drop" else ""
        return f"{', '.join(named(n) for n in self.select)} from {self.table} by {by}{rest}"

    def run(self, given: Given) -> Result:
        """Look up a batch in the indexed table that counts for it."""
        (chunk,), needed = given.inputs, given.needed[self.name]
        if given.table is None:
            raise RunError(f"{self}: its table was not loaded for this batch")
        row = _rows_in(given.table, self, chunk)
        if self.missing == "drop":
            found = np.flatnonzero(row >= 0)
            if len(found) < chunk.rows:
                chunk, row = chunk.take(found), row[found]
        columns = {f"{self.names[0]}.{c}": chunk.columns[c] for c in self.columns_of(0, given.needed)}
        index = pa.array(row, mask=row < 0)
        for name in self.columns_of(1, given.needed):
            columns[f"{self.names[1]}.{name}"] = normalise(given.table.column(name)).take(index)
        chunk = chunk.with_columns(columns)
        return Result(outputs=(chunk.with_columns(compute(self.select, chunk, needed)),))


def lookup(
    app: Builder,
    name: str,
    stream: Streams,
    *,
    table: Files | Rows | pa.Table | str | Path,
    by: str | Sequence[str] | Mapping[str, str],
    select: str = "*",
    missing: Missing = "null",
    protect: Policy | None = None,
) -> Stream:
    """Add a lookup: each tuple gets the row of a table that has the same key, of which there is at most one.

    ``table`` is a path, ``rr.files(...)`` or an Arrow table; changed files are read again before the next batch.
    ``by`` names the key's columns, or maps the stream's to the table's. Expressions call the stream by its name
    (``stream`` if the port has several) and the table by the lookup's. A tuple without a row gets nulls, or is
    left out with ``missing="drop"``.

    >>> app = rr.Application("demo")
    >>> sales = app.source("sales", rr.rows([], "item string, price bigint"))
    >>> names = rr.rows([{"item": "t1", "name": "tea"}], "item string, name string")
    >>> print(app.lookup("named", sales, table=names, by="item"))
    stream 'named' (item string, price bigint, name string)
    """
    here = Here("Lookup", name, app, stream)
    inputs = here.port(stream)
    connector, its_schema = _table(here, table)
    pairs = _key(here, by, inputs.schema, its_schema)
    if missing not in get_args(Missing):
        raise here.error(f"missing= is {missing!r}", f"It is one of {', '.join(get_args(Missing))}")
    several = (stream,) if isinstance(stream, Stream) else tuple(stream)
    label = several[0].label if len(several) == 1 else "stream"
    if label == name:
        raise here.error("its stream has the same name", "Give the lookup another, to tell its columns apart")
    scope = Scope.qualified(
        {label: inputs.schema, name: its_schema},
        shared=frozenset(mine for mine, its in pairs if mine == its),
    )
    with here:
        chosen = parse_select(select, scope, app.functions)
    return here.add(
        Lookup(
            **here.basics(inputs, protect=protect),
            schema=schema_of(chosen),
            table=connector,
            table_schema=its_schema,
            by=pairs,
            names=(label, name),
            select=chosen,
            missing=missing,
        ),
    )


def _table(here: Here, table: object) -> tuple[Files | Rows, pa.Schema]:
    """Return where a lookup's table comes from, and its schema."""
    try:
        if isinstance(table, str | Path):
            table = files(table)
        elif hasattr(table, "__arrow_c_stream__"):
            table = rows(table)
    except GraphError as error:
        raise here.error(f"its table: {error}", "Write rr.files(path, schema=...) to say more") from None
    if not isinstance(table, Files | Rows):
        raise here.error(f"table= is {table!r}", "Give it a path, rr.files(...) or an Arrow table")
    if table.rate is not None:
        raise here.error("its table has a rate=", "A table is read as a whole: leave it out")
    try:
        return table, pa.schema([pa.field(f.name, holding(f.type, f.name)) for f in table.schema])
    except ExpressionError as error:
        raise here.error(
            f"its table: {error}", "Leave the column out with rr.files(path, schema=...)"
        ) from None


def _key(
    here: Here, by: str | Sequence[str] | Mapping[str, str], mine: pa.Schema, its: pa.Schema
) -> tuple[tuple[str, str], ...]:
    """Check a lookup's key: columns of the stream, each with one of the table."""
    if isinstance(by, Mapping):
        pairs = tuple(by.items())
    else:
        pairs = tuple((c, c) for c in ((by,) if isinstance(by, str) else by))
    if not pairs:
        raise here.error("a lookup needs a key", "Give it by=, a column that stream and table have")
    for side, schema, what in ((0, mine, "stream"), (1, its, "table")):
        columns = [pair[side] for pair in pairs]
        if len(set(columns)) < len(columns):
            raise here.error(f"by={by!r} names a column twice", "Name each once")
        lacking = [c for c in columns if c not in schema.names]
        if lacking:
            raise here.error(f"by= names column '{lacking[0]}', which its {what} lacks", has(schema))
    for left, right in pairs:
        kinds = mine.field(left).type, its.field(right).type
        if any(pa.types.is_list(k) for k in kinds):
            raise here.error(
                f"the key '{left}' is {type_name(kinds[0])}", "A key's columns are single values"
            )
        if kinds[0] != kinds[1]:
            raise here.error(
                f"the key '{left}' is {type_name(kinds[0])}, and '{right}' of the table {type_name(kinds[1])}",
                "Cast the stream's with a functor, or read the table with rr.files(..., schema=...)",
            )
    return pairs


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
