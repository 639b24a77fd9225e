"""Rows as Redis commands, compared with the client's own encoder."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from redis.connection import Connection

from riprap.adapters.resp import xadd_commands

SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string()), ("b", pa.binary()), ("ü", pa.bool_())])
ROW = st.fixed_dictionaries(
    {
        "n": st.none() | st.integers(-(2**63), 2**63 - 1),
        "s": st.none() | st.text(st.characters(codec="utf-8")),
        "b": st.none() | st.binary(),
        "ü": st.none() | st.booleans(),
    }
)


def by_the_client(stream: str, row: dict[str, Any]) -> bytes:
    fields: list[Any] = []
    for name in SCHEMA.names if row.keys() == set(SCHEMA.names) else row:
        if (value := row[name]) is not None:
            fields += [name, {True: "true", False: "false"}[value] if isinstance(value, bool) else value]
    packed = Connection().pack_command("XADD", stream, "*", *(fields or ["_", ""]))
    return b"".join(packed)


@settings(deadline=None)
@given(st.lists(ROW), st.text(st.characters(codec="utf-8"), min_size=1), st.integers(0, 3))
def test_the_bytes_are_those_of_the_client(rows: list[dict[str, Any]], stream: str, skip: int) -> None:
    table = pa.Table.from_pylist(rows, SCHEMA).slice(skip)

    assert xadd_commands(stream, table) == b"".join(by_the_client(stream, row) for row in rows[skip:])


def test_rows_in_several_chunks() -> None:
    one = pa.table({"n": [1, 2]})

    assert xadd_commands("s", pa.concat_tables([one, one.slice(1)])) == b"".join(
        by_the_client("s", {"n": n}) for n in (1, 2, 2)
    )


def test_a_row_without_values_has_a_field_that_is_no_column() -> None:
    assert xadd_commands("s", pa.table({"n": pa.nulls(1, pa.int64())})) == by_the_client("s", {"_": ""})
