"""What a connector promises when something fails, as data: for protection, for `riprap operators`, for the pages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from riprap.errors import GraphError

Word = Literal["replays", "forgets", "replaces", "once", "repeats"]

SOURCE_WORDS: Mapping[Word, str] = {
    "replays": "can be read again from where a run stopped",
    "forgets": "what came while nobody read is lost",
}
SINK_WORDS: Mapping[Word, str] = {
    "replaces": "a repeated batch takes the place of the first",
    "once": "refuses a repeated batch",
    "repeats": "the newest batch may come again",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """What holds after a failure: in a word, and for people who ask what that means here.

    ``word`` is one of ``SOURCE_WORDS`` or of ``SINK_WORDS``. ``why_not`` says what is missing where it is one of the
    weaker ones, *forgets* and *repeats*.

    >>> print(rr.Promise(word="repeats", why_not="what was shown cannot be taken back"))
    repeats: what was shown cannot be taken back
    """

    word: Word
    call: str = ""
    does: str = ""
    after_failure: str = ""
    why_not: str = ""

    def __post_init__(self) -> None:
        words = {**SOURCE_WORDS, **SINK_WORDS}
        if self.word not in words:
            raise GraphError(f"Promise(word=...) is one of {', '.join(words)}, got {self.word!r}")
        if bool(self.why_not) != (self.word in ("forgets", "repeats")):
            raise GraphError(
                f"Promise(why_not=...) must go with 'forgets' and 'repeats', and with no other word, got {self}"
            )

    def __str__(self) -> str:
        return f"{self.word}: {self.why_not}" if self.why_not else self.word
