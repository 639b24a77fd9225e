"""One replication of a model, from the first tuple to the horizon."""

from __future__ import annotations

from typing import Any

import numpy as np

from riprap.arrays import Floats
from riprap.model.arrays import ModelArrays, ModelState, Question, ReplicationResult
from riprap.model.fault_effects import are_up, fail_over, look_again, mean_flows, recover, strike
from riprap.model.jit import compiled
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
        np.zeros(ports, np.int64),
        np.zeros(ports, np.int64),
        np.zeros(outputs, np.int64),
        np.zeros(outputs, np.int64),
        np.zeros(groups, np.int64),
        np.ones(groups, np.bool_),
        np.ones(nodes, np.bool_),
        np.zeros(ports),
        np.zeros(w.sinks, np.int64),
        np.zeros(w.sinks, np.int64),
        np.zeros(1, np.int64),
        np.zeros((w.operators, 2), np.bool_),
    )
    mean_flows(w, s.passes, s.active, s.working, s.nominal)
    return s


@compiled
def simulate(w: ModelArrays, q: Question, rng: Any) -> ReplicationResult:
    """Run one replication."""
    s = _fresh(w)
    nodes, ports, units = len(w.node_operator), len(w.port_node), len(w.unit_first) - 1
    crash_at, recover_at = np.full(units, np.inf), np.full(units, np.inf)
    strike_at = np.full(2 * nodes, np.inf)
    failover_at = np.full(len(s.active), np.inf)
    for unit in range(units):
        if q.crash_rate[unit] > 0.0:
            crash_at[unit] = rng.exponential(1.0 / q.crash_rate[unit])
        crash_at[unit] = min(crash_at[unit], q.crash_at[unit])
    for node in range(nodes):
        for copy in range(w.node_copies[node]):
            if q.corruption_rate[node] > 0.0:
                strike_at[2 * node + copy] = rng.exponential(1.0 / q.corruption_rate[node])
    first = np.full(ports, np.inf)
    arrived = np.zeros(ports, np.int64)
    for port in range(ports):
        if w.port_rate[port] > 0.0:
            first[port] = rng.random() / w.port_rate[port]
    series = np.zeros((q.ticks, 2), np.int64)
    tick = 0
    now, since, up, up_alone = 0.0, 0.0, 0.0, 0.0
    crashes, corruptions, leaps = 0, 0, 0
    up_now, up_now_alone = True, True
    while True:
        until = q.horizon
        if q.ticks:
            until = min(until, (tick + 1) * q.horizon / q.ticks)
        until = min(until, min(crash_at.min(), recover_at.min()))
        until = min(until, strike_at.min())
        for group in range(len(failover_at)):
            until = min(until, failover_at[group])
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
                for port in range(ports):
                    if w.port_rate[port] > 0.0:
                        due = first[port] + arrived[port] / w.port_rate[port]
                        if due < reach:
                            more = int((reach - due) * w.port_rate[port]) + 1
                            s.came[port] += more
                            arrived[port] += more
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
        changed = False
        for unit in range(units):
            members = w.unit_members[w.unit_first[unit] : w.unit_first[unit + 1]]
            if crash_at[unit] <= now:
                crash_at[unit], recover_at[unit] = np.inf, now + q.recovery[unit]
                crashes += 1
                changed = True
                for member in members:
                    s.alive[member // 2, member % 2] = False
                    s.struck[member // 2, member % 2] = 0
            elif recover_at[unit] <= now:
                recover_at[unit] = np.inf
                if q.crash_rate[unit] > 0.0:
                    crash_at[unit] = now + rng.exponential(1.0 / q.crash_rate[unit])
                changed = True
                for member in members:
                    recover(rng, w, s, member // 2, member % 2)
        for each in range(2 * nodes):
            if strike_at[each] <= now:
                corruptions += 1
                strike(rng, w, s, each // 2, each % 2)
                strike_at[each] = now + rng.exponential(1.0 / q.corruption_rate[each // 2])
        for group in range(len(failover_at)):
            if failover_at[group] <= now:
                failover_at[group] = np.inf
                s.active[group] = 1 - s.active[group]
                changed = True
        if changed:
            look_again(w, s)
            fail_over(w, s, now, failover_at)
            release(rng, w, s)
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
