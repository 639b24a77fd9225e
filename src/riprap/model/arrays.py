"""A model as arrays, what is asked of it, what is so at a moment, and what a replication came to.

Functions that :mod:`riprap.model.jit` compiles take them, and have these constants in them.
"""

from __future__ import annotations

from typing import NamedTuple

from riprap.arrays import Bools, Floats, Ints

SCRATCH, CHECKPOINT, WHOLE = 0, 1, 2


class ModelArrays(NamedTuple):
    """A model as arrays. A node is an operator, or one replica of an operator of a high-availability group.

    Ports, outputs and connections are numbered through; those of node n are ``first[n] <= i < first[n + 1]``.
    """

    node_ports: Ints
    node_outputs: Ints
    output_links: Ints
    link_port: Ints
    link_group: Ints  # the group whose active replica alone may send here, or -1
    node_operator: Ints
    node_copies: Ints  # copies that take part at once, their results told apart by deduplication
    node_replica: Ints
    node_group: Ints
    node_sink: Ints  # the number of the sink, or -1
    node_restore: Ints
    node_kept: Bools  # whether what comes in while it is down waits for it
    node_twin: Ints  # the same operator in the other replica of its group, or -1
    node_age: Floats  # oldest and newest age of the checkpoint that is restored
    port_node: Ints
    port_rate: Floats  # of tuples that come from outside, a second
    clean: Floats  # selectivity, by port and output of the node
    tainted: Floats
    scratch: Floats
    exclusive: Bools  # whether a tuple goes to one output at most
    most: Floats  # tuples at a port that one tuple from outside, by port, can make
    size: Floats
    alpha: Floats
    hurt: Floats  # correct tuples that a tainted one makes necessary
    beta: Floats
    gamma: Floats
    unit_members: Ints  # nodes and copies that fail together, as node * 2 + copy
    unit_first: Ints
    group_failover: Floats
    group_kept: (
        Bools  # whether what it puts out until a replica takes over waits, and replicas fail as a whole
    )
    group_peer: Bools  # whether a replica comes back with the state of the other
    operators: int
    sinks: int


class Question(NamedTuple):
    """What is to be simulated: rates of faults, what a fault costs, and for how long."""

    horizon: float
    crash_rate: Floats  # by unit
    corruption_rate: Floats  # by node, of each copy
    recovery: Floats  # by unit
    crash_at: Floats  # by unit: a crash that is forced, or infinity
    ticks: int  # how often the output is counted


class ReplicationResult(NamedTuple):
    """What a replication came to."""

    up: float  # seconds in which every operator, as far as its results counted, was alive, stable and untainted
    up_alone: float  # the same if faults did not spread
    crashes: int
    corruptions: int
    lost: int  # tuples that met an operator that was down
    leaps: int
    clean: Ints  # tuples at each sink
    tainted: Ints
    series: Ints  # clean and tainted tuples at all sinks, at each tick


class ModelState(NamedTuple):
    """What is so at a moment. The second number of those that have two is the copy."""

    alive: Bools  # by node and copy
    own: Bools  # by node and copy: whether it is unstable by its own crash
    struck: Ints  # by node and copy: tuples that silent corruption is about to change
    unstable: Floats  # by port and copy: correct tuples until it is stable
    filling: Floats  # by port and copy: tuples until a state that began empty is full
    lost: Floats  # by port: tuples that it should have had since it was last stable
    losing: Floats  # by port: tuples a second that it should have and does not
    nominal: Floats  # by port: tuples a second without faults
    waiting: Ints  # by port: clean tuples that wait for an operator that is down, then tainted ones
    held: (
        Ints  # by connection: clean tuples that wait for a group to have an active replica, then tainted ones
    )
    came: Ints  # by port: clean tuples, then tainted ones, on their way
    came_tainted: Ints
    out: Ints  # by output, likewise
    out_tainted: Ints
    active: Ints  # by group: the replica whose results count
    working: Bools  # by group: whether that replica is whole
    whole: Bools  # by group and replica: whether all of its operators are alive
    stale: Bools  # by group and replica: whether the other has processed what it has not
    joining: Bools  # by group and replica: whether it has just become whole
    passes: Bools  # by node
    flow: Floats  # by port
    clean: Ints  # by sink
    tainted: Ints
    lost_tuples: Ints
    good: Bools  # by operator: room for an answer
