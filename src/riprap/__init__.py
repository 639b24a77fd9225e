"""Riprap: streaming applications on Spark in which every part is protected as much as it deserves.

import riprap as rr

app = rr.Application("demo")
feed = app.source("feed", rr.files("market/*.parquet"), position="seq")
...
with app.run() as run:
    run.wait()
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
    from riprap.graph import Application, Graph, Stream, load
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
    from riprap.graph.user_operator import Abandoned, CustomOperator
    from riprap.graph.windows import every, on_close, sliding, tumbling
    from riprap.protection import Policy, checkpoint, consistent, eventual
    from riprap.runtime import Progress, Run
    from riprap.state.stores import Store

__all__ = [
    "Abandoned",
    "Application",
    "BadRecord",
    "ConnectionLost",
    "CorruptValueError",
    "CustomOperator",
    "Fetched",
    "Fetcher",
    "FormatError",
    "Graph",
    "GraphError",
    "LedgerError",
    "MissingPageError",
    "NotYetError",
    "OperatorError",
    "PageSpaceError",
    "Policy",
    "Progress",
    "Promise",
    "RiprapError",
    "Run",
    "RunError",
    "RunOptions",
    "Sink",
    "Source",
    "Store",
    "StoreError",
    "Stream",
    "Target",
    "callback",
    "checkpoint",
    "consistent",
    "console",
    "csv",
    "eventual",
    "every",
    "files",
    "folder_scan",
    "from_kafka",
    "from_postgres",
    "from_redis",
    "from_spark",
    "from_tcp",
    "json",
    "load",
    "memory",
    "on_close",
    "parquet",
    "rate",
    "rows",
    "sliding",
    "ticks",
    "to_kafka",
    "to_postgres",
    "to_redis",
    "to_spark",
    "to_sqlite",
    "to_tcp",
    "tumbling",
]

__version__ = version("riprap")

# Whoever needs a part of Riprap, a worker or the agent of a host, need not wait for all of it to be imported.
_HOMES = {
    "riprap.graph": ("Application", "Graph", "Stream", "load"),
    "riprap.graph.connectors": (
        "BadRecord", "Fetched", "Fetcher", "Promise", "Sink", "Source", "Target",
        "callback", "console", "csv", "files", "folder_scan", "from_kafka", "from_postgres", "from_redis", "from_spark",
        "from_tcp", "json", "memory", "parquet", "rate", "rows", "ticks", "to_kafka", "to_postgres", "to_redis",
        "to_spark", "to_sqlite", "to_tcp",
    ),
    "riprap.graph.options": ("RunOptions",),
    "riprap.graph.user_operator": ("Abandoned", "CustomOperator"),
    "riprap.graph.windows": ("every", "on_close", "sliding", "tumbling"),
    "riprap.protection": ("Policy", "checkpoint", "consistent", "eventual"),
    "riprap.runtime": ("Progress", "Run"),
    "riprap.state.stores": ("Store",),
}  # fmt: skip


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            globals()[name] = value = getattr(import_module(home), name)
            return value
    raise AttributeError(f"module 'riprap' has no attribute '{name}'")
