"""The custom operator: a class of the user's."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias, overload

import pyarrow as pa

from riprap.expressions import check_type, normalise, parse_schema, type_name
from riprap.graph.builder import Builder
from riprap.graph.checks import Here, Streams
from riprap.graph.operator import Needed, Operator, Traits
from riprap.graph.stream import Stream
from riprap.kernels.chunk import Chunk, empty_chunk
from riprap.kernels.given import Given, Result
from riprap.operators.custom.instances import instance_for
from riprap.operators.custom.submissions import Line
from riprap.operators.custom.user_operator import CustomOperator, overrides
from riprap.protection import Policy

Schema: TypeAlias = str | pa.Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Custom(Operator):
    """Runs a class of the user's. Its state is one object, so all tuples go to one task, unless it has none.

    ``state`` is the dataclass of a declared state, and ``kinds`` are all dataclasses that may be in it.
    """

    TRAITS: ClassVar[Traits] = Traits(
        does="runs a class of yours",
        state=("what it saves",),
        pages="one object",
        key="none",
        stale="knows nothing of lost input",
        punctuation="calls on_punctuation, which passes it unless written otherwise",
    )
    holds_objects = True
    # It puts out where what it was called with ends.
    by_key_alone = False
    depth = 1
    punctuates = True

    made_by: type[CustomOperator]
    params: Mapping[str, Any]
    port_schemas: tuple[pa.Schema, ...]
    streams: tuple[str, ...]
    schemas: tuple[pa.Schema, ...]
    control_schema: pa.Schema | None = None
    stateless: bool = False
    deterministic: bool = True
    state: type | None = None
    kinds: tuple[type, ...] = ()

    @property
    def written_by(self) -> type:
        return self.made_by

    def unmeasured(self, *, marked: bool) -> Iterator[str]:
        if self.clock is not None:
            yield f"{self.name}: what it puts out at ticks is counted as if its tuples made it"
        if self.heeds and marked:
            yield f"{self.name}: what it puts out at punctuations is counted as if its tuples made it"

    @property
    def outputs(self) -> tuple[str, ...]:
        return self.streams

    def schema_of(self, stream: str) -> pa.Schema:
        return self.schemas[self.streams.index(stream)]

    @property
    def traits(self) -> Traits:
        if not self.stateless:
            return self.TRAITS
        return dataclasses.replace(self.TRAITS, state=(), pages="", key="any", stale="")

    @property
    def differs(self) -> str:
        return "" if self.deterministic else "it says deterministic=False"

    @property
    def slots(self) -> tuple[str, ...]:
        return () if self.stateless else ("0",)

    @property
    def key(self) -> tuple[str, ...] | None:
        return None if self.stateless else ()

    @property
    def heeds(self) -> bool:
        return overrides(self.made_by, "on_punctuation")

    def reads(self, needed: Needed) -> tuple[frozenset[str], ...]:
        return tuple(frozenset(schema.names) for schema in self.port_schemas)

    def layout(self, needed: Needed) -> str:
        if self.state is None:
            return "what checkpoint() returns"
        return "; ".join(f"{kind.__name__}: {_fields(kind)}" for kind in self.kinds)

    def summary(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.params.items())
        outputs = "; ".join(
            f"{stream.rpartition('.')[2]}: {', '.join(f'{f.name} {type_name(f.type)}' for f in schema)}"
            for stream, schema in zip(self.streams, self.schemas, strict=True)
        )
        return f"{self.made_by.__name__}({given}) -> {outputs}"

    def run(self, given: Given) -> Result:
        """Give an operator its tuples and punctuations, and take what it submits."""
        line = Line.of(given)
        if not len(line):
            depth = given.depth + self.depth
            return Result(outputs=tuple(_empty(self, given, stream, depth) for stream in self.streams))
        batches = [
            _batch(chunk, schema) for chunk, schema in zip(given.inputs, self.port_schemas, strict=True)
        ]
        with instance_for(self, given) as instance:
            submissions = instance.work(line, batches)
            outputs = submissions.chunks(line, given.needed, self.streams)
            return Result(outputs=outputs, pages=instance.pages(given.key))

    def steer(self, given: Given) -> Result:
        """Give an operator the tuples on its control port."""
        assert given.control is not None
        assert self.control_schema is not None
        if not given.control.rows:
            return Result(outputs=())
        batch = _batch(given.control, self.control_schema)
        with instance_for(self, given) as instance:
            instance.steer(batch)
            return Result(outputs=(), pages=instance.pages(given.key))


@overload
def custom(
    app: Builder,
    name: str,
    made_by: type[CustomOperator],
    *ports: Streams,
    schema: Schema,
    control: Stream | None = None,
    stateless: bool = False,
    deterministic: bool = True,
    params: Mapping[str, Any] | None = None,
    protect: Policy | None = None,
) -> Stream: ...


@overload
def custom(
    app: Builder,
    name: str,
    made_by: type[CustomOperator],
    *ports: Streams,
    outputs: Mapping[str, Schema],
    control: Stream | None = None,
    stateless: bool = False,
    deterministic: bool = True,
    params: Mapping[str, Any] | None = None,
    protect: Policy | None = None,
) -> dict[str, Stream]: ...


def custom(
    app: Builder,
    name: str,
    made_by: type[CustomOperator],
    *ports: Streams,
    schema: Schema | None = None,
    outputs: Mapping[str, Schema] | None = None,
    control: Stream | None = None,
    stateless: bool = False,
    deterministic: bool = True,
    params: Mapping[str, Any] | None = None,
    protect: Policy | None = None,
) -> Stream | dict[str, Stream]:
    """Add an operator of your own: a class derived from ``rr.CustomOperator``, made with ``params``.

    ``schema`` is that of its output, or ``outputs`` maps the names of several to theirs; then the streams are
    returned by name. Its state is one object, so one task has all of its tuples; one that is ``stateless`` runs in
    any number of tasks. Tuples of ``control`` reach it as port "control" at the end of each batch: they may change
    its state, and it cannot submit then. Such a stream may be a loop. One that draws says ``deterministic=False``.

    >>> class Passed(rr.CustomOperator):
    ...     def on_tuple(self, port, tuple):
    ...         self.submit(tuple)
    >>> app = rr.Application("demo")
    >>> words = app.source("words", rr.rows([], "word string"))
    >>> print(app.custom("passed", Passed, words, schema="word string", stateless=True))
    stream 'passed' (word string)
    """
    here = Here("Custom", name, app, *ports, *((control,) if control is not None else ()))
    inputs = tuple(here.port(port) for port in ports)
    if not inputs:
        raise here.error("it has no input", "Give it a stream for each port")
    if (schema is None) == (outputs is None):
        do = "Give schema= for one output, outputs= for several"
        raise here.error("it takes one of schema= and outputs=", do)
    given = dict(params or {})
    state = _check_class(here, made_by, given, stateless=stateless, control=control is not None)
    names = () if outputs is None else tuple(outputs)
    streams = (here.full_name,) if outputs is None else here.outputs(names)
    schemas = tuple(_schema(here, s) for s in ((schema,) if outputs is None else outputs.values()))
    stream = here.add(
        Custom(
            **here.basics(*inputs, protect=protect),
            schema=schemas[0],
            control=() if control is None else (control.name,),
            made_by=made_by,
            params=given,
            port_schemas=tuple(each.schema for each in inputs),
            streams=streams,
            schemas=schemas,
            control_schema=None if control is None else control.schema,
            stateless=stateless,
            deterministic=deterministic,
            state=state,
            kinds=() if state is None else tuple(dict.fromkeys(_dataclasses_in(state))),
        ),
    )
    if outputs is None:
        return stream
    return {n: Stream(s, k, app.root) for n, s, k in zip(names, streams, schemas, strict=True)}


def _fields(kind: Any) -> str:
    return ", ".join(f"{f.name} {getattr(f.type, '__name__', f.type)}" for f in dataclasses.fields(kind))


def _schema(here: Here, schema: Schema | None) -> pa.Schema:
    if not isinstance(schema, str | pa.Schema):
        raise here.error(f"the schema of an output is {schema!r}", "Write 'name type, name type, ...'")
    with here:
        known = parse_schema(schema) if isinstance(schema, str) else schema
        return pa.schema([pa.field(f.name, check_type(f.type, f.name)) for f in known])


def _check_class(
    here: Here, made_by: type[CustomOperator], params: Mapping[str, Any], *, stateless: bool, control: bool
) -> type | None:
    """Check a user's class; return the dataclass of its declared state."""
    if not (isinstance(made_by, type) and issubclass(made_by, CustomOperator)):
        raise here.error(f"it is made by {made_by!r}", "Give it a class derived from rr.CustomOperator")
    title = made_by.__name__
    if overrides(made_by, "process") == overrides(made_by, "on_tuple"):
        raise here.error(f"{title} has both or neither of process and on_tuple", "Write one of them")
    try:
        inspect.signature(made_by).bind(**params)
    except TypeError as error:
        raise here.error(
            f"{title} cannot be made with params={params!r}: {error}", "Give it what __init__ takes"
        ) from None
    saves = overrides(made_by, "checkpoint")
    if saves != overrides(made_by, "reset"):
        raise here.error(
            f"{title} has one of checkpoint and reset", "Write both: what one saves the other restores"
        )
    declared = _declared_state(here, made_by)
    if saves and declared is not None:
        raise here.error(f"{title} declares state and has a checkpoint too", "Keep one of them")
    if stateless:
        for wrong, what in (
            (saves or declared is not None, "state"),
            (control, "a control port, which is there to change state"),
            (
                overrides(made_by, "on_punctuation"),
                "an on_punctuation, which every one of several tasks would call",
            ),
        ):
            if wrong:
                raise here.error(f"{title} is stateless, and has {what}", "Leave out stateless=True")
    elif not saves and declared is None:
        raise here.error(
            f"{title} saves nothing",
            "Declare its state, 'state: SomeDataclass', or write checkpoint and reset; if it has none, say "
            "stateless=True",
        )
    return declared


