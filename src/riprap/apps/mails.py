"""Make a folder of mails: files of text whose words are as unevenly frequent as real ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

_COMMON = [
    "the", "of", "and", "to", "in", "a", "is", "that", "for", "it", "as", "was", "with", "be", "by", "on",
    "not", "he", "i", "this", "are", "or", "his", "from", "at", "which", "but", "have", "an", "had", "they",
    "you", "were", "their", "one", "all", "we", "can", "her", "has", "there", "been", "if", "more", "when",
    "will", "would", "who", "so", "no", "please", "meeting", "contract", "price", "gas", "power", "thanks",
    "attached", "office", "call", "week", "report",
]  # fmt: skip
_PEOPLE = ("anna", "ben", "carla", "dmitri", "eva", "farid", "grace", "hugo")
_THINGS = ("deal", "order", "invoice", "project", "account", "site", "pump", "well")
_WORDS_A_LINE = 12


def make_mail(number: int, *, seed: int = 0) -> str:
    r"""Make a mail; the same number and seed give the same one.

    >>> make_mail(7).partition("\n")[0]
    'Message-ID: <7.0@example.org>'
    """
    draw = np.random.default_rng([seed, number])
    sender, receiver = draw.choice(_PEOPLE, 2).tolist()
    subject = " ".join(_text(draw, 5)).capitalize()
    head = (
        f"Message-ID: <{number}.{seed}@example.org>\nFrom: {sender}@example.org\nTo: {receiver}@example.org\n"
        f"Subject: {subject}\n\n{receiver.capitalize()},\n\n"
    )
    lines = (_line(_text(draw, _WORDS_A_LINE)) for _ in range(int(draw.integers(2, 40))))
    return head + "\n".join(lines) + f"\n\n{sender.capitalize()}\n"


def write_mails(
    folder: Path, mails: int, *, seed: int = 0, progress: Callable[[int], None] | None = None
) -> None:
    """Write mails as ``folder``/00001.txt and so on; ``progress`` hears how many are written."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(1, mails + 1):
        (folder / f"{number:05d}.txt").write_text(make_mail(number, seed=seed))
        if progress is not None:
            progress(number)


def _text(draw: np.random.Generator, words: int) -> list[str]:
    # As in real text: the word of rank r is about 1/r as frequent as the first.
    picked: list[str] = draw.choice(_VOCABULARY, words, p=_FREQUENCY).tolist()
    return picked


def _line(words: list[str]) -> str:
    return " ".join(words).capitalize() + "."


_VOCABULARY = np.array([*_COMMON, *(f"{thing}{n}" for n in range(200) for thing in _THINGS)])
_FREQUENCY = 1 / np.arange(2.7, 2.7 + len(_VOCABULARY))
_FREQUENCY /= _FREQUENCY.sum()
