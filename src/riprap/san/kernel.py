"""The simulator's inner loop, to be compiled for one net.

The text of this file stands before the functions that `riprap.san.source` writes for the code of a net, and both are
compiled as one module: what is only declared here is the net's own there. Everything else about a net, its arcs and the
numbers that do not depend on the marking, is data in the arrays of `riprap.san.workspace`: nets whose code is the same
share their machine code. ``j`` is the number of an activity, ``c`` of a case.
"""

from __future__ import annotations

import math

from riprap.san.draws import (  # noqa: F401 - the functions that are written for a net draw from them
    deterministic,
    empirical,
    erlang,
    exponential,
    gamma,
    inlined,
    inner,
    lognormal,
    normal_above_zero,
    seed_streams,
    uniform,
    uniform_between,
    weibull,
)  # fmt: skip

NEGATIVE, BROKEN, BAD_CHANCE, BAD_TIME, BAD_WEIGHT, UNSTABLE = 1, 2, 3, 4, 5, 6
GATED, TAKES_BY_CODE, PUTS_BY_CODE, MARKED, FOLLOWS, REACTIVE = 1, 2, 4, 8, 16, 32
AT_ONCE = 1_000_000  # so many completions without time passing are a loop
RECENT = 64  # of these are kept to show it
SUM_WITHIN = 1e-9  # how far from one probabilities may sum: a third is not a third in binary
CACHED = False

gate = reactivated = first_parameter = second_parameter = draw = weight = chance = take = put = value = (
    impulse
) = max


@inner
def whole(x, place, e):  # type: ignore[no-untyped-def]
    """Return a float that is a number of tokens."""
    if not (math.floor(x) == x and abs(x) < 2.0**53):
        e[0] = BROKEN
        e[2] = place
        return 0
    return int(x)


@inlined
def enabled(j, m, p, n):  # type: ignore[no-untyped-def]
    for q in range(n.needs_at[j], n.needs_at[j + 1]):
        if m[n.needs[q, 0]] < n.needs[q, 1]:
            return False
    return n.flags[j] & GATED == 0 or gate(j, m, p)


@inner
def choose_case(j, m, p, s, e, n):  # type: ignore[no-untyped-def]
    u = uniform(s, j)
    total = 0.0
    chosen = -1
    for c in range(n.cases_at[j], n.cases_at[j + 1]):
        x = n.chances[c]
        if math.isnan(x):
            x = chance(c, m, p)
        if not -SUM_WITHIN <= x <= 1.0 + SUM_WITHIN:
            total = math.nan
        # Rounding may leave the sum below the draw: the last case that can happen is then it.
        if x > 0.0 and (chosen < 0 or u >= total):
            chosen = c
        total += x
    if chosen < 0 or not abs(total - 1.0) <= SUM_WITHIN:
        e[0] = BAD_CHANCE
        chosen = -1
    return chosen


@inlined
def complete(j, now, r, m, p, s, e, n, spans, out):  # type: ignore[no-untyped-def]
    """Let an activity complete: its rewards, its input, a case, its output."""
    for q in range(n.rewarded_at[j], n.rewarded_at[j + 1]):
        k = n.rewarded[q]
        if spans[k, 0] <= now <= spans[k, 1]:
            out[r, k] += impulse(q, m, p) if math.isnan(n.impulses[q]) else n.impulses[q]
    e[1] = j
    for q in range(n.takes_at[j], n.takes_at[j + 1]):
        m[n.takes[q, 0]] += n.takes[q, 1]
    if n.flags[j] & TAKES_BY_CODE:
        take(j, m, p, e)
    c = n.cases_at[j]
    if n.cases_at[j + 1] - c > 1:
        c = choose_case(j, m, p, s, e, n)
    if e[0] != 0:
        return  # in the marking that the error is about
    for q in range(n.puts_at[c], n.puts_at[c + 1]):
        m[n.puts[q, 0]] += n.puts[q, 1]
    if n.flags[j] & PUTS_BY_CODE:
        put(c, m, p, e)


@inlined
def choose_instantaneous(waiting, count, m, p, s, e, n):  # type: ignore[no-untyped-def]
    """Choose among enabled candidates by priority and weight; forget those that are not enabled.

    Return the number of those that are left, and the chosen one, or -1.
    """
    left = ties = 0
    chosen = -1
    for i in range(count):
        j = waiting[i]
        if enabled(j, m, p, n):
            waiting[left] = j
            left += 1
            if chosen < 0 or n.priority[j] > n.priority[chosen]:
                chosen = j
                ties = 1
            elif n.priority[j] == n.priority[chosen]:
                ties += 1
    if ties > 1:
        chosen = choose_by_weight(waiting, left, n.priority[chosen], m, p, s, e, n)
    return left, chosen


