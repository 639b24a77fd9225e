"""Name the types of the dialect as Spark does, and read schemas written as Spark DDL."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from riprap.expressions.errors import ExpressionError, Misuse, check_text, near

BOOLEAN = pa.bool_()
TINYINT, SMALLINT, INT, BIGINT = pa.int8(), pa.int16(), pa.int32(), pa.int64()
FLOAT, DOUBLE = pa.float32(), pa.float64()
STRING, BINARY, DATE, NULL = pa.string(), pa.binary(), pa.date32(), pa.null()
TIMESTAMP, TIMESTAMP_NTZ = pa.timestamp("us", tz="UTC"), pa.timestamp("us")
INTERVAL = pa.duration("us")  # inside of expressions only
MAX_PRECISION = 38

INTEGRALS = (TINYINT, SMALLINT, INT, BIGINT)
FRACTIONALS = (FLOAT, DOUBLE)

_NAMES = {
    BOOLEAN: "boolean",
    TINYINT: "tinyint",
    SMALLINT: "smallint",
    INT: "int",
    BIGINT: "bigint",
    FLOAT: "float",
    DOUBLE: "double",
    STRING: "string",
    BINARY: "binary",
    DATE: "date",
    TIMESTAMP: "timestamp",
    TIMESTAMP_NTZ: "timestamp_ntz",
    NULL: "void",
    INTERVAL: "interval day to second",
}
SUPPORTED = (
    "boolean, tinyint, smallint, int, bigint, float, double, decimal(p,s), string, binary, date, "
    "timestamp (UTC, microseconds), timestamp_ntz (microseconds), and array<T> of one of these"
)

_LEAD = "create table t ("
_HOW = f"Write: name type, name type, ... Types: {SUPPORTED}"

_FROM_SQL = {
    exp.DataType.Type.BOOLEAN: BOOLEAN,
    exp.DataType.Type.TINYINT: TINYINT,
    exp.DataType.Type.SMALLINT: SMALLINT,
    exp.DataType.Type.INT: INT,
    exp.DataType.Type.BIGINT: BIGINT,
    exp.DataType.Type.FLOAT: FLOAT,
    exp.DataType.Type.DOUBLE: DOUBLE,
    exp.DataType.Type.TEXT: STRING,
    exp.DataType.Type.BINARY: BINARY,
    exp.DataType.Type.DATE: DATE,
    exp.DataType.Type.TIMESTAMPTZ: TIMESTAMP,
    exp.DataType.Type.TIMESTAMPNTZ: TIMESTAMP_NTZ,
}


def type_name(type: pa.DataType) -> str:
    """Name an Arrow type as Spark SQL does.

    >>> type_name(pa.int64()), type_name(pa.decimal128(10, 2)), type_name(pa.list_(pa.float64()))
    ('bigint', 'decimal(10,2)', 'array<double>')
    """
    if pa.types.is_decimal128(type):
        return f"decimal({type.precision},{type.scale})"
    if is_list(type):
        return f"array<{type_name(type.value_type)}>"
    return _NAMES.get(type, str(type))


def check_type(type: pa.DataType, where: str = "") -> pa.DataType:
    """Return the dialect's type for an Arrow type, or say which types there are.

    >>> check_type(pa.large_string())
    DataType(string)
    """
    if pa.types.is_dictionary(type):
        type = type.value_type
    if type in (pa.large_string(), pa.string_view()):
        return STRING
    if type in (pa.large_binary(), pa.binary_view()):
        return BINARY
    if pa.types.is_timestamp(type) and type.tz and type.unit == "us":  # an instant is the same in every zone
        return TIMESTAMP
    if type in _NAMES and type not in (NULL, INTERVAL):
        return type
    if pa.types.is_decimal128(type) and 0 <= type.scale <= type.precision:
        return type
    if is_list(type) and not pa.types.is_nested(type.value_type):
        return pa.list_(check_type(type.value_type, where))
    suffix = f" of {where}" if where else ""
    raise ExpressionError("", f"type {type}{suffix} is not supported", f"Supported types: {SUPPORTED}")


def holding(type: pa.DataType, where: str = "") -> pa.DataType:
    """Return the dialect's type that holds what columns of files and tables have, as far as it fits.

    >>> holding(pa.timestamp("ns")), holding(pa.uint32())
    (TimestampType(timestamp[us]), DataType(int64))
    """
    if pa.types.is_dictionary(type):
        type = type.value_type
    if pa.types.is_timestamp(type):
        return TIMESTAMP_NTZ if type.tz is None else TIMESTAMP
    if pa.types.is_unsigned_integer(type):
        return {8: SMALLINT, 16: INT}.get(type.bit_width, BIGINT)
    if pa.types.is_decimal32(type) or pa.types.is_decimal64(type):
        return pa.decimal128(type.precision, type.scale)
    if pa.types.is_large_list(type) or pa.types.is_fixed_size_list(type) or is_list(type):
        return check_type(pa.list_(holding(type.value_type, where)), where)
    return {pa.date64(): DATE, pa.float16(): FLOAT}.get(type) or check_type(type, where)


def hold(column: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    """Cast a column to the type that holds it, or raise ArrowInvalid if something would be cut off.

    >>> hold(pa.chunked_array([["a"]]).dictionary_encode(), pa.string()).to_pylist()
    ['a']
    """
    if pa.types.is_dictionary(column.type):
        # Not by a cast of the column: Arrow has none for each type of values.
        parts = [part.dictionary.cast(wanted).take(part.indices) for part in column.chunks]
        return pa.chunked_array(parts, wanted)
    return column if column.type == wanted else column.cast(wanted)


def normalise(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Bring a column into the one Arrow layout its type has in the dialect.

    >>> normalise(pa.chunked_array([["a"], ["b"]]).dictionary_encode()).to_pylist()
    ['a', 'b']
    """
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)
    wanted = check_type(array.type)
    return array if array.type == wanted else pc.cast(array, wanted)


