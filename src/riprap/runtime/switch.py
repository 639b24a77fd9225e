"""Which replica of a group counts: a small file of the run's folder, which one process writes and all readers look at.

``switches/<group>.json``:

    {"format": "riprap-switch/1", "out": ["a"],
     "epochs": [{"active": "a", "after": null, "since": null, "cause": "began", "time": 1731690000.0},
                {"active": "b", "after": 120, "since": 124, "cause": "process 'hot~a' was killed by signal 9",
                 "time": 1731690042.1}]}

The newest epoch says which replica is active. ``after`` is the frontier up to which the one before counts, ``since``
that after which this one does: what lies between is lost if the failover is plain, and read from either if it is exact.
Those who are ``out`` are lost, and what they have not read is not kept for them: they come back with another's state.

The supervisor writes it, synced, before it acts on it; of a run in one process, that process does.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from riprap.channels.segment import BEGIN
from riprap.graph.replicas import ReplicaGroup
from riprap.state.durable_files import checking, fields_of, load_json, save_json

FORMAT = "riprap-switch/1"
FOLDER = "switches"
_REMEDY = "Put it back from a copy; or remove it: then the first replica is active, and nobody is out"


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """A time in which one replica was active."""

    active: str
    after: int | None = None
    since: int | None = None
    cause: str
    time: float


@dataclass(frozen=True, slots=True)
class Switch:
    """How a group stands. Epochs are numbered from 1."""

    epochs: tuple[Epoch, ...]
    out: tuple[str, ...] = ()

    @classmethod
    def begun(cls, time: float, out: Iterable[str] = ()) -> Switch:
        """Return how a group stands at first."""
        return cls((Epoch(active="a", cause="began", time=time),), tuple(out))

    @property
    def epoch(self) -> int:
        return len(self.epochs)

    @property
    def active(self) -> str:
        return self.epochs[-1].active

    def to(self, letter: str, *, after: int | None, since: int | None, cause: str, time: float) -> Switch:
        """Make another replica active."""
        epoch = Epoch(active=letter, after=after, since=since, cause=cause, time=time)
        return replace(self, epochs=(*self.epochs, epoch))

    def without(self, letter: str) -> Switch:
        """Count a replica as lost."""
        return self if letter in self.out else replace(self, out=(*self.out, letter))

    def including(self, letter: str) -> Switch:
        """Count a replica as there."""
        return replace(self, out=tuple(each for each in self.out if each != letter))

    def active_in(self, epoch: int) -> str:
        """Return who was active in an epoch."""
        return self.epochs[epoch - 1].active

    def counts_up_to(self, epoch: int) -> int | None:
        """Return the frontier up to which an epoch counts, None if it is the newest."""
        following = self.epochs[epoch : epoch + 1]
        return None if not following else BEGIN if following[0].after is None else following[0].after

    def save(self, run: Path, group: str) -> None:
        """Write it down, for good."""
        path = _path(run, group)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        save_json(
            path, {"format": FORMAT, "out": list(self.out), "epochs": [fields_of(e) for e in self.epochs]}
        )


# What files said, by path, as long as they are the same files.
_read: dict[Path, tuple[tuple[int, int, int], Switch]] = {}


def read_switch(run: Path, group: str) -> Switch:
    """Return how a group stands; one of which nothing was written is as at first."""
    path = _path(run, group)
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return Switch.begun(0.0)
    # A number may be given to another file at once, within the grain of the clock.
    file = status.st_ino, status.st_mtime_ns, status.st_size
    known = _read.get(path)
    if known is None or known[0] != file:
        data = load_json(path, FORMAT, {"out": list, "epochs": list}, remedy=_REMEDY)
        if data is None:
            return Switch.begun(0.0)
        with checking(path, _REMEDY):
            switch = Switch(tuple(Epoch(**epoch) for epoch in data["epochs"]), tuple(data["out"]))
            if not switch.epochs:
                raise ValueError("it has no epoch")
        known = _read[path] = file, switch
    return known[1]


def has_switch(run: Path, group: str) -> bool:
    """Say whether it is written down how a group stands."""
    return _path(run, group).exists()


def counting(run: Path, copies: Mapping[str, tuple[str, str]]) -> Callable[[str], bool]:
    """Return what says whether a reader counts: a copy of a replica that is out does not."""

    def counts(reader: str) -> bool:
        if reader not in copies:
            return True
        group, letter = copies[reader]
        return letter not in read_switch(run, group).out

    return counts


def run_alone(run: Path, groups: Iterable[ReplicaGroup], time: float) -> dict[str, str]:
    """Let one replica of each group run, and return which; the others are out."""
    alone = {}
    for group in groups:
        switch = read_switch(run, group.name) if has_switch(run, group.name) else Switch.begun(time)
        for letter in group.letters:
            switch = switch.including(letter) if letter == switch.active else switch.without(letter)
        switch.save(run, group.name)
        alone[group.name] = switch.active
    return alone


def _path(run: Path, group: str) -> Path:
    return run / FOLDER / f"{group}.json"
