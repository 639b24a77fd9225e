"""Translate regular expressions of Java, which Spark uses, into those of RE2, which Arrow uses.

Spark searches by backtracking, RE2 in linear time, and their languages differ in many small things. So a pattern is
read as Java reads it and written anew with RE2's means: a dot that stops at every line break of Java, letters of either
case by ASCII, and so on. What RE2 cannot do, or does otherwise, is refused with the reason; but for ``\\b``, which goes
by ASCII as in Java from 19 on, while older ones look at other letters too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from riprap.expressions.errors import Misuse
from riprap.expressions.pattern_tree import (
    BREAKS,
    LAST,
    LOWER,
    UPPER,
    Atom,
    Boundary,
    Choice,
    Concatenation,
    End,
    Pattern,
    PatternGroup,
    PatternNode,
    Ranges,
    Repeat,
    can_be_empty,
    either_case,
    outside,
    write_set,
)

_SPACES: Ranges = ((9, 13), (32, 32))
_DIGITS: Ranges = ((48, 57),)
_WORD: Ranges = (*_DIGITS, *UPPER, (95, 95), *LOWER)
_CLASSES: Mapping[str, Ranges] = {"d": _DIGITS, "s": _SPACES, "w": _WORD}
_POSIX: Mapping[str, Ranges] = {
    "Lower": LOWER,
    "Upper": UPPER,
    "Alpha": (*UPPER, *LOWER),
    "Digit": _DIGITS,
    "Alnum": (*_DIGITS, *UPPER, *LOWER),
    "Punct": ((33, 47), (58, 64), (91, 96), (123, 126)),
    "Space": _SPACES,
    "XDigit": (*_DIGITS, (65, 70), (97, 102)),
    "ASCII": ((0, 127),),
}
_CHARACTERS = {"t": 9, "n": 10, "f": 12, "r": 13, "a": 7, "e": 27}
_MOST_REPEATS = 1000  # RE2's limit
_NOT_IN_RE2 = {
    "(?=": "lookahead",
    "(?!": "lookahead",
    "(?<=": "lookbehind",
    "(?<!": "lookbehind",
    "(?>": "an atomic group",
}


def read_pattern(source: str) -> Pattern:
    """Read a pattern of Java's, or raise Misuse that says what of it RE2 does not have."""
    reader = _PatternReader(source)
    root = reader.choice()
    if reader.at < len(source):
        raise reader.misuse("a ) that closes nothing", r"Write \)")
    return Pattern(source=source, root=root, groups=reader.groups, names=dict(reader.names))


