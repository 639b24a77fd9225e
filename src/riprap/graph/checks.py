"""What is checked whenever an operator is added, and how a problem is told."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from riprap.errors import GraphError
from riprap.expressions import ExpressionError, type_name
from riprap.graph.location import Location
from riprap.graph.policies import Checkpoint, Consistent, Eventual, Policy
from riprap.graph.stream import Stream

if TYPE_CHECKING:
    from riprap.graph.application import Application

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


class Here:
    """The operator being added: checks what all kinds share, and gives every problem its name and line."""

    def __init__(self, kind: str, name: str, application: Application, *streams: Stream) -> None:
        self.kind = kind
        self.name = name
        self.location = Location.of_caller()
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise self.error(
                f"its name is {name!r}", "Names are letters, digits and '_', starting with a letter"
            )
        taken = application._operators.get(name)
        if taken is not None:
            raise self.error(
                f"the name is taken by {taken.kind} at {taken.location}",
                "Names are the checkpoint's key and the report's: give each operator its own",
            )
        for stream in streams:
            if not isinstance(stream, Stream):
                raise self.error(
                    f"it reads {stream!r}", "Give it the stream that app.source(...) and others return"
                )
            if stream.application is not application:
                raise self.error(
                    f"it reads {stream} of application '{stream.application.name}'",
                    f"There are here: {', '.join(application._operators) or 'none yet'}",
                )

    def error(self, problem: str, do: str) -> GraphError:
        line = f"\n    {self.location.code}" if self.location.code else ""
        return GraphError(f"{self.kind} '{self.name}' ({self.location}): {problem}. {do}{line}")

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ExpressionError):
            raise GraphError(f"{self.kind} '{self.name}' ({self.location}): {error}") from error

    def keys(self, by: str | Sequence[str], *streams: Stream) -> tuple[str, ...]:
        keys = (by,) if isinstance(by, str) else tuple(by)
        if len(set(keys)) != len(keys):
            raise self.error(f"by={by!r} names a column twice", "Name each once")
        for key in keys:
            for stream in streams:
                if key not in stream.schema.names:
                    raise self.error(
                        f"by= names column '{key}', which {stream.name} lacks", has(stream.schema)
                    )
            kinds = [s.schema.field(key).type for s in streams]
            if any(kind != kinds[0] for kind in kinds):
                raise self.error(
                    f"the key '{key}' is {' and '.join(type_name(k) for k in kinds)}",
                    "Cast one side to the other",
                )
        return keys

    def policy(self, protect: Policy | None, *, stateful: bool) -> None:
        if protect is None:
            return
        if not isinstance(protect, Checkpoint | Consistent | Eventual):
            raise self.error(
                f"protect={protect!r} is not a policy", "Write rr.checkpoint(every='10s') or another"
            )
        if isinstance(protect, Checkpoint | Eventual) and not stateful:
            kind = type(protect).__name__.lower()
            raise self.error(
                f"protect=rr.{kind}(...) saves state, and a {self.kind.lower()} has none",
                "Move the policy to a stateful operator, or leave it out",
            )


def has(schema: pa.Schema) -> str:
    """Say which columns there are."""
    return f"It has: {', '.join(schema.names)}"
