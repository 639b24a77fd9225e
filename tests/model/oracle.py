"""A model of an application simulated in the plainest way: tuple by tuple, as objects, from the words of the papers."""

from __future__ import annotations

import heapq
import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from riprap.model import Part, Protection


@dataclass
class Copy:
    alive: bool = True
    unstable: dict[int, int] = field(default_factory=Counter)
    filling: dict[int, int] = field(default_factory=Counter)
    struck: int = 0
    own: bool = False


@dataclass
class Box:
    """An operator, or one of its replicas in a group."""

    part: Part
    protection: Protection
    replica: int
    copies: list[Copy]
    kept: list[tuple[int, bool]] = field(default_factory=list)
    lost: dict[int, float] = field(default_factory=Counter)
    losing: dict[int, float] = field(default_factory=Counter)

    @property
    def alive(self) -> list[Copy]:
        return [copy for copy in self.copies if copy.alive]

    def ill(self, copy: Copy) -> bool:
        return any(copy.unstable[p] > 0 or self.losing[p] > 0 for p in self.stateful)

    @property
    def stateful(self) -> list[int]:
        return [n for n, entry in enumerate(self.part.entries) if entry.port.state >= 1]


class Oracle:
    """One replication."""

    def __init__(
        self,
        parts: Sequence[Part],
        protections: Mapping[str, Protection],
        *,
        horizon: float,
        crash_rate: float,
        corruption_rate: float,
        recovery: float,
        seed: int,
    ) -> None:
        self.random = random.Random(seed)
        self.horizon, self.crash_rate, self.recovery = horizon, crash_rate, recovery
        self.corruption_rate = corruption_rate
        self.boxes = []
        for part in parts:
            protection = protections.get(part.name, Protection())
            for replica in range(2 if protection.group else 1):
                copies = [Copy() for _ in range(protection.copies)]
                self.boxes.append(Box(part, protection, replica, copies))
        self.active = {b.protection.group: 0 for b in self.boxes if b.protection.group}
        self.failing_over: dict[str, float] = {}
        self.exact = {b.protection.group for b in self.boxes if b.protection.group and b.protection.kept}
        self.whole = {(group, replica): True for group in self.active for replica in (0, 1)}
        self.stale: set[tuple[str, int]] = set()
        # What exact groups have put out that nobody has read, as the log of a replica has it.
        self.unread: dict[str, list[tuple[Box, int, bool]]] = {group: [] for group in self.exact}
        self.clean = self.tainted = self.lost = 0
        self.up = self.up_alone = self.now = 0.0
        self.events: list[tuple[float, int, str, object]] = []
        self.nominal = self.flows(everything=True)

    def later(self, time: float, what: str, about: object) -> None:
        heapq.heappush(self.events, (time, len(self.events) + random.getrandbits(30), what, about))

    def run(self) -> Oracle:
        for box in self.boxes:
            for copy in box.copies:
                self.later(self.wait(self.crash_rate), "crash", (box, copy))
                self.later(self.wait(self.corruption_rate), "strike", (box, copy))
            for place, entry in enumerate(box.part.entries):
                if entry.rate:
                    self.later(self.random.random() / entry.rate, "tuple", (box, place))
        while self.events and self.events[0][0] < self.horizon:
            time, _, what, about = heapq.heappop(self.events)
            self.until(time)
            getattr(self, what)(about)
        self.until(self.horizon)
        return self

    def wait(self, rate: float) -> float:
        return self.now + self.random.expovariate(rate) if rate else math.inf

    def until(self, time: float) -> None:
        self.up += (time - self.now) * self.is_up()
        alone = {box.part.name for box in self.counting() for copy in box.alive if not copy.own}
        self.up_alone += (time - self.now) * (alone == {box.part.name for box in self.boxes})
        for box in self.boxes:
            for place in range(len(box.part.entries)):
                box.lost[place] += box.losing[place] * (time - self.now)
        self.now = time

    def is_up(self) -> bool:
        good = {
            box.part.name
            for box in self.counting()
            for copy in box.alive
            if not box.ill(copy) and not any(copy.filling[p] for p in box.stateful)
        }
        return good == {box.part.name for box in self.boxes}

    def counting(self) -> list[Box]:
        """Return all but the replicas that only stand by."""
        return [
            box for box in self.boxes if self.active.get(box.protection.group, box.replica) == box.replica
        ]

    # Tuples.

    def tuple(self, about: tuple[Box, int]) -> None:
        box, place = about
        self.later(self.now + 1 / box.part.entries[place].rate, "tuple", about)
        self.deliver(box, place, tainted=False)

    def deliver(self, box: Box, place: int, *, tainted: bool) -> None:
        if not self.runs(box):
            if box.protection.group in self.exact and self.whole[box.protection.group, 1 - box.replica]:
                return
            if box.protection.kept:
                box.kept.append((place, tainted))
            else:
                self.lost += 1
            return
        if box.part.sink:
            tainted = tainted or box.copies[0].struck > 0
            box.copies[0].struck = max(0, box.copies[0].struck - tainted)
            self.tainted += tainted
            self.clean += not tainted
            return
        entry = box.part.entries[place]
        struck = [copy for copy in box.alive if copy.struck and not tainted]
        for copy in struck:
            copy.struck -= 1
        ill = [copy for copy in box.alive if box.ill(copy)]
        whole = [copy for copy in box.alive if not box.ill(copy)]
        comes_clean = bool(whole) and not tainted and not (struck and len(box.alive) == 1)
        comes_tainted = tainted or bool(ill) or bool(struck)
        filling = all(any(copy.filling[p] for p in box.stateful) for copy in whole)
        for copy in box.alive:
            if place in box.stateful:
                copy.filling[place] = max(0, copy.filling[place] - 1)
                if tainted:
                    hurt = int(min(entry.port.alpha_tainted, entry.port.gamma) * int(entry.port.state))
                    copy.unstable[place] = max(copy.unstable[place], hurt)
                else:
                    copy.unstable[place] = max(0, copy.unstable[place] - 1)
        for copy in box.alive:
            if place in box.stateful and not box.ill(copy) and not any(copy.filling[p] for p in box.stateful):
                copy.own = False
        if comes_clean:
            for stream in self.outcome(
                box, entry, 1.0 if not filling else box.part.profile.filling, shift=False
            ):
                self.send(box, stream, tainted=False)
        if comes_tainted:
            for stream in self.outcome(box, entry, 1.0, shift=True):
                self.send(box, stream, tainted=True)

    def outcome(self, box: Box, entry: object, factor: float, *, shift: bool) -> list[str]:
        """Draw what comes out for a tuple."""
        grown = 1 + box.part.profile.shifted
        shares = [min(1.0, s * grown) if shift and s < 1 else s * factor for s in entry.shares]  # type: ignore[attr-defined]
        made = []
        if sum(entry.shares) <= 1.001 and sum(s > 0 for s in entry.shares) > 1:  # type: ignore[attr-defined]
            shares = [s / max(1.0, sum(shares)) for s in shares]
            drawn = self.random.random()
            for stream, share in zip(box.part.outputs, shares, strict=True):
                if 0 <= drawn < share:
                    made.append(stream)
                drawn -= share
            return made
        for stream, share in zip(box.part.outputs, shares, strict=True):
            made += [stream] * (int(share) + (self.random.random() < share - int(share)))
        return made

    def send(self, box: Box, stream: str, *, tainted: bool) -> None:
        for other, place in self.readers(box, stream):
            group = box.protection.group
            if group is None or other.protection.group == group or self.speaks(box):
                self.deliver(other, place, tainted=tainted)
            elif group in self.exact and not self.whole[group, self.active[group]]:
                self.unread[group].append((other, place, tainted))

    def runs(self, box: Box) -> bool:
        if box.protection.group in self.exact:
            return self.whole[box.protection.group, box.replica]
        return bool(box.alive)

    def readers(self, box: Box, stream: str) -> list[tuple[Box, int]]:
        group = box.protection.group
        found = []
        for other in self.boxes:
            inside = group is not None and other.protection.group == group
            if inside and other.replica != box.replica:
                continue
            found += [(other, n) for n, entry in enumerate(other.part.entries) if stream in entry.streams]
        return found

    def members(self, group: str, replica: int) -> list[Box]:
        return [b for b in self.boxes if b.protection.group == group and b.replica == replica]

    def speaks(self, box: Box) -> bool:
        """Say whether the results of a replica in a group count."""
        group = box.protection.group
        assert group is not None
        return self.active[group] == box.replica and all(b.alive for b in self.members(group, box.replica))

    # Faults.

    def crash(self, about: tuple[Box, Copy]) -> None:
        _, copy = about
        copy.alive, copy.struck = False, 0
        self.later(self.now + self.recovery, "recover", about)
        self.changed()
        self.read_on()

    def recover(self, about: tuple[Box, Copy]) -> None:
        box, copy = about
        others = box.alive
        copy.alive = True
        if others:
            for place in box.stateful if box.protection.restore != "whole" else ():
                copy.unstable[place], copy.filling[place] = (
                    others[0].unstable[place],
                    others[0].filling[place],
                )
        else:
            self.restore(box, copy)
        self.later(self.wait(self.crash_rate), "crash", about)
        self.changed()
        self.read_on()

    def restore(self, box: Box, copy: Copy) -> None:
        for place in box.stateful if box.protection.restore != "whole" else ():
            port = box.part.entries[place].port
            copy.own = True
            if box.protection.restore == "checkpoint":
                age = self.random.uniform(*box.protection.age)
                wanted = need(port, box.lost[place] + age * self.nominal[id(box), place])
                copy.unstable[place] = max(copy.unstable[place], wanted)
            else:
                copy.unstable[place], copy.filling[place] = 0, int(port.state)
            box.lost[place] = 0.0

    def read_on(self) -> None:
        """Let everyone have what waited for it, in any order."""
        for group, unread in self.unread.items():
            if self.whole[group, self.active[group]] and unread:
                self.unread[group] = []
                self.random.shuffle(unread)
                for box, place, tainted in unread:
                    self.deliver(box, place, tainted=tainted)
        for box in self.boxes:
            if box.kept and self.runs(box):
                waiting, box.kept = box.kept, []
                self.random.shuffle(waiting)
                for place, tainted in waiting:
                    self.deliver(box, place, tainted=tainted)

    def rejoin(self) -> None:
        """Let replicas that are whole again have the state of the other, or if they are behind and alone, their own."""
        before = dict(self.whole)
        for group, replica in before:
            self.whole[group, replica] = all(b.alive for b in self.members(group, replica))
        for group, replica in before:
            if before[group, replica] or not self.whole[group, replica]:
                continue
            ours, theirs = self.members(group, replica), self.members(group, 1 - replica)
            for box, twin in zip(ours, theirs, strict=True):
                if before[group, 1 - replica] and self.whole[group, 1 - replica]:
                    if box.protection.peer or group in self.exact:
                        box.kept = []
                        box.lost = Counter(twin.lost)
                        box.copies[0].unstable = Counter(twin.copies[0].unstable)
                        box.copies[0].filling = Counter(twin.copies[0].filling)
                        box.copies[0].own = twin.copies[0].own
                elif (group, replica) in self.stale:
                    self.restore(box, box.copies[0])
            self.stale.discard((group, replica))
        for group, replica in before:
            if group in self.exact and self.whole[group, 1 - replica] and not self.whole[group, replica]:
                self.stale.add((group, replica))

    def strike(self, about: tuple[Box, Copy]) -> None:
        box, copy = about
        self.later(self.wait(self.corruption_rate), "strike", about)
        fed = any(self.nominal[id(box), place] for place in range(len(box.part.entries)))
        if not copy.alive or not fed:
            return
        if box.stateful and self.random.random() < 0.5:
            for place in box.stateful:
                port = box.part.entries[place].port
                hurt = int(min(port.alpha_tainted, port.gamma) * int(port.state))
                copy.unstable[place] = max(copy.unstable[place], hurt)
        else:
            copy.struck += 1

    def failover(self, about: tuple[str, float]) -> None:
        group, asked = about
        if self.failing_over.get(group) == asked:
            del self.failing_over[group]
            self.active[group] = 1 - self.active[group]
            self.changed()
            self.read_on()

    def changed(self) -> None:
        flows = self.flows()
        for box in self.boxes:
            for place in range(len(box.part.entries)):
                normal = self.nominal[id(box), place]
                missing = normal - flows[id(box), place]
                before = box.losing[place]
                box.losing[place] = missing if missing > 1e-9 * normal else 0.0
                if not box.alive and not box.protection.kept:
                    box.losing[place] = normal
                if place in box.stateful and before and not box.losing[place] and box.lost[place]:
                    for copy in box.alive:
                        wanted = need(box.part.entries[place].port, box.lost[place])
                        copy.unstable[place] = max(copy.unstable[place], wanted)
                    box.lost[place] = 0.0
        self.rejoin()
        for group, active in self.active.items():
            works = all(b.alive for b in self.members(group, active))
            ready = all(b.alive for b in self.members(group, 1 - active))
            if works or not ready:
                self.failing_over.pop(group, None)
            elif group not in self.failing_over:
                self.failing_over[group] = self.now
                wait = self.members(group, 0)[0].protection.failover
                self.later(self.now + wait, "failover", (group, self.now))

    def flows(self, *, everything: bool = False) -> dict[tuple[int, int], float]:
        """Work out the tuples a second at each port, of what is alive."""
        flow: dict[tuple[int, int], float] = Counter()
        for box in self.boxes:
            for place, entry in enumerate(box.part.entries):
                flow[id(box), place] += entry.rate
                if not (everything or box.alive or box.protection.kept):
                    continue
                for stream, share in zip(box.part.outputs, entry.shares, strict=True):
                    for other, port in self.readers(box, stream):
                        group = box.protection.group
                        leaves = group is not None and other.protection.group != group
                        if leaves and group in self.exact and self.active[group] != box.replica:
                            continue
                        if leaves and group not in self.exact and not self.speaks(box):
                            continue
                        flow[id(other), port] += flow[id(box), place] * share
        return flow


def need(port: object, lost: float) -> int:
    size = int(port.state)  # type: ignore[attr-defined]
    return math.floor(min(port.alpha * size + port.beta * lost, port.gamma * size))  # type: ignore[attr-defined]
