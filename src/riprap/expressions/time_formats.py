"""Read the patterns of dates and times that Java and Spark have, such as ``dd/MMM/yyyy:HH:mm:ss Z``."""

from __future__ import annotations

import re
from itertools import groupby

from riprap.expressions.errors import Misuse

_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_NUMBERS = {
    **{"yyyy": ("year", 4), "MM": ("month", 2), "dd": ("day", 2), "HH": ("hour", 2), "hh": ("clock", 2)},
    **{"mm": ("minute", 2), "ss": ("second", 2)},
    **{
        "M": ("month", 0),
        "d": ("day", 0),
        "H": ("hour", 0),
        "h": ("clock", 0),
        "m": ("minute", 0),
        "s": ("second", 0),
    },
}
_OFFSETS = {
    "Z": r"(?P<side>[+-])(?P<hours>[0-9]{2})(?P<minutes>[0-9]{2})",
    "XXX": r"(?:Z|(?P<side>[+-])(?P<hours>[0-9]{2}):(?P<minutes>[0-9]{2}))",
    "XX": r"(?:Z|(?P<side>[+-])(?P<hours>[0-9]{2})(?P<minutes>[0-9]{2}))",
    "X": r"(?:Z|(?P<side>[+-])(?P<hours>[0-9]{2})(?P<minutes>[0-9]{2})?)",
}
_NAMES = {
    "MMM": "(?P<name>" + "|".join(name[:3] for name in _MONTHS) + ")",
    "MMMM": "(?P<name>" + "|".join(_MONTHS) + ")",
    "a": "(?P<half>AM|PM)",
}
_KNOWN = "yyyy M MM MMM MMMM d dd H HH h hh m mm s ss S (up to nine) a X XX XXX Z, and 'text'"
_MOST_DIGITS = 9


def read_format(text: str) -> str:
    """Turn a pattern into a regular expression for RE2 with a named group for each field.

    >>> read_format("yyyy-MM-dd")
    '(?i)\\\\A(?P<sign>-?)(?P<year>[0-9]{4})\\\\-(?P<month>[0-9]{2})\\\\-(?P<day>[0-9]{2})\\\\z'
    """
    parts: list[str] = []
    tokens = _tokens(text)
    for token, following in zip(tokens, [*tokens[1:], "'"], strict=True):
        if token[0] == "'":
            parts.append("".join(_literally(each) for each in token[1:]))
        elif token in _NUMBERS:
            name, digits = _NUMBERS[token]
            if not digits and following[0] != "'":
                raise Misuse(
                    f"format {text!r}: {token} takes any number of digits, and {following} follows",
                    "Put a separator between them, or write two letters",
                )
            sign = "(?P<sign>-?)" if name == "year" else ""
            parts.append(f"{sign}(?P<{name}>[0-9]{f'{{{digits}}}' if digits else '{1,18}'})")
        elif token in _OFFSETS or token in _NAMES:
            parts.append(_OFFSETS.get(token) or _NAMES[token])
        elif set(token) == {"S"} and len(token) <= _MOST_DIGITS:
            parts.append(f"(?P<fraction>[0-9]{{1,{len(token)}}})")
        else:
            raise Misuse(f"format {text!r} has {token}, which is not supported", f"There are: {_KNOWN}")
    _check(text, "".join(parts))
    return rf"(?i)\A{''.join(parts)}\z"


def _tokens(text: str) -> list[str]:
    """Cut a pattern into runs of one letter, and literals, which begin with a quote here."""
    tokens: list[str] = []
    for number, piece in enumerate(re.split(r"'((?:[^']|'')*)'", text)):
        if number % 2:
            tokens.append("'" + (piece.replace("''", "'") or "'"))
            continue
        for letter, run in groupby(piece):
            width = len(list(run))
            if letter in "'[]{}#":
                raise Misuse(f"format {text!r} has {letter}", f"There are: {_KNOWN}")
            plain = not (letter.isascii() and letter.isalpha())
            tokens.append("'" + letter * width if plain else letter * width)
    return tokens


def _literally(character: str) -> str:
    return re.escape(character) if character.isascii() else f"\\x{{{ord(character):x}}}"


def _check(text: str, pattern: str) -> None:
    names = re.findall(r"\?P<(\w+)>", pattern)
    months = [name for name in names if name in ("month", "name")]
    if len(set(names)) < len(names) or len(months) > 1:
        raise Misuse(f"format {text!r} has a field twice", "Leave one of them out")
    if "year" not in names:
        raise Misuse(
            f"format {text!r} has no year", "Put one before the text: '2020 ' || x, with yyyy in the format"
        )
    if ("clock" in names) != ("half" in names) or ("hour" in names and "clock" in names):
        raise Misuse(f"format {text!r} has half a clock", "h goes with a, and H without")


def month_numbers() -> dict[str, str]:
    """Return the number of each month, by the first three letters of its name in capitals."""
    return {name[:3].upper(): str(number + 1) for number, name in enumerate(_MONTHS)}
