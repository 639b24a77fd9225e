"""A faulty run, computed from the golden one: only keys that a fault has touched, until they hold the same again.

    a block of an element    rows of affected keys, from the golden state before it
    its end                  keys that hold what they hold in the golden run leave; their output is golden from there on
    the next element         is affected where what it reads differs

Where it is not known which rows a key's state depends on (an element that keeps one state for all), all rows are taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from riprap.arrays import Ints
from riprap.compiler import Plan
from riprap.compiler.weaving import WovenFaults, give
from riprap.faults.convergence import held_by, same, same_values
from riprap.faults.golden import Golden, GoldenBlock, Replaced, play_golden, rows_of, sent
from riprap.faults.interleaving import lags_of
from riprap.faults.replay import Played, Player, StreamPiece, concatenate, joined, of_keys
from riprap.kernels.given import Pages
from riprap.operators.channel import Outlet
from riprap.operators.sink import Sink
from riprap.stage.arrival import Arrival, Tags
from riprap.stage.fused import State
from riprap.stage.plan import is_clock
from riprap.state.hashing import Hashes
from riprap.state.windows import hashes_of

_NONE = np.empty(0, np.uint64)


@dataclass(frozen=True, slots=True)
class Difference:
    """Where a stream differs from the golden one in a block: tuples that are missing, and others that are there.

    ``punctuations`` are all there are instead, where these differ.
    """

    missing: StreamPiece
    more: StreamPiece
    punctuations: Tags | None = None

    def by_block(self, golden: Golden) -> Iterator[tuple[int, Difference]]:
        """Cut it up by blocks; those without a difference are left out."""
        missing, more = golden.block_of(self.missing), golden.block_of(self.more)
        for block in np.unique(np.concatenate([missing, more])).tolist():
            sides = [
                p.take(np.flatnonzero(b == block)) for p, b in ((self.missing, missing), (self.more, more))
            ]
            yield block, Difference(sides[0], sides[1])


Differences = dict[str, dict[int, Difference]]


@dataclass(slots=True)
class Trial:
    """What a fault came to: for each sink, block by block, in what its output differs; and what that took."""

    differences: Differences = field(default_factory=dict)
    replayed: int = 0
    hit: int = 0

    def output(self, golden: Golden, sink: str) -> list[StreamPiece]:
        """Return what reached a sink, block by block."""
        return [
            _applied(piece, self.differences.get(sink, {}).get(number))
            for number, piece in enumerate(golden.output(sink))
        ]


def run_trial(
    golden: Golden,
    faults: WovenFaults,
    hits: Mapping[str, Mapping[int, Hashes]],
    replaced: Mapping[str, Replaced] | None = None,
) -> Trial:
    """Run the graph of a golden run with faults, as far as that differs from it.

    For each processing element, ``hits`` says which keys a fault hits in which blocks, and ``replaced`` which state is
    another from some block on.
    """
    trial = Trial()
    streams: Differences = {}
    for whole in golden.layout.plans:
        plan = replace(whole, graph=give(whole.graph, faults))
        player = Player(plan, golden.players[plan.name].tables)
        incoming = {stream: streams.get(stream, {}) for stream in plan.inlets}
        harmed = _Harmed(
            golden, player, hits.get(plan.name, {}), incoming, (replaced or {}).get(plan.name), trial
        )
        differences = _rerun_whole(harmed) if golden.whole or _needs_all(plan) else _rerun(harmed)
        for name, differs in differences.items():
            operator = plan.graph[name]
            if isinstance(operator, Outlet):
                streams[operator.ports[0][0]] = differs
            elif isinstance(operator, Sink):
                trial.differences[name] = differs
    return trial


def _needs_all(plan: Plan) -> bool:
    """Say whether what an element does with a tuple may depend on those of other keys.

    Without a key there is one state for all, whatever it is kept by. A user's operator puts out where what it was
    called with ends. And a stream that lags behind others of a channel comes right after those that are there.
    """
    return (
        not any(entry.key for entry in plan.entries)
        or not all(o.by_key_alone for o in plan.graph)
        or (bool(plan.inlets) and bool(lags_of(plan.graph)))
    )


def replay_trial(
    golden: Golden, faults: WovenFaults, replaced: Mapping[str, Replaced] | None = None
) -> Trial:
    """Run a graph with faults from beginning to end, every tuple of it, and compare: what a trial must equal."""
    tables = next(iter(golden.players.values())).tables
    whole = play_golden(give(golden.graph, faults), golden.feed, tables=tables, replaced=replaced)
    trial = Trial()
    for blocks in whole.blocks.values():
        trial.replayed += sum(chunk.rows for block in blocks for chunk in block.arrival.chunks.values())
    for sink in golden.graph.of_kind(Sink):
        for number, (right, wrong) in enumerate(
            zip(golden.output(sink.name), whole.output(sink.name), strict=True)
        ):
            differs = difference(right, wrong)
            if differs.missing.rows or differs.more.rows:
                trial.differences.setdefault(sink.name, {})[number] = differs
    return trial


@dataclass(frozen=True, slots=True)
class _Harmed:
    """An element to be run again: the keys a fault hits by block, the streams that differ, state that is another."""

    golden: Golden
    player: Player
    hits: Mapping[int, Hashes]
    incoming: Mapping[str, Mapping[int, Difference]]
    replaced: Replaced | None
    trial: Trial

    @property
    def blocks(self) -> Sequence[GoldenBlock]:
        """The element's blocks in the golden run."""
        return self.golden.blocks[self.player.plan.name]

    @property
    def touched(self) -> list[int]:
        """The blocks in which something happens to it, in order."""
        differ = (block for differs in self.incoming.values() for block in differs)
        return sorted({*self.hits, *differ, *([self.replaced.block] if self.replaced else [])})

    def replaced_at(self, block: int) -> Replaced | None:
        """Return the state that is another from a block on."""
        return self.replaced if self.replaced is not None and self.replaced.block == block else None

    def state_before(self, block: int) -> State:
        """Return the golden state that a block starts from."""
        return self.golden.state_before(self.player.plan.name, block)

    def play(self, arrival: Arrival, state: State) -> Played:
        """Compute what arrived, and count it."""
        self.trial.replayed += sum(chunk.rows for chunk in arrival.chunks.values())
        return self.player.play(arrival, state)

    def arrival(self, block: int) -> Arrival:
        """Return what arrives with a block, where streams differ with what differs."""
        golden, element = self.golden, self.player.plan.name
        arrival = self.blocks[block].arrival
        if any(block in differs for differs in self.incoming.values()):
            rows = rows_of(golden, element, block)
            for stream, differs in self.incoming.items():
                if block in differs:
                    rows[stream] = _applied(sent(golden, stream, block), differs[block]).as_rows()
            arrival = self.player.arrive(rows, block=golden.number(block))
        return arrival

    def new_keys(self, block: int) -> Hashes:
        """Return the keys that are affected from a block on."""
        keys = [self.hits.get(block, _NONE)]
        for stream, differs in self.incoming.items():
            if block in differs:
                # In this element's key, which is not that of the one before.
                sides = (differs[block].missing, differs[block].more)
                keys += [self.player.hashes_of(stream, piece) for piece in sides]
        other = self.replaced_at(block)
        if other is not None:
            before = self.state_before(block)
            for slot, pages in other.pages.items():
                everyone = _keys_in(pages, before[slot])
                keys.append(everyone[~same(pages, before[slot], everyone)])
        return np.unique(np.concatenate(keys))


