"""The arrays that a compiled net works on: what a net is, and what a simulation of it keeps.

They are made outside, for compiled code does not allocate. Rows of different lengths are in one array, and begin where
the array of the same name with ``_at`` says. A number that depends on the marking is a NaN here, and code instead.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from riprap.arrays import Floats, Ints
from riprap.san import kernel
from riprap.san.distributions import Empirical
from riprap.san.draws import stream_key
from riprap.san.rendering import constant
from riprap.san.source import KINDS, gates_of, put_by_code, taken_by_code
from riprap.san.wiring import Wiring


class NetTables(NamedTuple):
    """What a net is, apart from its code."""

    flags: Ints  # of an activity: which code it has
    needs_at: Ints
    needs: Ints  # places and tokens without which an activity is not enabled
    takes_at: Ints
    takes: Ints  # places and what is added to them before a case is chosen
    cases_at: Ints
    puts_at: Ints
    puts: Ints  # places and what is added to them by a case
    chances: Floats  # of cases
    priority: Ints
    kinds: Ints  # of the distributions of times
    first: Floats  # their parameters; of instantaneous activities, the weight
    second: Floats
    looks_at: Ints
    looks: Ints
    candidates_at: Ints
    candidates: Ints
    rates: int  # how many rewards are rate rewards: they come first
    revalued_at: Ints
    revalued: Ints
    rewarded_at: Ints
    rewarded: Ints
    impulses: Floats
    spans: Floats  # of rewards: from when to when


class Work(NamedTuple):
    """What a simulation keeps."""

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
    out: Floats  # rewards by replication
    held: Floats  # what a rate reward is worth now
    since: Floats  # and since when
    times: Floats  # a trace: when, which activity, which marking
    numbers: Ints
    markings: Ints


def make_tables(wiring: Wiring, spans: Sequence[tuple[float, float]]) -> NetTables:
    """Write a net as tables."""
    activities, number = wiring.activities, wiring.places
    code, gates = put_by_code(wiring), gates_of(wiring)
    taken = taken_by_code(wiring)
    flags = [
        kernel.GATED * bool(gates[j]) | kernel.TAKES_BY_CODE * bool(taken[j]) for j in range(len(activities))
    ]
    puts = []
    for c, (j, case) in enumerate(wiring.cases):
        flags[j] |= kernel.PUTS_BY_CODE * bool(code[c])
        puts.append(
            [(number[place], n) for each in (activities[j].puts, case.puts) for place, n in each.items()]
        )
    takes = [[(number[place], -n) for place, n in activity.takes.items()] for activity in activities]
    first, second, start = [], [], len(wiring.net.parameters)
    for j, activity in enumerate(activities):
        if isinstance(activity.time, Empirical):
            values = [float(start), float(len(activity.time.samples))]
            start += len(activity.time.samples)
        else:
            values = _numbers(
                wiring, activity.time.codes.values() if activity.time else [str(activity.weight)]
            )
        first.append(values[0])
        second.append(values[1] if len(values) > 1 else 0.0)
        if activity.timed:
            flags[j] |= kernel.MARKED * any(map(math.isnan, values)) | kernel.FOLLOWS * wiring.follows(j)
            flags[j] |= kernel.REACTIVE * (activity.reactivate is not None)
    return NetTables(
        np.array(flags, np.int64),
        *_pairs([[(place, -n) for place, n in row] for row in takes]),
        *_pairs(takes),
        _starts([len(activity.cases) or 1 for activity in activities]),
        *_pairs(puts),
        np.array(_numbers(wiring, (str(case.probability) for _, case in wiring.cases)), np.float64),
        np.array([activity.priority for activity in activities], np.int64),
        np.array([KINDS.index(a.time.draw) if a.time else -1 for a in activities], np.int64),
        np.array(first, np.float64),
        np.array(second, np.float64),
        *_rows(wiring.looks),
        *_rows(wiring.candidates),
        len(wiring.rates),
        *_rows(wiring.revalued),
        *_rows(wiring.rewarded),
        np.array(_numbers(wiring, (str(r.values[name]) for name, r in wiring.rewarding)), np.float64),
        np.array(spans, np.float64).reshape(len(spans), 2),
    )


def make_work(wiring: Wiring, count: int, traced: int) -> Work:
    """Make the arrays for so many replications, and a trace of so many completions."""
    net, activities = wiring.net, len(wiring.activities)
    rewards = len(wiring.rates) + len(wiring.impulses)
    leaves = 1 << max(wiring.timed - 1, 0).bit_length()
    keys = [*(stream_key(activity.name) for activity in wiring.activities), stream_key("")]
    samples = [x for activity in wiring.activities for x in getattr(activity.time, "samples", ())]
    return Work(
        initial=np.array([place.initial for place in net.places], np.int64),
        m=np.zeros(len(net.places), np.int64),
        p=np.array([*net.parameters.values(), *samples], np.float64),
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
        out=np.zeros((count, rewards)),
        held=np.zeros(rewards),
        since=np.zeros(rewards),
        times=np.zeros(traced),
        numbers=np.zeros(traced, np.int64),
        markings=np.zeros((traced, len(net.places)), np.int64),
    )


def _numbers(wiring: Wiring, texts: Iterable[str]) -> list[float]:
    constants = (constant(text, wiring.net.parameters) for text in texts)
    return [math.nan if value is None else value for value in constants]


def _starts(lengths: Sequence[int]) -> Ints:
    return np.array([*accumulate(lengths, initial=0)], np.int64)


def _rows(rows: Sequence[Sequence[int]]) -> tuple[Ints, Ints]:
    return _starts([*map(len, rows)]), np.array([each for row in rows for each in row], np.int64)


def _pairs(rows: Sequence[Sequence[tuple[int, int]]]) -> tuple[Ints, Ints]:
    flat = [pair for row in rows for pair in row]
    return _starts([*map(len, rows)]), np.array(flat, np.int64).reshape(len(flat), 2)
