"""Simulate a model without its tuples: from one change to the next at once, however many tuples come in between.

Between two changes (a crash, a recovery, a failover, an operator that has stabilised) every tuple meets the same: it
passes each operator with the same probability and comes out clean or tainted in the same way. So of n tuples a binomial
number passes, and n is chosen so that nothing can change before the last of them. The result has the distribution that
a simulation tuple by tuple would have if processing took no time.
"""

from __future__ import annotations

from typing import Any

from riprap.arrays import Bools, Floats, Ints
from riprap.model.arrays import ModelArrays, ModelState
from riprap.model.jit import bare, inlined


@bare
def _passing(rng: Any, count: int, share: float) -> int:
    """Draw how many tuples come out for so many that come in: on average ``share`` for each."""
    if count == 0 or share == 0.0:
        return 0
    whole = int(share)
    rest = share - whole
    return count * whole + (rng.binomial(count, rest) if rest > 0.0 else 0)


@bare
def _after_last(rng: Any, clean: int, tainted: int) -> int:
    """Draw how many of the clean tuples come after the last tainted one, all orders being as likely."""
    after = 0
    while after < clean and rng.random() * (clean + tainted - after) >= tainted:
        after += 1
    return after


@bare
def _emit(rng: Any, count: int, shares: Floats, exclusive: bool, out: Ints) -> None:
    """Add to the outputs of a node what some tuples of a port make."""
    if count == 0:
        return
    left, chance = count, 1.0
    for output in range(len(out)):
        each = shares[output]
        if exclusive:
            emitted = 0
            if each > 0.0 and left > 0:
                emitted = left if each >= chance else rng.binomial(left, each / chance)
            out[output] += emitted
            left -= emitted
            chance -= each
        else:
            out[output] += _passing(rng, count, each)


# Asked many times a leap, these two take few arrays.
@bare
def _any_unstable(size: Floats, unstable: Floats, losing: Floats, first: int, last: int, copy: int) -> bool:
    for port in range(first, last):  # noqa: SIM110 - any() of a generator allocates
        if size[port] > 0.0 and (unstable[port, copy] > 0.0 or losing[port] > 0.0):
            return True
    return False


@bare
def _any_filling(filling: Floats, first: int, last: int, copy: int) -> bool:
    for port in range(first, last):  # noqa: SIM110 - any() of a generator allocates
        if filling[port, copy] > 0.0:
            return True
    return False


@inlined
def is_unstable(w: ModelArrays, s: ModelState, node: int, copy: int) -> bool:
    """Say whether what a copy puts out is tainted whatever comes in."""
    return _any_unstable(w.size, s.unstable, s.losing, w.node_ports[node], w.node_ports[node + 1], copy)


@inlined
def is_filling(w: ModelArrays, s: ModelState, node: int, copy: int) -> bool:
    """Say whether a copy has not yet the state it needs to put out all it should."""
    return _any_filling(s.filling, w.node_ports[node], w.node_ports[node + 1], copy)


@inlined
def counts(w: ModelArrays, active: Ints, working: Bools, node: int, group: int) -> bool:
    """Say whether what a node sends on counts, which leaves a group, or none: -1."""
    return bool(group < 0 or (working[group] and active[group] == w.node_replica[node]))


@inlined
def runs(w: ModelArrays, s: ModelState, node: int) -> bool:
    """Say whether a node processes what comes in; in a group that keeps what it puts out only a whole replica does."""
    group = w.node_group[node]
    if group >= 0 and w.group_kept[group]:
        return bool(s.whole[group, w.node_replica[node]])
    return bool(s.alive[node, 0] or (w.node_copies[node] > 1 and s.alive[node, 1]))


@inlined
def _stands_in(w: ModelArrays, s: ModelState, node: int) -> bool:
    """Say whether the other replica, whose state it will come back with, has what comes in while a node is down."""
    group = w.node_group[node]
    return bool(group >= 0 and w.group_kept[group] and s.whole[group, 1 - w.node_replica[node]])


