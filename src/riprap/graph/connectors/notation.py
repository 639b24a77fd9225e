"""How records are written in files: the options of Spark's readers and writers, under Spark's names.

Two defaults are not Spark's: a CSV file has a header, and a quote inside quotes is written twice (``escape='"'``).
"""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

from riprap.errors import GraphError

_ELSEWHERE = {
    "mode": "on_bad_record='quarantine' or 'fail' says what becomes of records that cannot be read",
    "inferSchema": "say schema=",
    "delimiter": "it is called sep=",
    "charset": "it is called encoding=",
    "samplingRatio": "say schema=",
    "pathGlobFilter": "give a pattern as the path",
    "recursiveFileLookup": "give a pattern with ** as the path",
}
_ELSEWHERE_OF_WRITERS = {
    "mode": "overwrite=True replaces what an earlier run wrote there",
    "delimiter": "it is called sep=",
}


class CsvOptions(TypedDict, total=False):
    """What a CSV record may be told by itself, as a message."""

    sep: str
    quote: str
    escape: str
    nullValue: str | Sequence[str]


class ReadOptions(CsvOptions, total=False):
    """What a file of records may be told besides."""

    header: bool
    comment: str
    multiLine: bool
    encoding: str


class CompressionOptions(TypedDict, total=False):
    """What any file that is written may be told."""

    compression: str


class WriteOptions(CompressionOptions, total=False):
    """What a CSV file that is written may be told besides."""

    sep: str
    header: bool
    nullValue: str
    quoteAll: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Notation:
    """How records are written. Without ``escape`` two quotes inside quotes are one."""

    sep: str = ","
    quote: str | None = '"'
    escape: str | None = None
    comment: str | None = None
    nulls: tuple[str, ...] = ()
    header: bool = True
    multiline: bool = False
    encoding: str = "utf-8"


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """How a table is written to a file. ``null`` is the text for null."""

    sep: str = ","
    header: bool = True
    null: str = ""
    quote_all: bool = False
    compression: str | None = None


PLAIN = Notation()
# Besides letters and digits, what numbers and times are written with.
_IN_VALUES = " +-.:"
_COMPRESSIONS = {
    "parquet": ("snappy", "gzip", "zstd", "lz4", "brotli", "none"),
    "csv": ("none", "gzip"),
    "json": ("none", "gzip"),
}


def notation_of(what: str, format: str, options: Mapping[str, object], *, files: bool = True) -> Notation:
    """Check the options of a reader.

    >>> notation_of("files", "csv", {"sep": ";", "nullValue": "NULL"}).sep
    ';'
    """
    typed = {"csv": ReadOptions if files else CsvOptions}.get(format)
    names = list(typed.__annotations__) if typed else ["encoding"] if format != "parquet" and files else []
    _refuse_unknown(f"{what}(...) of {format}", options, names, _ELSEWHERE)
    given = dict(options)
    nulls = given.pop("nullValue", ())
    nulls = (nulls,) if isinstance(nulls, str) else nulls
    if not isinstance(nulls, Sequence) or not all(isinstance(each, str) for each in nulls):
        raise GraphError(f"{what}(nullValue=...) takes a text or a list of texts, got {nulls!r}")
    quote = _character(what, "quote", given.pop("quote", '"'), empty=True)
    escape = _character(what, "escape", given.pop("escape", quote or ""), empty=True)
    return _apart(
        what,
        Notation(
            sep=_character(what, "sep", given.pop("sep", ",")) or ",",
            quote=quote,
            escape=None if escape == quote else escape,
            comment=_character(what, "comment", given.pop("comment", ""), empty=True),
            nulls=tuple(nulls),
            header=_truth(what, "header", given.pop("header", True)),
            multiline=_truth(what, "multiLine", given.pop("multiLine", False)),
            encoding=_encoding(what, given.pop("encoding", "utf-8")),
        ),
    )


