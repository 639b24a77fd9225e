"""Random numbers inside compiled code: a stream for every activity, and draws from the distributions.

Streams are xoshiro256++ (Blackman and Vigna), seeded by SplitMix64 from the seed, the number of the replication and the
name of the activity. So a replication is the same wherever it runs, and activities of the same name in two variants of
a net draw the same numbers.
"""

from __future__ import annotations

import math
from functools import partial
from hashlib import blake2b
from typing import Any

import numpy as np
from numba import njit

# Nothing allocates in the loop of a simulation, so nothing counts references: that would take half of the time.
inner: Any = partial(njit, _nrt=False)
inlined: Any = partial(njit, _nrt=False, forceinline=True)

BAD_TIME = 4

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_U11, _U17, _U19, _U23 = np.uint64(11), np.uint64(17), np.uint64(19), np.uint64(23)
_U27, _U30, _U31, _U41, _U45 = np.uint64(27), np.uint64(30), np.uint64(31), np.uint64(41), np.uint64(45)
_UNIT = 2.0**-53


def stream_key(name: str) -> int:
    """Return the number that stands for a name in the seed of its stream.

    >>> stream_key("serve") == stream_key("serve") != stream_key("arrive")
    True
    """
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little")


@inner
def mixed(z):  # type: ignore[no-untyped-def]
    """Scramble 64 bits."""
    z = (z ^ (z >> _U30)) * _MIX_1
    z = (z ^ (z >> _U27)) * _MIX_2
    return z ^ (z >> _U31)


@inner
def seed_streams(seed, replication, keys, s):  # type: ignore[no-untyped-def]
    """Begin the stream of every key, for one replication."""
    base = mixed(mixed(seed + _GOLDEN) + np.uint64(replication) * _GOLDEN + _GOLDEN)
    for j in range(len(keys)):
        z = mixed(base ^ keys[j])
        for word in range(4):
            z = z + _GOLDEN
            s[j, word] = mixed(z)


@inner
def uniform(s, j):  # type: ignore[no-untyped-def]
    """Draw from [0, 1)."""
    a, b, c, d = s[j, 0], s[j, 1], s[j, 2], s[j, 3]
    x = a + d
    x = ((x << _U23) | (x >> _U41)) + a
    shifted = b << _U17
    c ^= a
    d ^= b
    s[j, 1] = b ^ c
    s[j, 0] = a ^ d
    s[j, 2] = c ^ shifted
    s[j, 3] = (d << _U45) | (d >> _U19)
    return float(x >> _U11) * _UNIT


@inner
def standard_normal(s, j):  # type: ignore[no-untyped-def]
    radius = math.sqrt(-2.0 * math.log(1.0 - uniform(s, j)))
    return radius * math.cos(2.0 * math.pi * uniform(s, j))


@inner
def bad(j, e):  # type: ignore[no-untyped-def]
    e[0] = BAD_TIME
    e[1] = j
    return math.inf


@inner
def exponential(rate, j, s, e):  # type: ignore[no-untyped-def]
    u = uniform(s, j)
    if not 0.0 <= rate < math.inf:
        return bad(j, e)
    return math.inf if rate == 0.0 else -math.log(1.0 - u) / rate


@inner
def deterministic(value, j, s, e):  # type: ignore[no-untyped-def]
    return value if value >= 0.0 else bad(j, e)


@inner
def uniform_between(low, high, j, s, e):  # type: ignore[no-untyped-def]
    if not 0.0 <= low <= high < math.inf:
        return bad(j, e)
    return low + (high - low) * uniform(s, j)


@inner
def normal_above_zero(mean, deviation, j, s, e):  # type: ignore[no-untyped-def]
    # A mean that is not negative: at least every other draw is taken.
    if not (0.0 <= mean < math.inf and 0.0 <= deviation < math.inf):
        return bad(j, e)
    x = -1.0
    while x < 0.0:
        x = mean + deviation * standard_normal(s, j)
    return x


@inner
def lognormal(mean, deviation, j, s, e):  # type: ignore[no-untyped-def]
    if not (-math.inf < mean < math.inf and 0.0 <= deviation < math.inf):
        return bad(j, e)
    return math.exp(mean + deviation * standard_normal(s, j))


@inner
def weibull(shape, scale, j, s, e):  # type: ignore[no-untyped-def]
    if not (0.0 < shape < math.inf and 0.0 <= scale < math.inf):
        return bad(j, e)
    return scale * (-math.log(1.0 - uniform(s, j))) ** (1.0 / shape)


@inner
def erlang(stages, rate, j, s, e):  # type: ignore[no-untyped-def]
    if not (1.0 <= stages < 2.0**31 and stages == math.floor(stages) and 0.0 < rate < math.inf):
        return bad(j, e)
    total = 0.0
    for _ in range(int(stages)):
        total -= math.log(1.0 - uniform(s, j))
    return total / rate


@inner
def gamma(shape, scale, j, s, e):  # type: ignore[no-untyped-def]
    """Draw by Marsaglia and Tsang's method; below a shape of 1, by that of one more and a power."""
    if not (0.0 < shape < math.inf and 0.0 <= scale < math.inf):
        return bad(j, e)
    power = 1.0
    if shape < 1.0:
        power = (1.0 - uniform(s, j)) ** (1.0 / shape)
        shape += 1.0
    d = shape - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    while True:
        x = standard_normal(s, j)
        v = (1.0 + c * x) ** 3
        if v > 0.0 and math.log(1.0 - uniform(s, j)) < 0.5 * x * x + d - d * v + d * math.log(v):
            return d * v * power * scale


@inner
def empirical(start, count, j, p, s):  # type: ignore[no-untyped-def]
    return p[int(start) + int(uniform(s, j) * count)]