@inlined
def _wait(w: ModelArrays, s: ModelState, port: int, clean: int, tainted: int) -> None:
    """Say what becomes of tuples that come to a node which is down."""
    node = w.port_node[port]
    if _stands_in(w, s, node):
        return
    if w.node_kept[node]:
        s.waiting[port] += clean
        s.waiting[port + len(s.came)] += tainted
    else:
        s.lost_tuples[0] += clean + tainted


@bare
def _count_down(
    rng: Any, w: ModelArrays, s: ModelState, port: int, copy: int, clean: int, tainted: int
) -> None:
    """Let a port that keeps state take in tuples: clean ones heal it, a tainted one hurts it."""
    s.filling[port, copy] = max(0.0, s.filling[port, copy] - clean - tainted)
    left = s.unstable[port, copy]
    if tainted:
        after = _after_last(rng, clean, tainted)
        left = max(left - (clean - after), w.hurt[port]) - after
    else:
        left -= clean
    s.unstable[port, copy] = max(0.0, left)
    if left <= 0.0:
        node = w.port_node[port]
        if not is_unstable(w, s, node, copy) and not is_filling(w, s, node, copy):
            s.own[node, copy] = False


@inlined
def _take_in(rng: Any, w: ModelArrays, s: ModelState, port: int, clean: int, tainted: int) -> None:
    """Process tuples of one port of a node, which has a copy that is alive."""
    node = w.port_node[port]
    whole = ill = 0
    filling = True
    for copy in range(w.node_copies[node]):
        if s.alive[node, copy]:
            if is_unstable(w, s, node, copy):
                ill += 1
            else:
                whole += 1
                filling = filling and is_filling(w, s, node, copy)
    # The first clean tuple that a struck copy gets is the one that comes out tainted.
    struck = 0
    for copy in range(w.node_copies[node]):
        if s.struck[node, copy] and clean and s.alive[node, copy]:
            s.struck[node, copy] -= 1
            struck = 1
    healthy, spoilt = clean, struck
    if struck and whole + ill == 1:
        healthy -= 1
    if whole and not ill and tainted and w.hurt[port] > 0.0:
        # It is stable until the tainted tuple comes. Leaps end there, so this is about tuples of one moment.
        healthy, spoilt = 0, clean
    first, last = w.node_outputs[node], w.node_outputs[node + 1]
    if whole:
        shares = w.scratch[port] if filling else w.clean[port]
        _emit(rng, healthy, shares, w.exclusive[port], s.out[first:last])
    made_tainted = tainted + (clean if ill else spoilt)
    _emit(rng, made_tainted, w.tainted[port], w.exclusive[port], s.out_tainted[first:last])
    if w.size[port] > 0.0:
        for copy in range(w.node_copies[node]):
            if s.alive[node, copy]:
                _count_down(rng, w, s, port, copy, clean, tainted)


@bare
def cascade(rng: Any, w: ModelArrays, s: ModelState) -> None:
    """Send the tuples at the ports through the graph, down to the sinks."""
    for node in range(len(w.node_operator)):
        for port in range(w.node_ports[node], w.node_ports[node + 1]):
            clean, tainted = s.came[port], s.came_tainted[port]
            if clean + tainted == 0:
                continue
            s.came[port] = s.came_tainted[port] = 0
            if not runs(w, s, node):
                _wait(w, s, port, clean, tainted)
                continue
            sink = w.node_sink[node]
            if sink >= 0:
                spoilt = min(clean, s.struck[node, 0])
                s.struck[node, 0] -= spoilt
                s.clean[sink] += clean - spoilt
                s.tainted[sink] += tainted + spoilt
                continue
            _take_in(rng, w, s, port, clean, tainted)
        for output in range(w.node_outputs[node], w.node_outputs[node + 1]):
            clean, tainted = s.out[output], s.out_tainted[output]
            s.out[output] = s.out_tainted[output] = 0
            if clean + tainted == 0:
                continue
            for link in range(w.output_links[output], w.output_links[output + 1]):
                group = w.link_group[link]
                if counts(w, s.active, s.working, node, group):
                    s.came[w.link_port[link]] += clean
                    s.came_tainted[w.link_port[link]] += tainted
                elif w.group_kept[group] and not s.working[group]:
                    s.held[link] += clean
                    s.held[link + len(w.link_port)] += tainted


