"""Draw applications: operators of every kind on what streams there are, sinks, placements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.graphs import holding, pairing, routing, windowed
from tests.graphs.data import MILLI, POOL, VALUES, draw_circumstances, draw_sources
from tests.graphs.expressions import Call, Column, Expression, Literal, SharedKey
from tests.graphs.luck import Luck
from tests.graphs.model import Operator, Schema
from tests.graphs.program import Circumstances, Program
from tests.graphs.wording import condition, selection

import riprap as rr
from riprap.windows import Emit, Window

KEYS = ("k", "j", "i", "v")
# Operators that let no punctuation pass, and those that make some.
END = pairing.Join | pairing.Barrier | holding.Held | holding.Gate
MAKE = routing.Punctor | windowed.Sort


@dataclass
class Drawing:
    """The application so far: schemas of streams, which of them have punctuations, and the operators."""

    luck: Luck
    clock: bool
    streams: dict[str, Schema]
    punctuated: set[str] = field(default_factory=set)
    operators: list[Operator] = field(default_factory=list)

    def name(self, letter: str) -> str:
        return f"{letter}{len(self.operators)}"

    def port(self, one_in: int = 5) -> tuple[str, ...]:
        """Draw the streams of a port: often the newest, or in one of so many cases several that are alike."""
        names = list(self.streams)
        first = self.luck.pick(names if self.luck.once_in(2) else names[-2:])
        others = [s for s in names if s != first and self.like(s, first)]
        if others and self.luck.once_in(one_in):
            return (first, *self.luck.some(others, 1, 2))
        return (first,)

    def like(self, stream: str, other: str) -> bool:
        return list(self.streams[stream].items()) == list(self.streams[other].items())

    def schema(self, port: tuple[str, ...]) -> Schema:
        return self.streams[port[0]]

    def columns(self, port: tuple[str, ...]) -> list[Expression]:
        return [Column(name, kind) for name, kind in self.schema(port).items()]

    def keys(self, schema: Schema, least: int = 0) -> tuple[str, ...]:
        there = [k for k in KEYS if k in schema] or list(schema)
        many = min(max(least, self.luck.pick([1, 1, 1, 0, 0, 2])), len(there))
        return tuple(self.luck.some(there, many, many))

    def add(self, operator: Operator) -> None:
        schemas = [self.schema(port) for port in operator.ports]
        marked = any(s in self.punctuated for port in operator.ports for s in port)
        self.streams.update(zip(operator.outputs, operator.schemas(schemas), strict=True))
        if isinstance(operator, MAKE) or (marked and not isinstance(operator, END)):
            self.punctuated.update(operator.outputs)
        self.operators.append(operator)


def functor(d: Drawing) -> Operator:
    port = d.port()
    columns = d.columns(port)
    variables = _variables(d, d.schema(port)) if d.luck.once_in(3) else ()
    columns += [Column(name, update.type) for name, _, update in variables]
    by = d.keys(d.schema(port)) if variables else ()
    where = condition(d.luck, columns) if d.luck.once_in(3) else None
    select = selection(d.luck, columns) if where is None or d.luck.once_in(2) else None
    return routing.Functor(
        name=d.name("f"), ports=(port,), where=where, select=select, by=by, variables=variables
    )


def _variables(d: Drawing, schema: Schema) -> tuple[tuple[str, Expression, Expression], ...]:
    """Draw a sum, and now and then the last text there was."""
    if "total" in schema:
        return ()
    numbers = [Column(n, t) for n, t in schema.items() if t == "bigint"]
    texts = [Column(n, t) for n, t in schema.items() if t == "string"]
    one = Literal(1, "bigint")
    added = Call("coalesce", (d.luck.pick(numbers), one), "bigint") if numbers else one
    total = ("total", Literal(0, "bigint"), Call("+", (Column("total", "bigint"), added), "bigint"))
    if not texts or d.luck.once_in(2):
        return (total,)
    last = Call("coalesce", (d.luck.pick(texts), Column("last", "string")), "string")
    return total, ("last", Literal("a", "string"), last)


def split(d: Drawing) -> Operator:
    port, name = d.port(), d.name("s")
    schema = d.schema(port)
    streams = tuple(f"{name}{letter}" for letter in "xyz"[: d.luck.whole(2, 3)])
    exact = [n for n, t in schema.items() if t in ("string", "bigint")]
    if exact and d.luck.once_in(3):
        on = d.luck.pick(exact)
        table = {VALUES[schema[on]](d.luck): tuple(d.luck.some(streams, 0, 2)) for _ in range(4)}
        default = d.luck.pick([None, *streams])
        return routing.Split(
            name=name, ports=(port,), streams=streams, on=on, table=tuple(table.items()), default=default
        )
    conditions = tuple(condition(d.luck, d.columns(port)) for _ in streams)
    return routing.Split(
        name=name, ports=(port,), streams=streams, conditions=conditions, first=d.luck.once_in(2)
    )


def union(d: Drawing) -> Operator | None:
    port = d.port(one_in=1)
    return routing.Union(name=d.name("u"), ports=(port,)) if len(port) > 1 else None


def punctor(d: Drawing) -> Operator:
    port = d.port()
    where = condition(d.luck, d.columns(port))
    return routing.Punctor(
        name=d.name("p"), ports=(port,), where=where, place=d.luck.pick(["after", "before"])
    )


def lookup(d: Drawing) -> Operator | None:
    port = d.port()
    schema = d.schema(port)
    keys = [n for n, t in schema.items() if t in ("string", "bigint")]
    if not keys:
        return None
    by = d.luck.pick(keys)
    table = {VALUES[schema[by]](d.luck): VALUES["bigint"](d.luck) for _ in range(d.luck.whole(0, 4))}
    rows = tuple((key, value) for key, value in table.items() if key is not None)
    missing = d.luck.pick(["null", "drop"])
    return routing.Lookup(name=d.name("l"), ports=(port,), by=by, table=rows, value="n", missing=missing)


def custom(d: Drawing) -> Operator:
    name = d.name("c")
    return routing.Custom(name=name, ports=(d.port(),), streams=(f"{name}x", f"{name}y"))


def a_window(d: Drawing, port: tuple[str, ...], *, tumbling: bool) -> Window:
    """Draw a window that a port can have."""
    schema, make = d.schema(port), rr.tumbling if tumbling else rr.sliding
    times = [n for n, t in schema.items() if t == "timestamp"]
    numbers = [n for n, t in schema.items() if t in ("bigint", "double")]
    kinds = ["tuples"] * 2 + ["time"] * (2 if times else 0) + ["clock"] * (3 if d.clock else 0)
    kinds += ["delta"] if numbers else []
    if tumbling and any(s in d.punctuated for s in port):
        kinds += ["punctuation"] * 10
    kind = d.luck.pick(kinds)
    if kind == "punctuation":
        return rr.tumbling(punctuation=True)
    if kind == "tuples":
        return make(tuples=d.luck.whole(1, 4))
    if kind == "delta":
        return make(delta=d.luck.pick([0, 1, 2.5, 6]), on=d.luck.pick(numbers))
    return make(time=a_span(d), on=d.luck.pick(times) if kind == "time" else None)


def a_span(d: Drawing) -> float:
    return d.luck.pick([1, 2, 2, 3, 3, 4, 5, 8]) / 1000


def aggregate(d: Drawing) -> Operator:
    port = d.port()
    schema, by = d.schema(port), d.keys(d.schema(port))
    window = a_window(d, port, tumbling=d.luck.once_in(2) or port[0] in d.punctuated)
    calls: list[tuple[str, str, Column | None]] = []
    for name in [n for n in schema if n in POOL and n not in by]:
        more = {"bigint": ["sum"] * 2, "double": ["avg"] * 2}.get(schema[name], [])
        calls.append((name, d.luck.pick(["last", "first", "max", "min", *more]), Column(name, schema[name])))
    if not calls or d.luck.once_in(2):
        name = "n" if "n" not in by else "c"
        calls = [c for c in calls if c[0] != name] + [(name, "count", None)]
    return windowed.Aggregate(
        name=d.name("a"), ports=(port,), by=by, window=window, emit=an_emission(d, window), calls=tuple(calls)
    )


def an_emission(d: Drawing, window: Window) -> Emit | None:
    kinds = ["default", "tuples"]
    by_column = window.time is not None and window.on is not None
    if not (window.shape == "tumbling" and window.time is not None) and (d.clock or by_column):
        kinds += ["time"] * 2
    kind = d.luck.pick(kinds)
    if kind == "tuples":
        return rr.every(tuples=d.luck.whole(1, 3))
    return rr.every(time=a_span(d)) if kind == "time" else None


def sort(d: Drawing) -> Operator:
    port = d.port()
    columns = d.luck.some(list(d.schema(port)), 1, 2)
    order = tuple((c, d.luck.once_in(2), d.luck.pick([None, True, False])) for c in columns)
    window = a_window(d, port, tumbling=True)
    by, n = d.keys(d.schema(port)), d.luck.pick([None, None, 1, 2])
    return windowed.Sort(name=d.name("o"), ports=(port,), by=by, window=window, order=order, n=n)


def deduplicate(d: Drawing) -> Operator:
    port = d.port()
    by, timed = d.keys(d.schema(port), least=1), _timed(d, port)
    if timed is None or d.luck.once_in(2):
        return holding.Deduplicate(name=d.name("d"), ports=(port,), by=by, tuples=d.luck.whole(1, 5))
    return holding.Deduplicate(name=d.name("d"), ports=(port,), by=by, time=_micros(d), **timed)


def delay(d: Drawing) -> Operator | None:
    port = d.port()
    timed = _timed(d, port)
    if timed is None:
        return None
    return holding.Delay(name=d.name("w"), ports=(port,), by=d.keys(d.schema(port)), time=_micros(d), **timed)


def throttle(d: Drawing) -> Operator | None:
    port = d.port()
    timed = _timed(d, port)
    if timed is None:
        return None
    rate = d.luck.pick([1000, 500.0, 333.3, 150, 1e6])
    return holding.Throttle(name=d.name("r"), ports=(port,), by=d.keys(d.schema(port)), rate=rate, **timed)


def _timed(d: Drawing, port: tuple[str, ...]) -> dict[str, Any] | None:
    """Draw what tells the time: a column, or the clock."""
    choices: list[str | None] = [n for n, t in d.schema(port).items() if t == "timestamp"]
    choices += [None] if d.clock else []
    return {"on": d.luck.pick(choices)} if choices else None


def _micros(d: Drawing) -> int:
    return d.luck.whole(1, 6) * MILLI


def _shared(d: Drawing, *ports: tuple[str, ...]) -> Schema:
    """Return the columns that could be a key of several ports."""
    schemas = [d.schema(port) for port in ports]
    return {n: t for n, t in schemas[0].items() if all(s.get(n) == t for s in schemas)}


def gate(d: Drawing) -> Operator:
    ports = (d.port(), d.port())
    by = d.keys(_shared(d, *ports))
    return holding.Gate(name=d.name("g"), ports=ports, by=by, unacknowledged=d.luck.whole(1, 2))


def _labels_clash(ports: Sequence[tuple[str, ...]]) -> bool:
    single = [port[0] for port in ports if len(port) == 1]
    return len(set(single)) < len(single)


def join(d: Drawing) -> Operator | None:
    ports = (d.port(), d.port())
    shared = _shared(d, *ports)
    if not shared or _labels_clash(ports):
        return None
    by = d.keys(shared, least=1)
    times = [[n for n, t in d.schema(port).items() if t == "timestamp"] for port in ports]
    kind = d.luck.pick(["tuples", "tuples"] + ["column"] * any(times) * 2 + ["clock"] * d.clock * 2)
    windows = (_side(d, kind, times[0]), _side(d, kind, times[1]))
    if all(w.empty for w in windows):
        windows = (rr.sliding(tuples=2), windows[1])
    outer = d.luck.pick(["inner", "inner", "left", "full"])
    sides = [Column(n, t, side) for side, port in enumerate(ports) for n, t in d.schema(port).items()]
    where = condition(d.luck, sides) if d.luck.once_in(2) else None
    # The left side's key, called by the port's name, is what a bare key is: in a full join not always the left side's.
    plain = [c for c in sides if not (outer == "full" and c.side == 0 and c.name in by)]
    select = selection(d.luck, [*(SharedKey(k, shared[k]) for k in by), *plain])
    return pairing.Join(
        name=d.name("j"), ports=ports, by=by, windows=windows, where=where, select=select, outer=outer
    )


def _side(d: Drawing, kind: str, times: Sequence[str]) -> Window:
    """Draw a join's window; one of a join by time may be by number, or empty."""
    if kind != "tuples" and not d.luck.once_in(3):
        span = 0 if d.luck.once_in(6) else a_span(d)
        if kind == "clock":
            return rr.sliding(time=span)
        if times:
            return rr.sliding(time=span, on=d.luck.pick(times))
    return rr.sliding(tuples=d.luck.whole(0, 3))


