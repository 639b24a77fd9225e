"""What is checked whenever an operator is added, and how a problem is told."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

import pyarrow as pa

from riprap.errors import GraphError
from riprap.expressions import ExpressionError, type_name
from riprap.graph.location import Location
from riprap.graph.stream import Stream
from riprap.protection import Policy, objection_to
from riprap.windows import Window

if TYPE_CHECKING:
    from riprap.graph.builder import Builder
    from riprap.graph.operator import Operator

Streams = Stream | Sequence[Stream]


@dataclass(frozen=True, slots=True)
class Inputs:
    """What an input port takes: streams of one schema."""

    streams: tuple[str, ...]
    schema: pa.Schema


NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


class Basics(TypedDict):
    """What every operator is made with."""

    name: str
    location: Location
    ports: tuple[tuple[str, ...], ...]
    protect: Policy | None


class Here:
    """The operator being added: checks what all kinds share, and gives every problem its name and line."""

    def __init__(self, kind: str, name: str, application: Builder, *ports: Streams) -> None:
        self.kind = kind
        self.name = name
        self._application = application
        streams = [s for port in ports for s in (port if isinstance(port, list | tuple) else (port,))]
        self.location = Location.of_caller()
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise self.error(
                f"its name is {name!r}", "Names are letters, digits and '_', starting with a letter"
            )
        self.full_name = application.prefix + name
        taken = application.taken(self.full_name)
        if taken is not None:
            raise self.error(
                f"the name is taken by {taken.kind} at {taken.location}",
                "Names are the checkpoint's key and the report's: give each operator its own",
            )
        if self.full_name in application._loops:
            raise self.error("the name is taken by a loop", "Give each its own")
        for stream in streams:
            if not isinstance(stream, Stream):
                raise self.error(
                    f"it reads {stream!r}", "Give it the stream that app.source(...) and others return"
                )
            if stream.application is not application.root:
                raise self.error(
                    f"it reads {stream} of application '{stream.application.name}'",
                    f"There are here: {', '.join(application.streams) or 'none yet'}",
                )
            if stream.ticks:
                raise self.error(
                    f"it reads the clock '{stream.name}'",
                    "Ticks go to the clock= of operators that measure time",
                )

    def add(self, operator: Operator) -> Stream:
        """Add the operator, unless its policy objects, and return its stream."""
        against = objection_to(operator.protect, operator)
        if against is not None:
            raise self.error(*against)
        return self._application.add(operator)

    def error(self, problem: str, do: str) -> GraphError:
        line = f"\n    {self.location.code}" if self.location.code else ""
        return GraphError(f"{self.kind} '{self.name}' ({self.location}): {problem}. {do}{line}")

    def basics(self, *ports: Inputs, protect: Policy | None = None) -> Basics:
        """Return what every operator is made with."""
        streams = tuple(port.streams for port in ports)
        return Basics(name=self.full_name, location=self.location, ports=streams, protect=protect)

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ExpressionError | GraphError):
            raise GraphError(f"{self.kind} '{self.name}' ({self.location}): {error}") from error

    def keys(self, by: str | Sequence[str], *inputs: Inputs) -> tuple[str, ...]:
        if not isinstance(by, str | list | tuple):
            raise self.error(f"by= is {by!r}", "Name a column, or several in a list")
        keys = (by,) if isinstance(by, str) else tuple(by)
        if len(set(keys)) != len(keys):
            raise self.error(f"by={by!r} names a column twice", "Name each once")
        for key in keys:
            for each in inputs:
                if key not in each.schema.names:
                    raise self.error(
                        f"by= names column '{key}', which {each.streams[0]} lacks", has(each.schema)
                    )
            kinds = [each.schema.field(key).type for each in inputs]
            if pa.types.is_list(kinds[0]):
                raise self.error(
                    f"the key '{key}' is {type_name(kinds[0])}", "A key's columns are single values"
                )
            if any(kind != kinds[0] for kind in kinds):
                raise self.error(
                    f"the key '{key}' is {' and '.join(type_name(k) for k in kinds)}",
                    "Cast one side to the other",
                )
        return keys

    def port(self, port: Streams) -> Inputs:
        """Return the streams of an input port, all of one schema, and that schema."""
        streams = (port,) if isinstance(port, Stream) else tuple(port)
        if not streams:
            raise self.error("a port has no stream", "Give it at least one")
        first = streams[0]
        if len({s.name for s in streams}) < len(streams):
            raise self.error("a port has the same stream twice", "Name each once")
        for other in streams[1:]:
            if other.schema != first.schema:
                raise self.error(
                    f"its port takes {first} and {other}, which differ",
                    "Make them alike with a functor's select=",
                )
        return Inputs(tuple(s.name for s in streams), first.schema)

    def clock(self, clock: Stream | None, *, needed: bool, why: str = "") -> str | None:
        """Check the clock an operator hears."""
        if clock is None:
            if needed:
                raise self.error(
                    f"{why} is by a clock's time", "Give it clock=, or name a time column with on="
                )
            return None
        if not isinstance(clock, Stream) or not clock.ticks:
            raise self.error(f"clock= is {clock}", "Give it what app.clock(...) returned")
        if clock.application is not self._application.root:
            raise self.error("clock= is another application's", "Make one here with app.clock(...)")
        if not needed:
            raise self.error("it has a clock=, and nothing in it is by a clock's time", "Leave one out")
        return clock.name

    def window(self, window: object, schema: pa.Schema, *, shape: str | None = None) -> Window:
        """Check a window and the column it measures."""
        if not isinstance(window, Window):
            raise self.error(
                f"window= takes a window, got {window!r}", "Write rr.sliding(...) or rr.tumbling(...)"
            )
        if shape is not None and window.shape != shape:
            raise self.error(f"its window is {window}", f"Write rr.{shape}(...)")
        if window.on is not None:
            if window.on not in schema.names:
                raise self.error(f"on= names column '{window.on}', which does not exist", has(schema))
            kind = schema.field(window.on).type
            if window.time is not None and not pa.types.is_timestamp(kind):
                raise self.error(
                    f"time is read off a timestamp, '{window.on}' is {type_name(kind)}",
                    "Cast it, or measure a number's change with delta=",
                )
            if window.delta is not None and not (
                pa.types.is_signed_integer(kind) or pa.types.is_floating(kind)
            ):
                raise self.error(f"delta= needs a number, '{window.on}' is {type_name(kind)}", "Cast it")
        return window

    def outputs(self, names: Iterable[str]) -> tuple[str, ...]:
        """Check the names an operator gives to its output streams, and return them in full."""
        found: dict[str, None] = {}
        for name in names:
            if not isinstance(name, str) or not NAME.fullmatch(name):
                raise self.error(
                    f"an output's name is {name!r}",
                    "Names are letters, digits and '_', starting with a letter",
                )
            full = self.full_name.removesuffix(self.name) + name
            taken = self._application.taken(full)
            if taken is not None:
                raise self.error(
                    f"its output's name '{name}' is taken by {taken.kind} at {taken.location}",
                    "Streams and operators share their names: give each its own",
                )
            if full == self.full_name or full in found:
                what = "the operator's own" if full == self.full_name else "another output's"
                raise self.error(f"its output's name '{name}' is {what}", "Give each its own")
            found[full] = None
        if not found:
            raise self.error("it has no outputs", "Name at least one in outputs=")
        return tuple(found)


def has(schema: pa.Schema) -> str:
    """Say which columns there are."""
    return f"It has: {', '.join(schema.names)}"