@bare
def must_step(w: ModelArrays, s: ModelState) -> bool:
    """Say whether the next tuple may change something: a stable port that tainted tuples may reach, a struck node."""
    tainting = False
    for node in range(len(w.node_operator)):
        for copy in range(w.node_copies[node]):
            if s.struck[node, copy]:
                return True
            tainting = tainting or (s.alive[node, copy] and is_unstable(w, s, node, copy))
    if not tainting:
        return False
    # Which outputs may carry tainted tuples, in order of the graph; s.flow is free to be used for it.
    for port in range(len(s.flow)):
        s.flow[port] = 0.0
    for node in range(len(w.node_operator)):
        ill = whole = False
        for copy in range(w.node_copies[node]):
            if s.alive[node, copy]:
                if is_unstable(w, s, node, copy):
                    ill = True
                else:
                    whole = True
        if not (ill or whole):
            continue
        for port in range(w.node_ports[node], w.node_ports[node + 1]):
            if s.flow[port] > 0.0 and whole and w.hurt[port] > 0.0:
                return True
            if not (ill or s.flow[port] > 0.0):
                continue
            for output in range(w.node_outputs[node], w.node_outputs[node + 1]):
                if w.tainted[port, output - w.node_outputs[node]] == 0.0:
                    continue
                for link in range(w.output_links[output], w.output_links[output + 1]):
                    group = w.link_group[link]
                    if counts(w, s.active, s.working, node, group):
                        s.flow[w.link_port[link]] = 1.0
    return False


@bare
def safe_time(w: ModelArrays, s: ModelState, now: float, until: float) -> float:
    """Return how far to leap so that no port that counts down can reach its end before."""
    for port in range(len(w.port_node)):
        node = w.port_node[port]
        for copy in range(w.node_copies[node]):
            if not (s.alive[node, copy] and runs(w, s, node)):
                continue
            for left in (s.unstable[port, copy], s.filling[port, copy]):
                if left > 0.0:
                    fastest, each = 0.0, 0.0
                    for outside in range(len(w.port_node)):
                        if w.port_rate[outside] > 0.0:
                            fastest += w.most[port, outside] * w.port_rate[outside]
                            each += w.most[port, outside]
                    if fastest > 0.0:
                        until = min(until, now + (left - each) / fastest)
    return until


@bare
def release(rng: Any, w: ModelArrays, s: ModelState) -> None:
    """Let operators that are back have the tuples that waited for them, one at a time, ports and kinds at random."""
    ports, links = len(w.port_node), len(w.link_port)
    for link in range(links):
        group, port = w.link_group[link], w.link_port[link]
        if group >= 0 and s.working[group] and s.held[link] + s.held[link + links] > 0:
            if runs(w, s, w.port_node[port]):
                s.waiting[port] += s.held[link]
                s.waiting[port + ports] += s.held[link + links]
            else:
                _wait(w, s, port, s.held[link], s.held[link + links])
            s.held[link] = s.held[link + links] = 0
    while True:
        waiting = 0
        for port in range(ports):
            if runs(w, s, w.port_node[port]):
                waiting += s.waiting[port] + s.waiting[port + ports]
        if waiting == 0:
            return
        drawn = int(rng.random() * waiting)
        for port in range(ports):
            if not runs(w, s, w.port_node[port]):
                continue
            if drawn < s.waiting[port]:
                s.waiting[port] -= 1
                s.came[port] += 1
                break
            drawn -= s.waiting[port]
            if drawn < s.waiting[port + ports]:
                s.waiting[port + ports] -= 1
                s.came_tainted[port] += 1
                break
            drawn -= s.waiting[port + ports]
        cascade(rng, w, s)
