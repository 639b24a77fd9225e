"""``riprap state diff``: what came and what went between two versions."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import pyarrow as pa
from rich.text import Text

from riprap.cli.screen import Screen, new_table
from riprap.cli.state_arguments import age, as_json, as_text, check_version, inspect, reading
from riprap.runtime.checkpointing.comparison import KeyChange, SlotComparison, compare
from riprap.runtime.checkpointing.contents import SlotContents, read_state
from riprap.state.checkpoints.manifest import CheckpointManifest

_SIGNS = {"+": "green", "-": "red", "~": ""}


def execute(arguments: argparse.Namespace, screen: Screen) -> int:
    """Compare two versions of an operator's state."""
    run = inspect(arguments)
    about = run.operators[arguments.operator]
    with reading(run, about.name) as versions:
        numbers = [check_version(versions, about.name, n) for n in (arguments.before, arguments.after)]
        before, after = (read_state(versions, about, number, screen.note) for number in numbers)
        slots = {
            slot: compare(before.slots[slot], after.slots[slot], slides=slot in about.slides)
            for slot in after.slots
            if slot in before.slots
        }
    stored = shared_bytes(before.restored.manifest, after.restored.manifest)
    if screen.json:
        screen.print_json(
            {
                "run_folder": str(run.folder.path),
                "operator": about.name,
                "before": numbers[0],
                "after": numbers[1],
                "bytes": stored,
                "slots": {slot: _json(c, arguments.limit) for slot, c in slots.items()},
            }
        )
        return 0
    old, new = before.restored.manifest, after.restored.manifest
    screen.say(f"{about.name}: version {old.version} ({age(old.time)}) to {new.version} ({age(new.time)})")
    screen.say(
        f"in the store: {stored['shared']:,} bytes are in both, {stored['before']:,} in {old.version} alone, "
        f"{stored['after']:,} in {new.version} alone"
    )
    for slot, comparison in slots.items():
        screen.say()
        _print(f"slot {slot}: " if len(slots) > 1 else "", comparison, arguments.limit, screen)
    return 0


def shared_bytes(before: CheckpointManifest, after: CheckpointManifest) -> dict[str, int]:
    """Say how many bytes two versions have in common, and how many each has alone."""
    shared = sum(saved.size for name, saved in before.values.items() if name in after.values)
    return {"shared": shared, "before": before.size - shared, "after": after.size - shared}


def _counts(comparison: SlotComparison) -> dict[str, int]:
    return {
        "keys_same": comparison.same,
        "keys_changed": comparison.count("changed"),
        "keys_new": comparison.count("new"),
        "keys_gone": comparison.count("gone"),
        "tuples_came": comparison.came,
        "tuples_went": comparison.went,
    }


def _json(comparison: SlotComparison, limit: int) -> dict[str, Any]:
    lines = _Lines(comparison)
    return {
        **_counts(comparison),
        "changes": [
            {
                "key": as_json(_key(comparison, change)),
                "change": change.kind,
                "came": as_json([lines.tuple_of(comparison.after, int(at)) for at in change.came[:limit]]),
                "went": as_json([lines.tuple_of(comparison.before, int(at)) for at in change.went[:limit]]),
            }
            for change in lines.in_order()[:limit]
        ],
    }


def _print(name: str, comparison: SlotComparison, limit: int, screen: Screen) -> None:
    counts = _counts(comparison)
    keys = ", ".join(f"{counts[f'keys_{k}']:,} {k}" for k in ("changed", "new", "gone", "same"))
    screen.say(
        f"{name}{counts['tuples_came']:,} tuples came, {counts['tuples_went']:,} went; keys: {keys}",
        style="bold",
    )
    if not comparison.changes:
        return
    keyed, fields = comparison.after, comparison.after.fields()
    if not len(keyed.keys):
        keyed, fields = comparison.before, comparison.before.fields()
    table = new_table("")
    for heading in (*keyed.key_names, "key", *fields):
        table.add_column(Text("" if heading == "key" else heading))
    for sign, change, values in islice(_Lines(comparison).lines(), limit):
        what = "" if change.kind == "changed" else f"{change.kind} key"
        cells = [*_key(comparison, change).values(), what, *(values.get(f) for f in fields)]
        table.add_row(Text(sign, style=_SIGNS[sign]), *(Text(as_text(cell)) for cell in cells))
    screen.out.print(table)
    total = sum(max(1, len(change.came) + len(change.went)) for change in comparison.changes)
    if total > limit:
        screen.say(f"and {total - limit:,} more: --limit N")


def _key(comparison: SlotComparison, change: KeyChange) -> dict[str, Any]:
    if change.after >= 0:
        return comparison.after.key_of(change.after)
    return comparison.before.key_of(change.before)


class _Lines:
    """The changes in order of key, a line a tuple."""

    def __init__(self, comparison: SlotComparison) -> None:
        self._comparison = comparison
        self._fields: dict[int, dict[str, pa.Array]] = {}

    def in_order(self) -> list[KeyChange]:
        places = [
            {int(code): n for n, code in enumerate(holding.in_order())}
            for holding in (self._comparison.before, self._comparison.after)
        ]

        # Keys that are gone come last.
        def place(change: KeyChange) -> tuple[bool, int]:
            gone = change.after < 0
            return gone, places[0][change.before] if gone else places[1][change.after]

        return sorted(self._comparison.changes, key=place)

    def lines(self) -> Iterator[tuple[str, KeyChange, Mapping[str, Any]]]:
        before, after = self._comparison.before, self._comparison.after
        for change in self.in_order():
            for at in change.went:
                yield "-", change, self.tuple_of(before, int(at))
            for at in change.came:
                yield "+", change, self.tuple_of(after, int(at))
            if not len(change.went) and not len(change.came):
                # Its counters alone are not what they were.
                yield "~", change, {}

    def tuple_of(self, holding: SlotContents, at: int) -> dict[str, Any]:
        if id(holding) not in self._fields:
            self._fields[id(holding)] = holding.fields()
        fields = self._fields[id(holding)]
        return {name: column[at].as_py() for name, column in fields.items()}