def parse_schema(text: str) -> pa.Schema:
    """Read a schema written as Spark DDL.

    >>> parse_schema("a bigint, b decimal(10,2) not null").field("b")
    pyarrow.Field<b: decimal128(10, 2) not null>
    """
    check_text(text, "ticker string, price double")
    try:
        table = sqlglot.parse_one(f"{_LEAD}{text})", dialect="spark")
    except SqlglotError as error:
        raise _schema_error(text, error) from None
    definitions = list(table.find_all(exp.ColumnDef))
    schema = table.this
    if not isinstance(schema, exp.Schema) or not 0 < len(definitions) == len(schema.expressions):
        raise ExpressionError(text, "not a schema", _HOW)
    fields: list[pa.Field] = []
    for definition in definitions:
        if definition.args.get("kind") is None:
            raise ExpressionError(text, f"column {definition.name!r} has no type", f"Types: {SUPPORTED}")
        try:
            type = from_sql(definition.args["kind"])
        except Misuse as misuse:
            raise ExpressionError(text, misuse.problem, misuse.hint) from None
        required = definition.find(exp.NotNullColumnConstraint) is not None
        fields.append(pa.field(definition.name, type, nullable=not required))
    names = [field.name for field in fields]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ExpressionError(text, f"column {repeated[0]!r} is there twice")
    return pa.schema(fields)


def _schema_error(text: str, error: SqlglotError) -> ExpressionError:
    """Say where a schema goes wrong, in its own words: sqlglot shows what it was wrapped in."""
    first: dict[str, Any] = next(iter(getattr(error, "errors", ())), {})
    word, end = str(first.get("highlight") or ""), int(first.get("col") or 0) - len(_LEAD)
    if first.get("line") != 1 or not word or not len(word) <= end <= len(text):
        return ExpressionError(text, "not a schema", _HOW)
    before = text[: end - len(word)].rpartition(",")[2].split()
    if len(before) == 1:
        names = [name for type, name in _NAMES.items() if type not in (NULL, INTERVAL)]
        hint = near(word.lower(), [*names, "decimal(p,s)", "array<T>"])
        return ExpressionError(text, f"no type {word!r}", hint, end - len(word), end)
    return ExpressionError(text, f"not a schema: {word!r} has no place there", _HOW, end - len(word), end)


def from_sql(type: exp.DataType) -> pa.DataType:
    """Turn a parsed SQL type into the Arrow type, or raise Misuse."""
    if type.this == exp.DataType.Type.DECIMAL:
        sizes = [int(each.name) for each in type.expressions]
        precision, scale = (sizes + [10, 0][len(sizes) :]) if len(sizes) < 2 else sizes[:2]
        if not 1 <= precision <= MAX_PRECISION or not 0 <= scale <= precision:
            raise Misuse(f"decimal({precision},{scale}) does not exist", "1 <= p <= 38 and 0 <= s <= p")
        return pa.decimal128(precision, scale)
    if type.this == exp.DataType.Type.ARRAY and len(type.expressions) == 1:
        (element,) = type.expressions
        if element.this != exp.DataType.Type.ARRAY:
            return pa.list_(from_sql(element))
    arrow = _FROM_SQL.get(type.this)
    if arrow is None or type.expressions:
        raise Misuse(f"type {type.sql('spark').lower()} is not supported", f"Supported types: {SUPPORTED}")
    return arrow


def is_integral(type: pa.DataType) -> bool:
    return type in INTEGRALS


def is_fractional(type: pa.DataType) -> bool:
    return type in FRACTIONALS


def is_decimal(type: pa.DataType) -> bool:
    return bool(pa.types.is_decimal128(type))


def is_numeric(type: pa.DataType) -> bool:
    return is_integral(type) or is_fractional(type) or is_decimal(type)


def is_time(type: pa.DataType) -> bool:
    return type in (DATE, TIMESTAMP, TIMESTAMP_NTZ)


def is_list(type: pa.DataType) -> bool:
    # Not list views: Arrow 26 loses values when it casts one that has nulls.
    return bool(pa.types.is_list(type) or pa.types.is_large_list(type))
