"""How long readers wait when the replica they read is killed or hangs: to the first batch that is another's.

Bargain Discovery replays a feed at a steady pace under a supervisor, with a spare at hand. The driver process of the
replica that is read is killed, or stopped and let go on; then again, the other way round, once what was struck is back
and batches come steadily. Records of the reader's ledger are seen by a clock outside of the run, and name the replica
they were read from. In the end the answer is that of the bare loop, or the benchmark fails.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil

import riprap as rr
from riprap.apps.bargain import bargain
from riprap.channels.replicas import newest_log
from riprap.errors import RunError
from riprap.graph.replicas import copy_name
from riprap.runtime.folder import RunFolder
from riprap.runtime.offsets import ACTIVE
from riprap.runtime.supervision import Patience, Supervised, supervise
from riprap.runtime.supervision.presence import find_presences
from riprap.runtime.switch import read_switch
from riprap.state.ledger import Ledger
from riprap_bench.answers import difference, first_of, read_answer
from riprap_bench.baselines import run_bare
from riprap_bench.checkpoint_plan import Track
from riprap_bench.consumers import FolderWatch
from riprap_bench.feed import make_feed
from riprap_bench.kill import longest_silence, until
from riprap_bench.measuring import middle, spread
from riprap_bench.replicas_plan import DESCRIBE, FIRST, GROUP, INNER, MEMBERS, READERS, Part, Plan, options

# Seconds: the median at most, and the worst.
BARS: Mapping[Part, Mapping[str, float]] = {
    "switch": {"median": 0.5, "worst": 1.5},
    "hang": {"worst": 2.0},
    "ahead": {},
}
_RECORD = r"\d+-\d+\.json"
# Before the next strike so many records come; after it so many are looked at.
_STEADY_RECORDS = 20
_LOOKED_AT = 5
# On a busy machine a replica may be taken for lost in the moment before it is struck: that strike does not count.
_TRIES = 2
_SECONDS_A_STRIKE = 90.0
_NAMING_SECONDS, _LOOK_SECONDS = 10.0, 0.02


def measure_switching(part: Part, plan: Plan, folder: Path, track: Track) -> dict[str, Any]:
    """Strike the replica that is read, again and again, and return how long that was noticed."""
    strikes = plan.times(part)
    events = int(plan.rate * (120 + _SECONDS_A_STRIKE * strikes))
    feed = make_feed(folder / "feed", events, rows_per_file=500_000, seed=plan.seed)
    out = folder / "out"
    app = bargain(rr.files(list(map(str, feed.files)), rate=plan.rate), rr.parquet(out))
    DESCRIBE["all" if part == "ahead" else "group"](app)
    group = "all" if part == "ahead" else GROUP
    # Kills are meant here, however many.
    most = _TRIES * strikes
    patience = Patience(restarts=most + 1, backoff=(0.0,))
    with supervise(app.graph(), options(folder / "runs", strikes=most), patience=patience, spare=True) as run:
        run.await_up()
        with FolderWatch(run.folder / "elements" / READERS[group] / "ledger", _RECORD) as records:
            share = plan.estimate()[part] / strikes
            striking = _Striking(part, group, run, Reading(records, group), track, share)
            struck = striking.strike_all(strikes)
        run.stop()
    run_bare(feed.files, out=folder / "oracle")
    came = source_at(run.folder, READERS[group])
    wrong = difference(first_of(read_answer(folder / "oracle"), came), read_answer(out))
    if wrong is not None:
        raise RunError(f"{part}, struck {strikes} times: the answer is another: {wrong}")
    return _summed(part, struck, list(RunFolder(run.folder, time.time).read_events()))


def source_at(run: Path, reader: str) -> int:
    """Return how many events of the source are complete at a reader, by its newest record.

    Of one that is far behind it is not known any more, and 0.
    """
    ledger = Ledger(str(run / "elements" / reader / "ledger"))
    first = Ledger(str(run / "elements" / FIRST / "ledger"))
    batches = ledger.batches()
    newest = ledger.find(batches[-1]) if batches else None
    frontier = -1 if newest is None or newest.frontier is None else newest.frontier
    record = first.find(frontier) if frontier >= 0 else None
    return 0 if record is None else int(record.sources["Source"][1])


@dataclass(frozen=True, slots=True)
class Struck:
    """What a strike did, in seconds.

    ``seconds`` is to the first batch read from another replica, ``silence`` the longest without any, and ``usual``
    the time between batches before. ``failover`` is the supervisor's event.
    """

    replica: str
    seconds: float
    silence: float
    usual: float
    failover: Mapping[str, Any] | None


@dataclass(slots=True)
class Reading:
    """Which replica's results a reader has read, batch by batch, and when."""

    records: FolderWatch
    group: str
    letters: dict[Path, str] = field(default_factory=dict)

    def moments(self, since: float) -> list[float]:
        """Return when batches got on record after a moment."""
        return sorted(moment for moment in self.records.moments() if moment > since)

    def newest(self) -> str:
        """Return the replica that was read last."""
        deadline = time.monotonic() + _NAMING_SECONDS
        while time.monotonic() < deadline:
            for path, _ in reversed(self.records.files()):
                if letter := self._letter(path):
                    return letter
            # On a busy machine all that was seen may be old, and gone.
            time.sleep(_LOOK_SECONDS)
        raise RunError(f"no record names a replica of '{self.group}'")

    def first_from_other(self, letter: str | None, since: float) -> float | None:
        """Return when the first batch got on record that was read from another replica, None if none has.

        Without a letter any will do: where whichever is ahead is read, nobody writes down which.
        """
        for path, moment in self.records.files():
            if moment > since and (letter is None or self._letter(path) not in (letter, "")):
                return moment
        return None

    def _letter(self, path: Path) -> str:
        if path not in self.letters:
            try:
                sources = json.loads(path.read_text())["sources"]
            except FileNotFoundError:
                # It is old by now.
                return ""
            _, letter = sources.get(ACTIVE, ({}, {}))[1].get(self.group, (0, ""))
            self.letters[path] = letter
        return self.letters[path]


