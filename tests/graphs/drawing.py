"""Draw applications: sources with data, operators of every kind on what streams there are, sinks, placements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st
from tests.graphs import holding, pairing, routing, windowed
from tests.graphs.expressions import Call, Column, Expression, Literal, SharedKey
from tests.graphs.model import Operator, Schema
from tests.graphs.program import Circumstances, Program, Source

import riprap as rr
from riprap.graph.windows import Emit, Window

Draw = st.DrawFn

# The names columns have everywhere, so that streams are often alike enough to meet.
POOL: Schema = {"k": "string", "j": "string", "i": "bigint", "n": "bigint", "v": "double", "t": "timestamp"}
KEYS = ("k", "j", "i", "v")
MILLI = 1000
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "string": st.sampled_from(["a", "b", "a", "a", "c", None]),
    "bigint": st.sampled_from([0, 1, 2, 1, 1, 3, -2, 7, None]),
    "double": st.sampled_from([0.0, 1.5, -2.0, -0.0, 0.1, float("nan"), 4.0, None]),
    # Mostly whole, so that times often lie exactly at the ends of windows.
    "timestamp": st.sampled_from([0, 0, 0, 1, 500]).flatmap(
        lambda odd: st.none() | st.integers(-4, 20).map(lambda n: n * MILLI + odd)
    ),
}
SPANS = st.integers(1, 9).map(lambda n: n / 1000)


def sometimes(draw: Draw, one_in: int) -> bool:
    # Shrinks towards False.
    return draw(st.integers(0, one_in - 1)) == one_in - 1


def literal(draw: Draw, kind: str) -> Literal:
    return Literal(draw(VALUES[kind].filter(lambda v: v is not None and v == v)), kind)


def columns_of(schema: Schema, kind: str, side: int | None = None) -> list[Expression]:
    return [Column(name, kind, side) for name, its in schema.items() if its == kind]


def condition(draw: Draw, columns: Sequence[Expression], deep: bool = True) -> Expression:
    """Draw something that is true, false or unknown of a tuple."""
    which = draw(st.integers(0, 7 if deep else 4))
    left = draw(st.sampled_from(columns))
    if which <= 3:
        like = [c for c in columns if c.type == left.type and c != left]
        right = draw(st.sampled_from(like)) if like and draw(st.booleans()) else literal(draw, left.type)
        return Call(draw(st.sampled_from(["<=", "<", "=", "<>", ">"])), (left, right), "boolean")
    if which == 4:
        return Call(draw(st.sampled_from(["is not null", "is null"])), (left,), "boolean")
    if which == 5:
        return Call("not", (condition(draw, columns, False),), "boolean")
    both = (condition(draw, columns, False), condition(draw, columns, False))
    return Call(draw(st.sampled_from(["and", "or"])), both, "boolean")


def expression(draw: Draw, columns: Sequence[Expression], kind: str, name: str | None = None) -> Expression:
    """Draw an expression of a type, mostly a column as it is: that of the same name if there is one."""
    like = [c for c in columns if c.type == kind]
    if not like:
        return literal(draw, kind)
    own = [c for c in like if c.name == name] if name is not None else []
    which = draw(st.integers(0, 9))
    if own and which <= 4:
        return own[0]
    column = draw(st.sampled_from(like))
    if which <= 6:
        return column
    if which == 7:
        return Call("coalesce", (column, literal(draw, kind)), kind)
    if which == 8:
        other = draw(st.sampled_from([*like, Literal(None, kind)]))
        return Call("case", (condition(draw, columns, False), column, other), kind)
    other = draw(st.sampled_from(like))
    if kind == "string":
        return Call("concat", (column, other), kind)
    if kind == "timestamp":
        return literal(draw, kind)
    return Call(draw(st.sampled_from(["+", "-", "*"])), (column, literal(draw, kind)), kind)


def selection(draw: Draw, columns: Sequence[Expression], least: int = 1) -> routing.Named:
    """Draw named expressions, mostly for all columns of the pool that there are."""
    there = {c.type for c in columns}
    names = [n for n in POOL if POOL[n] in there]
    if sometimes(draw, 3):
        names = draw(st.lists(st.sampled_from(names), unique=True, min_size=least))
    return tuple((n, expression(draw, columns, POOL[n], n)) for n in names)


@dataclass
class Drawing:
    """The application so far: schemas of streams, which of them have punctuations, and the operators."""

    draw: Draw
    clock: bool
    streams: dict[str, Schema] = field(default_factory=dict)
    punctuated: set[str] = field(default_factory=set)
    operators: list[Operator] = field(default_factory=list)

    def name(self, letter: str) -> str:
        return f"{letter}{len(self.operators)}"

    def stream(self) -> str:
        """Draw a stream, more often one of the newer ones."""
        names = list(self.streams)
        return self.draw(st.sampled_from(names[-3:] + names))

    def port(self, one_in: int = 4) -> tuple[str, ...]:
        """Draw the streams of a port: mostly one, but in one of so many cases more if there are others like it."""
        first = self.stream()
        alike = [
            s
            for s, schema in self.streams.items()
            if list(schema.items()) == list(self.streams[first].items())
        ]
        others = [s for s in alike if s != first]
        if others and sometimes(self.draw, one_in):
            more = self.draw(st.lists(st.sampled_from(others), unique=True, min_size=1, max_size=2))
            return (first, *more)
        return (first,)

    def keys(self, schema: Schema, least: int = 0) -> tuple[str, ...]:
        there = [k for k in KEYS if k in schema] or list(schema)
        if not there:
            return ()
        most = min(2, len(there))
        return tuple(
            self.draw(st.lists(st.sampled_from(there), unique=True, min_size=min(least, most), max_size=most))
        )

    def add(self, operator: Operator) -> None:
        schemas = [self.streams[port[0]] for port in operator.ports]
        marked = any(s in self.punctuated for port in operator.ports for s in port)
        for stream, schema in zip(operator.outputs, operator.schemas(schemas), strict=True):
            self.streams[stream] = schema
            ends = isinstance(operator, pairing.Join | pairing.Barrier | holding.Held | holding.Gate)
            if isinstance(operator, routing.Punctor | windowed.Sort) or (marked and not ends):
                self.punctuated.add(stream)
        self.operators.append(operator)


def functor(d: Drawing) -> Operator | None:
    port = d.port()
    schema = d.streams[port[0]]
    columns: list[Expression] = [Column(n, t) for n, t in schema.items()]
    variables: tuple[tuple[str, Expression, Expression], ...] = ()
    by: tuple[str, ...] = ()
    if sometimes(d.draw, 3):
        total, last = Column("total", "bigint"), Column("last", "string")
        numbers = [*columns_of(schema, "bigint"), Literal(1, "bigint")]
        number = d.draw(st.sampled_from(numbers))
        update = Call("+", (total, Call("coalesce", (number, Literal(1, "bigint")), "bigint")), "bigint")
        if "total" not in schema and "last" not in schema:
            variables = (("total", Literal(0, "bigint"), update),)
            columns.append(total)
            text = columns_of(schema, "string")
            if text and d.draw(st.booleans()):
                kept = Call("coalesce", (d.draw(st.sampled_from(text)), last), "string")
                variables += (("last", Literal("a", "string"), kept),)
                columns.append(last)
            by = d.keys(schema)
    where = condition(d.draw, columns) if d.draw(st.booleans()) else None
    select = selection(d.draw, columns) if where is None or d.draw(st.booleans()) else None
    return routing.Functor(
        name=d.name("f"), ports=(port,), where=where, select=select, by=by, variables=variables
    )


def split(d: Drawing) -> Operator | None:
    port = d.port()
    schema = d.streams[port[0]]
    columns = [Column(n, t) for n, t in schema.items()]
    name = d.name("s")
    streams = tuple(f"{name}{letter}" for letter in "xyz"[: d.draw(st.integers(2, 3))])
    exact = [n for n, t in schema.items() if t in ("string", "bigint")]
    if exact and sometimes(d.draw, 3):
        on = d.draw(st.sampled_from(exact))
        values = st.dictionaries(
            VALUES[schema[on]],
            st.lists(st.sampled_from(streams), unique=True, max_size=2).map(tuple),
            max_size=4,
        )
        table = tuple(d.draw(values).items())
        default = d.draw(st.sampled_from([None, *streams]))
        return routing.Split(name=name, ports=(port,), streams=streams, on=on, table=table, default=default)
    conditions = tuple(condition(d.draw, columns) for _ in streams)
    return routing.Split(
        name=name, ports=(port,), streams=streams, conditions=conditions, first=d.draw(st.booleans())
    )


def union(d: Drawing) -> Operator | None:
    port = d.port(one_in=1)
    return routing.Union(name=d.name("u"), ports=(port,)) if len(port) > 1 else None


def punctor(d: Drawing) -> Operator | None:
    port = d.port()
    columns = [Column(n, t) for n, t in d.streams[port[0]].items()]
    place = d.draw(st.sampled_from(["after", "before"]))
    return routing.Punctor(name=d.name("p"), ports=(port,), where=condition(d.draw, columns), place=place)


def lookup(d: Drawing) -> Operator | None:
    port = d.port()
    schema = d.streams[port[0]]
    by = d.draw(st.sampled_from([n for n, t in schema.items() if t in ("string", "bigint")] or [None]))
    if by is None:
        return None
    table = d.draw(st.dictionaries(VALUES[schema[by]], VALUES["bigint"], max_size=4))
    table.pop(None, None)
    missing = d.draw(st.sampled_from(["null", "drop"]))
    return routing.Lookup(
        name=d.name("l"), ports=(port,), by=by, table=tuple(table.items()), value="n", missing=missing
    )


def custom(d: Drawing) -> Operator | None:
    name = d.name("c")
    return routing.Custom(name=name, ports=(d.port(),), streams=(f"{name}x", f"{name}y"))


def window(d: Drawing, schema: Schema, *, tumbling: bool, punctuated: bool) -> Window:
    """Draw a window that a stream can have."""
    make = rr.tumbling if tumbling else rr.sliding
    kinds = ["tuples", "tuples"]
    times = [n for n, t in schema.items() if t == "timestamp"]
    numbers = [n for n, t in schema.items() if t in ("bigint", "double")]
    kinds += ["time", "time"] if times else []
    kinds += ["clock"] * 3 if d.clock else []
    kinds += ["delta"] if numbers else []
    if tumbling and punctuated:
        kinds += ["punctuation"] * 3
    kind = d.draw(st.sampled_from(kinds))
    if kind == "tuples":
        return make(tuples=d.draw(st.integers(1, 4)))
    if kind == "time":
        return make(time=d.draw(SPANS), on=d.draw(st.sampled_from(times)))
    if kind == "clock":
        return make(time=d.draw(SPANS))
    if kind == "delta":
        return make(delta=d.draw(st.sampled_from([0, 1, 2.5, 6])), on=d.draw(st.sampled_from(numbers)))
    return rr.tumbling(punctuation=True)


def aggregate(d: Drawing) -> Operator | None:
    port = d.port()
    schema = d.streams[port[0]]
    marked = any(s in d.punctuated for s in port)
    its = window(d, schema, tumbling=d.draw(st.booleans()), punctuated=marked)
    by = d.keys(schema)
    calls: list[tuple[str, str, Column | None]] = []
    for name in [n for n in schema if n in POOL and n not in by]:
        functions = ["last", "first", "max", "min"]
        functions += (
            ["sum"] * 2 if schema[name] == "bigint" else ["avg"] * 2 if schema[name] == "double" else []
        )
        calls.append((name, d.draw(st.sampled_from(functions)), Column(name, schema[name])))
    if not calls or sometimes(d.draw, 2):
        name = "n" if "n" not in by else "c"
        calls = [c for c in calls if c[0] != name] + [(name, "count", None)]
    return windowed.Aggregate(
        name=d.name("a"), ports=(port,), by=by, window=its, emit=emission(d, its), calls=tuple(calls)
    )


def emission(d: Drawing, its: Window) -> Emit | None:
    kinds = ["default", "tuples"]
    by_column = its.time is not None and its.on is not None
    if not (its.shape == "tumbling" and its.time is not None) and (d.clock or by_column):
        kinds += ["time", "time"]
    kind = d.draw(st.sampled_from(kinds))
    if kind == "tuples":
        return rr.every(tuples=d.draw(st.integers(1, 3)))
    return rr.every(time=d.draw(SPANS)) if kind == "time" else None


def sort(d: Drawing) -> Operator | None:
    port = d.port()
    schema = d.streams[port[0]]
    marked = any(s in d.punctuated for s in port)
    its = window(d, schema, tumbling=True, punctuated=marked)
    columns = d.draw(st.lists(st.sampled_from(list(schema)), unique=True, min_size=1, max_size=2))
    order = tuple((c, d.draw(st.booleans()), d.draw(st.sampled_from([None, True, False]))) for c in columns)
    n = d.draw(st.sampled_from([None, 1, 2]))
    return windowed.Sort(name=d.name("o"), ports=(port,), by=d.keys(schema), window=its, order=order, n=n)


def deduplicate(d: Drawing) -> Operator | None:
    port = d.port()
    schema = d.streams[port[0]]
    by = d.keys(schema, least=1)
    if not by:
        return None
    timed = _timed(d, schema)
    if timed is None or sometimes(d.draw, 2):
        return holding.Deduplicate(name=d.name("d"), ports=(port,), by=by, tuples=d.draw(st.integers(1, 5)))
    return holding.Deduplicate(name=d.name("d"), ports=(port,), by=by, time=_micros(d), **timed)


def delay(d: Drawing) -> Operator | None:
    port = d.port()
    schema = d.streams[port[0]]
    timed = _timed(d, schema)
    if timed is None:
        return None
    return holding.Delay(name=d.name("w"), ports=(port,), by=d.keys(schema), time=_micros(d), **timed)


def throttle(d: Drawing) -> Operator | None:
    port = d.port()
    schema = d.streams[port[0]]
    timed = _timed(d, schema)
    if timed is None:
        return None
    rate = d.draw(st.sampled_from([1000, 500.0, 333.3, 150, 1e6]))
    return holding.Throttle(name=d.name("r"), ports=(port,), by=d.keys(schema), rate=rate, **timed)


def _timed(d: Drawing, schema: Schema) -> dict[str, Any] | None:
    """Draw what tells the time: a column, or the clock."""
    times: list[str | None] = [n for n, t in schema.items() if t == "timestamp"]
    choices = times + ([None] if d.clock else [])
    return {"on": d.draw(st.sampled_from(choices))} if choices else None


def _micros(d: Drawing) -> int:
    return d.draw(st.integers(1, 9)) * MILLI


def _shared(d: Drawing, *ports: tuple[str, ...]) -> Schema:
    """Return the columns that could be a key of several ports."""
    schemas = [d.streams[port[0]] for port in ports]
    first = schemas[0]
    return {n: t for n, t in first.items() if all(s.get(n) == t for s in schemas)}


def gate(d: Drawing) -> Operator | None:
    ports = (d.port(), d.port())
    by = d.keys(_shared(d, *ports)) if _shared(d, *ports) else ()
    return holding.Gate(name=d.name("g"), ports=ports, by=by, unacknowledged=d.draw(st.integers(1, 2)))


def _qualified(d: Drawing, ports: Sequence[tuple[str, ...]], by: tuple[str, ...]) -> list[Expression]:
    found: list[Expression] = [SharedKey(k, d.streams[ports[0][0]][k]) for k in by]
    for side, port in enumerate(ports):
        found += [Column(n, t, side) for n, t in d.streams[port[0]].items()]
    return found


def _labels_clash(ports: Sequence[tuple[str, ...]]) -> bool:
    single = [port[0] for port in ports if len(port) == 1]
    return len(set(single)) < len(single)


def join(d: Drawing) -> Operator | None:
    ports = (d.port(), d.port())
    shared = _shared(d, *ports)
    if not shared or _labels_clash(ports):
        return None
    by = d.keys(shared, least=1)
    schemas = [d.streams[port[0]] for port in ports]
    kinds = ["tuples", "tuples"]
    times = [[n for n, t in schema.items() if t == "timestamp"] for schema in schemas]
    kinds += ["column"] if any(times) else []
    kinds += ["clock"] if d.clock else []
    kind = d.draw(st.sampled_from(kinds))
    windows = tuple(_side(d, kind, times[side]) for side in (0, 1))
    if all(w.empty for w in windows):
        windows = (rr.sliding(tuples=2), windows[1])
    columns = _qualified(d, ports, by)
    where = (
        condition(d.draw, [c for c in columns if isinstance(c, Column)]) if d.draw(st.booleans()) else None
    )
    outer = d.draw(st.sampled_from(["inner", "inner", "left", "full"]))
    # The left side's key, called by the port's name, is that of the right where there is no left.
    ambiguous = {(k, 0) for k in by} if outer == "full" else set()
    select = selection(
        d.draw, [c for c in columns if not (isinstance(c, Column) and (c.name, c.side) in ambiguous)]
    )
    return pairing.Join(
        name=d.name("j"), ports=ports, by=by, windows=windows, where=where, select=select, outer=outer
    )


def _side(d: Drawing, kind: str, times: Sequence[str]) -> Window:
    """Draw a join's window; the others of a join by time may be by number, or empty."""
    if kind != "tuples" and not sometimes(d.draw, 3):
        span = 0 if sometimes(d.draw, 6) else d.draw(SPANS)
        if kind == "clock":
            return rr.sliding(time=span)
        if times:
            return rr.sliding(time=span, on=d.draw(st.sampled_from(times)))
    return rr.sliding(tuples=d.draw(st.integers(0, 3)))


