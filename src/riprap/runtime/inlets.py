"""The channels that a processing element reads: how far they are complete, what it lets go of, what it passes over."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from riprap.adapters.retrying import Tell
from riprap.channels import ChannelReader, Footer, ReplicatedReader
from riprap.channels.segment import BEGIN
from riprap.channels.tags import tag_columns, tag_fields
from riprap.compiler import ChannelPlan, Plan
from riprap.runtime.offsets import ACTIVE, END, Offset, Piece, is_end
from riprap.runtime.switch import read_switch
from riprap.stage.arrival import ReadRows
from riprap.state.ledger import MARK, least_mark, mark_of

Reader = ChannelReader | ReplicatedReader


class Inlets:
    """An element's readers; ``folder`` is the run's. What it says is what the channels hold at that moment.

    ``replicas`` says which replica of a group is read; otherwise it is the one that is active now.
    """

    def __init__(self, plan: Plan, folder: Path, replicas: Mapping[str, str] | None = None) -> None:
        self._plan = plan
        self._run = folder
        self._replicas = replicas or {}

    def reader(self, stream: str) -> Reader:
        """Open the channel that a stream comes by."""
        channel = self._plan.inlets[stream]
        folder = self._run / "channels" / channel.name
        if channel.group is None:
            return ChannelReader(folder, self._plan.name)
        return ReplicatedReader(folder, self._plan.name, self._preferred(channel, channel.group))

    def _preferred(self, channel: ChannelPlan, group: str) -> str | None:
        """Name the replica whose log is read, None for whichever is ahead."""
        if group in self._replicas:
            return self._replicas[group]
        if channel.failover == "ahead":
            return None
        return self._plan.replica if group == self._plan.group else read_switch(self._run, group).active

    def of(self, root: str) -> dict[str, Reader]:
        """Open the channels whose frontiers count the same, by their streams."""
        return {stream: self.reader(stream) for stream, c in self._plan.inlets.items() if c.root == root}

    def edge(self) -> dict[str, int | None]:
        """Say how far all channels of each root are complete by now."""
        ends: dict[str, int | None] = {}
        for root in self._plan.roots:
            frontiers = [reader.frontier for reader in self.of(root).values()]
            complete = [f for f in frontiers if f is not None]
            ends[root] = min(complete) if len(complete) == len(frontiers) else None
        return ends

    def all_read(self, done: Mapping[str, Any], *, flushed: bool) -> bool:
        """Say whether all that will ever come is on record, which is up to ``done``.

        ``flushed`` is whether that includes what is put out at the end of the input, or nobody wants it.
        """
        readers = []
        for stream, channel in self._plan.inlets.items():
            reader = self.reader(stream)
            # In this order: a frontier asked for after the end is the last. Others may have gone further.
            if not reader.ended or _before(done.get(channel.root), reader.frontier):
                return False
            readers.append(reader)
        # Where the run is stopped, channels finish and the input has not ended.
        return flushed or not all(map(has_all, readers))

    def acknowledge(self, end: Offset) -> None:
        """Let the channels go of what was read up to an offset."""
        for stream, channel in self._plan.inlets.items():
            if end[channel.root] is not None:
                self.reader(stream).acknowledge(end[channel.root])

    def has(self, sources: Mapping[str, tuple[Any, Any]]) -> bool:
        """Say whether what a record has read is still there; one that went back says of nothing what it read."""
        for stream, channel in self._plan.inlets.items():
            start, end = sources.get(channel.root, (None, None))
            back = start is not None and end < start
            if back or (start != end and not self.reader(stream).has(start, end)):
                return False
        return True

    def has_all_since(self, done: Mapping[str, Any]) -> bool:
        """Say whether all that came after what is on record, which is up to ``done``, is still there."""
        ends = {stream: done.get(channel.root) for stream, channel in self._plan.inlets.items()}
        return all(self.reader(stream).begins <= _low(end) for stream, end in ends.items())

    def pass_over(self, done: Mapping[str, Any]) -> int:
        """Leave out what is complete and not on record, which is up to ``done``; return how many tuples that is."""
        lost = 0
        for root, edge in self.edge().items():
            after = done.get(root)
            if edge is not None and (after is None or edge > after):
                readers = list(self.of(root).values())
                before = sum(reader.lost for reader in readers)
                for reader in readers:
                    reader.skip(after, edge)
                # One that failed before its next batch has left out the same rows already.
                lost += sum(reader.lost for reader in readers) - before
        return lost


class ChannelInflow:
    """Channels: an offset is, for each root, the frontier up to which all of its channels are read."""

    def __init__(self, plan: Plan, folder: Path, *, flush: bool, tell: Tell) -> None:
        self._plan = plan
        self._folder = folder
        self._inlets = Inlets(plan, folder)
        self._flush = flush
        self._choice = ReplicaChoice(plan, folder, tell)

    def initial(self) -> Offset:
        marks = {MARK: dict.fromkeys(self._plan.marked, 0)} if self._plan.marked else {}
        active: Offset = {ACTIVE: {}} if self._choice.groups else {}
        return dict.fromkeys(self._plan.roots) | marks | active | ({END: 0} if self._flush else {})

    def fix(self) -> None: ...

    def close(self) -> None: ...

    def latest(self, start: Offset, rows: int) -> Offset:
        end, flush, over = dict(start), self._flush, self._flush
        active = self._choice.of(start)
        inlets = Inlets(self._plan, self._folder, replicas_of(active))
        marks = {root: start[MARK].get(root, 0) for root in self._plan.marked}
        everywhere = least_mark(marks)
        for root in self._plan.roots:
            # At a mark one waits for the others to come to it; and no batch has tuples of before and after.
            waits, upto = marks.get(root, 0) > everywhere, mark_at if root in marks else None
            frontiers = []
            for stream, reader in inlets.of(root).items():
                # In this order: what is there once a channel has all is all there will ever be.
                whole = flush and has_all(reader)
                passed = self._choice.passed(stream, active, start[root])
                further = reader.next(start[root], rows, upto=upto) if passed is None else passed
                further = self._choice.within(root, active, further)
                over &= whole and further is None
                # One that has ended holds up none that goes further: their last batches are after its own.
                if not whole or further is not None:
                    frontiers.append(further)
            if frontiers and all(f is not None for f in frontiers) and not waits:
                end[root] = min(f for f in frontiers if f is not None)
                if root in marks:
                    marks[root] = self._mark(root, end[root]) or marks[root]
        if marks:
            end[MARK] = marks
        if active and end != start:
            # Without anything new it makes no batch.
            end[ACTIVE] = {**start[ACTIVE], **active}
        if over and not start.get(END):
            root = self._plan.root
            if end.get(root) is not None:
                end[root] += 1
            end[END] = 1
        return end

    def _mark(self, root: str, frontier: int) -> int | None:
        streams = [stream for stream, c in self._plan.inlets.items() if c.root == root and c.marks]
        footers = (self._inlets.reader(stream).ending_at(frontier) for stream in streams)
        # Those that have come so far have the same; one may have ended before.
        return next((mark_at(footer) for footer in footers if footer is not None), None)

    def pieces(self, start: Offset, end: Offset, *, alone: bool = False) -> list[Piece]:
        frontiers = {root: (start[root], end[root]) for root in self._plan.roots}
        ends, frontier = is_end(start, end), end.get(self._plan.root)
        tasks, replicas = range(1 if alone else self._plan.tasks), replicas_of(end.get(ACTIVE, {}))
        return [Piece(task, {}, frontiers, ends, frontier, alone, replicas) for task in tasks]

    def commit(self, end: Offset) -> None:
        self._inlets.acknowledge(end)


# For each replica group the epoch in which it is read, and the replica whose log that is.
Active = Mapping[str, tuple[int, str]]
# In place of an epoch: a replica reads its own group from itself, whoever is active.
_OWN = 0


def replicas_of(active: Active) -> dict[str, str]:
    """Return which replica of each group is read."""
    return {group: letter for group, (_, letter) in active.items()}


class ReplicaChoice:
    """Which replica of each group that an element reads is to be read next."""

    def __init__(self, plan: Plan, folder: Path, tell: Tell) -> None:
        self._plan = plan
        self._folder = folder
        self._tell = tell
        # Of those who are read from whichever replica is ahead, none is chosen: each stream has its own.
        self.groups = {
            c.group: c for c in plan.inlets.values() if c.group is not None and c.failover != "ahead"
        }

    def of(self, start: Offset) -> Active:
        """Choose for a batch that begins at an offset.

        Where failover is plain, that replica is read which was active when what comes next was put out; and what no
        replica put out that was active is passed over.
        """
        return {group: self._chosen(group, channel, start) for group, channel in self.groups.items()}

    def within(self, root: str, active: Active, frontier: int | None) -> int | None:
        """Cut a frontier down to what counts of the replicas that are read."""
        for group, channel in self.groups.items():
            epoch = active[group][0]
            if (
                frontier is not None
                and channel.root == root
                and channel.failover == "plain"
                and epoch != _OWN
            ):
                limit = read_switch(self._folder, group).counts_up_to(epoch)
                frontier = frontier if limit is None else min(frontier, limit)
        return frontier

    def _chosen(self, group: str, channel: ChannelPlan, start: Offset) -> tuple[int, str]:
        if group == self._plan.group and self._plan.replica is not None:
            return _OWN, self._plan.replica
        switch = read_switch(self._folder, group)
        if channel.failover == "exact":
            return switch.epoch, switch.active
        return self._plain(group, channel, start)

    def _plain(self, group: str, channel: ChannelPlan, start: Offset) -> tuple[int, str]:
        switch, at = read_switch(self._folder, group), start[channel.root]
        epoch = min(start[ACTIVE].get(group, (1, ""))[0], switch.epoch)
        while (limit := switch.counts_up_to(epoch)) is not None and _low(at) >= limit:
            epoch += 1
            since = switch.epochs[epoch - 1].since
            if since is not None and since > _low(at):
                self._pass_over(group, switch.active_in(epoch), at, since)
                at = since
        return epoch, switch.active_in(epoch)

    def passed(self, stream: str, active: Active, after: int | None) -> int | None:
        """Return how far nothing of a stream counts after a frontier, None if what comes next does."""
        channel = self._plan.inlets[stream]
        if channel.group is None or channel.failover != "plain" or active[channel.group][0] == _OWN:
            return None
        since = read_switch(self._folder, channel.group).epochs[active[channel.group][0] - 1].since
        return since if since is not None and since > _low(after) else None

    def _pass_over(self, group: str, letter: str, after: int | None, upto: int) -> None:
        inlets = Inlets(self._plan, self._folder, {group: letter})
        for stream in (s for s, c in self._plan.inlets.items() if c.group == group):
            reader = inlets.reader(stream)
            before = reader.lost
            reader.skip(after, upto)
            if reader.lost > before:
                lost = reader.lost - before
                self._tell(
                    "lost in failover", element=self._plan.name, group=group, stream=stream, tuples=lost
                )


def mark_at(segment: Footer) -> int | None:
    """Return the mark that a segment ends with, None if it ends with none."""
    return mark_of(segment.sources)


def holds_end(segment: Footer | None) -> bool:
    """Say whether the newest segment of a channel is of the end of the input, after which nothing comes."""
    return segment is not None and bool(segment.sources.get(END, (None, None))[1])


def has_all(reader: Reader) -> bool:
    """Say whether a channel has all there will ever be, what is put out at the end of the input included.

    One that is finished need not: a run that is stopped finishes its channels too, with its windows still open.
    """
    return reader.ended and holds_end(reader.newest)


def read_channel(plan: Plan, folder: Path, stream: str, piece: Piece) -> ReadRows:
    """Read what a task has to compute of a stream that comes by channel."""
    channel = plan.inlets[stream]
    after, upto = piece.frontiers[channel.root]
    columns = sorted(plan.needed[stream])
    tags, fields = tag_columns(channel.tags), tag_fields(channel.tags)
    if piece.ends or upto is None or upto == after:
        schema = pa.schema([*(channel.schema.field(c) for c in columns), *fields])
        tuples, punctuations = schema.empty_table(), pa.schema(fields).empty_table()
    else:
        span = plan.span(piece.task) if plan.keyed and channel.key else None
        reader = Inlets(plan, folder, piece.replicas).reader(stream)
        tuples, punctuations = reader.read(after, upto, columns, span)
    if not plan.keyed:
        rows, task, tasks = tuples.num_rows, piece.task, plan.tasks
        first = rows * task // tasks
        tuples = tuples.slice(first, rows * (task + 1) // tasks - first)
    return ReadRows(
        {c: _one(tuples.column(c)) for c in columns},
        np.arange(tuples.num_rows),
        tuple(tuples.column(t).to_numpy() for t in tags),
        tuple(punctuations.column(t).to_numpy() for t in tags) if punctuations.num_rows else (),
    )


def _one(column: pa.ChunkedArray) -> pa.Array:
    return (
        column.chunk(0)
        if column.num_chunks == 1
        else pa.concat_arrays(column.chunks)
        if column.num_chunks
        else (pa.array([], column.type))
    )


def _low(frontier: int | None) -> int:
    return BEGIN if frontier is None else frontier


def _before(done: int | None, frontier: int | None) -> bool:
    return frontier is not None and (done is None or done < frontier)