@inner
def choose_by_weight(waiting, count, priority, m, p, s, e, n):  # type: ignore[no-untyped-def]
    total = 0.0
    for i in range(count):
        j = waiting[i]
        if n.priority[j] == priority:
            x = weight(j, m, p) if math.isnan(n.first[j]) else n.first[j]
            if not 0.0 <= x < math.inf:
                e[0] = BAD_WEIGHT
                e[1] = j
            total += x
    u = uniform(s, len(s) - 1) * total
    so_far = 0.0
    chosen = -1
    for i in range(count):
        j = waiting[i]
        if n.priority[j] == priority:
            x = weight(j, m, p) if math.isnan(n.first[j]) else n.first[j]
            if x > 0.0 and (chosen < 0 or u >= so_far):
                chosen = j
            so_far += x
    if chosen < 0:
        e[0] = BAD_WEIGHT
        e[1] = chosen = waiting[0]
    return chosen


@inlined
def add_candidates(j, waiting, count, n):  # type: ignore[no-untyped-def]
    """Add those that a completion may have enabled, in the order of the net, each once."""
    for q in range(n.candidates_at[j], n.candidates_at[j + 1]):
        candidate = n.candidates[q]
        i = count
        while i > 0 and waiting[i - 1] > candidate:
            i -= 1
        if i == 0 or waiting[i - 1] != candidate:
            for k in range(count, i, -1):
                waiting[k] = waiting[k - 1]
            waiting[i] = candidate
            count += 1
    return count


@inlined
def look(j, now, m, p, s, e, n, t, on, drawn):  # type: ignore[no-untyped-def]
    """Return when an activity completes: at the time it has, at a new one, or never."""
    if not enabled(j, m, p, n):
        on[j] = False
        return math.inf
    flags = n.flags[j]
    a, b = n.first[j], n.second[j]
    again = not on[j]
    if flags & (MARKED | REACTIVE):
        if flags & MARKED:
            if math.isnan(a):
                a = first_parameter(j, m, p)
            if math.isnan(b):
                b = second_parameter(j, m, p)
        if flags & REACTIVE and reactivated(j, m, p):
            again = True
        if flags & FOLLOWS and drawn[j] != a:
            again = True
    if not again:
        return t[j]
    on[j] = True
    drawn[j] = a
    return now + draw(n.kinds[j], a, b, j, p, s, e)


@inlined
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
def collect(k, now, r, held, since, spans, out):  # type: ignore[no-untyped-def]
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
def record(at, j, now, m, times, numbers, markings):  # type: ignore[no-untyped-def]
    times[at] = now
    numbers[at] = j
    for i in range(len(m)):
        markings[at, i] = m[i]


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
    for k in range(len(w.since)):
        w.since[k] = 0.0
        w.out[r, k] = 0.0


@inner
def replicate(r, until, w, n):  # type: ignore[no-untyped-def]
    """Simulate one replication; return how many activities completed."""
    m, p, s, e, t, tree, on, drawn = w.m, w.p, w.s, w.e, w.t, w.tree, w.on, w.drawn
    out, held, since, waiting, fired, stamp = w.out, w.held, w.since, w.waiting, w.fired, w.stamp
    completions = at_once = stables = 0
    now = 0.0
    # The beginning is the completion of one activity more than there are: everything has to be looked at.
    fired[0] = len(s) - 1
    fired_count = 1
    count = add_candidates(len(s) - 1, waiting, 0, n)
    while e[0] == 0:
        j = -1
        if count > 0:
            count, j = choose_instantaneous(waiting, count, m, p, s, e, n)
        if j < 0:
            for f in range(fired_count):
                i = fired[f]
                for q in range(n.looks_at[i], n.looks_at[i + 1]):
                    seen = n.looks[q]
                    time = look(seen, now, m, p, s, e, n, t, on, drawn)
                    if time != t[seen]:
                        schedule(seen, time, t, tree)
                for q in range(n.revalued_at[i], n.revalued_at[i + 1]):
                    k = n.revalued[q]
                    collect(k, now, r, held, since, n.spans, out)
                    held[k] = value(k, m, p)
            stables += 1
            fired_count = 0
            j = tree[1]
            if not t[j] <= until or e[0] != 0:
                break
            if t[j] > now:
                at_once = 0
                now = t[j]
            on[j] = False
        complete(j, now, r, m, p, s, e, n, n.spans, out)
        if completions < len(w.times):
            record(completions, j, now, m, w.times, w.numbers, w.markings)
        completions += 1
        at_once += 1
        if at_once > AT_ONCE:
            e[3 + at_once - AT_ONCE] = j
            if at_once == AT_ONCE + RECENT:
                e[0] = UNSTABLE
        if stamp[j] != stables:
            stamp[j] = stables
            fired[fired_count] = j
            fired_count += 1
        count = add_candidates(j, waiting, count, n)
    for k in range(n.rates):
        collect(k, math.inf, r, held, since, n.spans, out)
    return completions


@inner(cache=CACHED, nogil=True)
def run(seed, first, until, w, n):  # type: ignore[no-untyped-def]
    """Simulate replications ``first`` and after, a row of ``out`` each; return how many activities completed."""
    leaves = len(w.t)
    for i in range(leaves):
        w.tree[leaves + i] = i
    for i in range(leaves - 1, 0, -1):
        w.tree[i] = w.tree[2 * i]
    completions = 0
    for r in range(len(w.out)):
        begin(r, seed, first + r, w)
        completions += replicate(r, until, w, n)
        if w.e[0] != 0:
            w.e[3] = first + r
            break
    return completions
