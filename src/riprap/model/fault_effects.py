"""What faults do to a model: who is hurt, what is lost, and what comes back."""

from __future__ import annotations

from typing import Any

import numpy as np

from riprap.arrays import Bools, Floats, Ints
from riprap.model.arrays import CHECKPOINT, WHOLE, ModelArrays, ModelState
from riprap.model.jit import bare
from riprap.model.leaps import counts, is_filling, is_unstable


@bare
def mean_flows(w: ModelArrays, passes: Bools, active: Ints, working: Bools, flow: Floats) -> None:
    """Work out the tuples a second that reach each port while only some nodes pass tuples on."""
    for port in range(len(flow)):
        flow[port] = w.port_rate[port]
    for node in range(len(w.node_operator)):
        if not passes[node]:
            continue
        for port in range(w.node_ports[node], w.node_ports[node + 1]):
            for output in range(w.node_outputs[node], w.node_outputs[node + 1]):
                share = flow[port] * w.clean[port, output - w.node_outputs[node]]
                for link in range(w.output_links[output], w.output_links[output + 1]):
                    group = w.link_group[link]
                    # What a group keeps comes late, and is not missing.
                    if counts(w, active, working, node, group) or (
                        group >= 0 and w.group_kept[group] and active[group] == w.node_replica[node]
                    ):
                        flow[w.link_port[link]] += share


@bare
def _hurt(w: ModelArrays, s: ModelState, port: int, copy: int, lost: float) -> None:
    """Make a port unstable until it has had the tuples that make up for lost ones."""
    size = w.size[port]
    need = min(w.alpha[port] * size + w.beta[port] * lost, w.gamma[port] * size)
    s.unstable[port, copy] = max(s.unstable[port, copy], np.floor(need))


@bare
def look_again(rng: Any, w: ModelArrays, s: ModelState) -> None:
    """After something has failed or come back: see which tuples are lost now, and who has suffered from it."""
    nodes = len(w.node_operator)
    for node in range(nodes):
        s.passes[node] = s.alive[node, 0] or (w.node_copies[node] > 1 and s.alive[node, 1])
    for group in range(len(s.active)):
        for replica in range(2):
            s.joining[group, replica] = not s.whole[group, replica]
            s.whole[group, replica] = True
        for node in range(nodes):
            if w.node_group[node] == group and not s.alive[node, 0]:
                s.whole[group, w.node_replica[node]] = False
        s.working[group] = s.whole[group, s.active[group]]
    for node in range(nodes):
        s.passes[node] = s.passes[node] or w.node_kept[node]
    mean_flows(w, s.passes, s.active, s.working, s.flow)
    for port in range(len(s.losing)):
        node = w.port_node[port]
        before = s.losing[port]
        missing = s.nominal[port] - s.flow[port]
        now = missing if missing > 1e-9 * s.nominal[port] else 0.0
        s.losing[port] = now if s.passes[node] else s.nominal[port]
        if before > 0.0 and s.losing[port] == 0.0 and w.size[port] > 0.0 and s.lost[port] > 0.0:
            for copy in range(w.node_copies[node]):
                if s.alive[node, copy]:
                    _hurt(w, s, port, copy, s.lost[port])
            s.lost[port] = 0.0
    for group in range(len(s.active)):
        for replica in range(2):
            s.joining[group, replica] = s.joining[group, replica] and s.whole[group, replica]
        for replica in range(2):
            if s.joining[group, replica]:
                _join(rng, w, s, group, replica)
                s.joining[group, replica] = False
        for replica in range(2):
            if not s.whole[group, replica] and s.whole[group, 1 - replica]:
                s.stale[group, replica] = True


@bare
def _join(rng: Any, w: ModelArrays, s: ModelState, group: int, replica: int) -> None:
    """Let a replica that is whole again have the state of the other, or where that is not whole its own."""
    other = s.whole[group, 1 - replica] and not s.joining[group, 1 - replica]
    for node in range(len(w.node_operator)):
        if w.node_group[node] != group or w.node_replica[node] != replica:
            continue
        if other and w.group_peer[group]:
            _take_over(w, s, node, w.node_twin[node])
        elif not other and w.group_kept[group] and s.stale[group, replica]:
            _restore(rng, w, s, node, 0, False)
    s.stale[group, replica] = False


