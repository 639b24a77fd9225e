"""The simulator's inner loop, to be compiled for one net.

The text of this file stands before the functions and tables that `riprap.san.source` writes for a net, and both are
compiled as one module: the names that are declared first here are the net's own there. ``j`` is the number of an
activity (of a case for `chance` and `put`); for ``m``, ``p`` and the other arrays see `riprap.san.workspace`.
"""

from __future__ import annotations

import math

import numpy as np

from riprap.san.draws import (  # noqa: F401 - the functions that are written for a net draw from them
    deterministic,
    empirical,
    erlang,
    exponential,
    gamma,
    inner,
    lognormal,
    normal_above_zero,
    seed_streams,
    uniform,
    uniform_between,
    weibull,
)  # fmt: skip

NEGATIVE, BROKEN, BAD_CHANCE, BAD_TIME, BAD_WEIGHT, UNSTABLE = 1, 2, 3, 4, 5, 6
AT_ONCE = 1_000_000  # so many completions without time passing are a loop
RECENT = 64  # of these are kept to show it
SUM_WITHIN = 1e-9
CACHED = False

enabled = look = weight = take = chance = put = value = impulse = max
TIMED = RATES = REACTIVE_COUNT = 0
CASES = CASE_AT = PRIORITY = REACTIVE = LOOKS = LOOKS_AT = np.zeros(1, np.int64)
CANDIDATES = CANDIDATES_AT = REVALUED = REVALUED_AT = REWARDED = REWARDED_AT = np.zeros(1, np.int64)


@inner
def whole(x, place, e):  # type: ignore[no-untyped-def]
    """Return a float that is a number of tokens."""
    if not (math.floor(x) == x and abs(x) < 2.0**53):
        e[0] = BROKEN
        e[2] = place
        return 0
    return int(x)


@inner
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


@inner
def complete(j, now, m, p, s, e, spans, out, r):  # type: ignore[no-untyped-def]
    """Let an activity complete: its rewards, its input, a case, its output."""
    for q in range(REWARDED_AT[j], REWARDED_AT[j + 1]):
        k = REWARDED[q]
        if spans[k, 0] <= now <= spans[k, 1]:
            out[r, k] += impulse(q, m, p)
    e[1] = j
    take(j, m, p, e)
    if CASES[j] > 0:
        c = choose_case(j, m, p, s, e)
        put(CASE_AT[j] + c, m, p, e)


@inner
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


@inner
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


@inner
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


@inner
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


@inner
def drop(j, t, tree, on):  # type: ignore[no-untyped-def]
    """Forget the time of an activity that is not enabled."""
    on[j] = False
    if t[j] != math.inf:
        schedule(j, math.inf, t, tree)


@inner
def collect(k, now, held, since, spans, out, r):  # type: ignore[no-untyped-def]
    """Add up what a rate reward was worth since it was last looked at."""
    start, end = spans[k, 0], spans[k, 1]
    if start == end:
        if since[k] <= start < now:
            out[r, k] = held[k]
    else:
        time = min(now, end) - max(since[k], start)
        if time > 0.0:
            out[r, k] += held[k] * time
    since[k] = now


@inner
def record(j, now, m, n, times, numbers, markings):  # type: ignore[no-untyped-def]
    if n < len(times):
        times[n] = now
        numbers[n] = j
        for i in range(len(m)):
            markings[n, i] = m[i]


@inner
def begin(r, seed, replication, w):  # type: ignore[no-untyped-def]
    """Set everything back to how a replication begins."""
    seed_streams(seed, replication, w.keys, w.s)
    for i in range(len(w.m)):
        w.m[i] = w.initial[i]
    for i in range(len(w.t)):
        w.t[i] = math.inf
        w.on[i] = False
    for i in range(len(w.stamp)):
        w.stamp[i] = -1
    for k in range(w.out.shape[1]):
        w.since[k] = 0.0
        w.out[r, k] = 0.0


@inner
def replicate(r, until, w):  # type: ignore[no-untyped-def]
    """Simulate one replication; return how many activities completed."""
    m, p, s, e, t, tree, on, drawn = w.m, w.p, w.s, w.e, w.t, w.tree, w.on, w.drawn
    spans, out, held, since, waiting, fired, stamp = (
        w.spans,
        w.out,
        w.held,
        w.since,
        w.waiting,
        w.fired,
        w.stamp,
    )
    activities = len(s) - 1
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
                    look(i, m, p, s, e, now, t, tree, on, drawn)
                for k in range(RATES):
                    held[k] = value(k, m, p)
            else:
                for f in range(fired_count):
                    i = fired[f]
                    for q in range(LOOKS_AT[i], LOOKS_AT[i + 1]):
                        look(LOOKS[q], m, p, s, e, now, t, tree, on, drawn)
                    for q in range(REVALUED_AT[i], REVALUED_AT[i + 1]):
                        collect(REVALUED[q], now, held, since, spans, out, r)
                        held[REVALUED[q]] = value(REVALUED[q], m, p)
                for q in range(REACTIVE_COUNT):
                    look(REACTIVE[q], m, p, s, e, now, t, tree, on, drawn)
            stables += 1
            fired_count = 0
            j = tree[1]
            if not t[j] <= until or e[0] != 0:
                break
            if t[j] > now:
                at_once = 0
                now = t[j]
            on[j] = False
        complete(j, now, m, p, s, e, spans, out, r)
        record(j, now, m, completions, w.times, w.numbers, w.markings)
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
        collect(k, math.inf, held, since, spans, out, r)
    return completions


@inner(cache=CACHED, nogil=True)
def run(seed, first, until, w):  # type: ignore[no-untyped-def]
    """Simulate replications ``first`` and after, a row of ``out`` each; return how many activities completed."""
    leaves = len(w.t)
    for i in range(leaves):
        w.tree[leaves + i] = i
    for i in range(leaves - 1, 0, -1):
        w.tree[i] = w.tree[2 * i]
    completions = 0
    for r in range(len(w.out)):
        begin(r, seed, first + r, w)
        completions += replicate(r, until, w)
        if w.e[0] != 0:
            w.e[3] = first + r
            break
    return completions
