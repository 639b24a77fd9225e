"""Checks of what users say of a connector, with errors that name the argument."""

from __future__ import annotations

import re
from typing import Literal
from urllib.parse import urlsplit, urlunsplit

import pyarrow as pa

from riprap.errors import GraphError
from riprap.expressions import ExpressionError, parse_schema

RecordFormat = Literal["csv", "json", "text"]
OnBadRecord = Literal["quarantine", "fail"]
MOST_RECORD_BYTES = 1 << 20
# How long a lost connection is tried again before the run fails, unless the user says otherwise.
RETRY_FOR = "60s"
TEXT_SCHEMA = pa.schema([("line", pa.string())])
_SECRET = re.compile(r"((?:^|&)(?:ssl)?password=)[^&]*", re.IGNORECASE)
TEXT_COLUMNS = {"line": pa.string(), "file": pa.string(), "number": pa.int64()}


def schema_of(schema: str | pa.Schema) -> pa.Schema:
    """Read a schema, written out or given."""
    try:
        return schema.remove_metadata() if isinstance(schema, pa.Schema) else parse_schema(schema)
    except ExpressionError as error:
        raise GraphError(f"schema=: {error}") from error


def schema_of_records(
    what: str, format: str, schema: str | pa.Schema | None, *, text: tuple[str, ...] = ("line",)
) -> pa.Schema:
    """Read the schema of records in a format; ``text`` are the columns a line of text has here."""
    if format not in ("csv", "json", "text"):
        raise GraphError(f"{what}(format=...) is 'csv', 'json' or 'text', got {format!r}")
    if schema is None and format != "text":
        raise GraphError(f"{what}(...) of {format} needs schema=, such as 'ticker string, price double'")
    wanted = TEXT_SCHEMA if schema is None else schema_of(schema)
    if format == "text":
        wrong = [f for f in wanted if f.name not in text or f.type != TEXT_COLUMNS[f.name]]
        if wrong or not len(wanted):
            columns = ", ".join(f"{n} {'bigint' if n == 'number' else 'string'}" for n in text)
            raise GraphError(f"{what}: the schema of text is made of {columns}, got '{wanted.names}'")
    return wanted


def text_holds(format: str, kind: pa.DataType) -> bool:
    """Say whether a format has a way to write a type: JSON has no bytes, CSV no lists."""
    match format:
        case "json":
            return not has_bytes(kind)
        case "csv":
            return not pa.types.is_list(kind)
    return True


def has_bytes(kind: pa.DataType) -> bool:
    """Say whether a type is binary, or a list of it."""
    return has_bytes(kind.value_type) if pa.types.is_list(kind) else bool(pa.types.is_binary(kind))


def on_bad_record(what: str, value: str) -> OnBadRecord:
    """Check what to do with records that cannot be read."""
    if value not in ("quarantine", "fail"):
        raise GraphError(f"{what}(on_bad_record=...) is 'quarantine' or 'fail', got {value!r}")
    return value  # type: ignore[return-value]


def whole_number(what: str, value: object, *, least: int = 1) -> int:
    """Check a whole number."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise GraphError(f"{what} takes a whole number of at least {least}, got {value!r}")
    return value


def tuples_a_second(rate: float | None) -> float | None:
    """Check a pace."""
    if rate is not None and (isinstance(rate, bool) or not isinstance(rate, int | float) or rate <= 0):
        raise GraphError(f"rate= takes a positive number of tuples a second, got {rate!r}")
    return None if rate is None else float(rate)


def pace(rate: float | None) -> str:
    """Say a pace, if there is one."""
    return "" if rate is None else f" at {rate:,.0f} tuples/s"


def url_of(what: str, url: str, *schemes: str) -> str:
    """Check the address of a server."""
    if not isinstance(url, str) or urlsplit(url).scheme not in schemes:
        # No more than that of it: it may hold a password.
        got = (
            f"one that begins with '{urlsplit(url).scheme}:'"
            if isinstance(url, str) and "://" in url
            else repr(url)
        )
        raise GraphError(f"{what} takes a URL such as '{schemes[0]}://user:password@host/...', got {got}")
    return url


def brokers(what: str, servers: str) -> str:
    """Check the addresses of brokers."""
    for server in named(what, servers).split(","):
        host, _, port = server.strip().rpartition(":")
        if not host or not port.isdigit():
            raise GraphError(
                f"{what} takes brokers such as 'localhost:9092' or 'a:9092,b:9092', got {servers!r}"
            )
    return servers


def table_name(what: str, table: str) -> str:
    """Check the name of an SQL table, which may have that of its schema before it."""
    if named(what, table).count(".") > 1:
        raise GraphError(f"{what} takes 'table' or 'schema.table', got {table!r}")
    return table


def named(what: str, name: str) -> str:
    """Check the name of a table, stream or topic."""
    if not isinstance(name, str) or not name:
        raise GraphError(f"{what} takes a name, got {name!r}")
    return name


def address(what: str, host: str, port: int) -> tuple[str, int]:
    """Check a host and a port."""
    if not isinstance(port, int) or isinstance(port, bool) or not 0 < port < 65536:
        raise GraphError(f"{what} takes a port between 1 and 65535, got {port!r}")
    return named(f"{what}: host", host), port


def without_password(url: str) -> str:
    """Show a URL to people.

    >>> without_password("redis://me:secret@localhost:6379/0")
    'redis://me:***@localhost:6379/0'
    """
    parts = urlsplit(url)
    if parts.password is not None:
        parts = parts._replace(netloc=parts.netloc.replace(f":{parts.password}@", ":***@", 1))
    return urlunsplit(parts._replace(query=_SECRET.sub(r"\1***", parts.query)))
