"""One replication of a model, from the first tuple to the horizon."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from riprap.arrays import Floats, Ints
from riprap.model.arrays import ModelArrays, ModelState, Question, ReplicationResult
from riprap.model.fault_effects import are_up, fail_over, look_again, mean_flows, recover, strike
from riprap.model.jit import compiled, inlined
from riprap.model.leaps import cascade, must_step, release, safe_time


@compiled
def _fresh(w: ModelArrays) -> ModelState:
    nodes, ports, groups = len(w.node_operator), len(w.port_node), len(w.group_failover)
    outputs = len(w.output_links) - 1
    s = ModelState(
        np.ones((nodes, 2), np.bool_),
        np.zeros((nodes, 2), np.bool_),
        np.zeros((nodes, 2), np.int64),
        np.zeros((ports, 2)),
        np.zeros((ports, 2)),
        np.zeros(ports),
        np.zeros(ports),
        np.zeros(ports),
        np.zeros(2 * ports, np.int64),
        np.zeros(2 * len(w.link_port), np.int64),
        np.zeros(ports, np.int64),
        np.zeros(ports, np.int64),
        np.zeros(outputs, np.int64),
        np.zeros(outputs, np.int64),
        np.zeros(groups, np.int64),
        np.ones(groups, np.bool_),
        np.ones((groups, 2), np.bool_),
        np.zeros((groups, 2), np.bool_),
        np.zeros((groups, 2), np.bool_),
        np.ones(nodes, np.bool_),
        np.zeros(ports),
        np.zeros(w.sinks, np.int64),
        np.zeros(w.sinks, np.int64),
        np.zeros(1, np.int64),
        np.zeros((w.operators, 2), np.bool_),
    )
    mean_flows(w, s.passes, s.active, s.working, s.nominal)
    return s


class _Due(NamedTuple):
    """When each thing happens next, infinity where it does not: by unit, by copy of a node, by group, by source."""

    crash: Floats
    recovery: Floats
    strike: Floats
    failover: Floats
    first: Floats


@compiled
def _drawn(rng: Any, w: ModelArrays, q: Question) -> _Due:
    nodes, ports, units = len(w.node_operator), len(w.port_node), len(w.unit_first) - 1
    crash, recovery = np.full(units, np.inf), np.full(units, np.inf)
    strike, failover = np.full(2 * nodes, np.inf), np.full(len(w.group_failover), np.inf)
    for unit in range(units):
        if q.crash_rate[unit] > 0.0:
            crash[unit] = rng.exponential(1.0 / q.crash_rate[unit])
        crash[unit] = min(crash[unit], q.crash_at[unit])
    for node in range(nodes):
        for copy in range(w.node_copies[node]):
            if q.corruption_rate[node] > 0.0:
                strike[2 * node + copy] = rng.exponential(1.0 / q.corruption_rate[node])
    first = np.full(ports, np.inf)
    for port in range(ports):
        if w.port_rate[port] > 0.0:
            first[port] = rng.random() / w.port_rate[port]
    return _Due(crash, recovery, strike, failover, first)


@compiled
def _happen(rng: Any, w: ModelArrays, q: Question, s: ModelState, at: _Due, now: float) -> tuple[int, int]:
    """Let everything happen that is due; return how many crashes and corruptions that was."""
    crashes, corruptions, changed = 0, 0, False
    for unit in range(len(at.crash)):
        members = w.unit_members[w.unit_first[unit] : w.unit_first[unit + 1]]
        if at.crash[unit] <= now:
            at.crash[unit], at.recovery[unit] = np.inf, now + q.recovery[unit]
            crashes += 1
            changed = True
            for member in members:
                s.alive[member // 2, member % 2] = False
                s.struck[member // 2, member % 2] = 0
        elif at.recovery[unit] <= now:
            at.recovery[unit] = np.inf
            if q.crash_rate[unit] > 0.0:
                at.crash[unit] = now + rng.exponential(1.0 / q.crash_rate[unit])
            changed = True
            for member in members:
                recover(rng, w, s, member // 2, member % 2)
    for each in range(len(at.strike)):
        if at.strike[each] <= now:
            corruptions += 1
            strike(rng, w, s, each // 2, each % 2)
            at.strike[each] = now + rng.exponential(1.0 / q.corruption_rate[each // 2])
    for group in range(len(at.failover)):
        if at.failover[group] <= now:
            at.failover[group] = np.inf
            s.active[group] = 1 - s.active[group]
            changed = True
    if changed:
        look_again(rng, w, s)
        fail_over(w, s, now, at.failover)
        release(rng, w, s)
    return crashes, corruptions


@inlined
def _bring(w: ModelArrays, s: ModelState, first: Floats, arrived: Ints, reach: float) -> None:
    """Let the tuples come in that are due before ``reach``."""
    for port in range(len(arrived)):
        if w.port_rate[port] > 0.0:
            due = first[port] + arrived[port] / w.port_rate[port]
            if due < reach:
                more = int((reach - due) * w.port_rate[port]) + 1
                s.came[port] += more
                arrived[port] += more


@compiled
def simulate(w: ModelArrays, q: Question, rng: Any) -> ReplicationResult:
    """Run one replication."""
    s = _fresh(w)
    at = _drawn(rng, w, q)
    first, ports = at.first, len(w.port_node)
    arrived = np.zeros(ports, np.int64)
    series = np.zeros((q.ticks, 2), np.int64)
    tick = 0
    now, since, up, up_alone = 0.0, 0.0, 0.0, 0.0
    crashes, corruptions, leaps = 0, 0, 0
    up_now, up_now_alone = True, True
    while True:
        until = q.horizon
        if q.ticks:
            until = min(until, (tick + 1) * q.horizon / q.ticks)
        until = min(until, min(at.crash.min(), at.recovery.min()))
        until = min(until, at.strike.min())
        for group in range(len(at.failover)):
            until = min(until, at.failover[group])
        # Tuples that come in until then, as many at a time as meet the same.
        while True:
            soonest, source = np.inf, -1
            for port in range(ports):
                if w.port_rate[port] > 0.0:
                    due = first[port] + arrived[port] / w.port_rate[port]
                    if due < soonest:
                        soonest, source = due, port
            if source < 0 or soonest >= until:
                break
            reach = now if must_step(w, s) else safe_time(w, s, now, until)
            if reach <= soonest:
                reach = soonest
                s.came[source] += 1
                arrived[source] += 1
            else:
                _bring(w, s, first, arrived, reach)
            up += (reach - now) * up_now
            up_alone += (reach - now) * up_now_alone
            now = reach
            leaps += 1
            cascade(rng, w, s)
            up_now, up_now_alone = are_up(w, s)
        up += (until - now) * up_now
        up_alone += (until - now) * up_now_alone
        s.lost[:] += s.losing * (until - since)
        now = since = until
        # The last tick is the horizon, whichever way its quotient was rounded.
        if tick < q.ticks and (now >= q.horizon or now >= (tick + 1) * q.horizon / q.ticks):
            series[tick] = (s.clean.sum(), s.tainted.sum())
            tick += 1
        if now >= q.horizon:
            break
        crashed, corrupted = _happen(rng, w, q, s, at, now)
        crashes += crashed
        corruptions += corrupted
        up_now, up_now_alone = are_up(w, s)
    return ReplicationResult(
        up, up_alone, crashes, corruptions, s.lost_tuples[0], leaps, s.clean, s.tainted, series
    )


@compiled
def rate_without_faults(w: ModelArrays) -> Floats:
    """Return the tuples a second that reach each sink while nothing fails."""
    s = _fresh(w)
    rate = np.zeros(w.sinks)
    for port in range(len(w.port_node)):
        sink = w.node_sink[w.port_node[port]]
        if sink >= 0:
            rate[sink] += s.nominal[port]
    return rate