@dataclass(slots=True)
class _PatternReader:
    """Read a pattern from left to right; flags hold until the group ends in which they were set."""

    source: str
    at: int = 0
    groups: int = 0
    names: dict[str, int] = field(default_factory=dict)
    any_case: bool = False
    dot_all: bool = False

    def misuse(self, problem: str, hint: str = "") -> Misuse:
        return Misuse(f"regular expression {self.source!r} has {problem}", hint)

    def starts(self, text: str) -> bool:
        return self.source.startswith(text, self.at)

    def take(self, text: str) -> bool:
        if not self.starts(text):
            return False
        self.at += len(text)
        return True

    def next(self, why: str) -> str:
        if self.at >= len(self.source):
            raise self.misuse(f"no end: {why}")
        self.at += 1
        return self.source[self.at - 1]

    def choice(self) -> PatternNode:
        """Read alternatives up to the end or to a closing parenthesis, and let their flags go."""
        flags = self.any_case, self.dot_all
        options = [self.run()]
        while self.take("|"):
            options.append(self.run())
        self.any_case, self.dot_all = flags
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def run(self) -> PatternNode:
        items: list[PatternNode] = []
        while self.at < len(self.source) and not self.starts("|") and not self.starts(")"):
            if self.take("\\Q"):
                stop = self.source.find("\\E", self.at)
                literal = self.source[self.at : stop if stop >= 0 else None]
                self.at = stop + 2 if stop >= 0 else len(self.source)
                items += [self.character(ord(each)) for each in literal]
                if not literal or not items:
                    continue
                items.append(self.repeated(items.pop()))
            else:
                item = self.item()
                if item is not None:
                    items.append(self.repeated(item))
        return Concatenation(tuple(items))

    def item(self) -> PatternNode | None:
        """Read what stands between quantifiers; None for flags."""
        start = self.at
        character = self.next("")
        if character == "(":
            return self.group()
        if character == "[":
            return self.set()
        if character == ".":
            return Atom(write_set(((0, LAST),)) if self.dot_all else write_set(BREAKS, negated=True))
        if character == "^":
            return Boundary(r"\A")
        if character == "$":
            return End()
        if character == "\\":
            return self.escape()
        if character in "*+?{":
            self.at = start
            raise self.misuse(f"a {character} that repeats nothing", f"Write \\{character}")
        return self.character(ord(character))

    def character(self, code: int) -> Atom:
        ranges: Ranges = ((code, code),)
        return Atom(write_set(either_case(ranges) if self.any_case else ranges))

    def repeated(self, item: PatternNode) -> PatternNode:
        """Read the quantifier of an item, if it has one."""
        sign = next((each for each in "*+?{" if self.take(each)), None)
        if sign is None:
            return item
        least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(sign) or self.counts()
        suffix = sign if sign != "{" else f"{{{least},{'' if most is None else most}}}"
        if self.starts("+"):
            raise self.misuse("a possessive quantifier", "RE2 has none: leave out the second +")
        suffix += "?" if self.take("?") else ""
        if isinstance(item, Boundary | End):
            raise self.misuse("a quantifier of a place between characters", "Leave it out")
        if can_be_empty(item) and most != 1:
            raise self.misuse(
                "a repetition of what can be empty",
                "Java and RE2 differ there: write (a+)* or a* for (a*)*, and (a|b)* for (a|b|)*",
            )
        if self.at < len(self.source) and self.source[self.at] in "*+?{":
            raise self.misuse("a quantifier of a quantifier", "Write one")
        return Repeat(item, suffix, least)

    def counts(self) -> tuple[int, int | None]:
        stop = self.source.find("}", self.at)
        low, comma, high = self.source[self.at : max(stop, self.at)].partition(",")
        if not (low.isascii() and low.isdigit()) or (high and not (high.isascii() and high.isdigit())):
            raise self.misuse("a { that is no count", r"Write \{, or {2}, {2,} or {2,5}")
        self.at = stop + 1
        least, most = int(low), int(high) if high else (None if comma else int(low))
        if max(least, most or 0) > _MOST_REPEATS or (most is not None and most < least):
            raise self.misuse(
                f"a count {{{low}{comma}{high}}}", f"Counts are up to {_MOST_REPEATS}, the lesser first"
            )
        return least, most

    def group(self) -> PatternNode | None:
        opening = "(" + self.source[self.at : self.at + 3]
        for text, what in _NOT_IN_RE2.items():
            if opening.startswith(text):
                raise self.misuse(what, "RE2 has none: match more, and ask for a group of it")
        number: int | None = None
        if not self.take("?"):
            number = self.groups = self.groups + 1
            return self.closed(number)
        if self.take("<"):
            stop = self.source.find(">", self.at)
            name = self.source[self.at : max(stop, self.at)]
            if not (name.isascii() and name.isalnum() and name[0].isalpha()) or name in self.names:
                raise self.misuse(
                    f"a group named {name!r}", "A name has ASCII letters and digits, and is there once"
                )
            self.at = stop + 1
            number = self.groups = self.groups + 1
            self.names[name] = number
            return self.closed(number)
        if self.take(":"):
            return self.closed(None)
        return self.flags()

    def closed(self, number: int | None) -> PatternNode:
        body = self.choice()
        if not self.take(")"):
            raise self.misuse("a ( that is not closed", r"Write \( for the character")
        return PatternGroup(body, number)

    def flags(self) -> PatternNode | None:
        """Read ``(?i)``, which holds up to the end of the group around it, or ``(?i:...)``."""
        before, on = (self.any_case, self.dot_all), True
        while True:
            flag = self.next("flags are not closed")
            if flag == "-":
                on = False
            elif flag == "i":
                self.any_case = on
            elif flag == "s":
                self.dot_all = on
            elif flag == ")":
                return None
            elif flag == ":":
                group = self.closed(None)
                self.any_case, self.dot_all = before
                return group
            else:
                raise self.misuse(f"the flag (?{flag}", "There are (?i) and (?s)")

    def escape(self) -> PatternNode:
        place = {"A": r"\A", "z": r"\z", "b": r"\b"}.get(self.source[self.at : self.at + 1])
        if place is not None:
            self.at += 1
            return Boundary(place)
        if self.take("Z"):
            return End()
        escaped = self.escaped()
        if isinstance(escaped, int):
            return self.character(escaped)
        return Atom(escaped if isinstance(escaped, str) else write_set(escaped))

    def escaped(self) -> int | Ranges | str:
        """Read what follows a backslash: a character, a set, or a category of Unicode as RE2 writes it."""
        letter = self.next("a backslash is last")
        if letter in _CHARACTERS:
            return _CHARACTERS[letter]
        if letter.lower() in _CLASSES:
            held = _CLASSES[letter.lower()]
            return held if letter.islower() else outside(held)
        if letter in "xu":
            return self.code(letter)
        if letter in "pP":
            return self.category(negated=letter == "P")
        if letter.isascii() and letter.isdigit() and letter != "0":
            raise self.misuse(f"a backreference \\{letter}", "RE2 has none")
        if letter.isascii() and letter.isalnum():
            raise self.misuse(f"\\{letter}", "RE2 has no such escape")
        return ord(letter)

    def code(self, letter: str) -> int:
        if letter == "x" and self.take("{"):
            stop = self.source.find("}", self.at)
            digits, self.at = self.source[self.at : max(stop, self.at)], stop + 1
        else:
            width = 2 if letter == "x" else 4
            digits = self.source[self.at : self.at + width]
            self.at += width
            digits = digits if len(digits) == width else ""
        try:
            code = int(digits, 16)
        except ValueError:
            code = -1
        if not 0 <= code <= LAST or 0xD800 <= code <= 0xDFFF:
            raise self.misuse(f"\\{letter} without a character's number", r"Write \x41, \x{1f600} or \u0041")
        return code

    def category(self, *, negated: bool) -> Ranges | str:
        name = self.next("a category is missing")
        if name == "{":
            stop = self.source.find("}", self.at)
            name, self.at = self.source[self.at : max(stop, self.at)], stop + 1
        if self.any_case:
            raise self.misuse(f"\\p{{{name}}} under (?i)", "Java and RE2 differ there: name both cases")
        if name in _POSIX:
            return outside(_POSIX[name]) if negated else _POSIX[name]
        if name in ("L", "Lu", "Ll", "N", "Nd", "P", "S", "Z"):
            return rf"\{'P' if negated else 'p'}{{{name}}}"
        names = ", ".join([*_POSIX, "L", "Lu", "Ll", "N", "Nd", "P", "S", "Z"])
        raise self.misuse(f"the category \\p{{{name}}}", f"There are: {names}")

    def set(self) -> Atom:
        """Read ``[...]``; Java's sets inside of sets, and what they have in common, are refused."""
        negated, first = self.take("^"), self.at
        ranges: list[tuple[int, int]] = []
        categories = ""
        while self.at == first or not self.take("]"):
            low = self.member()
            if isinstance(low, str):
                categories += low
            elif isinstance(low, tuple):
                ranges += low
            elif self.starts("-") and not self.starts("-]"):
                self.at += 1
                high = self.member()
                if not isinstance(high, int) or high < low:
                    raise self.misuse("a range that does not rise", r"Write \- for the character")
                ranges.append((low, high))
            else:
                ranges.append((low, low))
        held = either_case(tuple(ranges)) if self.any_case else tuple(ranges)
        return Atom(write_set(held, negated=negated, categories=categories))

    def member(self) -> int | Ranges | str:
        if self.starts("&&"):
            raise self.misuse("&& in a set", "RE2 has none: write the set itself")
        character = self.next("a set [ is not closed")
        if character in "[]":
            raise self.misuse(f"a {character} in a set", f"Write \\{character}")
        return self.escaped() if character == "\\" else ord(character)
