"""Tuples and ticks of several sources for tests: how they interleave, and cutting them into batches at one place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from tests.oracle import Event, Row
from tests.stages import Tables

import riprap as rr
from riprap.expressions import parse_schema
from riprap.graph import Stream
from riprap.state.hashing import hash_arrays

# Column `at` is what the sources interleave by; `ts` is a tuple's own time, `time` a tick's, in microseconds.
SCHEMA = parse_schema("at bigint, k string, ts timestamp, v int, seq int")
TICKS = parse_schema("at bigint, time timestamp")
KEYS = st.sampled_from(["a", "a", "b", "c", None])
TIMES = st.integers(0, 40)


def add_sources(app: rr.Application, *, clock: bool) -> tuple[Stream, Stream | None]:
    """Add a source, and a clock if there is to be one, that interleave."""
    source = app.source("source", rr.rows(SCHEMA.empty_table()), ordering="at")
    if not clock:
        return source, None
    return source, app.clock("clock", rr.rows(TICKS.empty_table()), time="time", ordering="at")


@st.composite
def tuples(draw: st.DrawFn, *, largest: int = 40) -> list[Row]:
    """Draw tuples of the source, in order, each with a number."""
    row = st.fixed_dictionaries(
        {"at": st.integers(0, 30), "k": KEYS, "ts": st.none() | TIMES, "v": st.none() | st.integers(0, 5)}
    )
    size = draw(st.integers(0, largest))
    drawn = sorted(draw(st.lists(row, min_size=size, max_size=size)), key=lambda r: r["at"])
    return [{**r, "seq": n} for n, r in enumerate(drawn)]


@st.composite
def tickings(draw: st.DrawFn) -> list[Row]:
    """Draw ticks in order; their times may fall."""
    size = draw(st.integers(0, 12))
    tick = st.fixed_dictionaries({"at": st.integers(0, 30), "time": TIMES})
    return sorted(draw(st.lists(tick, min_size=size, max_size=size)), key=lambda tick: tick["at"])


def events(rows: Sequence[Row], ticks: Sequence[Row] = ()) -> list[Event]:
    """Interleave tuples and ticks; a source's come first where both are at one place."""
    both = [(r["at"], 0, n, ("tuple", r)) for n, r in enumerate(rows)]
    both += [(r["at"], 1, n, ("tick", r["time"])) for n, r in enumerate(ticks)]
    return [event for *_, event in sorted(both, key=lambda each: each[:3])]


def table(rows: Sequence[Row], schema: pa.Schema = SCHEMA) -> pa.Table:
    """Make a table of rows whose times are microseconds."""
    columns = {f.name: pa.array([r[f.name] for r in rows], f.type) for f in schema}
    return pa.table(columns, schema)


def cut_at(tables: Mapping[str, pa.Table], ends: Sequence[int]) -> list[Tables]:
    """Cut the rows of every source into batches that end before some places."""
    bounds = [-1, *sorted(ends), 1 << 40]
    return [
        {
            name: t.filter(pa.array([low <= at < high for at in t.column("at").to_pylist()], pa.bool_()))
            for name, t in tables.items()
        }
        for low, high in pairwise(bounds)
    ]


ENDS = st.lists(st.integers(0, 31), max_size=7)


def key_order(key: Any) -> int:
    """Return the number by which keys stand in order where one event concerns many."""
    return int(hash_arrays([pa.array([key], pa.string())])[0])


def numbers(rows: Sequence[Row]) -> list[int]:
    return [row["seq"] for row in rows]
