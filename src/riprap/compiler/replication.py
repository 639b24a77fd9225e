"""Make the copies of replica groups: of each element of a group a plan a replica, and of what it writes a log each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from riprap.errors import GraphError
from riprap.graph.replicas import FIRST, ReplicaGroup, copy_name, split_copy_name
from riprap.stage.plan import ChannelPlan, Layout, Plan


def with_replicas(layout: Layout) -> Layout:
    """Put copies in place of the elements of groups: ``name~a``, ``name~b``, each in the process of its replica."""
    groups = {group.name: group for group in layout.graph.groups}
    if not groups:
        return layout
    home = {plan.name: groups[plan.group] for plan in layout.plans if plan.group is not None}
    for plan in layout.plans:
        if plan.name in home:
            _check_order(plan, home[plan.name])
    channels = {channel.name: _copied_channel(channel, home) for channel in layout.channels}
    plans = tuple(copy for plan in layout.plans for copy in _copies(plan, home.get(plan.name), channels))
    return replace(layout, plans=plans, channels=tuple(channels.values()))


def without_copies(layout: Layout) -> Layout:
    """Return a layout in which everything is once: of copies the first, under the name that they derive from."""
    names = {plan.name: split_copy_name(plan.name)[0] for plan in layout.plans}
    firsts = (plan for plan in layout.plans if plan.replica in (None, FIRST))
    channels = (
        replace(channel, readers=tuple(dict.fromkeys(names[reader] for reader in channel.readers)))
        for channel in layout.channels
    )
    plans = tuple(replace(plan, name=names[plan.name]) for plan in firsts)
    return replace(layout, plans=plans, channels=tuple(channels))


def describe_members(layout: Layout) -> dict[str, Any]:
    """Say what belongs to each replica group, for whoever looks at a run's folder: ``groups`` of its ``state.json``.

    {"hot": {"failover": "exact", "replicas": ["a", "b"], "elements": ["sums"], "channels": ["sums@k"]}}
    """
    return {
        group.name: {
            "failover": group.failover,
            "replicas": list(group.letters),
            "elements": list(
                dict.fromkeys(split_copy_name(p.name)[0] for p in layout.plans if p.group == group.name)
            ),
            "channels": [channel.name for channel in layout.channels if channel.group == group.name],
        }
        for group in layout.graph.groups
    }


def _check_order(plan: Plan, group: ReplicaGroup) -> None:
    if plan.root != plan.name:
        return
    read = " and ".join(f"'{channel.stream}'" for channel in plan.inlets.values())
    first = next(o for o in plan.graph if o.name in group.operators)
    raise GraphError(
        f"{group}: {first} and those with it read {read}, which come from sources that are read apart: the order they "
        "meet in is that of its own batches, and each replica's would be another. Place the sources together with "
        "app.place(...), give them ordering=, or leave what brings their streams together out of the group"
    )


def _copied_channel(channel: ChannelPlan, home: Mapping[str, ReplicaGroup]) -> ChannelPlan:
    writing = home.get(channel.writer)
    reading = {
        copy_name(reader, letter): (home[reader].name, letter)
        for reader in channel.readers
        if reader in home
        for letter in home[reader].letters
    }
    readers = [
        copy
        for reader in channel.readers
        for copy in ([copy_name(reader, x) for x in home[reader].letters] if reader in home else [reader])
    ]
    return replace(
        channel,
        readers=tuple(readers),
        copies=reading,
        group=writing.name if writing is not None else None,
        failover=writing.failover if writing is not None else None,
    )


def _copies(plan: Plan, group: ReplicaGroup | None, channels: Mapping[str, ChannelPlan]) -> list[Plan]:
    plan = replace(
        plan,
        inlets={stream: channels[channel.name] for stream, channel in plan.inlets.items()},
        outlets={
            stream: tuple(channels[channel.name] for channel in leaving)
            for stream, leaving in plan.outlets.items()
        },
    )
    if group is None:
        return [plan]
    return [
        replace(plan, name=copy_name(plan.name, letter), replica=letter, process=group.process(letter))
        for letter in group.letters
    ]
