"""Riprap: streaming applications on Spark in which every part is protected as much as it deserves.

import riprap as rr

app = rr.Application("demo")
feed = app.source("feed", rr.files("market/*.parquet"), position="seq")
...
with app.run() as run:
    run.wait()

Describe an application
    Application         operators are added by its methods, checked on the spot
    Stream, Graph       what an operator puts out; the whole application, as a value
    load                the application that "file.py:name" names

Where tuples come from
    files, folder_scan  Parquet, CSV, JSON lines, text
    rows, rate, ticks   in memory; made at a pace; the ticks of a clock
    from_kafka, from_postgres, from_redis, from_spark, from_tcp
                        systems outside

Where they go
    parquet, csv, json  files, each batch once
    to_kafka, to_postgres, to_redis, to_spark, to_sqlite, to_tcp
                        systems outside
    memory, callback, console
                        for run.table(name); a function of yours; the screen

Windows, and when they put out
    sliding, tumbling   the newest tuples; one window after the other
    every, on_close     so often; when a window closes

Protection
    checkpoint          saved now and then, by itself
    autonomous          outside of consistent regions
    consistent          begins a region whose results count exactly once
    eventual            each open window recorded in the output log of its operator

Run it
    RunOptions          what app.run(...) and riprap run take
    Run, Progress       a run, to follow, wait for, read and end; how far it is

Parts of your own
    CustomOperator, Abandoned
                        an operator in Python
    Source, Fetcher, Fetched, BadRecord
                        a source
    Sink, Target        a sink
    Promise             what either holds to after a failure
    Store               where checkpoints go
    Policy              a protection

When something is wrong
    RiprapError         the base of all that is raised on purpose
    GraphError, NotYetError
                        an application that is described wrongly, or asks for what is not there yet
    RunError, OperatorError, ConnectionLost
                        a run that failed, code of yours in it, a server that is away
    StoreError, CorruptValueError
                        a store that is away, a value in it that is damaged
    MissingPageError, PageSpaceError, LedgerError, FormatError
                        state that is gone, host memory that is full, records and files that do not fit

Further
    testing             rehearse, crash and compare applications, check parts of your own
    faults              what a fault at each operator would do to the answers
    protection          what a policy is asked
    model               how available an application would be, and what it would put out
    san                 the stochastic activity networks that models are made of
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from riprap.errors import (
    ConnectionLost,
    CorruptValueError,
    FormatError,
    GraphError,
    LedgerError,
    MissingPageError,
    NotYetError,
    OperatorError,
    PageSpaceError,
    RiprapError,
    RunError,
    StoreError,
)

if TYPE_CHECKING:
    from riprap import faults as faults
    from riprap import model as model
    from riprap import protection as protection
    from riprap import san as san
    from riprap import testing as testing
    from riprap.application import Application, load
    from riprap.graph import Graph, Stream
    from riprap.graph.connectors import (
        BadRecord,
        Fetched,
        Fetcher,
        Promise,
        Sink,
        Source,
        Target,
        callback,
        console,
        csv,
        files,
        folder_scan,
        from_kafka,
        from_postgres,
        from_redis,
        from_spark,
        from_tcp,
        json,
        memory,
        parquet,
        rate,
        rows,
        ticks,
        to_kafka,
        to_postgres,
        to_redis,
        to_spark,
        to_sqlite,
        to_tcp,
    )
    from riprap.graph.options import RunOptions
    from riprap.operators.custom.user_operator import Abandoned, CustomOperator
    from riprap.protection import Policy, autonomous, checkpoint, consistent, eventual
    from riprap.runtime import Progress, Run
    from riprap.state.stores import Store
    from riprap.windows import every, on_close, sliding, tumbling

__all__ = [  # noqa: RUF022 - in the order of the table of contents above
    # Describe an application
    "Application",
    "Stream",
    "Graph",
    "load",
    # Where tuples come from
    "files",
    "folder_scan",
    "rows",
    "rate",
    "ticks",
    "from_kafka",
    "from_postgres",
    "from_redis",
    "from_spark",
    "from_tcp",
    # Where they go
    "parquet",
    "csv",
    "json",
    "to_kafka",
    "to_postgres",
    "to_redis",
    "to_spark",
    "to_sqlite",
    "to_tcp",
    "memory",
    "callback",
    "console",
    # Windows, and when they put out
    "sliding",
    "tumbling",
    "every",
    "on_close",
    # Protection
    "checkpoint",
    "autonomous",
    "consistent",
    "eventual",
    # Run it
    "RunOptions",
    "Run",
    "Progress",
    # Parts of your own
    "CustomOperator",
    "Abandoned",
    "Source",
    "Fetcher",
    "Fetched",
    "BadRecord",
    "Sink",
    "Target",
    "Promise",
    "Store",
    "Policy",
    # When something is wrong
    "RiprapError",
    "GraphError",
    "NotYetError",
    "RunError",
    "OperatorError",
    "ConnectionLost",
    "StoreError",
    "CorruptValueError",
    "MissingPageError",
    "PageSpaceError",
    "LedgerError",
    "FormatError",
]

__version__ = version("riprap")

_PARTS = ("testing", "faults", "protection", "model", "san")
# Whoever needs a part of Riprap, a worker or the agent of a host, need not wait for all of it to be imported.
_HOMES = {
    "riprap.application": ("Application", "load"),
    "riprap.graph": ("Graph", "Stream"),
    "riprap.graph.connectors": (
        "BadRecord", "Fetched", "Fetcher", "Promise", "Sink", "Source", "Target",
        "callback", "console", "csv", "files", "folder_scan", "from_kafka", "from_postgres", "from_redis", "from_spark",
        "from_tcp", "json", "memory", "parquet", "rate", "rows", "ticks", "to_kafka", "to_postgres", "to_redis",
        "to_spark", "to_sqlite", "to_tcp",
    ),
    "riprap.graph.options": ("RunOptions",),
    "riprap.operators.custom.user_operator": ("Abandoned", "CustomOperator"),
    "riprap.windows": ("every", "on_close", "sliding", "tumbling"),
    "riprap.protection": ("Policy", "autonomous", "checkpoint", "consistent", "eventual"),
    "riprap.runtime": ("Progress", "Run"),
    "riprap.state.stores": ("Store",),
}  # fmt: skip


def __dir__() -> list[str]:
    # What is imported when it is asked for is shown too, by editors and help().
    return sorted({*globals(), *__all__, *_PARTS})


def __getattr__(name: str) -> Any:
    if name in _PARTS:
        return import_module(f"riprap.{name}")
    for home, names in _HOMES.items():
        if name in names:
            globals()[name] = value = getattr(import_module(home), name)
            return value
    raise AttributeError(f"module 'riprap' has no attribute '{name}'")