def _rerun(harmed: _Harmed) -> Differences:
    """Run one element where it is affected; return in what its outputs differ."""
    golden, plan, blocks, touched = harmed.golden, harmed.player.plan, harmed.blocks, harmed.touched
    differences: Differences = {}
    keys, block, many = _NONE, touched[0] if touched else len(blocks), 1
    state: State = {}
    while block < len(blocks):
        new = np.setdiff1d(harmed.new_keys(block), keys)
        state = _joined(state, harmed.state_before(block), new, harmed.replaced_at(block))
        keys = np.union1d(keys, new)
        end = _end_of_step(golden, block, many, touched)
        arrival = joined(
            [of_keys(harmed.arrival(b), keys) for b in range(block, end)],
            lags_of(plan.graph),
            plan.origin,
        )
        played = harmed.play(arrival, state)
        for name, piece in played.outputs.items():
            right = concatenate([blocks[b].outputs[name].of_keys(keys) for b in range(block, end)])
            # Ticks that are passed on as tuples are of no key, and are what they were.
            for number, differs in difference(right, piece.of_keys(keys)).by_block(golden):
                differences.setdefault(name, {})[number] = differs
        keys, state = _left(plan, played.state, blocks[end - 1].state, keys)
        # Nothing new happens from here on: ever longer steps.
        later = [b for b in touched if b >= end]
        many = 1 if later and later[0] == end else 2 * many
        block = end if len(keys) else (later[0] if later else len(blocks))
        many = many if len(keys) else 1
    return differences


