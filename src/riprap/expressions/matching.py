"""Build what searches texts by regular expressions: rlike, regexp_extract, regexp_replace and split."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from riprap.expressions.errors import Misuse
from riprap.expressions.mathematics import literal_int
from riprap.expressions.pattern_tree import Capture, Pattern
from riprap.expressions.patterns import read_pattern
from riprap.expressions.strings import literal_text, need_text
from riprap.expressions.tree import ArrowKernel, Expression, Value, call
from riprap.expressions.types import BOOLEAN, STRING

_END = r"Write \z for the end of the text: in Java $ also matches before a last line break"
_FEWER = "Java and RE2 differ there: write + for *"
_MOST_GROUPS = 9  # that RE2's replacements can name


def rlike(text: Expression, pattern: Expression) -> Expression:
    """Build `text rlike 'pattern'`: whether some part of the text matches."""
    need_text("rlike", (text,))
    kernel = _to_the_end(pc.match_substring_regex, _pattern("rlike", pattern), "none")
    return call(f"{text.operand} rlike {pattern.sql}", BOOLEAN, kernel, text, atomic=False)


def regexp_like(arguments: Sequence[Expression]) -> Expression:
    return rlike(*arguments)


def regexp_extract(arguments: Sequence[Expression]) -> Expression:
    """Build `regexp_extract(text, 'pattern', group)`: of the first match; an empty text where there is none."""
    text, pattern, *rest = arguments
    need_text("regexp_extract", (text,))
    read = _pattern("regexp_extract", pattern)
    group = literal_int("regexp_extract", rest[0]) if rest else 1
    if not 0 <= group <= read.groups:
        raise Misuse(
            f"regexp_extract asks for group {group}, {pattern.sql} has {read.groups}",
            "Put ( ) around what is wanted, or ask for group 0, which is all of the match",
        )
    sql = f"regexp_extract({', '.join(each.sql for each in arguments)})"
    return call(sql, STRING, _to_the_end(_extract, read, group), text)


def regexp_replace(arguments: Sequence[Expression]) -> Expression:
    """Build `regexp_replace(text, 'pattern', 'replacement')`: of every match; `$1` is a group of it."""
    text, pattern, by = arguments
    need_text("regexp_replace", (text,))
    read = _pattern("regexp_replace", pattern)
    _check_searched("regexp_replace", read)
    replacement = _replacement(read, literal_text("regexp_replace", by))
    kernel = partial(pc.replace_substring_regex, pattern=_written(read, "all"), replacement=replacement)
    return call(f"regexp_replace({text.sql}, {pattern.sql}, {by.sql})", STRING, kernel, text)


def split(arguments: Sequence[Expression]) -> Expression:
    """Build `split(text, 'pattern', limit)`: what stands between the matches, in at most so many parts."""
    text, pattern, *rest = arguments
    need_text("split", (text,))
    read = _pattern("split", pattern)
    _check_searched("split", read)
    if read.placed:
        raise Misuse(f"split by {pattern.sql}, which looks at more than the match", "Leave out ^, $ and \\b")
    limit = literal_int("split", rest[0]) if rest else -1
    sql = f"split({', '.join(each.sql for each in arguments)})"
    kernel = partial(_split, pattern=_written(read), limit=limit)
    return call(sql, pa.list_(STRING), kernel, text)


def _pattern(name: str, argument: Expression) -> Pattern:
    return read_pattern(literal_text(name, argument))


def _to_the_end(kernel: ArrowKernel, pattern: Pattern, capture: Capture) -> ArrowKernel:
    """Give a kernel its pattern, or two of them if there is a `$` in it."""
    plain = partial(kernel, pattern=_written(pattern, capture))
    if not pattern.ends:
        return plain
    return partial(
        _by_end, plain=plain, returned=partial(kernel, pattern=_written(pattern, capture, returned=True))
    )


def _by_end(value: Value, *, plain: ArrowKernel, returned: ArrowKernel) -> Value:
    ends = pc.ends_with(value, "\r\n")
    results = plain(value)
    return pc.if_else(ends, returned(value), results) if pc.any(ends, min_count=0).as_py() else results


def _written(pattern: Pattern, capture: Capture = "none", *, returned: bool = False) -> str:
    """Write the pattern for RE2, and see whether it takes it: a pattern may be too large."""
    written = pattern.written(capture, returned=returned)
    try:
        pc.match_substring_regex(pa.array([""]), pattern=written)
    except pa.ArrowInvalid as error:
        raise Misuse(
            f"RE2 does not take the regular expression {pattern.source!r}: {error}", "Make it smaller"
        ) from None
    return written


def _check_searched(name: str, pattern: Pattern) -> None:
    """Refuse patterns for which the second match is elsewhere in RE2 than in Java."""
    if pattern.ends:
        raise Misuse(f"{name} by a pattern with $: {pattern.source!r}", _END)
    if pattern.empty:
        raise Misuse(f"{name} by a pattern that can match an empty text: {pattern.source!r}", _FEWER)


def _replacement(pattern: Pattern, text: str) -> str:
    r"""Turn Java's `$1`, `${name}` and `\$` into RE2's `\1` and characters."""
    parts: list[str] = []
    at = 0
    while at < len(text):
        character = text[at]
        if character == "\\":
            if at + 1 == len(text):
                raise Misuse(f"replacement {text!r} ends with a backslash", r"Write \\ for the character")
            parts.append("\\\\" if text[at + 1] == "\\" else text[at + 1])
            at += 2
        elif character == "$":
            group, at = _group(pattern, text, at + 1)
            parts.append(f"\\{group}")
        else:
            parts.append(character)
            at += 1
    return "".join(parts)


def _group(pattern: Pattern, text: str, at: int) -> tuple[int, int]:
    """Read the group after a `$`: a name, or as many digits as make the number of a group there is."""
    if text[at : at + 1] == "{":
        stop = text.find("}", at)
        group = pattern.names.get(text[at + 1 : max(stop, at)], -1)
        stop += 1
    else:
        group, stop = -1, at
        while text[stop : stop + 1].isdigit() and int(text[at : stop + 1]) <= pattern.groups:
            group, stop = int(text[at : stop + 1]), stop + 1
    if not 0 <= group <= _MOST_GROUPS:
        raise Misuse(
            f"replacement {text!r} names a group that {pattern.source!r} does not have",
            rf"Groups are $0 to ${min(pattern.groups, _MOST_GROUPS)}; write \$ for the character",
        )
    return group, stop


def _extract(value: Value, *, pattern: str) -> Value:
    groups = pc.struct_field(pc.extract_regex(value, pattern=pattern), 0)
    return pc.if_else(pc.is_valid(value), pc.fill_null(groups, ""), pa.scalar(None, STRING))


def _split(value: Value, *, pattern: str, limit: int) -> Value:
    return pc.split_pattern_regex(value, pattern=pattern, max_splits=limit - 1 if limit > 0 else None)