@bare
def _take_over(w: ModelArrays, s: ModelState, node: int, twin: int) -> None:
    """Give a replica's operator the state of the other's, which had what waited for it."""
    s.own[node, 0] = s.own[twin, 0]
    for place in range(w.node_ports[node + 1] - w.node_ports[node]):
        port, other = w.node_ports[node] + place, w.node_ports[twin] + place
        s.unstable[port, 0], s.filling[port, 0] = s.unstable[other, 0], s.filling[other, 0]
        s.lost[port] = s.lost[other]
        s.waiting[port] = s.waiting[port + len(s.came)] = 0


@bare
def recover(rng: Any, w: ModelArrays, s: ModelState, node: int, copy: int) -> None:
    """Bring a copy back, with the state that its protection has for it."""
    others = False
    for other in range(w.node_copies[node]):
        others = others or s.alive[node, other]
    s.alive[node, copy] = True
    _restore(rng, w, s, node, copy, others)


@bare
def _restore(rng: Any, w: ModelArrays, s: ModelState, node: int, copy: int, others: bool) -> None:
    """Give a copy the state of ``others`` that went on, if there are such, or else what its protection has."""
    age = w.node_age[node, 0] + rng.random() * (w.node_age[node, 1] - w.node_age[node, 0])
    for port in range(w.node_ports[node], w.node_ports[node + 1]):
        # What comes back whole is as it was, hurt or not.
        if w.size[port] == 0.0 or w.node_restore[node] == WHOLE:
            continue
        if others:
            # A copy that went on hands over its state.
            for other in range(w.node_copies[node]):
                if other != copy:
                    s.unstable[port, copy] = s.unstable[port, other]
                    s.filling[port, copy] = s.filling[port, other]
            continue
        s.own[node, copy] = True
        if w.node_restore[node] == CHECKPOINT:
            _hurt(w, s, port, copy, s.lost[port] + s.nominal[port] * age)
        else:
            s.unstable[port, copy], s.filling[port, copy] = 0.0, w.size[port]
        s.lost[port] = 0.0


@bare
def fail_over(w: ModelArrays, s: ModelState, now: float, failover_at: Floats) -> None:
    """Start, or call off, the failover of every group, as its replicas are."""
    for group in range(len(s.active)):
        other_works = True
        for node in range(len(w.node_operator)):
            if w.node_group[node] == group and w.node_replica[node] != s.active[group]:
                other_works = other_works and s.alive[node, 0]
        if s.working[group] or not other_works:
            failover_at[group] = np.inf
        elif failover_at[group] == np.inf:
            failover_at[group] = now + w.group_failover[group]


@bare
def strike(rng: Any, w: ModelArrays, s: ModelState, node: int, copy: int) -> None:
    """Corrupt silently: one tuple, or as likely the state where there is one."""
    keeps = fed = False
    for port in range(w.node_ports[node], w.node_ports[node + 1]):
        keeps = keeps or w.size[port] > 0.0
        fed = fed or s.nominal[port] > 0.0
    if not (fed and s.alive[node, copy]):
        return
    if keeps and rng.random() < 0.5:
        for port in range(w.node_ports[node], w.node_ports[node + 1]):
            s.unstable[port, copy] = max(s.unstable[port, copy], w.hurt[port])
    else:
        s.struck[node, copy] += 1


@bare
def are_up(w: ModelArrays, s: ModelState) -> tuple[bool, bool]:
    """Say whether every operator has a copy that is alive, stable and untainted; and if faults did not spread.

    Of a group only the active replica counts: that the other one is well does nothing for what comes out.
    """
    for operator in range(w.operators):
        s.good[operator, 0] = s.good[operator, 1] = False
    for node in range(len(w.node_operator)):
        operator, group = w.node_operator[node], w.node_group[node]
        if group >= 0 and s.active[group] != w.node_replica[node]:
            continue
        for copy in range(w.node_copies[node]):
            if s.alive[node, copy]:
                if not (is_unstable(w, s, node, copy) or is_filling(w, s, node, copy)):
                    s.good[operator, 0] = True
                if not s.own[node, copy]:
                    s.good[operator, 1] = True
    spreading = alone = True
    for operator in range(w.operators):
        spreading = spreading and s.good[operator, 0]
        alone = alone and s.good[operator, 1]
    return spreading, alone
