"""The simulator's inner loop, to be compiled for one net.

The text of this file stands before the functions and tables that `riprap.san.source` writes for a net, and both are
compiled as one module: the names that are declared first here are the net's own there. ``j`` is the number of an
activity (of a case for `chance` and `put`), ``m`` the marking, ``p`` parameters, ``s`` random streams, ``e`` what went wrong.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from riprap.san.draws import (  # noqa: F401 - the functions that are written for a net draw from them
    deterministic, empirical, erlang, exponential, gamma, lognormal, normal_above_zero, seed_streams, uniform,
    uniform_between, weibull,
)  # fmt: skip

NEGATIVE, BROKEN, BAD_CHANCE, BAD_TIME, BAD_WEIGHT, UNSTABLE = 1, 2, 3, 4, 5, 6
AT_ONCE = 1_000_000  # so many completions without time passing are a loop
RECENT = 64  # of these are kept to show it
SUM_WITHIN = 1e-9
CACHED = False

enabled = reactivated = rate = delay = weight = take = chance = put = value = impulse = max
TIMED = RATES = REACTIVE_COUNT = 0
CASES = CASE_AT = PRIORITY = FOLLOWS = REACTIVE = LOOKS = LOOKS_AT = np.zeros(1, np.int64)
CANDIDATES = CANDIDATES_AT = REVALUED = REVALUED_AT = REWARDED = REWARDED_AT = np.zeros(1, np.int64)


@njit
def whole(x, place, e):  # type: ignore[no-untyped-def]
    """Return a float that is a number of tokens."""
    if not (math.floor(x) == x and abs(x) < 2.0**53):
        e[0] = BROKEN
        e[2] = place
        return 0
    return int(x)


@njit
def choose_case(j, m, p, s, e):  # type: ignore[no-untyped-def]
    u = uniform(s, j)
    total = 0.0
    chosen = -1
    for c in range(CASES[j]):
        x = chance(CASE_AT[j] + c, m, p)
        if not -SUM_WITHIN <= x <= 1.0 + SUM_WITHIN:
            e[0] = BAD_CHANCE
        # Rounding may leave the sum below the draw: the last case that can happen is then it.
        if x > 0.0 and (chosen < 0 or u >= total):
            chosen = c
        total += x
    if chosen < 0 or not abs(total - 1.0) <= SUM_WITHIN:
        e[0] = BAD_CHANCE
        e[1] = j
        chosen = 0
    return chosen


@njit
def complete(j, now, m, p, s, e, spans, sums):  # type: ignore[no-untyped-def]
    """Let an activity complete: its rewards, its input, a case, its output."""
    for q in range(REWARDED_AT[j], REWARDED_AT[j + 1]):
        k = REWARDED[q]
        if spans[k, 0] <= now <= spans[k, 1]:
            sums[k] += impulse(q, m, p)
    e[1] = j
    take(j, m, p, e)
    if CASES[j] > 0:
        c = choose_case(j, m, p, s, e)
        put(CASE_AT[j] + c, m, p, e)


@njit
def choose_instantaneous(waiting, count, m, p, s, e):  # type: ignore[no-untyped-def]
    """Choose among enabled candidates by priority and weight; forget those that are not enabled.

    Return the number of those that are left, and the chosen one, or -1.
    """
    left = 0
    chosen = -1
    ties = 0
    for i in range(count):
        j = waiting[i]
        if enabled(j, m, p):
            waiting[left] = j
            left += 1
            if chosen < 0 or PRIORITY[j] > PRIORITY[chosen]:
                chosen = j
                ties = 1
            elif PRIORITY[j] == PRIORITY[chosen]:
                ties += 1
    return left, choose_by_weight(waiting, left, PRIORITY[chosen], m, p, s, e) if ties > 1 else chosen


@njit
def choose_by_weight(waiting, count, priority, m, p, s, e):  # type: ignore[no-untyped-def]
    total = 0.0
    for i in range(count):
        j = waiting[i]
        if PRIORITY[j] == priority:
            x = weight(j, m, p)
            if not 0.0 <= x < math.inf:
                e[0] = BAD_WEIGHT
                e[1] = j
            total += x
    chosen = -1
    u = uniform(s, len(s) - 1) * total
    so_far = 0.0
    for i in range(count):
        j = waiting[i]
        if PRIORITY[j] == priority:
            x = weight(j, m, p)
            if x > 0.0 and (chosen < 0 or u >= so_far):
                chosen = j
            so_far += x
    if chosen < 0:
        e[0] = BAD_WEIGHT
        e[1] = waiting[0]
        chosen = waiting[0]
    return chosen


@njit
def add_candidates(j, waiting, count):  # type: ignore[no-untyped-def]
    """Add those that a completion may have enabled, in the order of the net, each once."""
    for q in range(CANDIDATES_AT[j], CANDIDATES_AT[j + 1]):
        candidate = CANDIDATES[q]
        i = count
        while i > 0 and waiting[i - 1] > candidate:
            i -= 1
        if i == 0 or waiting[i - 1] != candidate:
            for k in range(count, i, -1):
                waiting[k] = waiting[k - 1]
            waiting[i] = candidate
            count += 1
    return count


@njit
def schedule(j, time, t, tree):  # type: ignore[no-untyped-def]
    """Give a timed activity the time of its completion, and play its matches: tree[1] is the next to complete.

    Of equal times the lower number wins.
    """
    t[j] = time
    i = (len(tree) // 2 + j) >> 1
    while i > 0:
        left, right = tree[2 * i], tree[2 * i + 1]
        tree[i] = right if t[right] < t[left] else left
        i >>= 1


@njit
def look(j, now, again, m, p, s, e, t, tree, on, drawn):  # type: ignore[no-untyped-def]
    """Draw a time for an activity that has become enabled, drop that of one that no longer is."""
    if not enabled(j, m, p):
        on[j] = False
        if t[j] != math.inf:
            schedule(j, math.inf, t, tree)
        return
    if FOLLOWS[j]:
        x = rate(j, m, p)
        if on[j] and x != drawn[j]:
            again = True
        drawn[j] = x
    if again or not on[j]:
        on[j] = True
        schedule(j, now + delay(j, m, p, s, e), t, tree)


@njit
def collect(k, now, held, since, spans, sums):  # type: ignore[no-untyped-def]
    """Add up what a rate reward was worth since it was last looked at."""
    start, end = spans[k]
    if start == end:
        if since[k] <= start < now:
            sums[k] = held[k]
    else:
        time = min(now, end) - max(since[k], start)
        if time > 0.0:
            sums[k] += held[k] * time
    since[k] = now


@njit
def record(j, now, m, n, times, numbers, markings):  # type: ignore[no-untyped-def]
    if n < len(times):
        times[n] = now
        numbers[n] = j
        markings[n] = m


@njit
def replicate(until, m, p, s, e, spans, sums, t, tree, times, numbers, markings):  # type: ignore[no-untyped-def]
    """Simulate one replication; return how many activities completed."""
    activities = len(s) - 1
    on = np.zeros(TIMED + 1, np.bool_)
    drawn = np.zeros(TIMED + 1)
    held = np.zeros(RATES + 1)
    since = np.zeros(RATES + 1)
    waiting = np.empty(activities + 1, np.int64)  # instantaneous activities that may be enabled
    fired = np.empty(activities + 1, np.int64)  # what completed since the last stable marking, each once
    stamp = np.full(activities, -1, np.int64)
    completions = at_once = stables = fired_count = 0
    now = 0.0
    count = activities - TIMED
    for i in range(count):
        waiting[i] = TIMED + i
    while e[0] == 0:
        j = -1
        if count > 0:
            count, j = choose_instantaneous(waiting, count, m, p, s, e)
        if j < 0:
            if stables == 0:
                for i in range(TIMED):
                    look(i, now, False, m, p, s, e, t, tree, on, drawn)
                for k in range(RATES):
                    held[k] = value(k, m, p)
            else:
                for f in range(fired_count):
                    i = fired[f]
                    for q in range(LOOKS_AT[i], LOOKS_AT[i + 1]):
                        look(LOOKS[q], now, False, m, p, s, e, t, tree, on, drawn)
                    for q in range(REVALUED_AT[i], REVALUED_AT[i + 1]):
                        collect(REVALUED[q], now, held, since, spans, sums)
                        held[REVALUED[q]] = value(REVALUED[q], m, p)
                for q in range(REACTIVE_COUNT):
                    i = REACTIVE[q]
                    look(i, now, reactivated(i, m, p), m, p, s, e, t, tree, on, drawn)
            stables += 1
            fired_count = 0
            j = tree[1]
            if not t[j] <= until or e[0] != 0:
                break
            if t[j] > now:
                at_once = 0
                now = t[j]
            on[j] = False
        complete(j, now, m, p, s, e, spans, sums)
        record(j, now, m, completions, times, numbers, markings)
        completions += 1
        at_once += 1
        if at_once > AT_ONCE:
            e[4 + at_once % RECENT] = j
            if at_once > AT_ONCE + RECENT:
                e[0] = UNSTABLE
        if stamp[j] != stables:
            stamp[j] = stables
            fired[fired_count] = j
            fired_count += 1
        count = add_candidates(j, waiting, count)
    for k in range(RATES):
        collect(k, math.inf, held, since, spans, sums)
    return completions


@njit(cache=CACHED, nogil=True)
def run(seed, first, until, initial, p, keys, spans, out, m, e, times, numbers, markings):  # type: ignore[no-untyped-def]
    """Simulate replications ``first`` and after, a row of ``out`` each; return how many activities completed.

    The streams of ``keys`` are those of activities, and at last that of choices among instantaneous ones.
    """
    leaves = 1
    while leaves < TIMED:
        leaves *= 2
    tree = np.empty(2 * leaves, np.int64)
    for i in range(leaves):
        tree[leaves + i] = i
    for i in range(leaves - 1, 0, -1):
        tree[i] = tree[2 * i]
    t = np.empty(leaves)
    s = np.empty((len(keys), 4), np.uint64)
    completions = 0
    for r in range(len(out)):
        seed_streams(seed, first + r, keys, s)
        m[:] = initial
        t[:] = math.inf
        out[r] = 0.0
        completions += replicate(until, m, p, s, e, spans, out[r], t, tree, times, numbers, markings)
        if e[0] != 0:
            e[3] = first + r
            break
    return completions
