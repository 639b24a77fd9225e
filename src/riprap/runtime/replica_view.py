"""How the replicas of a run stand, seen from outside, while the run is alive or not."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from riprap.channels.folder import scan
from riprap.channels.replicas import newest_log
from riprap.channels.segment import BEGIN
from riprap.graph.replicas import copy_name
from riprap.runtime.folder import RunFolder
from riprap.runtime.supervision.presence import Presence, find_presences
from riprap.runtime.switch import Switch, has_switch, read_switch


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaView:
    """A replica. ``state`` is active, backup or out; where whichever is ahead is read, nobody is active.

    ``position`` is the least frontier of the logs it writes, ``behind`` by how much others are ahead of it, and
    ``seconds`` for how long they are. None where it is not known. What its processes take is known on their host.
    """

    group: str
    replica: str
    state: str
    process: str
    pid: int | None
    alive: bool
    position: int | None
    behind: int | None
    seconds: float | None
    cpu: float | None
    memory: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochView:
    """A time in which a replica was active, and what it took to find the loss before it, and to switch."""

    number: int
    active: str
    cause: str
    time: float
    after: int | None
    since: int | None
    detect: float | None
    seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
    """A replica group; how often one was taken for lost and was not, and how often their results differed."""

    group: str
    failover: str
    elements: tuple[str, ...]
    replicas: tuple[ReplicaView, ...]
    epochs: tuple[EpochView, ...]
    false_alarms: int
    divergences: int


def view_groups(folder: RunFolder) -> list[GroupView]:
    """Look at the replica groups of a run."""
    groups: Mapping[str, Any] = (folder.state_layout() or {}).get("groups", {})
    presences = {presence.process: presence for presence in find_presences(folder.path)}
    events = [event for event in folder.read_events() if event.get("group") in groups]
    return [
        _view_group(folder.path, name, about, presences, [e for e in events if e["group"] == name])
        for name, about in groups.items()
    ]


def _view_group(
    run: Path,
    group: str,
    about: Mapping[str, Any],
    presences: Mapping[str, Presence],
    events: Sequence[Mapping[str, Any]],
) -> GroupView:
    switch = read_switch(run, group)
    written = has_switch(run, group)
    channels = [run / "channels" / name for name in about["channels"]]
    # The newest event of an epoch counts: a supervisor that died may have told of it before.
    switched = {event["epoch"]: event for event in events if event["event"] == "failed over"}
    return GroupView(
        group=group,
        failover=about["failover"],
        elements=tuple(about["elements"]),
        replicas=tuple(
            _view_replica(
                group, letter, _state(switch, letter, about), channels, about["replicas"], presences
            )
            for letter in about["replicas"]
        ),
        epochs=tuple(
            EpochView(
                number=number,
                active=epoch.active,
                cause=epoch.cause,
                time=epoch.time,
                after=epoch.after,
                since=epoch.since,
                detect=switched.get(number, {}).get("detect"),
                seconds=switched.get(number, {}).get("seconds"),
            )
            for number, epoch in enumerate(switch.epochs if written else (), 1)
        ),
        false_alarms=_count(events, "false alarm"),
        divergences=_count(events, "replicas differ"),
    )


def _count(events: Iterable[Mapping[str, Any]], kind: str) -> int:
    return sum(event["event"] == kind for event in events)


def _state(switch: Switch, letter: str, about: Mapping[str, Any]) -> str:
    if letter in switch.out:
        return "out"
    return "active" if letter == switch.active and about["failover"] != "ahead" else "backup"


def _view_replica(
    group: str,
    letter: str,
    state: str,
    channels: Sequence[Path],
    letters: Sequence[str],
    presences: Mapping[str, Presence],
) -> ReplicaView:
    presence = presences.get(copy_name(group, letter))
    process = None if presence is None else presence.alive()
    frontiers = [newest_log(channel, letter).frontier for channel in channels]
    position = min(frontiers, default=BEGIN)
    lags = [_lag(channel, letter, letters) for channel in channels]
    behind = max((by for by, _ in lags if by is not None), default=None)
    seconds = [time for by, time in lags if by is not None]
    cpu, memory = (None, None) if process is None else _taken_by(process)
    return ReplicaView(
        group=group,
        replica=letter,
        state=state,
        process=copy_name(group, letter),
        pid=None if presence is None else presence.pid,
        alive=process is not None,
        position=None if position == BEGIN else position,
        behind=behind,
        seconds=None if None in seconds else max((s for s in seconds if s is not None), default=None),
        cpu=cpu,
        memory=memory,
    )


def _lag(channel: Path, letter: str, letters: Sequence[str]) -> tuple[int | None, float | None]:
    """Return by how many frontiers and seconds a replica's log is behind the foremost; None where nobody can tell."""
    own = newest_log(channel, letter).frontier
    foremost = max((newest_log(channel, each) for each in letters), key=lambda log: log.frontier)
    if own == BEGIN or foremost.frontier <= own:
        return (None if own == BEGIN else 0), 0.0
    listed = scan(foremost.folder)
    times = {}
    for name in (listed[-1], *(name for name in listed if name.frontier > own)):
        # One may go meanwhile.
        with contextlib.suppress(FileNotFoundError):
            times[name.frontier] = (foremost.folder / name.file).stat().st_mtime
    whole = listed[0].frontier <= own or not listed[0].batch
    return foremost.frontier - own, max(times.values()) - min(times.values()) if times and whole else None


def _taken_by(process: psutil.Process) -> tuple[float | None, int | None]:
    """Return the processor seconds and the memory of a process and all below it."""
    cpu, memory = 0.0, 0
    with contextlib.suppress(psutil.NoSuchProcess):
        for each in (process, *process.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                times = each.cpu_times()
                # Of workers that have ended their parents know.
                ended = getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
                cpu += times.user + times.system + ended
                # What processes share, such as pages of state, counts once where the system says so.
                full = each.memory_full_info()
                memory += getattr(full, "pss", full.rss)
        return cpu, memory
    return None, None