def _rerun_whole(harmed: _Harmed) -> Differences:
    """Do so with all keys, where what one holds may depend on others."""
    blocks, touched = harmed.blocks, harmed.touched
    differences: Differences = {}
    block = touched[0] if touched else len(blocks)
    state = harmed.state_before(block) if touched else {}
    while block < len(blocks):
        other = harmed.replaced_at(block)
        played = harmed.play(harmed.arrival(block), {**state, **(other.pages if other is not None else {})})
        for output, piece in played.outputs.items():
            right = blocks[block].outputs[output]
            differs = difference(right, piece)
            if not _same_tags(right.punctuations, piece.punctuations):
                differs = replace(differs, punctuations=piece.punctuations)
            if differs.missing.rows or differs.more.rows or differs.punctuations is not None:
                differences.setdefault(output, {})[block] = differs
        state, block = played.state, block + 1
        later = [b for b in touched if b >= block]
        if _same_state(state, blocks[block - 1].state):
            block = later[0] if later else len(blocks)
            state = harmed.state_before(block) if later else {}
    return differences


def _same_state(one: State, other: State) -> bool:
    slots = [slot for slot in one if not is_clock(slot)]
    return all(same(one[slot], other[slot], _keys_in(one[slot], other[slot])).all() for slot in slots)


def _keys_in(one: Pages, other: Pages) -> Hashes:
    """Return all keys that two states of a slot know."""
    return np.unique(np.concatenate([_NONE, *(hashes_of(page) for page in (*one, *other))]))


def _same_tags(one: Tags, other: Tags) -> bool:
    lengths = [len(tags[0]) if tags else 0 for tags in (one, other)]
    return lengths[0] == lengths[1] and all(np.array_equal(a, b) for a, b in zip(one, other, strict=False))


def _end_of_step(golden: Golden, block: int, many: int, touched: Sequence[int]) -> int:
    """Say how far to go in one step: not beyond the next block in which something happens."""
    if golden.separate:
        return block + 1
    last = next((b for b in touched if b > block), golden.feed.blocks)
    return min(block + many, last, golden.feed.blocks)


def _left(plan: Plan, state: State, golden: State, keys: Hashes) -> tuple[Hashes, State]:
    """Return the keys that do not hold what they hold in the golden run, and what they hold."""
    back = np.ones(len(keys), bool)
    for slot in state:
        if not is_clock(slot):
            back &= same(state[slot], golden[slot], keys)
    keys = keys[~back]
    return keys, {slot: held_by(pages, keys) for slot, pages in state.items() if not is_clock(slot)}


def _joined(state: State, golden: State, new: Hashes, replaced: Replaced | None) -> State:
    """Let keys that are newly affected come in with what they hold."""
    other = replaced.pages if replaced is not None else {}
    return {
        slot: pages if is_clock(slot) else [*state.get(slot, ()), *held_by(other.get(slot, pages), new)]
        for slot, pages in golden.items()
    }


def difference(golden: StreamPiece, faulty: StreamPiece) -> Difference:
    """Say which tuples are in one of two pieces alone; a tuple is the same if its place and its values are."""
    ours, theirs = pairs(golden.tags, faulty.tags)
    equal = np.ones(len(ours), bool)
    for name in golden.columns:
        equal &= same_values(
            golden.columns[name].take(pa.array(ours)), faulty.columns[name].take(pa.array(theirs))
        )
    return Difference(
        golden.take(_others(golden.rows, ours[equal])).bare(),
        faulty.take(_others(faulty.rows, theirs[equal])).bare(),
    )


def _applied(piece: StreamPiece, differs: Difference | None) -> StreamPiece:
    """Put a difference into a golden piece."""
    if differs is None:
        return piece
    gone, _ = pairs(piece.tags, differs.missing.tags)
    both = concatenate([piece.take(_others(piece.rows, gone)), differs.more])
    both = both.take(np.lexsort(both.tags[::-1]))
    return both if differs.punctuations is None else replace(both, punctuations=differs.punctuations)


def pairs(one: Tags, other: Tags) -> tuple[Ints, Ints]:
    """Find the tuples of two pieces that are at the same place; in a piece no two are."""
    many = len(one[0])
    columns = [np.concatenate(pair) for pair in zip(one, other, strict=True)]
    side = np.arange(len(columns[0])) >= many
    order = np.lexsort((side, *columns[::-1]))
    same_place = np.ones(max(0, len(order) - 1), bool)
    for numbers in columns:
        same_place &= numbers[order][1:] == numbers[order][:-1]
    first = np.flatnonzero(same_place)
    return order[first], order[first + 1] - many


def _others(rows: int, these: Ints) -> Ints:
    left = np.ones(rows, bool)
    left[these] = False
    return np.flatnonzero(left)
