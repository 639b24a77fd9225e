"""Add operators that bring several ports together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from riprap.expressions import Scope, parse_condition, parse_select
from riprap.graph.building.builder import Builder, schema_of
from riprap.graph.checks import Here, Port
from riprap.graph.operators import Barrier, Join
from riprap.graph.operators.pairing import Outer
from riprap.graph.stream import Stream
from riprap.graph.windows import Window
from riprap.protection import Policy


class Pairing(Builder):
    """Join and barrier."""

    def join(
        self,
        name: str,
        left: Port,
        right: Port,
        *,
        by: str | Sequence[str],
        windows: tuple[Window, Window],
        where: str | None = None,
        select: str,
        outer: Outer = "inner",
        clock: Stream | None = None,
        protect: Policy | None = None,
    ) -> Stream:
        """Add a join of two ports: each tuple meets the other port's window of the same key.

        Expressions call a port by its stream's name; one that has several streams is called ``left`` or ``right``.
        With ``outer`` ("left" or "full") a tuple that matched nothing is put out when it leaves its window, with nulls
        for the other port's columns. A bare key column is the left port's, and shows the key of the tuple there is.
        """
        here = Here("Join", name, self, left, right)
        ports = (here.port(left), here.port(right))
        keys = here.keys(by, *ports)
        if not keys:
            raise here.error("a join needs a key", "Give it by=, a column that both streams have")
        names = _names(here, (left, right), ("left", "right"))
        if outer not in get_args(Outer):
            raise here.error(f"outer= is {outer!r}", f"It is one of {', '.join(get_args(Outer))}")
        if not (
            isinstance(windows, tuple) and len(windows) == 2 and all(isinstance(w, Window) for w in windows)
        ):
            raise here.error(
                f"windows= takes two windows, got {windows!r}", "Write (rr.sliding(...), rr.sliding(...))"
            )
        for window, port in zip(windows, ports, strict=True):
            here.window(window, port.schema, shape="sliding")
            if window.delta is not None:
                raise here.error(f"its window is {window}", "A join's windows are by tuples= or time=")
        if windows[0].empty and windows[1].empty:
            raise here.error(
                "both windows are of size 0, so no tuple can ever meet another", "Give one a size"
            )
        if len({w.ticking for w in windows if w.time}) > 1:
            raise here.error("one window is by a clock's time and one by a column's", "Measure both alike")
        scope = Scope.qualified(
            dict(zip(names, (p.schema for p in ports), strict=True)), shared=frozenset(keys)
        )
        with here:
            condition = parse_condition(where, scope, self._functions) if where is not None else None
            chosen = parse_select(select, scope, self._functions)
        ticking = any(w.ticking and not w.empty for w in windows)
        return self._add(
            here,
            Join(
                name=here.full_name,
                location=here.location,
                ports=tuple(p.streams for p in ports),
                schema=schema_of(chosen),
                protect=protect,
                clock=here.clock(clock, needed=ticking, why="its window"),
                by=keys,
                names=names,
                schemas=tuple(p.schema for p in ports),
                windows=windows,
                where=condition,
                select=chosen,
                outer=outer,
            ),
        )

    def barrier(
        self,
        name: str,
        *ports: Port,
        by: str | Sequence[str] = (),
        select: str,
        protect: Policy | None = None,
    ) -> Stream:
        """Add a barrier: it puts out the first tuples of all ports as one, then the second ones, and so on, key by key.

        A tuple waits until every port has one to go with it; null is a key like any other. Expressions call a port by
        its stream's name; one that has several streams is called ``port1``, ``port2`` and so on.
        """
        here = Here("Barrier", name, self, *ports)
        if len(ports) < 2:
            raise here.error(f"it has {len(ports)} ports", "A barrier brings two or more together")
        inputs = tuple(here.port(port) for port in ports)
        keys = here.keys(by, *inputs)
        names = _names(here, ports, tuple(f"port{number}" for number in range(1, len(ports) + 1)))
        schemas = tuple(port.schema for port in inputs)
        scope = Scope.qualified(dict(zip(names, schemas, strict=True)), shared=frozenset(keys))
        with here:
            chosen = parse_select(select, scope, self._functions)
        return self._add(
            here,
            Barrier(
                name=here.full_name,
                location=here.location,
                ports=tuple(port.streams for port in inputs),
                schema=schema_of(chosen),
                protect=protect,
                by=keys,
                names=names,
                schemas=schemas,
                select=chosen,
            ),
        )


def _names(here: Here, ports: Sequence[Port], otherwise: Sequence[str]) -> tuple[str, ...]:
    """Return what expressions call the ports: by its stream, or otherwise where there are several."""
    names = []
    for port, other in zip(ports, otherwise, strict=True):
        streams = (port,) if isinstance(port, Stream) else tuple(port)
        name = streams[0].label if len(streams) == 1 else other
        if name in names:
            raise here.error(
                f"{'both' if len(ports) == 2 else 'two'} ports read stream '{name}'",
                "Give one side another name with a functor select='*'",
            )
        names.append(name)
    return tuple(names)
