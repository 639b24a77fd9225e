"""The operators and adapters there are, with what protection has to know of each: the tables of `riprap operators`."""

from __future__ import annotations

from collections.abc import Mapping

from riprap.graph.connectors import (
    Callback,
    Console,
    Files,
    FileSink,
    FromKafka,
    FromPostgres,
    FromRedis,
    FromSpark,
    FromTcp,
    Generated,
    Memory,
    Promise,
    Rows,
    ToKafka,
    ToPostgres,
    ToRedis,
    ToSpark,
    ToSqlite,
    ToTcp,
)
from riprap.graph.operators import (
    Aggregate,
    Barrier,
    Custom,
    Deduplicate,
    Delay,
    Functor,
    Gate,
    Join,
    Lookup,
    Punctor,
    Sink,
    Sort,
    Source,
    Split,
    Throttle,
    TopN,
    Traits,
    Union,
)
from riprap.graph.operators.functor import WITH_VARIABLES

TOOLKIT: Mapping[str, Traits] = {
    "Source": Source.TRAITS,
    "Source, unordered Spark": Source.UNORDERED,
    "Functor": Functor.TRAITS,
    "Functor with variables": WITH_VARIABLES,
    "Aggregate": Aggregate.TRAITS,
    "Join": Join.TRAITS,
    "Sort": Sort.TRAITS,
    "TopN": TopN.TRAITS,
    "Barrier": Barrier.TRAITS,
    "Punctor": Punctor.TRAITS,
    "Split": Split.TRAITS,
    "Union": Union.TRAITS,
    "Delay": Delay.TRAITS,
    "Throttle": Throttle.TRAITS,
    "Deduplicate": Deduplicate.TRAITS,
    "Gate": Gate.TRAITS,
    "Lookup": Lookup.TRAITS,
    "Custom": Custom.TRAITS,
    "Sink": Sink.TRAITS,
}

SOURCES: Mapping[str, Promise] = {
    "files": Files.PROMISE,
    "rows in memory": Rows.PROMISE,
    "rate, clock": Generated.PROMISE,
    "PostgreSQL": FromPostgres.PROMISE,
    "Redis stream": FromRedis.PROMISE,
    "Kafka": FromKafka.PROMISE,
    "TCP": FromTcp.PROMISE,
    "Spark": FromSpark.PROMISE,
}

SINKS: Mapping[str, Promise] = {
    "files": FileSink.PROMISE,
    "memory": Memory.PROMISE,
    "PostgreSQL": ToPostgres.PROMISE,
    "SQLite": ToSqlite.PROMISE,
    "Redis stream": ToRedis.PROMISE,
    "Kafka": ToKafka.PROMISE,
    "TCP": ToTcp.PROMISE,
    "screen": Console.PROMISE,
    "callback": Callback.PROMISE,
    "Spark": ToSpark.PROMISE,
}

HEADINGS = (
    "operator",
    "does",
    "state, by port",
    "pages",
    "key",
    "restored state is stale",
    "holds tuples",
    "consistent region",
    "a punctuation",
)


def cells(traits: Traits) -> tuple[str, ...]:
    """Return a row of the table, but for the operator's name."""
    return (
        traits.does,
        "; ".join(traits.state) or "none",
        traits.pages or "-",
        traits.key,
        traits.stale or "no",
        "yes: lost with it, unless protected" if traits.holds else "no",
        "yes" if traits.consistent else f"no: {traits.why_not}",
        traits.punctuation,
    )
