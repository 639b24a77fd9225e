"""``riprap state show``: a version of an operator's state as a table, or as a file."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
from rich.table import Table
from rich.text import Text

from riprap.cli.applications import UsageError
from riprap.cli.screen import Screen, new_table, shown
from riprap.cli.state_arguments import age, as_json, as_text, check_version, inspect, reading
from riprap.errors import RunError
from riprap.runtime.checkpointing.contents import ShowObject, SlotContents, StateVersion, read_state
from riprap.runtime.checkpointing.inspection import About, Inspection
from riprap.state.seals import KEY, KEY_FILE, read_key

_ENDINGS = (".parquet", ".csv", ".json")


def execute(arguments: argparse.Namespace, screen: Screen) -> int:
    """Show a version."""
    out = Path(arguments.out) if arguments.out is not None else None
    if out is not None and out.suffix not in _ENDINGS:
        raise UsageError(f"--out {out}: the name says how to write it, so end it in {', '.join(_ENDINGS)}")
    run = inspect(arguments)
    about = run.operators[arguments.operator]
    damages: list[str] = []
    with reading(run, about.name) as versions:
        number = arguments.version or versions.numbers()[0]
        check_version(versions, about.name, number)
        show = _loader(run, about, versions.manifest(number)) if arguments.load else None
        state = read_state(versions, about, number, damages.append, key=arguments.key)
        slots = _chosen(state, about, arguments.slot)
        if arguments.key is not None and not any(len(h.keys) for h in slots.values()):
            raise UsageError(f"version {number} of '{about.name}' has no key '{arguments.key}'")
        tables = {slot: holding.table(show) for slot, holding in slots.items()}
    for text in damages:
        screen.note(text)
    if out is not None:
        write_table(_together(tables), out)
    if screen.json:
        screen.print_json(_json(run, about, state, slots, tables, arguments.limit, out))
    else:
        _print(about, state, slots, tables, arguments, screen)
        if out is not None:
            screen.say(f"Written to {shown(out)}")
    return 0


def _chosen(state: StateVersion, about: About, slot: str | None) -> Mapping[str, SlotContents]:
    if slot is None:
        return state.slots
    if slot not in state.slots:
        raise UsageError(f"'{about.name}' has no slot '{slot}'. It has: {', '.join(state.slots)}")
    return {slot: state.slots[slot]}


def _loader(run: Inspection, about: About, manifest: Any) -> ShowObject:
    """Return what shows an object: to load a pickle is to run it, so seals are insisted on where there are any."""
    from riprap.operators.custom.objects import loads
    from riprap.runtime.task import load_plan

    if not about.objects:
        raise UsageError(f"--load: the state of '{about.name}' is no objects of yours; it is shown as it is")
    if run.durable.key is None and any(saved.seal for saved in manifest.values.values()):
        raise UsageError(
            f"--load: the objects of '{about.name}' are sealed. Name the key's file in {KEY_FILE}, so that nothing "
            "is loaded that others have put there"
        )
    plans = sorted(run.home(about.name).glob("plan-*.pickle"), key=lambda p: int(p.stem.rpartition("-")[2]))
    try:
        operator = load_plan(str(plans[-1])).graph[about.operator]
    except (IndexError, ImportError, AttributeError) as error:
        raise RunError(
            f"--load: the classes of '{about.name}' cannot be found: {error}. Call this where the application can be "
            "imported, with its folder in PYTHONPATH"
        ) from error

    key = read_key(run.folder.path / KEY)

    def show(saved: bytes) -> str:
        return repr(loads(operator, saved, key))  # type: ignore[arg-type]

    return show


def _json(
    run: Inspection,
    about: About,
    state: StateVersion,
    slots: Mapping[str, SlotContents],
    tables: Mapping[str, pa.Table],
    limit: int,
    out: Path | None,
) -> dict[str, Any]:
    manifest = state.restored.manifest
    return {
        "run_folder": str(run.folder.path),
        "operator": about.name,
        "layout": manifest.layout,
        "version": manifest.version,
        "time": manifest.time,
        "batch": manifest.batch,
        "damaged_tuples": state.restored.damaged,
        "out": str(out) if out is not None else None,
        "slots": {
            slot: {
                "keys": len(holding.keys),
                "tuples": holding.tuples,
                "rows": as_json(tables[slot].slice(0, limit).to_pylist()),
            }
            for slot, holding in slots.items()
        },
    }


def _print(
    about: About,
    state: StateVersion,
    slots: Mapping[str, SlotContents],
    tables: Mapping[str, pa.Table],
    arguments: argparse.Namespace,
    screen: Screen,
) -> None:
    manifest = state.restored.manifest
    screen.say(f"{about.name}: {manifest.layout}")
    screen.say(f"version {manifest.version}, saved {age(manifest.time)}, after batch {manifest.batch}")
    if state.restored.damaged:
        screen.say(f"{state.restored.damaged:,} tuples are damaged, and not shown", style="red")
    for slot, holding in slots.items():
        screen.say()
        name = f"slot {slot}: " if len(slots) > 1 else ""
        screen.say(f"{name}{holding.tuples:,} tuples of {len(holding.keys):,} keys", style="bold")
        table, limit = tables[slot], arguments.limit
        if table.num_rows:
            screen.out.print(_table(table.slice(0, limit)))
        if table.num_rows > limit:
            screen.say(f"and {table.num_rows - limit:,} more: --limit N, --key TEXT, or --out FILE for all")
        if holding.objects and not arguments.load:
            screen.say("Objects are pickled: --load shows them, and runs code to do so")


def _table(rows: pa.Table) -> Table:
    """Make a table in which a key, and how many tuples it holds, is written once."""
    counters = rows.column("counters").combine_chunks()
    if not pc.any(pc.not_equal(counters.flatten(), 0)).as_py():
        rows = rows.drop_columns("counters")
    own = rows.column_names.index("nr")
    table = new_table()
    for field in rows.schema:
        number = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
        table.add_column(Text(field.name), justify="right" if number else "left")
    before: list[str] = []
    for row in rows.to_pylist():
        cells = [_cell(value) for value in row.values()]
        same = cells[:own] == before and row["nr"] != 1
        before = cells[:own]
        table.add_row(*(Text("" if same and n < own else cell) for n, cell in enumerate(cells)))
    return table


def _cell(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else as_text(value)


def _together(tables: Mapping[str, pa.Table]) -> pa.Table:
    """Put the slots into one table."""
    if len(tables) == 1:
        return next(iter(tables.values()))
    parts = [
        table.add_column(0, "slot", pa.array([slot] * table.num_rows, pa.string()))
        for slot, table in tables.items()
    ]
    return pa.concat_tables(parts, promote_options="default")


def write_table(table: pa.Table, path: Path) -> None:
    """Write a table as the ending of a name says; as JSON it is one object a line."""
    writers: dict[str, Callable[[], None]] = {
        ".parquet": lambda: pq.write_table(table, path),
        ".csv": lambda: pa.csv.write_csv(_flat(table), path),
        ".json": lambda: _write_json(table, path),
    }
    writers[path.suffix]()


def _flat(table: pa.Table) -> pa.Table:
    """Write nested columns as text, which CSV needs."""
    for number, field in enumerate(table.schema):
        if pa.types.is_nested(field.type):
            texts = [None if v is None else json.dumps(as_json(v)) for v in table.column(number).to_pylist()]
            table = table.set_column(number, field.name, pa.array(texts, pa.string()))
    return table


def _write_json(table: pa.Table, path: Path) -> None:
    with path.open("w") as file:
        for row in table.to_pylist():
            file.write(json.dumps(as_json(row)) + "\n")
