"""Percentiles and numbers of distinct values of windows, compiled.

A percentile is found in a tree of counts over the ranks of the values (a Fenwick tree), which a tuple enters and leaves
in as many steps as the ranks have binary digits. Windows are taken in blocks of rows a few times as long as a window,
and ranks are those within a block: so the tree of a small window is small, however long the history.
"""

from __future__ import annotations

import math

import numpy as np

from riprap.machine_code import compiled

_BLOCK = 1024


@compiled
def percentiles(order, numbers, valid, low, high, fraction):  # type: ignore[no-untyped-def]
    """Return each window's percentile, interpolated, and how many values it has.

    ``order`` compares as the values do, and ``numbers`` are the values as doubles.
    """
    results = np.zeros(len(low), np.float64)
    counts = np.zeros(len(low), np.int64)
    i = 0
    while i < len(low):
        reach = low[i] + max(_BLOCK, 4 * (high[i] - low[i]))
        j = i + 1
        while j < len(low) and high[j] <= reach:
            j += 1
        _block(order, numbers, valid, low, high, fraction, i, j, results, counts)
        i = j
    return results, counts


@compiled
def _block(order, numbers, valid, low, high, fraction, i, j, results, counts):  # type: ignore[no-untyped-def]
    start, stop = low[i], high[j - 1]
    rank, ranked = _ranks(order, numbers, valid, start, stop)
    held = np.zeros(len(ranked), np.int64)
    tree = np.zeros(len(ranked) + 1, np.int64)
    step = 1
    while 2 * step < len(tree):
        step *= 2
    count = 0
    left = right = start
    for window in range(i, j):
        for row in range(left, min(low[window], right)):
            if valid[row]:
                _count(tree, held, rank[row - start], -1)
                count -= 1
        for row in range(max(low[window], right), high[window]):
            if valid[row]:
                _count(tree, held, rank[row - start], 1)
                count += 1
        left, right = low[window], high[window]
        counts[window] = count
        if count == 0:
            continue
        position = (count - 1) * fraction
        below, above = math.floor(position), math.ceil(position)
        at, before = _find(tree, step, below)
        results[window] = ranked[at]
        if above > below and above >= before + held[at]:
            # Two different values: between them in proportion, by the same operations as Spark's.
            next_at, _ = _find(tree, step, above)
            results[window] = ranked[at] + (position - below) * (ranked[next_at] - ranked[at])


@compiled
def _ranks(order, numbers, valid, start, stop):  # type: ignore[no-untyped-def]
    """Rank the valid rows of a block, equal values alike; return the ranks, and the number of each rank."""
    rank = np.zeros(stop - start, np.int64)
    rows = start + np.flatnonzero(valid[start:stop])
    ranked = np.zeros(len(rows), np.float64)
    ranks = 0
    previous = np.int64(0)
    for row in rows[np.argsort(order[rows])]:
        if ranks == 0 or order[row] != previous:
            # 0.0 and -0.0 are one value: adding 0.0 makes both the same.
            ranked[ranks] = numbers[row] + 0.0
            previous = order[row]
            ranks += 1
        rank[row - start] = ranks - 1
    return rank, ranked[:ranks]


@compiled
def _count(tree, held, rank, sign):  # type: ignore[no-untyped-def]
    held[rank] += sign
    at = rank + 1
    while at < len(tree):
        tree[at] += sign
        at += at & -at


@compiled
def _find(tree, step, place):  # type: ignore[no-untyped-def]
    """Return the rank of the value at a place in sorted order, and how many values are below that rank."""
    at = before = 0
    while step > 0:
        if at + step < len(tree) and before + tree[at + step] <= place:
            at += step
            before += tree[at]
        step >>= 1
    return at, before


@compiled
def distinct_counts(codes, size, low, high):  # type: ignore[no-untyped-def]
    """Return how many different codes, below ``size``, each window has; those below zero are passed over."""
    results = np.zeros(len(low), np.int64)
    held = np.zeros(size, np.int32)
    distinct = left = right = 0
    for i in range(len(low)):
        for row in range(left, min(low[i], right)):
            code = codes[row]
            if code >= 0:
                held[code] -= 1
                distinct -= held[code] == 0
        for row in range(max(low[i], right), high[i]):
            code = codes[row]
            if code >= 0:
                distinct += held[code] == 0
                held[code] += 1
        left, right = low[i], high[i]
        results[i] = distinct
    return results