def barrier(d: Drawing) -> Operator | None:
    ports = tuple(d.port() for _ in range(d.draw(st.integers(2, 3))))
    if _labels_clash(ports):
        return None
    shared = _shared(d, *ports)
    by = d.keys(shared) if shared else ()
    return pairing.Barrier(
        name=d.name("b"), ports=ports, by=by, select=selection(d.draw, _qualified(d, ports, by))
    )


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


@st.composite
def sources(draw: Draw, names: Sequence[str], clock: bool, most: int) -> tuple[Source, ...]:
    """Draw sources with rows; time in them mostly goes on."""
    found = []
    at_type = draw(st.sampled_from(["bigint", "timestamp"]))
    base = list(POOL)
    if sometimes(draw, 3):
        base = draw(st.permutations(base))[: draw(st.integers(2, len(base)))]
    for name in names:
        columns = base
        if sometimes(draw, 4):
            columns = draw(st.lists(st.sampled_from(list(POOL)), unique=True, min_size=1))
        schema = {"at": at_type, **{c: POOL[c] for c in columns}}
        row = st.tuples(st.sampled_from([1, 1, 0, 2]), *(VALUES[schema[c]] for c in columns))
        rising = draw(st.booleans())
        at, rows = 0, []
        many = most if draw(st.booleans()) else draw(st.integers(0, most))
        for place, (step, *values) in enumerate(draw(st.lists(row, min_size=many, max_size=many))):
            at += step
            if rising and "t" in columns and values[columns.index("t")] is not None:
                values[columns.index("t")] = values[columns.index("t")] % (2 * MILLI) + place * MILLI
            rows.append((at, *values))
        found.append(Source(name=name, schema=tuple(schema.items()), rows=tuple(rows)))
    if clock:
        many = most if draw(st.booleans()) else draw(st.integers(0, most))
        step = st.tuples(
            st.sampled_from([1, 1, 2, 0]), st.sampled_from([1000, 1000, 2000, 0, 500, 3500, -1000])
        )
        at, time, rows = 0, 0, []
        for later, more in draw(st.lists(step, min_size=many, max_size=many)):
            at, time = at + later, time + more
            rows.append((at, time))
        ticks = Source(
            name="clock", schema=(("at", at_type), ("now", "timestamp")), rows=tuple(rows), tick="now"
        )
        found.insert(draw(st.integers(0, len(found))), ticks)
    return tuple(found)