def barrier(d: Drawing) -> Operator | None:
    ports = tuple(d.port() for _ in range(d.luck.pick([2, 2, 3])))
    if _labels_clash(ports):
        return None
    by = d.keys(_shared(d, *ports))
    sides = [Column(n, t, side) for side, port in enumerate(ports) for n, t in d.schema(port).items()]
    keys = [SharedKey(k, d.schema(ports[0])[k]) for k in by]
    return pairing.Barrier(name=d.name("b"), ports=ports, by=by, select=selection(d.luck, [*keys, *sides]))


KINDS: dict[str, Callable[[Drawing], Operator | None]] = {
    "functor": functor,
    "aggregate": aggregate,
    "join": join,
    "split": split,
    "union": union,
    "punctor": punctor,
    "sort": sort,
    "deduplicate": deduplicate,
    "delay": delay,
    "throttle": throttle,
    "gate": gate,
    "barrier": barrier,
    "lookup": lookup,
    "custom": custom,
}


def draw(seed: int, kinds: Sequence[str] = tuple(KINDS), most: int = 10) -> tuple[Program, Circumstances]:
    """Draw an application of some kinds of operators, and how it is run."""
    luck = Luck(seed)
    clock = luck.once_in(2)
    sources = draw_sources(luck, clock=clock)
    drawing = Drawing(luck, clock, {s.name: dict(s.schema) for s in sources if s.tick is None})
    for _ in range(luck.whole(1, most)):
        operator = KINDS[luck.pick(kinds)](drawing)
        if operator is not None:
            drawing.add(operator)
    # A clock that nobody hears is no part of an application.
    heard = any(o.clocked for o in drawing.operators)
    program = Program(
        sources=tuple(s for s in sources if s.tick is None or heard),
        operators=tuple(drawing.operators),
        sinks=_sinks(drawing),
        places=_places(drawing),
        composites=tuple(o.name for o in drawing.operators if luck.once_in(8)),
    )
    return program, draw_circumstances(luck, program.sources)


def _sinks(d: Drawing) -> tuple[tuple[str, ...], ...]:
    """End every stream that nobody reads at a sink, and now and then another; streams that are alike may share one."""
    read = {s for o in d.operators for port in o.ports for s in port}
    found: list[tuple[str, ...]] = []
    for stream in [s for s in d.streams if s not in read or d.luck.once_in(8)]:
        mates = [n for n, other in enumerate(found) if d.like(stream, other[0])]
        if mates and d.luck.once_in(2):
            found[mates[0]] += (stream,)
        else:
            found.append((stream,))
    return tuple(found)


def _places(d: Drawing) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Now and then put an operator, or one with the next, into an element of its own."""
    if not d.operators or not d.luck.once_in(3):
        return ()
    first = d.luck.whole(0, len(d.operators) - 1)
    last = first + d.luck.pick([0, 0, 1])
    return (("apart", tuple(o.name for o in d.operators[first : last + 1])),)