def _declared_state(here: Here, made_by: type[CustomOperator]) -> type | None:
    if not any("state" in vars(c).get("__annotations__", {}) for c in made_by.__mro__):
        return None
    try:
        kind = typing.get_type_hints(made_by)["state"]
    except (NameError, TypeError) as error:
        raise here.error(
            f"the type of {made_by.__name__}.state cannot be found: {error}",
            "Define it at the top of the module",
        ) from None
    if not (isinstance(kind, type) and dataclasses.is_dataclass(kind)):
        raise here.error(f"{made_by.__name__}.state is {kind!r}", "Declare a dataclass")
    missing = dataclasses.MISSING
    for field in dataclasses.fields(kind):
        if field.init and field.default is missing and field.default_factory is missing:
            raise here.error(
                f"field '{field.name}' of {kind.__name__} has no default",
                "A state begins with defaults: give each one",
            )
    return kind


def _dataclasses_in(kind: Any) -> Iterator[type]:
    """Find the dataclasses that may be in values of a declared type, itself included."""
    waiting, seen = [kind], []
    while waiting:
        each = waiting.pop()
        if each in seen:
            continue
        seen.append(each)
        waiting += typing.get_args(each)
        if isinstance(each, type) and dataclasses.is_dataclass(each):
            yield each
            try:
                waiting += typing.get_type_hints(each).values()
            except (NameError, TypeError):
                waiting += (f.type for f in dataclasses.fields(each))


def _batch(chunk: Chunk, schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([normalise(chunk.columns[n]) for n in schema.names], schema=schema)


def _empty(operator: Custom, given: Given, stream: str, depth: int) -> Chunk:
    return empty_chunk(
        pa.schema([f for f in operator.schema_of(stream) if f.name in given.needed[stream]]), depth
    )