@st.composite
def programs(draw: Draw, kinds: Sequence[str] = tuple(KINDS), operators: int = 10, rows: int = 20) -> Program:
    """Draw an application of some kinds of operators."""
    clock = sometimes(draw, 2)
    names = [f"in{n}" for n in range(draw(st.sampled_from([1, 1, 2, 3])))]
    given = draw(sources(names, clock, rows))
    drawing = Drawing(draw, clock)
    drawing.streams = {s.name: dict(s.schema) for s in given if s.tick is None}
    for _ in range(draw(st.integers(1, operators))):
        operator = KINDS[draw(st.sampled_from(kinds))](drawing)
        if operator is not None:
            drawing.add(operator)
    # A clock that nobody hears is no part of an application.
    heard = any(o.clocked for o in drawing.operators)
    return Program(
        sources=tuple(s for s in given if s.tick is None or heard),
        operators=tuple(drawing.operators),
        sinks=sinks(drawing),
        places=places(drawing),
        composites=tuple(o.name for o in drawing.operators if sometimes(draw, 8)),
    )


def sinks(d: Drawing) -> tuple[tuple[str, ...], ...]:
    """End every stream that nobody reads at a sink, and now and then another; streams that are alike may share one."""
    read = {s for o in d.operators for port in o.ports for s in port}
    loose = [s for s in d.streams if s not in read or sometimes(d.draw, 8)]
    found: list[tuple[str, ...]] = []
    for stream in loose:
        kind = list(d.streams[stream].items())
        mates = [n for n, other in enumerate(found) if list(d.streams[other[0]].items()) == kind]
        if mates and sometimes(d.draw, 2):
            found[mates[0]] += (stream,)
        else:
            found.append((stream,))
    return tuple(found)


def places(d: Drawing) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Now and then put an operator, or one with the next, into an element of its own."""
    if not d.operators or not sometimes(d.draw, 3):
        return ()
    first = d.draw(st.integers(0, len(d.operators) - 1))
    last = first + (1 if sometimes(d.draw, 4) else 0)
    return (("apart", tuple(o.name for o in d.operators[first : last + 1])),)


@st.composite
def circumstances(draw: Draw) -> Circumstances:
    """Draw how a run is cut up."""
    ends = sorted(draw(st.lists(st.integers(0, 25), max_size=7)))
    buckets = draw(st.integers(1, 7))
    each = len(ends) + 1
    return Circumstances(
        ends=tuple(ends),
        buckets=buckets,
        tasks=tuple(draw(st.lists(st.integers(1, buckets), min_size=each, max_size=each))),
        held_back=tuple(draw(st.lists(st.lists(st.integers(0, 5), max_size=2).map(tuple), max_size=each))),
        path=draw(st.sampled_from([None, "direct", "exchange"])),
    )
