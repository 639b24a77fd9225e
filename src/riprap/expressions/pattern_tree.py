"""A regular expression of Java's, which Spark uses, as a tree that can be written for RE2, which Arrow uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from riprap.expressions.errors import Misuse

Ranges = tuple[tuple[int, int], ...]
Capture = Literal["none", "all"] | int

LAST = 0x10FFFF
BREAKS: Ranges = ((10, 10), (13, 13), (0x85, 0x85), (0x2028, 0x2029))
UPPER: Ranges = ((65, 90),)
LOWER: Ranges = ((97, 122),)


@dataclass(frozen=True, slots=True)
class Atom:
    """One character of a set."""

    text: str


@dataclass(frozen=True, slots=True)
class Boundary:
    """A place between characters."""

    text: str


@dataclass(frozen=True, slots=True)
class End:
    """``$``: the end of the text, or before the line break that ends it."""


@dataclass(frozen=True, slots=True)
class PatternGroup:
    body: PatternNode
    number: int | None


@dataclass(frozen=True, slots=True)
class Repeat:
    item: PatternNode
    suffix: str
    least: int


@dataclass(frozen=True, slots=True)
class Concatenation:
    items: tuple[PatternNode, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    options: tuple[PatternNode, ...]


PatternNode = Atom | Boundary | End | PatternGroup | Repeat | Concatenation | Choice


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """A regular expression as Java reads it, to be written for RE2.

    >>> from riprap.expressions.patterns import read_pattern
    >>> read_pattern("user=(.)[^0-9]*").written(capture=1)
    'user\\\\x{3d}(?P<g>[^\\\\x{a}\\\\x{d}\\\\x{85}\\\\x{2028}-\\\\x{2029}])[^0-9]*'
    """

    source: str
    root: PatternNode
    groups: int
    names: Mapping[str, int]

    @property
    def empty(self) -> bool:
        """Whether it can match an empty text."""
        return can_be_empty(self.root)

    @property
    def placed(self) -> bool:
        """Whether it looks at what stands before or after a match."""
        return any(isinstance(node, Boundary | End) for node in _walk(self.root))

    @property
    def ends(self) -> bool:
        """Whether it has a ``$``."""
        return any(isinstance(node, End) for node in _walk(self.root))

    def written(self, capture: Capture = "none", *, returned: bool = False) -> str:
        """Write it for RE2; ``capture`` is the group to be called g (0 is the whole match), or all, or none.

        Where it has a ``$``, what is written holds for texts that end in a carriage return and a newline, if
        ``returned``, or for all others: Java's ``$`` never stands between those two.
        """
        writer = _Writer(capture=capture, end=r"(?:\r\n)?\z" if returned else rf"{write_set(BREAKS)}?\z")
        if capture != 0:
            return writer.write(self.root, tail=True, captured=False)
        items = self.root.items if isinstance(self.root, Concatenation) else (self.root,)
        last = items[-1:] if items and isinstance(items[-1], End) else ()
        body = writer.write(Concatenation(items[: len(items) - len(last)]), tail=False, captured=True)
        return f"(?P<g>{body})" + (writer.end if last else "")


def _walk(node: PatternNode) -> Sequence[PatternNode]:
    below: Sequence[PatternNode] = ()
    if isinstance(node, PatternGroup):
        below = (node.body,)
    elif isinstance(node, Repeat):
        below = (node.item,)
    elif isinstance(node, Concatenation):
        below = node.items
    elif isinstance(node, Choice):
        below = node.options
    return [node, *(each for child in below for each in _walk(child))]


def can_be_empty(node: PatternNode) -> bool:
    if isinstance(node, Atom):
        return False
    if isinstance(node, PatternGroup):
        return can_be_empty(node.body)
    if isinstance(node, Repeat):
        return node.least == 0 or can_be_empty(node.item)
    if isinstance(node, Concatenation):
        return all(can_be_empty(each) for each in node.items)
    if isinstance(node, Choice):
        return any(can_be_empty(each) for each in node.options)
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class _Writer:
    capture: Capture
    end: str

    def write(self, node: PatternNode, *, tail: bool, captured: bool) -> str:
        """Write a node; ``tail`` says that nothing follows it, ``captured`` that it is part of the wanted group."""
        if isinstance(node, Atom | Boundary):
            return node.text
        if isinstance(node, End):
            if not tail or captured:
                raise Misuse(
                    "$ stands elsewhere than at the end of the regular expression, or in the group that is asked for",
                    r"Write \z for the end of the text: in Java $ also matches before a last line break",
                )
            return self.end
        if isinstance(node, PatternGroup):
            wanted = node.number is not None and self.capture == node.number
            plain = "(" if self.capture == "all" and node.number is not None else "(?:"
            body = self.write(node.body, tail=tail, captured=captured or wanted)
            return f"{'(?P<g>' if wanted else plain}{body})"
        if isinstance(node, Repeat):
            return self.write(node.item, tail=False, captured=captured) + node.suffix
        if isinstance(node, Choice):
            return "|".join(self.write(each, tail=tail, captured=captured) for each in node.options)
        last = len(node.items) - 1
        return "".join(
            self.write(each, tail=tail and number == last, captured=captured)
            for number, each in enumerate(node.items)
        )


def write_set(ranges: Ranges, *, negated: bool = False, categories: str = "") -> str:
    """Write a set of characters: ranges of them, and categories of Unicode as RE2 writes those."""
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1] and not negated and not categories:
        return _character(ranges[0][0])
    spans = (_character(low) + (f"-{_character(high)}" if high > low else "") for low, high in ranges)
    return f"[{'^' if negated else ''}{categories}{''.join(spans)}]"


def _character(code: int) -> str:
    return chr(code) if code < 128 and chr(code).isalnum() else rf"\x{{{code:x}}}"


def outside(ranges: Ranges) -> Ranges:
    gaps: list[tuple[int, int]] = []
    free = 0
    for low, high in sorted(ranges):
        if low > free:
            gaps.append((free, low - 1))
        free = max(free, high + 1)
    return (*gaps, (free, LAST)) if free <= LAST else tuple(gaps)


def either_case(ranges: Ranges) -> Ranges:
    """Add the other case of every ASCII letter, as Java's (?i) does; other letters have one case there."""
    letters = [code for low, high in (*UPPER, *LOWER) for code in range(low, high + 1)]
    held = [code for code in letters if any(low <= code <= high for low, high in ranges)]
    return (*ranges, *((code ^ 32, code ^ 32) for code in held))
