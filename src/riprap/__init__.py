"""Riprap: streaming applications on Spark in which every part is protected as much as it deserves.

import riprap as rr

app = rr.Application("demo")
feed = app.source("feed", rr.files("market/*.parquet"), position="seq")
...
with app.run() as run:
    run.wait()
"""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from riprap.errors import (
    FormatError,
    GraphError,
    LedgerError,
    MissingPageError,
    NotYetError,
    OperatorError,
    PageSpaceError,
    RiprapError,
    RunError,
)
from riprap.graph import Application, Graph, Stream, load
from riprap.graph.connectors import (
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
from riprap.graph.policies import checkpoint, consistent, eventual
from riprap.graph.user_operator import Abandoned, CustomOperator
from riprap.graph.windows import every, on_close, sliding, tumbling

if TYPE_CHECKING:
    from riprap.runtime import Progress, Run

__all__ = [
    "Abandoned",
    "Application",
    "CustomOperator",
    "FormatError",
    "Graph",
    "GraphError",
    "LedgerError",
    "MissingPageError",
    "NotYetError",
    "OperatorError",
    "PageSpaceError",
    "Progress",
    "RiprapError",
    "Run",
    "RunError",
    "RunOptions",
    "Stream",
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


def __getattr__(name: str) -> Any:
    # Describing an application must not cost the import of Spark.
    if name in ("Progress", "Run"):
        from riprap import runtime

        return getattr(runtime, name)
    raise AttributeError(f"module 'riprap' has no attribute '{name}'")