@dataclass(frozen=True, slots=True)
class _Striking:
    """A run of which a replica is killed or stopped, again and again."""

    part: Part
    group: str
    run: Supervised
    reading: Reading
    track: Track
    share: float

    def strike_all(self, strikes: int) -> list[Struck]:
        """Strike so often."""
        struck: list[Struck] = []
        for _ in range(_TRIES * strikes):
            found = self.strike()
            if self.part != "ahead" and found.failover is None:
                self.track.report(f"replica {found.replica} was not active any more: that does not count")
                continue
            struck.append(found)
            self.track.report(
                f"[{len(struck)}/{strikes}] {self.part} of replica {found.replica}: another is read after "
                f"{found.seconds:.2f} s, silent for {found.silence:.2f} s"
            )
            self.track.pass_(self.share)
            if len(struck) == strikes:
                return struck
        raise RunError(
            f"{self.part}: replicas were taken for lost before they were struck. Is the machine busy?"
        )

    def strike(self) -> Struck:
        """Strike the replica that is read once batches come steadily, and wait until it is back."""
        run, reading, since = self.run, self.reading, time.time()
        until(run, lambda: len(reading.moments(since)) >= _STEADY_RECORDS and run.has_spare and self._level())
        letter = ahead_of_all(run.folder) if self.part == "ahead" else reading.newest()
        usual = float(np.median(np.diff(reading.moments(since))))
        driver = driver_of(run.folder, copy_name(self.group, letter))
        struck = time.time()
        if self.part == "hang":
            driver.suspend()
        else:
            driver.kill()
        read = None if self.part == "ahead" else letter
        try:
            until(run, lambda: reading.first_from_other(read, struck))
            until(run, lambda: len(reading.moments(struck)) >= _LOOKED_AT)
        finally:
            if self.part == "hang":
                driver.resume()
        other = reading.first_from_other(read, struck)
        assert other is not None
        silence = longest_silence(reading.records.moments(), struck)
        process = copy_name(self.group, letter)
        if self.part == "hang":
            until(run, lambda: self._told("false alarm", struck, replica=letter))
        else:
            until(run, lambda: self._told("recovered", struck, process=process))
        failovers = self._told("failed over", struck, before=letter)
        return Struck(letter, other - struck, silence, usual, failovers[0] if failovers else None)

    def _level(self) -> bool:
        """Say whether no replica is ahead of the active one, which might be taken for lost without being struck."""
        if self.part == "ahead":
            return True
        active = read_switch(self.run.folder, self.group).active
        come = _come(self.run.folder, MEMBERS[-1])
        return come[active] == max(come.values()) and active == self.reading.newest()

    def _told(self, kind: str, since: float, **details: str) -> list[Mapping[str, Any]]:
        """Return the events of a kind, and with such details, after a moment."""
        return [
            event
            for event in RunFolder(self.run.folder, time.time).read_events()
            if event["event"] == kind
            and event["time"] > since
            and all(event[name] == value for name, value in details.items())
        ]


def ahead_of_all(run: Path) -> str:
    """Return the replica that has come furthest where everything between source and sink is there twice."""
    come = _come(run, INNER[-1])
    return max(come, key=lambda letter: come[letter])


def _come(run: Path, operator: str) -> dict[str, int]:
    """Return how far each replica's log of an operator's results goes."""
    (channel,) = (run / "channels").glob(f"{operator}@*")
    return {letter: newest_log(channel, letter).frontier for letter in "ab"}


def driver_of(run: Path, process: str) -> psutil.Process:
    """Return a driver process of a run."""
    for presence in find_presences(run):
        driver = presence.alive()
        if presence.process == process and driver is not None:
            return driver
    raise RunError(f"the run in {run} has no process '{process}'")


def _summed(part: Part, struck: Sequence[Struck], events: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    seconds, silences = [s.seconds for s in struck], [s.silence for s in struck]
    over = [s.failover for s in struck if s.failover is not None]
    unasked = [e["cause"] for e in events if e["event"] == "failed over" and e not in over]
    found = {"median": middle(seconds), "worst": max(seconds)}
    bars = BARS[part]
    return {
        "seconds": found["median"],
        "spread": spread(seconds),
        "all": seconds,
        "silence": {"seconds": middle(silences), "spread": spread(silences), "all": silences},
        "usual": middle([s.usual for s in struck]),
        "replicas": "".join(s.replica for s in struck),
        "events": {name: middle([float(e[name]) for e in over]) for name in ("detect", "seconds") if over},
        "unasked": unasked,
        "bars": dict(bars),
        "met": all(found[name] <= most for name, most in bars.items()),
        # A difference would have ended the benchmark.
        "same_answer": True,
    }
