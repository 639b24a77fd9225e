"""Build the string functions. Characters are Unicode code points, as in Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from riprap.expressions.errors import Misuse
from riprap.expressions.mathematics import literal_int
from riprap.expressions.tree import ArrowKernel, Expression, Literal, Order, Value, call
from riprap.expressions.types import BOOLEAN, INT, STRING, type_name

_SEPARATORS = ("\x1f", "\x1e", "\x1d", "\x1c", "\ue000", "\uf8ff")


def upper(arguments: Sequence[Expression]) -> Expression:
    return _text("upper", STRING, partial(_recase, ascii=pc.ascii_upper, full=str.upper), arguments)


def lower(arguments: Sequence[Expression]) -> Expression:
    return _text("lower", STRING, partial(_recase, ascii=pc.ascii_lower, full=str.lower), arguments)


def length(arguments: Sequence[Expression]) -> Expression:
    return _text("length", INT, pc.utf8_length, arguments)


def trim(arguments: Sequence[Expression]) -> Expression:
    return _text("trim", STRING, partial(pc.utf8_trim, characters=" "), arguments)


def concat(arguments: Sequence[Expression]) -> Expression:
    return _text("concat", STRING, _concat, arguments)


def joined(left: Expression, right: Expression) -> Expression:
    """Build `left || right`."""
    need_text("||", (left, right))
    return call(f"{left.operand} || {right.operand}", STRING, _concat, left, right, atomic=False)


def substring(arguments: Sequence[Expression]) -> Expression:
    """Build `substring(text, position, length)`: counted from 1, or from the end when negative."""
    text, *rest = arguments
    need_text("substring", (text,))
    position = literal_int("substring", rest[0])
    count = literal_int("substring", rest[1]) if len(rest) > 1 else None
    start = position - 1 if position > 0 else position
    stop = None if count is None else start + max(count, 0)
    if stop is not None and start < 0 <= stop:
        stop = None  # reaches the end of the text
    sql = f"substring({', '.join(each.sql for each in arguments)})"
    if count is not None and count <= 0:
        return call(sql, STRING, _emptied, text)
    return call(sql, STRING, partial(pc.utf8_slice_codeunits, start=start, stop=stop), text)


def starts_with(arguments: Sequence[Expression]) -> Expression:
    return _matching("startswith", pc.starts_with, arguments)


def ends_with(arguments: Sequence[Expression]) -> Expression:
    return _matching("endswith", pc.ends_with, arguments)


def contains(arguments: Sequence[Expression]) -> Expression:
    return _matching("contains", pc.match_substring, arguments)


def like(text: Expression, pattern: Expression) -> Expression:
    """Build `text like 'pattern'`: % is any text, _ one character, a backslash takes either literally."""
    need_text("like", (text,))
    wanted = literal_text("like", pattern)
    sql = f"{text.operand} like {pattern.sql}"
    return call(sql, BOOLEAN, partial(pc.match_substring_regex, pattern=_regex(wanted)), text, atomic=False)


def _regex(pattern: str) -> str:
    parts: list[str] = []
    characters = iter(pattern)
    for character in characters:
        if character == "\\":
            following = next(characters, "")
            if following not in ("%", "_", "\\"):
                raise Misuse(
                    f"like pattern {pattern!r} has a backslash before {following!r}", r"Write \\, \% or \_"
                )
            parts.append(_literally(following))
        else:
            parts.append({"%": ".*", "_": "."}.get(character) or _literally(character))
    return r"(?s)\A" + "".join(parts) + r"\z"


def _literally(character: str) -> str:
    return f"\\x{{{ord(character):x}}}"


def _text(name: str, type: pa.DataType, kernel: ArrowKernel, arguments: Sequence[Expression]) -> Expression:
    need_text(name, arguments)
    return call(f"{name}({', '.join(each.sql for each in arguments)})", type, kernel, *arguments)


def _matching(name: str, kernel: ArrowKernel, arguments: Sequence[Expression]) -> Expression:
    text, pattern = arguments
    need_text(name, (text,))
    wanted = literal_text(name, pattern)
    sql = f"{name}({text.sql}, {pattern.sql})"
    return call(sql, BOOLEAN, partial(kernel, pattern=wanted), text, order=Order.LEFT_FIRST)


def literal_text(name: str, argument: Expression) -> str:
    """Return the text of a literal, or refuse what is none."""
    if not isinstance(argument, Literal) or argument.type != STRING or not argument.scalar.is_valid:
        raise Misuse(f"{name} needs a string literal here, got {argument.sql}")
    return str(argument.scalar.as_py())


def need_text(name: str, arguments: Sequence[Expression]) -> None:
    """Refuse arguments that are no texts."""
    for argument in arguments:
        if argument.type != STRING:
            raise Misuse(
                f"{name} needs a string, got {type_name(argument.type)}: {argument.sql}",
                "Write cast(x as string)",
            )


def _concat(*values: Value) -> Value:
    return pc.binary_join_element_wise(*values, "")


def _emptied(value: Value) -> Value:
    return pc.if_else(pc.is_valid(value), "", pa.scalar(None, STRING))


def _recase(value: Value, *, ascii: ArrowKernel, full: Callable[[str], str]) -> Value:
    """Change case by Unicode's full mapping, where one character may become several.

    Arrow maps one to one. Python has the full mapping but works on one string: so all rows are joined into
    one, with a character that occurs in none of them, and split again.
    """
    if isinstance(value, pa.Scalar):
        return pa.scalar(full(value.as_py()) if value.is_valid else None, STRING)
    if pc.all(pc.string_is_ascii(value)).as_py() is not False:
        return ascii(value)
    filled = pc.fill_null(value, "")
    separator = next(each for each in _SEPARATORS if not pc.any(pc.match_substring(filled, each)).as_py())
    whole = pc.binary_join(pa.ListArray.from_arrays([0, len(filled)], filled), separator)[0].as_py()
    parts = pa.array(full(whole).split(separator), STRING)
    return pc.if_else(pc.is_valid(value), parts, pa.scalar(None, STRING))