def writing_of(format: str, options: Mapping[str, object]) -> Writing:
    """Check the options of a writer.

    >>> writing_of("csv", {"compression": "gzip", "header": False}).compression
    'gzip'
    """
    names = (WriteOptions if format == "csv" else CompressionOptions).__annotations__
    if format == "csv":
        names = {**CompressionOptions.__annotations__, **names}
    _refuse_unknown(f"{format}(...)", options, list(names), _ELSEWHERE_OF_WRITERS)
    kinds = _COMPRESSIONS[format]
    compression = options.get("compression", kinds[0])
    compression = "none" if compression == "uncompressed" else compression
    if compression not in kinds:
        raise GraphError(f"{format}(compression=...) is one of {', '.join(kinds)}, got {compression!r}")
    null = options.get("nullValue", "")
    if not isinstance(null, str) or any(c in null for c in '"\r\n'):
        raise GraphError(f"csv(nullValue=...) takes a text without quotes and line breaks, got {null!r}")
    sep = _character("csv", "sep", options.get("sep", ",")) or ","
    quote_all = _truth("csv", "quoteAll", options.get("quoteAll", False))
    if sep == '"':
        raise GraphError('csv(sep=...) cannot be the quote, "')
    if sep in null:
        raise GraphError(
            f"csv(nullValue={null!r}) has the separator {sep!r} in it, and null is not in quotes"
        )
    if not quote_all and (sep.isalnum() or sep in _IN_VALUES):
        raise GraphError(
            f"csv(sep={sep!r}) may be part of a number or a time, which are not in quotes: say quoteAll=True besides"
        )
    return Writing(
        sep=sep,
        header=_truth("csv", "header", options.get("header", True)),
        null=null,
        quote_all=quote_all,
        compression=None if compression == "none" else str(compression),
    )


def _refuse_unknown(
    what: str, options: Mapping[str, object], names: Sequence[str], elsewhere: Mapping[str, str]
) -> None:
    """Refuse options that do not exist, and list those that do."""
    unknown = [name for name in options if name not in names]
    if unknown:
        listed = f"There are {', '.join(sorted(names))}" if names else "It has none"
        hint = elsewhere.get(unknown[0], listed)
        raise GraphError(f"{what} has no option '{unknown[0]}': {hint}")


def _truth(what: str, name: str, value: object) -> bool:
    """Check a boolean, which Spark also takes as text."""
    truth = {"true": True, "false": False}.get(str(value).lower())
    if truth is None:
        raise GraphError(f"{what}({name}=...) is True or False, got {value!r}")
    return truth


def _character(what: str, name: str, value: object, *, empty: bool = False) -> str | None:
    if empty and value in ("", None):
        return None
    if not isinstance(value, str) or len(value) != 1 or not value.isascii() or value in "\r\n\0":
        raise GraphError(f"{what}({name}=...) takes one ASCII character, such as ';' or '\\t', got {value!r}")
    return value


def _encoding(what: str, value: object) -> str:
    try:
        name = codecs.lookup(value).name  # type: ignore[arg-type]
        # Python has codecs of other things than text, such as "hex", and of less than lines, such as "punycode".
        same = codecs.getincrementaldecoder(name)("replace").decode("a\n".encode(name), final=True) == "a\n"
    except (LookupError, TypeError, ValueError):
        same = False
    if not same:
        raise GraphError(f"{what}(encoding=...) takes a name such as 'ISO-8859-1' or 'UTF-16', got {value!r}")
    return name


def _apart(what: str, notation: Notation) -> Notation:
    marks = [m for m in (notation.sep, notation.quote, notation.escape, notation.comment) if m is not None]
    if len(set(marks)) < len(marks):
        raise GraphError(
            f"{what}(...): sep, quote, escape and comment must be different characters, got {marks}"
        )
    if notation.escape is not None and notation.quote is None:
        raise GraphError(f"{what}(escape=...) is for text in quotes, and quote= says that there are none")
    return notation
