"""The arrays that a compiled net works on; they are made outside, for compiled code does not allocate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from riprap.san import kernel
from riprap.san.draws import stream_key
from riprap.san.wiring import Wiring

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Work(NamedTuple):
    """Named as briefly as code that is all arithmetic on them wants it."""

    initial: Ints
    m: Ints  # the marking
    p: Floats  # parameters, and behind them the samples of empirical distributions
    keys: npt.NDArray[np.uint64]  # of streams: the activities', and at last that of choices by weight
    s: npt.NDArray[np.uint64]  # the streams
    e: Ints  # what went wrong: what, activity, place, replication, and the last activities of a loop
    t: Floats  # when timed activities complete
    tree: Ints  # a tournament of these times
    on: npt.NDArray[np.bool_]  # whether a timed activity has a time, which may be infinite
    drawn: Floats  # the rate with which it was drawn
    waiting: Ints  # instantaneous activities that may be enabled
    fired: Ints  # what completed since the last stable marking, each once
    stamp: Ints  # at which stable marking an activity was last put there
    spans: Floats  # of rewards: from when to when
    out: Floats  # rewards by replication
    held: Floats  # what a rate reward is worth now
    since: Floats  # and since when
    times: Floats  # a trace: when, which activity, which marking
    numbers: Ints
    markings: Ints


def make_work(wiring: Wiring, spans: Sequence[tuple[float, float]], count: int, traced: int) -> Work:
    """Make the arrays for so many replications, and a trace of so many completions."""
    net, activities, rewards = wiring.net, len(wiring.activities), len(spans)
    leaves = 1 << max(wiring.timed - 1, 0).bit_length()
    keys = [*(stream_key(activity.name) for activity in wiring.activities), stream_key("")]
    return Work(
        initial=np.array([place.initial for place in net.places], np.int64),
        m=np.zeros(len(net.places), np.int64),
        p=np.array([*net.parameters.values(), *wiring.samples], np.float64),
        keys=np.array(keys, np.uint64),
        s=np.zeros((activities + 1, 4), np.uint64),
        e=np.zeros(4 + kernel.RECENT, np.int64),
        t=np.zeros(leaves),
        tree=np.zeros(2 * leaves, np.int64),
        on=np.zeros(leaves, np.bool_),
        drawn=np.zeros(leaves),
        waiting=np.zeros(activities + 1, np.int64),
        fired=np.zeros(activities + 1, np.int64),
        stamp=np.zeros(activities + 1, np.int64),
        spans=np.array(spans, np.float64).reshape(rewards, 2),
        out=np.zeros((count, rewards)),
        held=np.zeros(rewards),
        since=np.zeros(rewards),
        times=np.zeros(traced),
        numbers=np.zeros(traced, np.int64),
        markings=np.zeros((traced, len(net.places)), np.int64),
    )
