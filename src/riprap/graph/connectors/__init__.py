"""Where streams come from and where they go, as values; the runtime knows how to open them."""

from __future__ import annotations

from riprap.graph.connectors.file_sinks import FileFormat, FileSink, csv, json, parquet, sink_of
from riprap.graph.connectors.files import Files, files, folder_scan, list_files
from riprap.graph.connectors.generated import Generated, rate, ticks
from riprap.graph.connectors.memory import (
    Callback,
    Console,
    Memory,
    Rows,
    callback,
    console,
    memory,
    rows,
)
from riprap.graph.connectors.postgres import FromPostgres, ToPostgres, from_postgres, to_postgres
from riprap.graph.connectors.promise import Promise
from riprap.graph.connectors.redis import FromRedis, ToRedis, from_redis, to_redis
from riprap.graph.connectors.sink import Sink, SinkConnector, Target
from riprap.graph.connectors.source import BadRecord, Cursor, Fetched, Fetcher, Source
from riprap.graph.connectors.spark import (
    FromKafka,
    FromSpark,
    ReadBySpark,
    ToKafka,
    ToSpark,
    from_kafka,
    from_spark,
    to_kafka,
    to_spark,
)
from riprap.graph.connectors.sqlite import ToSqlite, to_sqlite
from riprap.graph.connectors.tcp import FromTcp, ToTcp, from_tcp, to_tcp

SourceConnector = Files | Rows | Generated | Source | ReadBySpark

__all__ = [
    "BadRecord",
    "Callback",
    "Console",
    "Cursor",
    "Fetched",
    "Fetcher",
    "FileFormat",
    "FileSink",
    "Files",
    "FromKafka",
    "FromPostgres",
    "FromRedis",
    "FromSpark",
    "FromTcp",
    "Generated",
    "Memory",
    "Promise",
    "ReadBySpark",
    "Rows",
    "Sink",
    "SinkConnector",
    "Source",
    "SourceConnector",
    "Target",
    "ToKafka",
    "ToPostgres",
    "ToRedis",
    "ToSpark",
    "ToSqlite",
    "ToTcp",
    "callback",
    "console",
    "csv",
    "files",
    "folder_scan",
    "from_kafka",
    "from_postgres",
    "from_redis",
    "from_spark",
    "from_tcp",
    "json",
    "list_files",
    "memory",
    "parquet",
    "rate",
    "rows",
    "sink_of",
    "ticks",
    "to_kafka",
    "to_postgres",
    "to_redis",
    "to_spark",
    "to_sqlite",
    "to_tcp",
]
