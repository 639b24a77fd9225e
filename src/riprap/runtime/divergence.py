"""Whether replicas put out the same: their logs are compared in the background, as long as the application runs.

A bit that flips in a replica's memory makes no process fail; its results differ from the others', and that is an event:

    {"event": "replicas differ", "group": "hot", "stream": "sums", "channel": "sums@k", "replicas": ["a", "b"],
     "wrong": [],                                   those whom the majority contradicts, if there is one
     "after": 119, "upto": 124,                     the stretch of frontiers, null: from the beginning
     "counts": {"a": 1, "b": 1}, "tuples": {"a": [{"k": 7, ...}], "b": [{...}]},    that not all have; the first few
     "further": 0}                                  so many stretches differed since the event before it

What has gone wrong in a window goes on to differ: of one stream there is an event at first, then one every ten
seconds at most, unless others are wrong. At the end there is one event "replicas compared" with what was compared.

A thread of low priority looks five times a second, at a bounded number of rows, and lags when there are more. What it
needs is kept for it, within bounds, by those who write the logs (:mod:`riprap.channels.comparison`).
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from riprap.adapters.retrying import Tell
from riprap.channels.comparison import LOOK_ROWS, Counts, LogComparison, LogDifference
from riprap.errors import RiprapError
from riprap.runtime.switch import read_switch
from riprap.stage.plan import ChannelPlan, Layout

LOOK_SECONDS = 0.2
AGAIN_SECONDS = 10.0
_DRAIN_SECONDS = 5.0
_NICENESS = 10


@dataclass(slots=True)
class _Told:
    """The last event of a stream: when it was, of whom, and how many stretches have differed since."""

    time: float
    wrong: tuple[str, ...]
    further: int = 0


class Divergence:
    """Compares the logs of all replica groups of a run that must be the same, and tells of what differs.

    ``tell`` is called in a thread of its own.
    """

    def __init__(
        self, run: Path, layout: Layout, tell: Tell, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._run = run
        self._tell = tell
        self._clock = clock
        letters = {group.name: group.letters for group in layout.graph.groups}
        self._comparisons = [
            (channel, LogComparison(run / "channels" / channel.name, letters[channel.group], clock=clock))
            for channel in _compared(layout.channels)
            if channel.group is not None
        ]
        self._told: dict[str, _Told] = {}
        self._seconds = 0.0
        self._level = clock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name="divergence", daemon=True)

    @property
    def needed(self) -> bool:
        """Whether there is anything to compare."""
        return bool(self._comparisons)

    @property
    def counts(self) -> Counts:
        """What was compared so far, of all streams."""
        return sum((comparison.counts for _, comparison in self._comparisons), Counts())

    @property
    def seconds(self) -> float:
        """The processor time that it took."""
        return self._seconds

    @property
    def lag(self) -> float:
        """For how many seconds there has been more to compare than was."""
        return self._clock() - self._level if any(c.behind for _, c in self._comparisons) else 0.0

    def start(self) -> None:
        """Begin to compare in the background."""
        if self.needed:
            self._thread.start()

    def stop(self) -> None:
        """Compare what is left, for a few seconds at most, and end."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(2 * _DRAIN_SECONDS)

    def look(self, rows: int = LOOK_ROWS) -> None:
        """Compare what has come since the last look, up to so many rows."""
        for channel, comparison in self._comparisons:
            assert channel.group is not None
            out = read_switch(self._run, channel.group).out
            for difference in comparison.look(out, rows=rows):
                self._note(channel, difference)
        if not any(comparison.behind for _, comparison in self._comparisons):
            self._level = self._clock()

    def _work(self) -> None:
        _yield_to_others()
        try:
            while not self._stopping.wait(0.0 if self.lag else LOOK_SECONDS):
                self._timed_look()
            until = self._clock() + _DRAIN_SECONDS
            self._timed_look()
            while self.lag and self._clock() < until:
                self._timed_look()
            self._end()
        except (RiprapError, OSError) as error:
            # What it is for goes on without it.
            self._tell("replicas not compared", message=str(error))
        finally:
            for _, comparison in self._comparisons:
                with contextlib.suppress(RiprapError, OSError):
                    comparison.close()

    def _timed_look(self) -> None:
        began = time.thread_time()
        try:
            self.look()
        finally:
            self._seconds += time.thread_time() - began

    def _note(self, channel: ChannelPlan, difference: LogDifference) -> None:
        before, now = self._told.get(channel.name), self._clock()
        if before is not None and before.wrong == difference.wrong and now - before.time < AGAIN_SECONDS:
            before.further += 1
            return
        self._told[channel.name] = _Told(now, difference.wrong)
        self._tell(
            "replicas differ",
            group=channel.group,
            stream=channel.stream,
            channel=channel.name,
            replicas=list(difference.replicas),
            wrong=list(difference.wrong),
            after=difference.after,
            upto=difference.upto,
            further=0 if before is None else before.further,
            **asdict(difference.differing),
        )

    def _end(self) -> None:
        counts: dict[str, Any] = {name: getattr(self.counts, name) for name in Counts.__slots__}
        self._tell("replicas compared", **counts, seconds=round(self._seconds, 3))


def _compared(channels: Iterable[ChannelPlan]) -> list[ChannelPlan]:
    """Choose channels that have every column that replicas put out: of a stream the one that has most, mostly."""
    chosen: list[ChannelPlan] = []
    for channel in sorted(channels, key=lambda each: len(each.schema.names), reverse=True):
        has = {name for each in chosen if each.stream == channel.stream for name in each.schema.names}
        fresh = channel.stream not in {each.stream for each in chosen} or not has >= set(channel.schema.names)
        if channel.group is not None and channel.failover != "plain" and fresh:
            chosen.append(channel)
    return chosen


def _yield_to_others() -> None:
    # Linux has a priority for each thread.
    with contextlib.suppress(OSError, AttributeError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
